"""Draws scales of the horseshoe, local and global: docs/spec/sparse.md, section 2."""

import numpy as np

from .._jit import scalar
from ..rng import exponential_pair, metropolis_accept, normal_pair, uniform_pair

__all__ = ["clipped", "global_variance", "half_cauchy_precision", "local_variance", "local_variances"]

LEAST, MOST, LEAST_RATE = 1e-60, 1e60, 1e-290


@scalar
def clipped(variance):
    """Returns lambda^2 or tau^2 within [1e-60, 1e60]; NaN stays."""
    if variance < LEAST:
        return LEAST
    return MOST if variance > MOST else variance


@scalar
def half_cauchy_precision(m, item, client, step, key):
    """Draws zeta = 1/lambda^2 of density ~ exp(-m zeta) / (1 + zeta); NaN where m is."""
    if not m >= 0.0:
        return np.nan
    rate = max(m, LEAST_RATE)
    u0 = -np.log(min(rate, 1.0))
    attempt = 0
    while True:
        u, v = uniform_pair(item, attempt, client, step, key)
        r = u * (1.0 + np.e * u0)
        if rate >= 1.0:
            zeta = -np.log(u) / rate
            if v * (1.0 + zeta) < 1.0:
                return zeta
        elif r < 1.0:
            zeta = np.expm1(u0 - np.log(r))
            if metropolis_accept(1.0 - np.log(r) - rate * (1.0 + zeta), v):
                return zeta
        else:
            zeta = np.expm1((r - 1.0) / np.e)
            if metropolis_accept(-rate * (1.0 + zeta), v):
                return zeta
        attempt += 1


@scalar
def inverse(x):
    return 1.0 / x if x != 0.0 else np.inf


@scalar
def local_variance(m, lambda_sq, scale, expanded, item, client, step, key):
    """Draws lambda^2 given m = d^2 / (2 tau^2), not clipped."""
    s2 = scale * scale
    if not expanded:
        return s2 * inverse(half_cauchy_precision(m / s2, item, client, step, key))
    first, second = exponential_pair(item, 0, client, step, key)
    return (first / (1.0 / s2 + 1.0 / lambda_sq) + m) / second


@scalar
def local_variances(m, lambda_sq, scale, expanded, items, client, step, key):
    """Draws an array of them."""
    drawn = np.empty(m.size)
    for i in range(m.size):
        drawn[i] = local_variance(m[i], lambda_sq[i], scale, expanded, items[i], client, step, key)
    return drawn


@scalar
def gamma_proposal(shape, item, attempt, client, step, key):
    """Returns Marsaglia and Tsang's proposal from blocks 0 and 1 of three; -1: rejected."""
    x, _ = normal_pair(item, 3 * attempt, client, step, key)
    u, boost = uniform_pair(item, 3 * attempt + 1, client, step, key)
    d = (shape + 1.0 if shape < 1.0 else shape) - 1.0 / 3.0
    t = x / (3.0 * np.sqrt(d))
    if t <= -1.0 or not metropolis_accept(3.0 * d * (np.log1p(t) - t * (1.0 - t * (0.5 - t / 3.0))), u):
        return -1.0
    return d * (1.0 + t) ** 3 * (np.exp(np.log(boost) / shape) if shape < 1.0 else 1.0)


@scalar
def global_variance(m, clients, tau_sq, scale, expanded, item, client, step, key):
    """Draws tau^2 given m = (1/2) sum_k d_k^2 / lambda_k^2 over the clients, not clipped."""
    if not m >= 0.0:
        return np.nan
    s2 = scale * scale
    attempt = 0
    if expanded:
        e, _ = exponential_pair(item, 2, client, step, key)
        while True:
            g = gamma_proposal((clients + 1.0) / 2.0, item, attempt, client, step, key)
            if g >= 0.0:
                return (e / (1.0 / s2 + 1.0 / tau_sq) + m) * inverse(g)
            attempt += 1
    if not m / s2 >= 0.0:
        return np.nan  # 0 / 0: no attempt would be taken
    rate = max(m / s2, LEAST_RATE)
    if clients == 1:
        return s2 * inverse(half_cauchy_precision(rate, item, client, step, key))
    steep = rate >= (clients - 1.0) / 2.0
    shape = (clients + 1.0) / 2.0 if steep else (clients - 1.0) / 2.0
    while True:
        g = gamma_proposal(shape, item, attempt, client, step, key)
        if g >= 0.0:
            z = g / rate
            accept, _ = uniform_pair(item, 3 * attempt + 2, client, step, key)
            if accept * (1.0 + z) < (1.0 if steep else z):
                return s2 * inverse(z)
        attempt += 1
