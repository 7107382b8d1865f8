"""Draws from a table of priors for Numba. Public: `table_draw`, one draw of an entry from its normals."""

import numpy as np

from fedkern._core.rng import streams

from .._jit import loop, scalar, scalar_ieee
from ..rng import normal_pair, stream_key, uniform_pair

__all__ = ["table_draw", "table_sample"]

STORED, DENSE, SPARSE = range(3)
ENTRIES, DRAWS = streams()["prior_entries"], streams()["prior_draws"]


@scalar
def fill_normals(first, count, key, client, step, out):
    """Numbers first, .., first + count - 1 of a stream."""
    for e in range(first, first + count):
        if e == first or e % 2 == 0:
            pair = normal_pair(e // 2, 0, client, step, key)
        out[e - first] = pair[e % 2]


@scalar_ieee
def table_draw(values, scale, indptr, indices, order, kind, rank, e, theta):
    """One draw: `values` (f,) is the entry, `e` its normals (overwritten), `theta` (n,) the result."""
    n = theta.size
    if kind == STORED:
        for i in range(n):
            theta[i] = scale[i] * values[i]
    elif kind == DENSE:
        for i in range(n):
            total = 0.0
            for r in range(rank):
                total += values[i * rank + r] * e[r]
            theta[i] = scale[i] * total
    else:
        for j in range(n - 1, -1, -1):
            first, total = indptr[j], e[j]
            for k in range(first + 1, indptr[j + 1]):
                total -= values[k] * e[indices[k]]
            e[j] = total / values[first]
            theta[order[j]] = scale[order[j]] * e[j]


@loop
def sample_rows(values, scale, indptr, indices, order, kind, rank, group, seed, chain, step, theta, entry):
    batch, n = theta.shape
    length = (0, rank, n)[kind]
    of_entries, of_draws = stream_key(seed, ENTRIES, chain), stream_key(seed, DRAWS, chain)
    e, t = np.empty(length), 0
    for b in range(batch):
        if b % group == 0:
            g = b // group
            t = min(np.int64(uniform_pair(g // 2, 0, 0, step, of_entries)[g % 2] * len(values)), len(values) - 1)
        entry[b] = t
        fill_normals(b * length, length, of_draws, 0, step, e)
        table_draw(values[t], scale, indptr, indices, order, kind, rank, e, theta[b])


def table_sample(values, scale, indptr, indices, order, kind, rank, group, seed, chain, step, theta, entry, n_threads):
    none = np.zeros(0, np.int64)
    pattern = [none if a is None else np.array(a) for a in (indptr, indices, order)]
    whole, entries = np.empty(theta.shape), np.empty(entry.shape, np.int64)  # one layout: another costs a compilation
    sample_rows(np.array(values), np.array(scale), *pattern, kind, rank, group, seed, chain, step, whole, entries)
    theta[...], entry[...] = whole, entries
