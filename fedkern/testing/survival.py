"""Cases of the kernels of survival models."""

from __future__ import annotations

import numpy as np

from fedkern.kernels import survival

from . import Arguments, Case, Source

POINTS = (1, 2, 7, 16, 17, 33)


def data(source: Source) -> Arguments:
    """Rows with tied and censored times, in strata, of which some enter late; predictors may be far from each other."""
    random = source.random
    n, s, p = source.size(), source.choose(POINTS), source.choose([0, 1, 2, 3, 9])
    times = random.exponential(size=n)
    time = source.choose([times, 1.0 + np.floor(5 * times), np.ones(n)])
    event = random.random(n) < source.choose([0.0, 0.3, 0.7, 1.0])
    entry = source.choose([None, time * random.random(n) - 0.3, time * random.random(n) ** 0.1 - 1e-3])
    strata = source.choose([None, random.integers(0, 4, n)])
    found = survival.arranged(time, event, entry, strata)
    X = random.standard_normal((n, p))
    offset = source.choose([None, random.standard_normal(n), 300.0 * random.standard_normal(n)])
    points = random.standard_normal((s, p)) * source.choose([0.3, 1.0, 50.0])
    if points.size and source.choose([False, False, False, True]):
        points.flat[int(random.integers(points.size))] = source.choose([np.nan, np.inf, 1e200])
    weights = source.choose([None, random.uniform(0.2, 3.0, n)])
    return {
        "points": source.array(points), "X": source.array(X), "weights": _laid(source, weights), "offset": _laid(source, offset),
        "first": found.first, "ends": found.ends, "deaths": found.deaths, "until": found.until,
    }  # fmt: skip


def _laid(source: Source, values: np.ndarray | None) -> np.ndarray | None:
    return None if values is None else source.array(values)


def cox_values(source: Source) -> Case:
    arguments = data(source)
    return Case(arguments, magnitude=[_large(arguments)[0]])


def cox_curvature(source: Source) -> Case:
    arguments = data(source)
    return Case(arguments, magnitude=_large(arguments))


def _large(arguments: Arguments) -> list[np.ndarray]:
    """Sums of the absolute terms: of the value of predictors, of the others of the columns, times who has an event. A sum from
    which rows have left is up to sixteen times as exact as the terms that it was made of."""
    points, X, deaths = (np.asarray(arguments[name], np.float64) for name in ("points", "X", "deaths"))
    with np.errstate(all="ignore"):
        eta = np.abs(points) @ np.abs(X).T + (0.0 if arguments["offset"] is None else np.abs(arguments["offset"]))
        most = eta.max(axis=1, initial=1.0)
    column, events = np.abs(X).max(initial=1.0), 1.0 + deaths.sum()
    scale = 50 * events * (1 + most)  # an error of the predictor is one of e^predictor
    p = X.shape[1]
    return [scale, np.repeat((scale * column)[:, None], p, 1), np.repeat((scale * column**2)[:, None], p * (p + 1) // 2, 1)]
