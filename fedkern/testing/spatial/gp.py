"""Makes cases of Gaussian processes."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedkern.kernels._reference.spatial import gp as _gp
from fedkern.kernels.spatial.gp import GP_KINDS

from .. import Arguments, Case, Source
from .car import counters

gp: Any = _gp


def problem(source: Source) -> tuple[Arguments, Any, Any, str]:
    n, m, p = source.choose([0, 1, 2, 3, 9, 33]), source.choose([0, 1, 2, 9]), source.choose([1, 2, 3])
    x = source.random.random((n, p))
    if p == 1 and n:
        x = np.linspace(0, 1, n)[:, None]  # mirror images
    lengthscale = source.random.uniform(0.05, 2.0, m)
    kind = source.choose(sorted(GP_KINDS))
    return {"x": source.array(x), "lengthscale": source.array(lengthscale), "kind": kind}, x, lengthscale, kind


def gp_covariance(source: Source) -> Case:
    arguments, x, lengthscale, _ = problem(source)
    if source.choose([True, False, False]):
        arguments["lengthscale"] = source.array(lengthscale, extremes=(0.0, -1.0, np.nan, 1e-3, 1e6))
    return Case(arguments | {"jitter": source.choose([0.0, 1e-6])}, magnitude=[np.ones((len(lengthscale), len(x), len(x)))])


def gp_factor(source: Source) -> Case:
    arguments, x, lengthscale, _ = problem(source)
    rank, tolerance = source.choose([0, 1, 2, 7, 12]), source.choose([1e-2, 1e-4])
    most = np.ones((len(lengthscale), len(x), rank)) / tolerance
    return Case(
        arguments | {"rank": rank, "tolerance": tolerance}, magnitude=[most, np.full(len(lengthscale), len(x) / tolerance)]
    )


def gp_sample(source: Source) -> Case:
    arguments, x, lengthscale, _ = problem(source)
    jitter = source.choose([1e-1, 1e-2])
    most = np.full((len(lengthscale), len(x)), 10 * max(len(x), 1) / jitter)
    return Case(arguments | {"jitter": jitter} | counters(source), magnitude=[most])
