"""Defines the random-number kernels in plain NumPy: Philox4x32-10 and the distributions made of its blocks."""

import numpy as np
from scipy.special import log_ndtr

MASK = np.uint64(0xFFFFFFFF)
TURNS = np.array([1, 1j, -1, -1j])
MOST_SHAPE = 1e300  # of a gamma number: beyond it the test of a proposal would run over


def philox(item, draw, client, step, key):
    """Returns the four words of each block, as uint64 arrays; the counter's words are broadcast."""
    a, b, c, d = (np.asarray(word, np.uint64) for word in (item, draw, client, step))
    k0, k1 = int(key) & 0xFFFFFFFF, int(key) >> 32
    for _ in range(10):
        p0, p1 = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b, c, d = (p1 >> np.uint64(32)) ^ b ^ np.uint64(k0), p1 & MASK, (p0 >> np.uint64(32)) ^ d ^ np.uint64(k1), p0 & MASK
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.broadcast_arrays(a, b, c, d)


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
    return z ^ (z >> 31)


def stream_key(seed, stream, chain):
    return mix((mix((int(seed) + 0x9E3779B97F4A7C15 * (stream + 1)) % 2**64) + int(chain)) % 2**64)


def uniforms(item, draw, client, step, key):
    """Returns the two uniforms of each block: (k + 1/2) 2^-52, k the upper 52 of 64 bits."""
    a, b, c, d = philox(item, draw, client, step, key)
    return [
        ((low | high << np.uint64(32)) >> np.uint64(12)).astype(np.float64) * 2.0**-52 + 2.0**-53
        for low, high in ((a, b), (c, d))
    ]


def normals(u, v):
    radius = np.sqrt(-2 * np.log(u))
    quarter = np.rint(4 * v)  # whole quarter turns apart, so that the angle has a small relative error
    angle = 2 * np.pi * (v - quarter / 4)
    turn = TURNS[quarter.astype(int) % 4] * (np.cos(angle) + 1j * np.sin(angle))
    return radius * turn.real, radius * turn.imag


def uniform_pair(item, draw, client, step, key):
    """Returns the two uniforms of one block: Python's numbers are faster than arrays of one number."""
    a, b, c, d, k0, k1 = int(item), int(draw), int(client), int(step), int(key) & 0xFFFFFFFF, int(key) >> 32
    for _ in range(10):
        p0, p1 = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (p1 >> 32) ^ b ^ k0, p1 & 0xFFFFFFFF, (p0 >> 32) ^ d ^ k1, p0 & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return tuple(((low | high << 32) >> 12) * 2.0**-52 + 2.0**-53 for low, high in ((a, b), (c, d)))


def normal_pair(item, draw, client, step, key):
    return normals(*map(np.float64, uniform_pair(item, draw, client, step, key)))


def metropolis_accept(log_ratio, u):
    """Applies the Metropolis rule; NaN is refused."""
    return np.log(u) < log_ratio


def items(first_item, n):
    return first_item + np.arange(n, dtype=np.uint64)


def pairs(transform, key, client, step, draw, first_item, out):
    blocks = uniforms(items(first_item, (len(out) + 1) // 2), draw, client, step, key)
    out[:] = np.stack(transform(*blocks), axis=1).ravel()[: len(out)]


def words(key, client, step, draw, first_item, out, n_threads):
    out[:] = np.stack(philox(items(first_item, len(out)), draw, client, step, key), axis=1)


def uniform(key, client, step, draw, first_item, out, n_threads):
    pairs(lambda u, v: (u, v), key, client, step, draw, first_item, out)


def normal(key, client, step, draw, first_item, out, n_threads):
    pairs(normals, key, client, step, draw, first_item, out)


def exponential(key, client, step, draw, first_item, out, n_threads):
    pairs(lambda u, v: (-np.log(u), -np.log(v)), key, client, step, draw, first_item, out)


def gamma(shape, key, client, step, first_item, out, n_threads):
    """Draws by Marsaglia and Tsang, attempt by attempt, for all that are still without a value."""
    todo = np.flatnonzero((shape > 0) & (shape <= MOST_SHAPE))
    out[:] = np.nan
    attempt = 0
    while todo.size:
        a, item = shape[todo], items(first_item, len(out))[todo]
        x, _ = normals(*uniforms(item, 2 * attempt, client, step, key))
        u, boost = uniforms(item, 2 * attempt + 1, client, step, key)
        d = np.where(a < 1, a + 1, a) - 1 / 3
        t = x / (3 * np.sqrt(d))
        inside = t > -1
        log1p = np.log1p(np.where(inside, t, 0))
        good = inside & metropolis_accept(3 * d * (log1p - t * (1 - t * (0.5 - t / 3))), u)
        with np.errstate(under="ignore"):
            value = d * (1 + t) ** 3 * np.where(a < 1, np.exp(np.log(boost) / np.minimum(a, 1)), 1)
        out[todo[good]] = value[good]
        todo = todo[~good]
        attempt += 1


def inverse_gaussian(mean, shape, key, client, step, first_item, out, n_threads):
    good = (mean > 0) & np.isfinite(mean) & (shape > 0) & np.isfinite(shape)
    mu, lam, item = mean[good], shape[good], items(first_item, len(out))[good]
    x, _ = normals(*uniforms(item, 0, client, step, key))
    u, _ = uniforms(item, 1, client, step, key)
    with np.errstate(over="ignore"):
        w = x * x * (0.5 * mu / lam)
    larger = 1 + w + np.sqrt(w) * np.sqrt(w + 2)
    out[:] = np.nan
    out[good] = np.where(u * (larger + 1) <= larger, mu / larger, mu * larger)


CUT = 0.64


def polya_gamma_series(x, u):
    """Tells whether u lies below 1 - a_1/a_0 + a_2/a_0 - ...; sums go on until all are decided."""
    rate = np.where(x > CUT, 0.5 * np.pi**2 * x, 2 / x)
    total, n = np.ones(x.shape), 0
    accepted, todo = np.zeros(x.shape, bool), np.ones(x.shape, bool)
    while todo.any():
        n += 1
        total += (-1) ** n * (2 * n + 1) * np.exp(-n * (n + 1) * rate)
        decided = (u <= total) if n % 2 else (u > total)
        accepted |= todo & decided & (n % 2 == 1)
        todo &= ~decided
    return accepted


def polya_gamma(z, key, client, step, first_item, out, n_threads):
    """Draws by Polson, Scott and Windle: an exponential beyond the cut or an inverse Gaussian below it, then Devroye's series."""
    out[:] = np.nan
    todo, attempt = np.flatnonzero(np.isfinite(z)), 0
    side = np.full(len(z), -1)  # 1: beyond the cut, 0: below, -1: to be drawn
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        c = abs(np.asarray(z)) / 2
        rate = np.pi**2 / 8 + 0.5 * c * c
        below = [np.exp(rate * CUT + s * c + log_ndtr((-s * CUT * c - 1) / 0.8)) for s in (-1, 1)]
        tail = 1 / (1 + 4 / np.pi * rate * sum(below))
        while todo.size:
            item, here = items(first_item, len(z))[todo], c[todo]
            (u, v), (test, series) = (uniforms(item, 3 * attempt + b, client, step, key) for b in range(2))
            choice, _ = uniforms(item, 3 * attempt + 2, client, step, key)
            side[todo] = np.where(side[todo] < 0, choice < tail[todo], side[todo])
            beyond, tilted = side[todo] == 1, here * CUT < 1
            e, f = -np.log(u), -np.log(v)
            mean = 1 / np.where(tilted, 1, here)
            w = normals(u, v)[0] ** 2 * 0.5 * mean
            larger = 1 + w + np.sqrt(w) * np.sqrt(w + 2)
            gaussian = np.where(test * (larger + 1) <= larger, mean / larger, mean * larger)
            x = np.where(beyond, CUT + e / rate[todo], np.where(tilted, CUT / (1 + CUT * e) ** 2, gaussian))
            kept = (e * e <= 2 * f / CUT) & (test <= np.exp(-0.5 * here * here * x))
            proposed = beyond | np.where(tilted, kept, x <= CUT)
            accepted = proposed & polya_gamma_series(np.where(proposed, x, 1), series)
            out[todo[accepted]] = x[accepted] / 4
            side[todo[proposed]] = -1
            todo = todo[~accepted]
            attempt += 1


def counts(u, most, first, a, b, terms, count, sum, n_threads):
    p, below = first, first
    count[:] = 0
    for k in range(1, terms):
        goes = (u > below) & (most > k - 1)
        if not goes.any():
            break
        p = np.where(goes, p * (a + b / k), 0)
        below = below + p
        count[goes] = k
    sum[:] = below
