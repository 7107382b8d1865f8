"""Computes Philox4x32-10 for Numba: public, and callable from other people's nopython code.

`philox`, `uniform_pair`, `normal_pair`, `exponential_pair` take the counter (item, draw, client, step) and a 64-bit key;
`gamma_one`, `inverse_gaussian_one` and `polya_gamma_one` the same without draw. Nothing has a state.
"""

from math import erfc

import numpy as np
from numba import uint32, uint64

from ._jit import loop, scalar, scalar_ieee

__all__ = [
    "exponential",
    "exponential_pair",
    "gamma",
    "gamma_one",
    "inverse_gaussian",
    "inverse_gaussian_one",
    "metropolis_accept",
    "mix",
    "normal",
    "normal_pair",
    "philox",
    "polya_gamma",
    "polya_gamma_one",
    "stream_key",
    "to_uniform",
    "uniform",
    "uniform_pair",
    "words",
]

MOST_SHAPE = 1e300  # of a gamma number: beyond it the test of a proposal would run over


@scalar
def mix(z):
    z = (z ^ (z >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
    return z ^ (z >> uint64(31))


@scalar
def stream_key(seed, stream, chain):
    return mix(mix(uint64(seed) + uint64(0x9E3779B97F4A7C15) * (uint64(stream) + uint64(1))) + uint64(chain))


@scalar
def philox(item, draw, client, step, key):
    """Returns the four words of a block."""
    a, b, c, d = uint32(item), uint32(draw), uint32(client), uint32(step)
    k0, k1 = uint32(key), uint32(uint64(key) >> uint64(32))
    for _ in range(10):
        p0, p1 = uint64(0xD2511F53) * uint64(a), uint64(0xCD9E8D57) * uint64(c)
        a, b = uint32(p1 >> uint64(32)) ^ b ^ k0, uint32(p1)
        c, d = uint32(p0 >> uint64(32)) ^ d ^ k1, uint32(p0)
        k0, k1 = uint32(k0 + uint32(0x9E3779B9)), uint32(k1 + uint32(0xBB67AE85))
    return a, b, c, d


@scalar
def to_uniform(low, high):
    return np.float64((uint64(low) | (uint64(high) << uint64(32))) >> uint64(12)) * 2.0**-52 + 2.0**-53


@scalar
def uniform_pair(item, draw, client, step, key):
    a, b, c, d = philox(item, draw, client, step, key)
    return to_uniform(a, b), to_uniform(c, d)


@scalar
def normal_pair(item, draw, client, step, key):
    u, v = uniform_pair(item, draw, client, step, key)
    radius = np.sqrt(-2.0 * np.log(u))
    quarter = np.rint(4.0 * v)  # whole quarter turns apart, so that the angle has a small relative error
    angle = 2.0 * np.pi * (v - 0.25 * quarter)
    x, y = radius * np.cos(angle), radius * np.sin(angle)
    if quarter == 1.0:
        return -y, x
    if quarter == 2.0:
        return -x, -y
    if quarter == 3.0:
        return y, -x
    return x, y


@scalar
def exponential_pair(item, draw, client, step, key):
    u, v = uniform_pair(item, draw, client, step, key)
    return -np.log(u), -np.log(v)


@scalar
def metropolis_accept(log_ratio, u):
    return np.log(u) < log_ratio


@scalar
def gamma_one(shape, item, client, step, key):
    if not 0.0 < shape <= MOST_SHAPE:
        return np.nan
    large = shape + 1.0 if shape < 1.0 else shape
    d = large - 1.0 / 3.0
    draw = 0
    while True:
        x, _ = normal_pair(item, draw, client, step, key)
        u, boost = uniform_pair(item, draw + 1, client, step, key)
        t = x / (3.0 * np.sqrt(d))
        if t > -1.0 and metropolis_accept(3.0 * d * (np.log1p(t) - t * (1.0 - t * (0.5 - t / 3.0))), u):
            boosted = np.exp(np.log(boost) / shape) if shape < 1.0 else 1.0
            return d * (1.0 + t) ** 3 * boosted
        draw += 2


@scalar
def inverse_gaussian_one(mean, shape, item, client, step, key):
    if not (mean > 0.0 and mean < np.inf and shape > 0.0 and shape < np.inf):
        return np.nan
    x, _ = normal_pair(item, 0, client, step, key)
    u, _ = uniform_pair(item, 1, client, step, key)
    w = x * x * (0.5 * mean / shape)
    larger = 1.0 + w + np.sqrt(w) * np.sqrt(w + 2.0)
    return mean / larger if u * (larger + 1.0) <= larger else mean * larger


@scalar
def polya_gamma_accept(x, u):
    """Tells whether u lies below 1 - a_1/a_0 + a_2/a_0 - ..., a falling series."""
    rate = 0.5 * np.pi * np.pi * x if x > 0.64 else 2.0 / x
    total, n = 1.0, 1.0
    while True:
        total -= (2.0 * n + 1.0) * np.exp(-n * (n + 1.0) * rate)
        if u <= total:
            return True
        total += (2.0 * n + 3.0) * np.exp(-(n + 1.0) * (n + 2.0) * rate)
        if u > total:
            return False
        n += 2.0


@scalar_ieee
def polya_gamma_one(z, item, client, step, key):
    """Draws PG(1, z): an exponential beyond the cut t or an inverse Gaussian below it, then Devroye's series."""
    t, c = 0.64, 0.5 * abs(z)
    if not c < np.inf:
        return np.nan
    rate = np.pi * np.pi / 8.0 + 0.5 * c * c
    high, low = 0.5 * erfc((1.0 - t * c) / 0.8 / np.sqrt(2.0)), 0.5 * erfc((1.0 + t * c) / 0.8 / np.sqrt(2.0))
    odds = 4.0 / np.pi * rate * (np.exp(rate * t - c) * high + np.exp(rate * t + c + np.log(low)))
    fresh, beyond, draw = True, False, 0
    while True:
        if fresh:
            choice, _ = uniform_pair(item, draw + 2, client, step, key)
            beyond = choice < 1.0 / (1.0 + odds)
        test, series = uniform_pair(item, draw + 1, client, step, key)
        fresh = True
        if beyond:
            e, _ = exponential_pair(item, draw, client, step, key)
            x = t + e / rate
        elif c * t < 1.0:
            e, f = exponential_pair(item, draw, client, step, key)
            x = t / (1.0 + t * e) ** 2
            fresh = e * e <= 2.0 * f / t and test <= np.exp(-0.5 * c * c * x)
        else:
            normal, _ = normal_pair(item, draw, client, step, key)
            w = normal * normal * (0.5 / c)
            larger = 1.0 + w + np.sqrt(w) * np.sqrt(w + 2.0)
            x = 1.0 / (c * larger) if test * (larger + 1.0) <= larger else larger / c
            fresh = x <= t
        if fresh and polya_gamma_accept(x, series):
            return 0.25 * x
        draw += 3


@loop
def words(key, client, step, draw, first_item, out, n_threads):
    for i in range(out.shape[0]):
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = philox(first_item + i, draw, client, step, key)


@scalar
def fill_pairs(pair, key, client, step, draw, first_item, out):
    for i in range((out.size + 1) // 2):
        first, second = pair(first_item + i, draw, client, step, key)
        out[2 * i] = first
        if 2 * i + 1 < out.size:
            out[2 * i + 1] = second


@loop
def uniform(key, client, step, draw, first_item, out, n_threads):
    fill_pairs(uniform_pair, key, client, step, draw, first_item, out)


@loop
def normal(key, client, step, draw, first_item, out, n_threads):
    fill_pairs(normal_pair, key, client, step, draw, first_item, out)


@loop
def exponential(key, client, step, draw, first_item, out, n_threads):
    fill_pairs(exponential_pair, key, client, step, draw, first_item, out)


@loop
def gamma(shape, key, client, step, first_item, out, n_threads):
    for i in range(out.size):
        out[i] = gamma_one(shape[i], first_item + i, client, step, key)


@loop
def inverse_gaussian(mean, shape, key, client, step, first_item, out, n_threads):
    for i in range(out.size):
        out[i] = inverse_gaussian_one(mean[i], shape[i], first_item + i, client, step, key)


@loop
def polya_gamma(z, key, client, step, first_item, out, n_threads):
    for i in range(out.size):
        out[i] = polya_gamma_one(z[i], first_item + i, client, step, key)
