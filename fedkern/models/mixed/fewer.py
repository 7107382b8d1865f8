"""Finds fewer rows with the log-likelihood of a client's rows, but for a constant and a multiple of log sigma.

Of gaussian rows without groups the log-likelihood is a function of the triangular factor R of (X, y) = Q R, for a rotation leaves
squares as they are. The fit's residuals are R's last entry, so that nothing large is taken from anything large, as it would be
from sums of squares. Of binary responses, trials and counts, rows with equal covariates add up to a row of more trials, or of
more exposure.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from ...arrays import Vector

BLOCK = 1 << 12  # rows of a factor at once, so that they stay near the processor
WORTH = 2  # times as many rows as there are left make it worth while
SOME = 8  # times the root of the number of rows are looked at first
LOG_ROOT = 0.5 * np.log(2 * np.pi)


class Fewer(NamedTuple):
    """Holds rows whose log-likelihood, plus `constant`, less `more` times log(sigma) + log(2 pi) / 2, is that of the client's."""

    family: str
    X: Vector
    y: Vector
    offset: Vector | None = None
    trials: Vector | None = None
    constant: float = 0.0
    more: int = 0


def fewer(family: str, X: Vector, y: Vector, offset: Vector | None, trials: Vector | None) -> Fewer | None:
    """Returns fewer rows, or None where there are no fewer. `X`: (n, p); `y`, `offset`, `trials`: (n,)."""
    if not len(X):
        return None
    if family == "gaussian":
        return _rotated(X, y if offset is None else y - offset)
    of_sums = family == "poisson" or family.startswith(("bernoulli", "binomial"))
    return _added(family, X, y, offset, trials) if of_sums else None


def _rotated(X: Vector, y: Vector) -> Fewer | None:
    """Returns the rows of the triangular factor."""
    n, p = X.shape
    if n < WORTH * (p + 1):
        return None
    R: Any = np.empty((0, p + 1))
    for begin in range(0, n, BLOCK):
        block = slice(begin, begin + BLOCK)
        R = np.linalg.qr(np.vstack([R, np.column_stack([X[block], y[block]])]), mode="r")
    return Fewer("gaussian", np.ascontiguousarray(R[:, :p]), np.ascontiguousarray(R[:, p]), more=n - len(R))


def _added(family: str, X: Vector, y: Vector, offset: Vector | None, trials: Vector | None) -> Fewer | None:
    """Returns a row of each combination of covariates and offset."""
    n = len(X)
    columns = X if offset is None else np.column_stack([X, offset])
    # Equal rows have equal sums, and so nearly have all others: below it is seen whether they are.
    random = np.random.default_rng(0)
    factors = np.atleast_1d(random.standard_normal(columns.shape[1:]))
    # Where there are half as many, dozens of so many rows are alike. Where none is, as of most measurements, none is looked for.
    some = random.permutation(n)[: int(SOME * n**0.5)]
    if len(np.unique(columns[some] @ factors)) == len(some):
        return None
    sums = np.zeros(n)
    for k, column in enumerate(columns.T):
        sums += factors[k] * column
    _, first, which = np.unique(sums, return_index=True, return_inverse=True)
    if WORTH * len(first) > n or not (columns[first][which] == columns).all():
        return None
    total, m = (np.bincount(which, weights).astype(np.float64) for weights in (y, None))
    rest = None if offset is None else offset[first]
    if family == "poisson":
        constant = (gammaln(total + 1) - total * np.log(m)).sum() - gammaln(y + 1).sum()
        exposure = np.log(m) if rest is None else rest + np.log(m)
        return Fewer(family, X[first], total, exposure, constant=float(constant))
    tried = np.ones(n) if trials is None else trials
    together = np.bincount(which, tried).astype(np.float64)
    constant = _log_choose(tried, y).sum() - _log_choose(together, total).sum()
    return Fewer(family.replace("bernoulli", "binomial"), X[first], total, rest, together, float(constant))


def _log_choose(n: Vector, k: Vector) -> Vector:
    return np.asarray(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))
