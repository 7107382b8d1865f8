"""Makes the log-likelihood of a client's rows a sum in which no row counts for more than a limit.

A server that gets the sum of all clients may ask at points at which rows have no density to speak of. If a client said there that
its sum has no value, or is too large to be added, the server would learn something of this client alone. So each row's
log-likelihood counts as -2^30 nats where it is lower or no number, and adds nothing to the derivatives there, which are those of
the sum of what counts. Where rows have effects in common that are integrated out, it is so for a group as a whole, with the limit
times its number of rows. How many rows or groups are cut off is counted: it is a sum over rows like all else, and no result is
made of points at which there are any.

Rows are looked at one by one only where the sum of some is so low that one of them may be cut off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import numpy as np

from ..arrays import Indices, Vector

LIMIT = 2.0**30  # nats of a row: with 2^31 rows sums have room in the words that are masked (`privacy.masks`)
HIGHEST = 1024.0  # nats: no log-density of a row is above it, for no number is below 5e-324 in size
# nats a row, of rows that are one: only where there is no number to speak of, for what is cut off there is a client
FAR = 2.0**94
AT_ONCE = int(LIMIT / 2 / HIGHEST)  # rows, of which none can be cut off where their sum is above half the limit


class Separable(Protocol):
    """Is the log-likelihood of rows, or of groups of rows, that is a sum over these."""

    @property
    def size(self) -> int:
        """P, the length of a point."""

    @property
    def together(self) -> bool:
        """Whether all rows of a client are one, as it has an effect or a hazard of its own."""

    @property
    def units(self) -> Indices:
        """(u + 1,) the row at which each row or group begins, and the number of rows."""

    def of_units(self, part: slice) -> Self:
        """Returns the same of some rows or groups that follow each other."""

    def values(self, points: Vector, nodes: int) -> Vector:
        """Returns log-likelihoods (S,) at points (S, P); NaN where one is no number."""

    def curvature(self, points: Vector, nodes: int) -> tuple[Vector, Vector, Vector]:
        """Returns log-likelihoods (c,), gradients (c, P) and minus Hessians (c, P, P)."""

    def rule(self, points: Vector, nodes: int) -> Vector:
        """Returns (S,) the change of the values with more nodes."""


class Curved(NamedTuple):
    """Holds log-likelihoods (c,), gradients (c, P), minus Hessians (c, P, P), and how many rows or groups (c,) are cut off."""

    value: Vector
    gradient: Vector
    hessian: Vector
    cut: Vector


Evaluate = Callable[[Separable, Vector], tuple[Vector, ...]]


@dataclass(frozen=True)
class Saturated:
    """Holds a client's rows; it is the field of no message."""

    rows: Separable

    @property
    def size(self) -> int:
        """P, the length of a point."""
        return self.rows.size

    def counted(self, points: Vector, nodes: int) -> tuple[Vector, Vector]:
        """Returns log-likelihoods (S,) at points (S, P), and how many rows or groups (S,) are cut off."""
        value, cut = _added(self.rows, lambda rows, some: (rows.values(some, nodes),), points)
        return value, cut

    def curved(self, points: Vector, nodes: int) -> Curved:
        """Returns log-likelihoods with their derivatives at points (c, P)."""
        return Curved(*_added(self.rows, lambda rows, some: rows.curvature(some, nodes), points))

    def values(self, points: Vector, nodes: int) -> Vector:
        """Returns log-likelihoods (S,) at points (S, P)."""
        return self.counted(points, nodes)[0]

    def curvature(self, points: Vector, nodes: int) -> tuple[Vector, Vector, Vector]:
        """Returns log-likelihoods (c,), gradients (c, P) and minus Hessians (c, P, P)."""
        return self.curved(points, nodes)[:3]

    def rule(self, points: Vector, nodes: int) -> Vector:
        """Returns (S,) the change of the values with more nodes; 0 of a group that is cut off."""
        return _added(self.rows, lambda rows, some: (rows.values(some, nodes), rows.rule(some, nodes)), points)[1]


def _added(rows: Separable, evaluate: Evaluate, points: Vector) -> tuple[Vector, ...]:
    """Returns sums over rows or groups, and last how many of these are cut off."""
    n, size = len(rows.units) - 1, int(rows.units[-1])
    if n > 1 and size > AT_ONCE:
        return _halves(rows, evaluate, points)
    found = evaluate(rows, points)
    good = np.all([np.isfinite(values).reshape(len(points), -1).all(axis=1) for values in found], axis=0)
    low = -LIMIT / 2 if n > 1 else -(FAR if rows.together else LIMIT) * max(size, 1)
    bad = ~(good & (found[0] >= low))
    out = (*(np.array(values) for values in found), np.zeros(len(points)))
    if not bad.any():
        return out
    if n > 1:
        others = _halves(rows, evaluate, points[bad])
    else:
        none = int(bad.sum())
        others = (*(np.zeros((none, *values.shape[1:])) for values in found), np.ones(none))
        others[0][:] = low
    for values, other in zip(out, others, strict=True):
        values[bad] = other
    return out


def _halves(rows: Separable, evaluate: Evaluate, points: Vector) -> tuple[Vector, ...]:
    """Returns the same, of the first and of the second half of the rows or groups."""
    n = len(rows.units) - 1
    first, second = (_added(rows.of_units(part), evaluate, points) for part in (slice(0, n // 2), slice(n // 2, n)))
    return tuple(value + other for value, other in zip(first, second, strict=True))
