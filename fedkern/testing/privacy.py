"""Makes cases of the privacy kernels."""

from __future__ import annotations

import numpy as np

from fedkern.kernels import privacy, rng

from . import Case, Source


def clip_sum(source: Source) -> Case:
    n, p = source.size(), source.size()
    rows = source.normal(
        n, p, dtype=source.choose(["f8", "f4"]), extremes=(1.0, 0.0, 1e-200, 1e150, 1e308, -np.inf, np.inf, np.nan)
    )
    clip = source.choose([1e-3, 1.0, 5.0, 1e300])
    magnitude = privacy.clip_sum(np.abs(rows), clip, backend="reference")
    precision = "float32" if rows.dtype == np.float32 else "float64"
    return Case({"rows": rows, "clip": clip}, precision=precision, magnitude=[magnitude])


def add_noise(source: Source) -> Case:
    d = source.size()
    total = source.normal(d, extremes=(1.0, 0.0, 1e300, -np.inf, np.nan))
    sigma = source.choose([0.0, 1e-3, 5.0, 1e150])
    counter = {"client": source.choose([0, 2**32 - 1]), "step": source.choose([0, 77, 2**32 - 1])}
    seed, chain = source.choose([0, 3, 2**64 - 1]), source.choose([0, 5])
    magnitude = np.abs(total) + sigma * np.abs(rng.normal(d, key=rng.key(seed, "noise", chain), **counter, backend="reference"))
    return Case({"total": total, "sigma": sigma, "seed": seed, "chain": chain, **counter}, magnitude=[magnitude])


def discrete_gaussian(source: Source) -> Case:
    """Makes a case with enough words for all draws: another test has too few. Some of the words make ties and long runs (then a
    draw takes up to 45)."""
    n = source.size()
    words = source.random.integers(0, 2**32, 60 * n + 600, dtype=np.uint32)
    if source.choose([True, False]):
        words[:: source.choose([3, 50])] = source.choose([0, 2**31, 2**32 - 1])
    sigma = source.choose([1, 2, 7, 1000, 5 << 20, 2**28 + 1, 2**31 - 1])
    return Case({"words": source.array(words, np.uint32), "sigma": sigma, "size": n}, kind="exact")
