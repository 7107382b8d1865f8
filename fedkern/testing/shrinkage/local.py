"""Makes cases of the local kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedkern.kernels import shrinkage

from .. import Arguments, Case, Floats, Source

BELOW = 77.0  # stands below the diagonal of R, where nothing may be read
LARGEST, BATCHED = 80, 48  # columns at most, and where the reference takes regression after regression


def names(source: Source) -> Arguments:
    """Returns names of random numbers, up to their limits."""
    return {
        "seed": source.choose([0, 5, 2**64 - 1]),
        "chain": source.choose([0, 7, 2**64 - 2]),
        "client": source.choose([0, 3, 2**32 - 1]),
        "step": source.choose([0, 70_000, 2**32 - 3]),
    }


def triangle(source: Source, p: int) -> tuple[int, Floats, Floats | None]:
    """Returns the number of rows, the factor of standard normal ones, and perhaps its square."""
    rows = min(source.size(), LARGEST)
    r = min(rows, p)
    R = np.asarray(np.linalg.qr(source.random.standard_normal((rows, p)), mode="r")) if r else np.zeros((r, p))
    gram = source.array(R.T @ R) if source.choose([True, False]) else None
    return rows, source.array(np.where(np.arange(r)[:, None] <= np.arange(p), R, BELOW)), gram


def positive(source: Source, *shape: int, extremes: tuple[float, ...] = ()) -> Floats:
    return source.array(np.exp(source.random.standard_normal(shape)), extremes=extremes)


def state(source: Source, *batch: int, p: int) -> Arguments:
    return {
        "theta": source.array(0.3 * source.random.standard_normal((*batch, p))),
        "tau_sq": positive(source, *batch, p, extremes=(1.0, 1e-12, 1e-60)),
        "deviation": source.normal(*batch, p, extremes=(1.0, 0.0, 1e-200, 30.0)),
        "lambda_sq": positive(source, *batch, p, extremes=(1.0, 1e-60, 1e60)),
        "sigma_sq": positive(source, *batch),
    }


def options(source: Source) -> Arguments:
    return {
        "n_sweeps": source.choose([1, 2, 3]),
        "scales": source.choose(["exact", "expanded"]),
        "draw": source.choose(["auto", "gram", "data"]),
        "scale_lambda": source.choose([1.0, 0.3]),
        "shape": source.choose([2.0, 0.4]),
        "rate": source.choose([1.0, 0.1]),
        "slab": source.choose([np.inf, 2.0, 0.1]),
    }


def response(source: Source, chains: int, r: int) -> Floats:
    """Returns q of each chain, or of all alike."""
    return source.normal(r) if chains > 1 and source.choose([True, False]) else source.normal(chains, r)


def of_chain(function: Callable[..., Any], arguments: Arguments) -> Case:
    """Returns a case whose errors are judged beside the largest deviation of a chain's regression, elsewhere beside the number
    itself."""
    want = function(**arguments, backend="reference")
    largest = np.abs(want[0]).max(axis=-1, keepdims=True, initial=0)
    return Case(arguments, kind="chain", magnitude=[largest, *map(np.abs, want[1:])], wanted=want)


def local_sweeps(source: Source) -> Case:
    c, p = source.choose([0, 1, 2, 3]), min(source.size(), LARGEST)
    rows, R, gram = triangle(source, p)
    rss = source.choose([0.0, 3.0]) if source.choose([True, False]) else positive(source, c)
    data = {"R": R, "q": response(source, c, len(R)), "rss": rss, "n": float(rows), "gram": gram}
    return of_chain(shrinkage.local_sweeps, {**data, **state(source, c, p=p), **options(source), **names(source)})


def local_sweeps_batched(source: Source) -> Case:
    c, p = source.choose([0, 1, 2]), source.size() % BATCHED
    rows, R, gram = triangle(source, p)
    data = {"R": R, "n": float(rows), "gram": gram}
    return of_chain(shrinkage.local_sweeps_batched, {**data, **state(source, c, p, p=p), **options(source), **names(source)})


def gaussian_posterior_draw(source: Source) -> Case:
    c, p = source.choose([0, 1, 2, 3]), min(source.size(), LARGEST)
    _, R, gram = triangle(source, p)
    arguments = {
        "R": R,
        "q": response(source, c, len(R)),
        "mean": source.normal(c, p),
        "scale": positive(source, c, p, extremes=(1.0, 0.0, 1e-60)),
        "sigma_sq": positive(source, c),
        "draw": source.choose(["auto", "gram", "data"]),
        "slab": source.choose([np.inf, 0.3]),
        "gram": gram,
        **names(source),
    }
    want = shrinkage.gaussian_posterior_draw(**arguments, backend="reference")
    return Case(arguments, kind="chain", magnitude=[np.abs(want).max(axis=1, keepdims=True, initial=0)], wanted=(want,))
