"""Draws from a table of priors. docs/spec/sigma.md, section 3."""

import numpy as np
from scipy.linalg import solve_triangular

from fedkern._core.rng import streams

from .. import rng

STORED, DENSE, SPARSE = range(3)


def numbers(fill, count, stream, seed, chain, client, step):
    """Returns the first numbers of a stream."""
    out = np.empty(count)
    fill(rng.key(int(seed), streams()[stream], int(chain)), client, step, 0, 0, out, 1)
    return out


def triangle(values, indptr, indices):
    """Returns the dense lower triangle whose columns these are."""
    n = len(indptr) - 1
    L = np.zeros((n, n))
    L[indices, np.repeat(np.arange(n), np.diff(indptr))] = values
    return L


def table_sample(values, scale, indptr, indices, order, kind, rank, group, seed, chain, step, theta, entry, n_threads):
    batch, n = theta.shape
    groups = -(-batch // group)
    u = numbers(rng.uniform, groups, "prior_entries", seed, chain, 0, step)
    entry[...] = np.repeat(np.floor(u * len(values)).astype(np.int64), group)[:batch]
    if kind == STORED:
        theta[...] = scale * values[entry]
        return
    length = rank if kind == DENSE else n
    e = numbers(rng.normal, batch * length, "prior_draws", seed, chain, 0, step).reshape(batch, length)
    for b, t in enumerate(entry):
        if kind == DENSE:
            theta[b] = scale * (values[t].reshape(n, rank) @ e[b])
        else:
            x = np.empty(n)
            x[order] = solve_triangular(triangle(values[t], indptr, indices).T, e[b], check_finite=False)
            theta[b] = scale * x
