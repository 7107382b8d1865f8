"""Makes cases of the kernels of multinomial models."""

from __future__ import annotations

import numpy as np

from . import Arguments, Case, Source

POINTS = (1, 2, 7, 16, 17, 33)


def data(source: Source) -> Arguments:
    """Returns rows of several levels. Predictors may be far from each other, and a response may be none of the levels."""
    random = source.random
    n, s, p, levels = source.size(), source.choose(POINTS), source.choose([0, 1, 2, 3, 9]), source.choose([2, 3, 6])
    X = random.standard_normal((n, p))
    y = random.integers(0, source.choose([1, levels]), n).astype(float)
    points = random.standard_normal((s, (levels - 1) * p)) * source.choose([0.3, 1.0, 300.0])
    if points.size and source.choose([False, False, False, True]):
        points.flat[int(random.integers(points.size))] = source.choose([np.nan, np.inf, 1e200])
    if n and source.choose([False] * 7 + [True]):
        y[int(random.integers(n))] = source.choose([-1.0, 0.5, float(levels), np.nan, np.inf])
    return {"points": source.array(points), "X": source.array(X), "y": source.array(y), "levels": levels}


def values(source: Source) -> Case:
    arguments = data(source)
    return Case(arguments, magnitude=[_large(arguments)[0]])


def curvature(source: Source) -> Case:
    arguments = data(source)
    return Case(arguments, magnitude=_large(arguments))


def _large(arguments: Arguments) -> list[np.ndarray]:
    """Returns sums of the absolute terms: for the value those of predictors, for the other results those of the columns."""
    points, X = (np.asarray(arguments[name], np.float64) for name in ("points", "X"))
    n, p = X.shape
    with np.errstate(all="ignore"):
        eta = np.abs(points).reshape(len(points), int(arguments["levels"]) - 1, p) @ np.abs(X).T
        most = eta.max(axis=(1, 2), initial=1.0)
    column, rows = np.abs(X).max(initial=1.0), 1.0 + n
    scale = rows * (1 + most)  # an error of the predictor is one of e^predictor
    k = points.shape[1]
    return [scale, np.repeat((scale * column)[:, None], k, 1), np.repeat((scale * column**2)[:, None], k * (k + 1) // 2, 1)]
