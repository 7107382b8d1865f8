"""Makes cases of the random-number kernels."""

from __future__ import annotations

import numpy as np

from fedkern.kernels import rng

from . import Arguments, Case, Floats, Source

LAST = 2**32 - 1


def counter(source: Source, n: int) -> Arguments:
    """Returns a key and words of a counter, some of them near their limits."""
    return {
        "key": source.choose([0, 2**64 - 1, rng.key(7, "draws", chain=3)]),
        "client": source.choose([0, 5, LAST]),
        "step": source.choose([0, 70_000, LAST]),
        "first_item": source.choose([0, 2**31 - 3, 2**32 - max(n, 1)]),  # the last one ends exactly where the counter does
    }


def consecutive(source: Source, kind: str) -> Case:
    n = source.size()
    return Case({"size": n, "draw": source.choose([0, 3, LAST]), **counter(source, n)}, kind=kind)


def words(source: Source) -> Case:
    return consecutive(source, "exact")


def uniform(source: Source) -> Case:
    return consecutive(source, "exact")


def normal(source: Source) -> Case:
    return consecutive(source, "elementwise")


def exponential(source: Source) -> Case:
    return consecutive(source, "elementwise")


def parameter(source: Source, n: int) -> Floats | float:
    """Returns an array or, for all alike, a float."""
    scale: float = source.choose([1e-300, 1e-3, 0.3, 1.0, 40.0, 1e12])
    if source.choose([True, False]):
        return scale
    spread = np.exp(source.random.standard_normal(n))
    return source.array(scale * spread, extremes=(1.0, 0.0, -1.0, np.inf, np.nan))


def gamma(source: Source) -> Case:
    n = source.size()
    shape = parameter(source, n)
    return Case({"shape": shape, "size": n, **counter(source, n)}, kind="variate")


def inverse_gaussian(source: Source) -> Case:
    n = source.size()
    return Case({"mean": parameter(source, n), "shape": parameter(source, n), "size": n, **counter(source, n)}, kind="variate")


def polya_gamma(source: Source) -> Case:
    n = source.size()
    z = source.array(
        source.choose([1.0, 30.0]) * source.random.standard_normal(n), extremes=(0.0, 1e-200, 3000.0, 1e200, np.inf, np.nan)
    )
    return Case({"z": z, **{k: v for k, v in counter(source, n).items() if k != "draw"}}, kind="variate")


def counts(source: Source) -> Case:
    """Makes a case of Poisson, negative binomial or binomial counts, some of which are not reached."""
    n = source.size()
    u, mean = source.random.uniform(size=n), np.exp(source.random.uniform(-3, 4, n))
    share = mean / (3.5 + mean)
    first, a, b = source.choose(
        [
            (np.exp(-mean), 0.0, mean),
            (np.exp(-3.5 * np.log1p(mean / 3.5)), share, 2.5 * share),
            ((1 - share) ** 12, -share / (1 - share), 13 * share / (1 - share)),
        ]
    )
    u = source.array(source.choose([u, np.full(n, 2.0)]), extremes=(0.0, 1.0, np.nan))
    most = source.choose([np.inf, source.array(source.random.integers(0, 30, n).astype(float))])
    vectors = {
        "most": most,
        "first": source.array(first),
        "a": a if isinstance(a, float) else source.array(a),
        "b": source.array(b),
    }
    return Case({"u": u, **vectors, "terms": source.choose([1, 20, 200]), "size": n}, kind="elementwise")
