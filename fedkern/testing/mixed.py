"""Makes cases of the kernels of mixed models."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedkern.kernels import families, mixed
from fedkern.kernels._reference import mixed as _reference

from . import Arguments, Case, Source

reference: Any = _reference

FAMILIES = tuple(mixed.CODES)
ROWS = (0, 1, 2, 9, 33)
POINTS = (1, 2, 7, 8, 9, 17)
NODES = {0: (1, 4), 1: (1, 2, 5, 15), 2: (1, 3, 4), 3: (1, 2)}
LARGEST_MEAN = 40.0  # of counts, so that a dispersion matters and a sum does not take long


CUTS = ((), (0.7,), (0.3, 0.9, 2.5))


def data(source: Source) -> Arguments:
    """Returns points and rows of some groups, some of which have no rows."""
    random, family = source.random, source.choose(FAMILIES)
    several = family in mixed.SEVERAL_MODES
    n, s, p = source.choose(ROWS), source.choose(POINTS), source.choose([1, 2, 4])
    d = source.choose([0, 1, 1, 1, 1] if several else [0, 1, 1, 2, 3])
    X, Z = 0.7 * random.standard_normal((n, p)), random.standard_normal((n, d))
    Z[:, :1] = source.choose([Z[:, :1], np.ones((n, 1))[:, : min(d, 1)]])
    cuts = np.array(source.choose(CUTS)) if family == "piecewise" else None
    n_shapes = (
        source.choose([1, 2, 4]) if family in mixed.ORDERED else mixed.SHAPES.get(family, 0) + (0 if cuts is None else len(cuts))
    )
    points = random.standard_normal((s, mixed.size(p, d, family, n_shapes))) * source.choose([0.3, 1.0])
    offset = source.choose([None, 0.5 * random.standard_normal(n)])
    tried = family.startswith(("binomial", "beta-binomial", "gamma")) and source.choose([True, False])
    trials = random.integers(1, 9, n).astype(float) if tried else None
    eta = np.clip(X @ points[0, :p] + random.standard_normal(n), -4, np.log(LARGEST_MEAN))
    y = response(source, family, eta, trials, n_shapes)
    upper = None
    if family in mixed.TIMES and source.choose([True, True, True, False]):
        kind = random.integers(0, 4, n)  # event, censored on the right, in an interval, censored on the left
        y, upper = np.where(kind == 3, 0.0, y), np.choose(kind, [y, np.full(n, np.inf), 1.5 * y, y])
    seen_late = family in mixed.TIMES and not (d and family in families.ACCELERATED)
    entry = late(source, y, upper) if seen_late and source.choose([True, False]) else None
    if "negative-binomial" in family and source.choose([False, False, True]):
        points[0, len(points[0]) - n_shapes] = 0.0
    if source.choose([False, False, False, True]):  # far points, and one that is none
        points[-1, 0] = source.choose([60.0, -300.0, np.nan])
    if n and source.choose([False] * 7 + [True]):
        y[0] = source.choose([-1.0, np.nan])
    starts = np.concatenate([[0], np.sort(random.integers(0, n + 1, source.choose([0, 1, 4, 9]))), [n]])
    optional = {"trials": trials, "offset": offset, "upper": upper, "cuts": cuts, "entry": entry}
    return {
        "points": source.array(points),
        "X": source.array(X),
        "Z": source.array(Z),
        "y": source.array(y),
        "starts": source.array(starts, np.int64),
        **{name: None if value is None else source.array(value) for name, value in optional.items()},
        "family": family,
        "nodes": source.choose(NODES[d]),
    }


def late(source: Source, y: Any, upper: Any) -> Any:
    """From 0 on, long before y, shortly before it, or, where no event is at y, from y on."""
    kind = source.random.integers(0, 4, len(y))
    from_start = kind < 3 if upper is None else (kind < 3) | (upper == y)
    return np.where(from_start, np.choose(kind % 3, [0 * y, 0.7 * y, (1 - 1e-9) * y]), y)


def response(source: Source, family: str, eta: Any, trials: Any, n_shapes: int) -> Any:
    """Returns y of predictors; for times those of events."""
    random, n = source.random, len(eta)
    if family in ("gaussian", "student"):
        return eta + (random.standard_normal(n) if family == "gaussian" else random.standard_t(2, n))
    if family.startswith(("bernoulli", "binomial", "beta-binomial")):
        return random.binomial(1 if trials is None else trials.astype(int), 1 / (1 + np.exp(-eta))).astype(float)
    if family in ("gamma", "lognormal", "inverse-gaussian", *mixed.TIMES):
        return random.gamma(1.0, np.exp(0.5 * eta)) + 1e-6
    if family == "beta":
        return np.clip(1 / (1 + np.exp(-eta - 0.5 * random.standard_normal(n))), 1e-9, 1 - 1e-9)
    if family in mixed.ORDERED:
        return random.integers(0, n_shapes + 1, n).astype(float)
    y = random.poisson(np.exp(eta)).astype(float)
    return y * (random.random(n) < 0.6) if family.startswith(("zero", "hurdle")) else y


def values(source: Source) -> Case:
    """Makes a case of values. A value is a sum of terms of many sizes; that of each point is as large as its normaliser and its
    rows."""
    arguments = data(source)
    value = mixed.values(**arguments, backend="reference")
    return Case(arguments, magnitude=[_large(value, arguments)], wanted=(value,))


def curvature(source: Source) -> Case:
    """Makes a case of curvatures. Covariances of slopes are differences of their squares."""
    arguments = data(source)
    value, gradient, minus_hessian = mixed.curvature(**arguments, backend="reference")
    slope, curve = (np.abs(result).max(axis=1, initial=0.0, keepdims=True) for result in (gradient, minus_hessian))
    rest = 100 * (1 + np.abs(value[:, None]))
    of_slopes, of_curves = rest + 100 * slope, rest + 100 * curve + slope**2
    magnitude = [_large(value, arguments), of_slopes + np.zeros_like(gradient), of_curves + np.zeros_like(minus_hessian)]
    return Case(arguments, magnitude=magnitude, wanted=(value, gradient, minus_hessian))


def _large(value: Any, arguments: Arguments) -> Any:
    y = np.where(np.isfinite(arguments["y"]), np.abs(arguments["y"]), 0.0)
    return 10 * (1 + np.abs(value) + (y * (1 + np.log1p(y))).sum())
