"""Mean-field inference of autoregressive priors with Gaussian observations, for Numba. Public: `logit_phi`."""

import numpy as np

from fedkern._core.rng import streams

from .._jit import loop_ieee, scalar_ieee
from ..rng import stream_key
from .car import check_graph_numbers, log_determinant, quadratic
from .table import fill_normals

__all__ = ["car_meanfield", "logit_phi"]

DRAWS = streams()["draws"]


@scalar_ieee
def logit_phi(x, lo, hi, mean, variance):
    """phi, its slope in x, log p(x) but for constants, and its slope."""
    s, other = 1.0 / (1.0 + np.exp(-x)), 1.0 / (1.0 + np.exp(x))
    phi, rest = lo + (hi - lo) * s, (1.0 - hi) + (hi - lo) * other
    slope, away = (hi - lo) * s * other, np.log(phi / rest) - mean
    density = -0.5 * away * away / variance - np.log(phi * rest) + np.log(slope)
    return phi, slope, density, (-away / variance - (rest - phi)) / (phi * rest) * slope + other - s


@loop_ieee
def steps(y, weight, indptr, indices, logdet, now, moments, rates, form, lo, hi, widest, mean, variance, key, first, trace):
    n = y.size
    k = n + 1
    e, spread, draw, gradient = np.empty(k), np.empty(k), np.empty(k), np.empty((2, k))
    trace[:] = np.nan
    for t in range(rates.size):
        fill_normals(0, k, key, 0, first + t, e)
        value = 0.0
        for i in range(k):
            spread[i] = np.exp(now[1, i]) * e[i]
            draw[i] = now[0, i] + spread[i]
            value += now[1, i]
        phi, slope, density, density_slope = logit_phi(draw[n], lo, hi, mean, variance)
        whole, change = quadratic(draw[:n], phi, indptr, indices, form, gradient[0])
        determinant, determinant_slope = log_determinant(phi, logdet, lo, hi, widest)
        value += density + 0.5 * (determinant - whole)
        for i in range(n):
            left = y[i] - draw[i]
            gradient[0, i] += weight[i] * left
            value -= 0.5 * weight[i] * left * left
        gradient[0, n] = 0.5 * (determinant_slope - change) * slope + density_slope
        size = abs(value)
        for i in range(k):
            gradient[1, i] = gradient[0, i] * spread[i] + 1.0
            size += abs(gradient[0, i]) + abs(gradient[1, i])
        if not size < np.inf:
            return
        trace[t] = value
        count = first + t + 1.0
        scale, correction = -rates[t] / np.expm1(count * np.log(0.9)), -1.0 / np.expm1(count * np.log(0.999))
        for r in range(2):
            for i in range(k):
                g = gradient[r, i]
                moments[0, r, i] = 0.9 * moments[0, r, i] + 0.1 * g
                moments[1, r, i] = 0.999 * moments[1, r, i] + 0.001 * g * g
                now[r, i] += scale * moments[0, r, i] / (np.sqrt(moments[1, r, i] * correction) + 1e-8)


def car_meanfield(
    y, weight, indptr, indices, logdet, parameters, moments, rates, form, lo, hi, widest, prior_mean, prior_variance, seed,
    chain, first, new_parameters, new_moments, trace, n_threads,
):  # fmt: skip
    check_graph_numbers(indptr, indices, y.size)
    read = [np.array(a, order="C") for a in (y, weight, indptr, indices, logdet, parameters, moments, rates)]
    key, found = np.uint64(stream_key(seed, DRAWS, chain)), np.empty(trace.shape)
    steps(*read, form, lo, hi, widest, prior_mean, prior_variance, key, first, found)
    new_parameters[...], new_moments[...], trace[...] = read[5], read[6], found
