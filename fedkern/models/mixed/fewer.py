"""Finds fewer rows with the log-likelihood of a client's rows, but for a constant and a multiple of log sigma.

Of gaussian rows without groups the log-likelihood is a function of the triangular factor R of (X, y) = Q R, for a rotation leaves
squares as they are. The fit's residuals are R's last entry, so that nothing large is taken from anything large, as
it would be from sums of squares. Of binary responses, trials and
counts, rows with equal covariates add up to a row of more trials, or of more exposure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

if TYPE_CHECKING:
    from .rows import Rows

Vector = NDArray[np.float64]

BLOCK = 1 << 15  # rows of a factor at once
WORTH = 2  # times as many rows as there are left make it worth while
LOG_ROOT = 0.5 * np.log(2 * np.pi)


class Fewer(NamedTuple):
    """Holds rows whose log-likelihood, plus `constant`, less `more` times log(sigma) + log(2 pi) / 2, is that of the client's."""

    rows: Rows
    constant: float = 0.0
    more: int = 0


def fewer(rows: Rows) -> Fewer | None:
    """Returns fewer rows, or None where there are no fewer."""
    if rows.layout.group or not len(rows):
        return None
    if rows.layout.family == "gaussian":
        return _rotated(rows)
    return _added(rows) if rows.layout.family in ("bernoulli", "binomial", "poisson") else None


def _with_rows(rows: Rows, X: Vector, y: Vector, offset: Vector | None = None, trials: Vector | None = None) -> Rows:
    family = "binomial" if trials is not None else rows.layout.family
    parts = (None if part is None else np.ascontiguousarray(part) for part in (X, y, offset, trials))
    X, y, offset, trials = parts  # type: ignore[assignment]
    layout = replace(rows.layout, family=family)
    return replace(rows, layout=layout, X=X, y=y, starts=np.array([0, len(y)]), offset=offset, trials=trials, whole=True)


def _rotated(rows: Rows) -> Fewer | None:
    """Returns the rows of the triangular factor."""
    n, p = rows.X.shape
    if n < WORTH * (p + 1):
        return None
    y = rows.y if rows.offset is None else rows.y - rows.offset
    R = np.empty((0, p + 1))
    for at in range(0, n, BLOCK):
        some = slice(at, at + BLOCK)
        R = np.asarray(np.linalg.qr(np.vstack([R, np.column_stack([rows.X[some], y[some]])]), mode="r"))
    return Fewer(_with_rows(rows, R[:, :p], R[:, p]), 0.0, n - len(R))


def _added(rows: Rows) -> Fewer | None:
    """Returns a row of each combination of covariates and offset."""
    key = np.random.default_rng(0).standard_normal(rows.X.shape[1] + 1)
    # Equal rows have equal sums, and so nearly have all others: below it is seen whether they are.
    columns = rows.X if rows.offset is None else np.column_stack([rows.X, rows.offset])
    sums = np.zeros(len(rows))
    for k, column in enumerate(columns.T):
        sums += key[k] * column
    _, first, which = np.unique(sums, return_index=True, return_inverse=True)
    if WORTH * len(first) > len(rows) or not (columns[first][which] == columns).all():
        return None
    total, m = _sums(which, rows.y), _sums(which, np.ones(len(rows)))
    X, offset = rows.X[first], None if rows.offset is None else rows.offset[first]
    if rows.layout.family == "poisson":
        constant = (gammaln(total + 1) - total * np.log(m)).sum() - gammaln(rows.y + 1).sum()
        return Fewer(_with_rows(rows, X, total, np.log(m) if offset is None else offset + np.log(m)), float(constant))
    trials = np.ones(len(rows)) if rows.trials is None else rows.trials
    every = _sums(which, trials)
    constant = _log_choose(trials, rows.y).sum() - _log_choose(every, total).sum()
    return Fewer(_with_rows(rows, X, total, offset, every), float(constant))


def _sums(which: NDArray[np.int64], numbers: Vector) -> Vector:
    return np.asarray(np.bincount(which, numbers), np.float64)


def _log_choose(n: Vector, k: Vector) -> Vector:
    return np.asarray(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))
