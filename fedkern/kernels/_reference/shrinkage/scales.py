"""Defines draws of the horseshoe's scales, local and global, for arrays: docs/spec/sparse.md, section 2."""

import numpy as np

from .. import rng

LEAST, MOST, LEAST_RATE = 1e-60, 1e60, 1e-290
quiet = np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore")


def clipped(variance):
    """Returns lambda^2 or tau^2 within [1e-60, 1e60], and which were outside; NaN stays."""
    return np.clip(variance, LEAST, MOST), (variance < LEAST) | (variance > MOST)


def until_taken(propose, *arguments):
    """Calls propose(attempt, *arguments) -> (values, taken), attempt by attempt for all that have no value yet."""
    arguments = np.broadcast_arrays(*arguments)
    shape, arguments = arguments[0].shape, [np.ravel(a) for a in arguments]
    values, todo, attempt = np.empty(arguments[0].size), np.arange(arguments[0].size), 0
    while todo.size:
        proposed, taken = propose(attempt, *(a[todo] for a in arguments))
        values[todo] = proposed
        todo = todo[~taken]
        attempt += 1
    return values.reshape(shape)


@quiet
def half_cauchy_precision(m, item, client, step, key):
    """Draws zeta = 1/lambda^2 of density ~ exp(-m zeta) / (1 + zeta); NaN where m is."""

    def propose(attempt, rate, item):
        u, v = rng.uniforms(item, attempt, client, step, key)
        steep = rate >= 1
        u0 = -np.log(np.minimum(rate, 1))
        r = u * (1 + np.e * u0)  # below 1 with probability 1/e / (u0 + 1/e), which is 1 where rate >= 1
        exponential = -np.log(np.minimum(r, 1))
        zeta = np.where(steep, exponential / rate, np.expm1(np.where(r < 1, u0 + exponential, (r - 1) / np.e)))
        bound = np.where(r < 1, 1 + exponential, 0) - rate * (1 + zeta)
        return np.where(rate >= 0, zeta, np.nan), np.where(steep, v * (1 + zeta) < 1, rng.accepts(bound, v)) | ~(rate >= 0)

    return until_taken(propose, np.maximum(np.where(m >= 0, m, np.nan), LEAST_RATE), item)


@quiet
def local_variance(m, lambda_sq, scale, expanded, item, client, step, key):
    """Draws lambda^2 given m = d^2 / (2 tau^2), not clipped."""
    if not expanded:
        return scale**2 / half_cauchy_precision(m / scale**2, item, client, step, key)
    first, second = -np.log(rng.uniforms(item, 0, client, step, key))
    nu_inverse = first / (1 / scale**2 + 1 / lambda_sq)
    return (nu_inverse + m) / second


def gamma_proposal(shape, item, attempt, client, step, key):
    """Returns Marsaglia and Tsang's proposal from blocks 0 and 1 of three, and whether it is taken."""
    x, _ = rng.normals(*rng.uniforms(item, 3 * attempt, client, step, key))
    u, boost = rng.uniforms(item, 3 * attempt + 1, client, step, key)
    d = np.where(shape < 1, shape + 1, shape) - 1 / 3
    t = x / (3 * np.sqrt(d))
    log1p = np.log1p(np.where(t > -1, t, 0))
    taken = (t > -1) & rng.accepts(3 * d * (log1p - t * (1 - t * (0.5 - t / 3))), u)
    return d * (1 + t) ** 3 * np.where(shape < 1, np.exp(np.log(boost) / np.minimum(shape, 1)), 1), taken


@quiet
def global_variance(m, clients, tau_sq, scale, expanded, item, client, step, key):
    """Draws tau^2 given m = (1/2) sum_k d_k^2 / lambda_k^2 over the clients, not clipped."""
    nan = ~(m >= 0)
    if expanded:
        xi_inverse = -np.log(rng.uniforms(item, 2, client, step, key)[0]) / (1 / scale**2 + 1 / tau_sq)
        half = np.full(np.shape(m), (clients + 1) / 2)
        g = until_taken(lambda attempt, shape, item: gamma_proposal(shape, item, attempt, client, step, key), half, item)
        return np.where(nan, np.nan, (xi_inverse + m) / g)
    rate = np.maximum(np.where(nan, np.nan, m / scale**2), LEAST_RATE)
    if clients == 1:
        return scale**2 / half_cauchy_precision(rate, item, client, step, key)

    def propose(attempt, rate, item):
        steep = rate >= (clients - 1) / 2
        g, taken = gamma_proposal(np.where(steep, clients + 1, clients - 1) / 2, item, attempt, client, step, key)
        z = g / rate
        u, _ = rng.uniforms(item, 3 * attempt + 2, client, step, key)
        return z, taken & (u * (1 + z) < np.where(steep, 1, z)) | np.isnan(rate)

    return scale**2 / until_taken(propose, rate, item)
