"""Tells of how few rows a client's curvature X'WX is: by their effective number, and by the largest leverage of one.

A row's weight is minus the second derivative of its log-density in its predictor. Where few rows have any, or one has nearly all
of some sum, gradient and curvature are these rows' own. Source: docs/concepts/disclosure.md.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from ..arrays import Vector

FULL = 6  # rows a coefficient; of fewer each row is nearly alone in some sum of many columns
ENOUGH_DIGITS, TINY = 1e-9, 1e-300  # of the largest eigenvalue of X'X; of a column's squares
BLOCK = 1 << 12  # rows whose products are added at once: they stay near the processor


class Weighed(Protocol):
    """Is a client's rows as a model weighs them."""

    @property
    def X(self) -> Vector:
        """(n, p) the columns of the coefficients."""

    def weighed(self, point: Vector) -> Vector:
        """Returns (k, n) the rows' weights at a point (P,), of each of k blocks of p coefficients; effects are 0."""


class Least(NamedTuple):
    """Holds what is asked of rows at a point: their effective number, and the leverage that one has at most."""

    rows: float
    leverage: float

    @classmethod
    def of(cls, X: Vector, rows: float, a_coefficient: float, leverage: float) -> Least:
        """Returns it of rows X (n, p): the number in all, or for each coefficient that they tell from the others."""
        X = X / np.sqrt(np.maximum((X**2).sum(axis=0), TINY))  # so that units decide nothing
        sizes = np.linalg.eigvalsh(X.T @ X)
        return cls(max(rows, a_coefficient * int((sizes > ENOUGH_DIGITS * sizes[-1]).sum())), leverage)


def effective(weights: Vector) -> float:
    """Returns (sum w)^2 / sum w^2, the number of rows that weigh as much as these; 0 for none.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.models.weighing import effective
    >>> effective(np.array([1.0, 1.0, 0.0])), effective(np.zeros(3))
    (2.0, 0.0)
    """
    most = float(weights.max(initial=0.0))
    if not most > 0:
        return 0.0
    relative = weights / most
    return float(relative.sum()) ** 2 / float((relative**2).sum())


def products(X: Vector, weights: Vector) -> Vector:
    """Returns X'WX (p, p) of X (n, p) and weights (n,)."""
    found = np.zeros((X.shape[1], X.shape[1]))
    for begin in range(0, len(X), BLOCK):
        rows = X[begin : begin + BLOCK]
        found += (rows.T * weights[begin : begin + BLOCK]) @ rows
    return found


def levered(X: Vector, weights: Vector, precision: Vector, most: float) -> tuple[int, float] | None:
    """Returns the row of the highest leverage in X'WX and a prior's precision, and this, where it is above `most`.

    Of few rows it is a row's largest share of a column's squares.

    Parameters
    ----------
    X : (n, p)
    weights : (n,)
    precision : (p, p)
    """
    both = products(X, weights) + precision
    lengths = np.maximum(np.diag(both), TINY)
    if len(X) <= FULL * X.shape[1]:
        leverage = weights * (X**2 / lengths).max(axis=1)
        row = int(leverage.argmax())
        return (row, float(leverage[row])) if leverage[row] > most else None
    scale = np.sqrt(lengths)  # so that units decide nothing
    sizes, turned = np.linalg.eigh(both / np.outer(scale, scale))
    kept = sizes > ENOUGH_DIGITS * sizes[-1]
    # No row has more than its squares over the least eigenvalue: nearly all have too little to be looked at.
    some = np.flatnonzero(weights * np.einsum("ij,ij,j->i", X, X, 1 / lengths) > most * sizes[kept][0])
    if not len(some):
        return None
    Q = X[some] @ (turned[:, kept] / np.sqrt(sizes[kept]) / scale[:, np.newaxis])
    leverage = weights[some] * (Q**2).sum(axis=1)
    best = int(leverage.argmax())
    return (int(some[best]), float(leverage[best])) if leverage[best] > most else None


def few(rows: Weighed, point: Vector, prior: Vector, least: Least) -> bool:
    """Tells whether gradient and curvature at a point are those of few rows; where none weighs anything they are of none.
    `prior`: (P, P) minus the Hessian of the log prior at the point."""
    X = rows.X
    for k, weights in enumerate(rows.weighed(point)):
        block = slice(k * X.shape[1], (k + 1) * X.shape[1])
        if not weights.any():
            continue
        if effective(weights) < least.rows:
            return True
        if levered(X, weights, prior[block, block], least.leverage) is not None:
            return True
    return False
