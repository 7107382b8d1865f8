"""Mean-field inference of autoregressive priors with Gaussian observations. docs/methods/sigma.md, sections 3 and 6."""

import numpy as np

from .. import rng
from .car import LEROUX, adjacency, degrees, log_determinant
from .table import numbers


def logit_phi(x, lo, hi, mean, variance):
    """phi, its slope in x, log p(x) but for constants, and its slope."""
    s, other = 1 / (1 + np.exp(-x)), 1 / (1 + np.exp(x))
    phi, rest = lo + (hi - lo) * s, (1 - hi) + (hi - lo) * other
    slope, away = (hi - lo) * s * other, np.log(phi / rest) - mean
    density = -0.5 * away**2 / variance - np.log(phi * rest) + np.log(slope)
    return phi, slope, density, (-away / variance - (rest - phi)) / (phi * rest) * slope + other - s


def bound(y, weight, base, change, logdet, prior, parameters, e, lo, hi, widest):
    """Value and gradient at one draw; Q(phi) = base + phi change."""
    sd = np.exp(parameters[1])
    draw = parameters[0] + sd * e
    theta = draw[:-1]
    phi, slope, density, density_slope = logit_phi(draw[-1], lo, hi, *prior)
    determinant, determinant_slope = log_determinant(phi, logdet, lo, hi, widest)
    Qx, left = (base + phi * change) @ theta, y - theta
    value = 0.5 * (determinant - theta @ Qx - weight @ left**2) + density + parameters[1].sum()
    in_x = 0.5 * (determinant_slope - theta @ change @ theta) * slope + density_slope
    upper = np.append(weight * left - Qx, in_x)
    return value, np.stack([upper, upper * sd * e + 1])


def car_meanfield(
    y, weight, indptr, indices, logdet, parameters, moments, rates, form, lo, hi, widest, prior_mean, prior_variance, seed,
    chain, first, new_parameters, new_moments, trace, n_threads,
):  # fmt: skip
    W, D = adjacency(indptr, indices), np.diag(degrees(indptr))
    identity = np.eye(len(y))
    base, change = (identity, D - W - identity) if form == LEROUX else (D, -W)
    now, (m, v) = np.array(parameters), np.array(moments)
    trace[...] = np.nan
    with np.errstate(all="ignore"):
        for t, rate in enumerate(rates):
            e = numbers(rng.normal, len(y) + 1, "draws", seed, chain, 0, first + t)
            prior = prior_mean, prior_variance
            value, g = bound(y, weight, base, change, logdet, prior, now, e, lo, hi, widest)
            if not np.isfinite(value + abs(g).sum()):
                break
            trace[t] = value
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            count = first + t + 1
            now += rate * (m / (1 - 0.9**count)) / (np.sqrt(v / (1 - 0.999**count)) + 1e-8)
    new_parameters[...], new_moments[...] = now, (m, v)
