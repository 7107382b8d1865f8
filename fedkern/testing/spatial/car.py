"""Makes cases of the autoregressive priors."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedkern.kernels import spatial
from fedkern.kernels._reference import rng as _rng
from fedkern.kernels._reference.spatial import car as _car
from fedkern.kernels._reference.spatial import table as _table

from .. import Arguments, Case, Indices, Source

rng: Any = _rng
car: Any = _car
table: Any = _table

SMALL = (1, 2, 3, 8, 17, 40)


def graph(source: Source, n: int) -> tuple[Indices, Indices]:
    """Returns a random graph, some of its areas without neighbours."""
    chance = source.choose([0.0, 0.1, 0.3])
    W = np.triu(source.random.random((n, n)) < chance, 1)
    W |= W.T
    return np.concatenate([[0], np.cumsum(W.sum(axis=1))]).astype(np.int64), np.nonzero(W)[1].astype(np.int64)


def counters(source: Source) -> dict[str, int]:
    return {
        "seed": source.choose([3, 2**64 - 1]),
        "chain": source.choose([0, 9]),
        "client": source.choose([0, 2**32 - 1]),
        "step": source.choose([0, 2**32 - 1]),
    }


def car_logdensity(source: Source) -> Case:
    n, m, form = source.choose(SMALL), source.choose([0, 1, 2, 7, 8, 9, 17]), source.choose(["car", "leroux", "icar"])
    indptr, indices = graph(source, n)
    lo, hi = source.choose([(0.0, 0.99), (0.2, 0.5), (0.0, 0.999)])
    series = spatial.logdet_table(spatial.car_eigen(indptr, indices, form=form).values, indptr, form=form, lo=lo, hi=hi)
    theta, phi = source.random.standard_normal((m, n)) * 3, source.random.uniform(lo, hi, m)
    W, d, x = car.adjacency(indptr, indices), car.degrees(indptr), abs(theta)
    around, f = x @ W, phi[:, None]
    product = (1 - f) * x + f * (d * x + around) if form == "leroux" else d * x + around
    r = series.widest * phi / (1 - phi)
    size, count = abs(series.coefficients), np.arange(len(series.coefficients))
    value = (x * product).sum(axis=1) + size.sum() * 40 + n * 2
    steep = 40 * (size @ count**2) / 1e-3 if hi - lo < 1e-3 else 40 * (size @ count**2)
    slope = (x * (product + d * x + around)).sum(axis=1) + steep * series.widest / ((1 - phi) ** 2 * (1 + r))
    extremes = source.choose([(), (), (lo, hi, hi + 1e-3, np.nan)])
    arguments: Arguments = {
        "theta": source.array(theta, extremes=source.choose([(), (), (0.0, 1e-200)])),
        "phi": source.array(phi, extremes=extremes),
        "indptr": source.array(indptr, np.int64),
        "indices": source.array(indices, np.int64),
        "logdet": source.array(series.coefficients),
    }
    if extremes:  # the nearer phi is to 1, the larger the slope
        slope = slope + steep * series.widest / (1 - hi)
        product = product + d * x + around
        value = value + (x * product).sum(axis=1)
    return Case(arguments | series.options, magnitude=[value, product, slope])


def car_factor(source: Source) -> Case:
    n, m, form = source.choose(SMALL), source.choose([0, 1, 2, 7, 8, 9, 17]), source.choose(["car", "leroux"])
    indptr, indices = graph(source, n)
    pattern = spatial.car_analyse(indptr, indices)
    phi = source.random.uniform(0, 0.95, m)
    d = spatial.diagonal(indptr)
    most = np.tile(np.sqrt(d.max()) / (1 - phi[:, None]), (1, len(pattern.indices)))
    arguments = {
        "phi": source.array(phi),
        "indptr": source.array(indptr, np.int64),
        "indices": source.array(indices, np.int64),
        "order": source.array(pattern.order, np.int64),
        "factor_indptr": source.array(pattern.indptr, np.int64),
        "factor_indices": source.array(pattern.indices, np.int64),
    }
    logdet = n * (np.log(d.max()) + 1 / (1 - phi))
    return Case(arguments | {"form": form}, magnitude=[most, logdet])


def car_sample(source: Source) -> Case:
    n, m, form = source.choose(SMALL), source.choose([0, 1, 2, 7, 8, 9, 17]), source.choose(["car", "leroux", "icar"])
    indptr, indices = graph(source, n)
    eigen = spatial.car_eigen(indptr, indices, form=form)
    phi, weights = source.random.uniform(0, 0.95, m), np.exp(source.random.standard_normal(n))
    names = counters(source)
    e = abs(table.numbers(rng.normal, m * n, "prior_draws", *names.values())).reshape(m, n)
    p = eigen.precisions(phi)
    most = np.divide(e, np.sqrt(p), out=np.zeros_like(e), where=p > 0) @ abs(eigen.vectors).T * weights
    arrays = {"vectors": eigen.vectors, "values": eigen.values, "weights": weights, "phi": phi}
    arguments = {name: source.array(a) for name, a in arrays.items()}
    return Case(arguments | {"form": form} | names, magnitude=[most])
