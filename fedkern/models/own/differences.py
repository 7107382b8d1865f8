"""Computes derivatives of a function that only has values, by differences at four points along each direction.

Along a direction a function's values at -2h, -h, h and 2h give its first derivative with an error of h^4 / 30 of the fifth one,
and with f(0) its second one with an error of h^4 / 90 of the sixth; rounding adds eps |f| / h, or / h^2. The step h is looked for
first, for each coordinate: where the function bends by about 1e-4 nats between the points, .01 standard deviations of a
likelihood, and changes by no more than .03 (where it does not bend, that says how long the step is). Errors are then some 1e-6
of a standard deviation near a mode, for values up to 1e4 nats, and larger where a coordinate bends little and turns quickly. A
mixed derivative is that along the sum of two coordinates, less those along each.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...arrays import Array

Function = Callable[[Array], Array]  # points (n, P) -> (n,)

BEND, CHANGE = 1e-4, 0.03  # nats: the aim of second differences, and the most of first ones
BEGIN, TRIES = 1e-2, 6  # the first step, of the coordinate's size or 1; how often it is changed
KNOWN = 1e3  # times a value's rounding, above which a difference is no rounding error
SHORTER = 0.1  # a step where gradients are known, whose first differences lose fewer digits
FARTHER, LEAST, MOST = 100.0, 1e-9, 1e4  # by which a step changes at once; its bounds
TOGETHER = 8192  # points in one call


def steps(values: Function, points: Array, heights: Array) -> Array:
    """Returns (c, P) the step in each coordinate at points (c, P), where the values `at` (c,) are known."""
    c, P = points.shape
    unit = np.maximum(1.0, np.abs(points))
    h = BEGIN * unit
    noise = KNOWN * np.finfo(float).eps * np.maximum(1.0, np.abs(heights))[:, np.newaxis]
    for _ in range(TRIES):
        moved = h[:, :, np.newaxis] * np.eye(P)  # (c, coordinate, P)
        both = np.stack([points[:, np.newaxis] + moved, points[:, np.newaxis] - moved])
        plus, minus = _asked(values, both.reshape(-1, P)).reshape(2, c, P)
        with np.errstate(all="ignore"):
            first, second = np.abs(plus - minus) / 2, np.abs(plus - 2 * heights[:, np.newaxis] + minus)
            by_bend = np.where(second > noise, np.sqrt(BEND / second), np.inf)
            by_change = np.where(first > noise, CHANGE / first, np.inf)
        factor = np.minimum(by_bend, by_change)
        factor = np.where(np.isfinite(plus) & np.isfinite(minus), np.where(np.isfinite(factor), factor, 10.0), 0.1)
        h = np.clip(h * np.clip(factor, 1 / FARTHER, FARTHER), LEAST * unit, MOST * unit)
    return h


def gradient(values: Function, points: Array) -> tuple[Array, Array]:
    """Returns (c,) values at points (c, P), and their gradients (c, P)."""
    heights = _asked(values, points)
    h = steps(values, points, heights)
    along = _along(values, points, h[:, :, np.newaxis] * np.eye(points.shape[1]))
    return heights, np.asarray(_first(along) / h)


def curvature(values: Function, points: Array) -> tuple[Array, Array, Array]:
    """Returns (c,) values at points (c, P), their gradients (c, P), and minus their Hessians (c, P, P)."""
    c, P = points.shape
    heights = _asked(values, points)
    h = steps(values, points, heights)
    single = h[:, :, np.newaxis] * np.eye(P)
    i, k = np.triu_indices(P, 1)
    along = _along(values, points, np.concatenate([single, single[:, i] + single[:, k]], axis=1))
    second = (-along[0] + 16 * along[1] - 30 * heights[:, np.newaxis] + 16 * along[2] - along[3]) / 12
    hessian = np.zeros((c, P, P))
    directions = np.arange(P)
    hessian[:, directions, directions] = second[:, :P]
    hessian[:, i, k] = hessian[:, k, i] = (second[:, P:] - second[:, i] - second[:, k]) / 2
    return heights, np.asarray(_first(along[:, :, :P]) / h), -hessian / (h[:, :, np.newaxis] * h[:, np.newaxis, :])


def of_gradients(values: Function, gradients: Callable[[Array], Array], points: Array) -> tuple[Array, Array, Array]:
    """Returns the same for a function that has gradients: points (n, P) -> (n, P)."""
    c, P = points.shape
    heights = _asked(values, points)
    h = SHORTER * steps(values, points, heights)
    moved = _moved(points, h[:, :, np.newaxis] * np.eye(P))
    along = _asked(gradients, moved.reshape(-1, P)).reshape(4, c, P, P)
    slopes = _first(along) / h[:, :, np.newaxis]
    return heights, _asked(gradients, points), -(slopes + slopes.swapaxes(1, 2)) / 2


def _moved(points: Array, directions: Array) -> Array:
    """(4, c, D, P) Points at -2, -1, 1 and 2 times directions (c, D, P)."""
    return np.stack([points[:, np.newaxis] + times * directions for times in (-2, -1, 1, 2)])


def _along(values: Function, points: Array, directions: Array) -> Array:
    """(4, c, D) Values at the points of `_moved`."""
    moved = _moved(points, directions)
    return _asked(values, moved.reshape(-1, points.shape[1])).reshape(moved.shape[:3])


def _first(along: Array) -> Array:
    """First derivatives times the step, from values (4, ..)."""
    return np.asarray((along[0] - 8 * along[1] + 8 * along[2] - along[3]) / 12)


def _asked(function: Function, points: Array) -> Array:
    """A function's values at many points, asked for in parts."""
    return np.concatenate([function(points[k : k + TOGETHER]) for k in range(0, len(points), TOGETHER)])
