"""Bounds the places at which clients are asked whose answers a server only adds, by numbers that each client reckons for itself.

Far away, where a word of a sum would end or single rows outweigh all others, answers tell of few rows. The box follows from the
job file and the agreed scaling alone, so that all clients refuse the same questions, whatever their rows are. A draw outside has
no weight: the posterior is cut off there, 20 prior standard deviations from its prior's mean and farther. Where the prior is of
effects (`models.formula_effects`) these are bounded: the box of a cube of years is that of the same cube about the years' mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import Array
from .messages import RemoteFault

REACH = 20.0  # times a coefficient's prior sd, or `WIDEST` where that is less
WIDEST = 2.5  # of a standardised column's coefficient
SLACK = 1e-9  # of a width: what rounding moves the sums of a place at the border by
LOG_RESIDUAL, LOG_SCALE, LOGIT = 9.0, 12.0, 36.0  # of a log residual scale about the agreed one, other log scales, and logits


def reach(sd: Array, standardised: NDArray[np.bool_] | bool = True) -> Array:
    """Returns how far from the prior's mean coefficients may be asked, by their prior sds; `standardised`: whose columns are.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.algorithms.core.box import reach
    >>> reach(np.array([1.0, 10.0]))
    array([20., 50.])
    """
    return REACH * np.where(standardised, np.minimum(sd, WIDEST), sd)


@dataclass(frozen=True)
class Box:
    """Holds the least and the largest value of each unknown, or of as many sums of them.

    Attributes
    ----------
    low, high : (P,)
    basis : (P, P) from a place to the sums that are bounded; None: the unknowns themselves are

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.algorithms.core.box import Box
    >>> box = Box((-1.0, -2.0), (1.0, 2.0))
    >>> box.holds(np.array([[0.5, 2.0], [1.5, 0.0]])), box.nearest(np.array([1.5, 0.0]))
    (array([ True, False]), array([1., 0.]))
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    basis: tuple[tuple[float, ...], ...] | None = None

    @classmethod
    def about(cls, centre: Array, reach: Array, basis: Array | None = None) -> Self:
        """Returns the box of places (P,) whose sums are at most `reach` from a centre's."""
        if basis is None:
            return cls(tuple((centre - reach).tolist()), tuple((centre + reach).tolist()))
        centre = basis @ centre
        return cls(tuple((centre - reach).tolist()), tuple((centre + reach).tolist()), tuple(map(tuple, basis.tolist())))

    def sums(self, points: Array) -> Array:
        """Returns what is bounded, of places (.., P), or of steps between these."""
        return points if self.basis is None else points @ np.array(self.basis).T

    def ends(self, border: float = 0.0) -> tuple[Array, Array]:
        """Returns the least and the largest sums (P,), of a box that is narrower by so much of its width at each end."""
        low, high = np.array(self.low), np.array(self.high)
        return low + border * (high - low), high - border * (high - low)

    def holds(self, points: Array) -> NDArray[np.bool_]:
        """Tells which places (.., P) are inside; one that is no number is not."""
        sums, (low, high) = self.sums(points), self.ends(0.0 if self.basis is None else -SLACK)
        return np.asarray(((sums >= low) & (sums <= high)).all(axis=-1))

    def nearest(self, points: Array, border: float = 0.0) -> Array:
        """Returns the places (.., P) with the sums in the box, or within such a border of it, that are nearest to these."""
        sums = self.sums(points)
        nearest = np.clip(sums, *self.ends(border))
        if self.basis is None:
            return nearest
        moved = (nearest != sums).any(axis=-1, keepdims=True)
        return np.where(moved, np.linalg.solve(np.array(self.basis), nearest[..., np.newaxis])[..., 0], points)

    @property
    def border(self) -> float:
        """The part of the width by which a place is off that is written as a 32-bit step from the box's centre, twice."""
        if self.basis is None:
            return float(np.finfo(np.float32).eps)
        basis, reach = np.abs(self.basis), (np.array(self.high) - self.low) / 2
        farthest = np.abs(np.linalg.inv(np.array(self.basis))) @ reach
        return float(np.finfo(np.float32).eps * (basis @ farthest / reach).max())

    def check(self, points: Array, what: str) -> None:
        """Refuses a question with places outside of the box, which all clients refuse alike. `what`: the name of its message.
        Raises RemoteFault: one is outside."""
        if not self.holds(points).all():
            raise RemoteFault(
                f"server: {what} asks where no client with secure sums answers: more than {REACH:g} prior standard deviations "
                f"(of a standardised column at most {WIDEST:g} each) from the prior's mean"
            )
