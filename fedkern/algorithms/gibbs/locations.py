"""Draws the locations of a site of structural equations: B (y - m) = e, m with a flat prior (docs/spec/sparse.md, section 9).

Given B = I - Theta and b, the components of B m are independent of each other, and each has a density that is exponential between
neighbouring values of its residuals. It is drawn exactly: a piece by its mass, then a place in it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def drawn(Y: Array, coefficients: Array, rates: Array, uniforms: Array) -> Array:
    """Draws the locations m (c, p) of the columns, of each chain.

    Parameters
    ----------
    Y : (p, n) the columns, one row each
    coefficients : (c, p, p) Theta, [to, from], with a zero diagonal
    rates : (c, p) 1 / b, times the power of the likelihood
    uniforms : (c, p, 2) on (0, 1)
    """
    B: Array = np.eye(len(Y)) - coefficients
    centres = laplace_centres(B @ Y, rates, uniforms)
    return np.asarray(np.linalg.solve(B, centres[..., None])[..., 0])


def laplace_centres(values: Array, rates: Array, uniforms: Array) -> Array:
    """Draws x (...) from densities proportional to exp(-rate sum_i |value_i - x|), the posterior of a Laplace centre.

    Parameters
    ----------
    values, rates, uniforms : (..., n), (...) and (..., 2); one uniform chooses the piece, the other the place in it
    """
    n = values.shape[-1]
    knots = np.sort(values, axis=-1)
    rate = rates[..., None]
    slopes = rate * (n - 2 * np.arange(n + 1))  # of the logarithm of the density, left of the first knot and right of each
    widths = np.diff(knots, axis=-1)
    heights = np.concatenate([np.zeros_like(rate), np.cumsum(slopes[..., 1:n] * widths, axis=-1)], axis=-1)
    steep = np.abs(slopes)
    width = np.concatenate([np.full_like(rate, np.inf), widths, np.full_like(rate, np.inf)], axis=-1)
    top = np.concatenate([heights[..., :1], np.maximum(heights[..., 1:], heights[..., :-1]), heights[..., -1:]], axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        part = -np.expm1(-steep * width)  # of an endless piece of the same slope
        mass = np.exp(top - top.max(axis=-1, keepdims=True)) * np.where(steep > 0, part / steep, width)
    passed = np.cumsum(mass, axis=-1)
    piece = np.sum(passed[..., :-1] <= uniforms[..., :1] * passed[..., -1:], axis=-1, keepdims=True)
    slope, share, size = (np.take_along_axis(a, piece, axis=-1)[..., 0] for a in (slopes, part, width))
    left, right = (np.take_along_axis(knots, np.clip(piece + k, 0, n - 1), axis=-1)[..., 0] for k in (-1, 0))
    u = uniforms[..., 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        down = -np.log1p(-u * share) / np.abs(slope)  # from the end at which the piece is higher
        x: Array = np.where(slope > 0, right - down, np.where(slope < 0, left + down, left + u * size))
    return x
