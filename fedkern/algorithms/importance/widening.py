"""Judges a default prior by what rows know: it must not decide a number that they can.

At the mode a prior moves the numbers that people read by H^-1 g to first order, g its gradient and H minus the Hessian of the
log-posterior. Where that is much, wider priors are tried, and the first is taken that moves none by much, and leaves none less
sure than expected: than the prior before it, or, where the rows' curvature changes with coefficients, than at the first mode.
Where rows say little (a column that separates responses, a level with one event) there is none, for standard deviations go on
growing with their prior. Source: docs/spec/likelihood.md, section 3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol as Shape

import numpy as np
from numpy.typing import NDArray

from .newton import Metric

Array = NDArray[np.float64]

PULL = 0.1  # posterior sds by which a prior may move a number; part by which its variance may be larger than expected


class Prior(Shape):
    """Is the log-density log p(xi), Jacobians of logarithms included once."""

    def values(self, points: Array) -> Array:
        """Returns the log-density (n,) at points (n, P)."""

    def curvature(self, xi: Array) -> tuple[float, Array, Array]:
        """Returns the log-density at xi (P,), its gradient (P,), and minus its Hessian (P, P)."""


@dataclass(frozen=True)
class Priors:
    """Holds the prior of a job, and wider ones where rows may decide between them, each wider than the one before.

    Attributes
    ----------
    each : the priors; of several the last stands for none, and is not taken
    read : (q, P) the numbers by which they are judged, as a linear map of xi
    bent : whether the rows' curvature changes with these
    """

    each: tuple[Prior, ...]
    read: Array = field(default_factory=lambda: np.empty((0, 0)))
    bent: bool = False

    @property
    def most(self) -> int:
        """The number of the widest that is taken."""
        return max(0, len(self.each) - 2)

    def right(self, number: int, xi: Array, hessian: Array, expected: Array) -> bool:
        """Tells whether a prior decides nothing that rows decide, at its mode.

        Parameters
        ----------
        hessian, expected : (P, P) minus the Hessian of the log-posterior there, and what it is compared with
        """
        slope = self.each[number].curvature(xi)[1] - self.each[-1].curvature(xi)[1]
        B, variance = Metric.of(hessian).factor, self._variance(hessian)
        moved = self.read @ B @ (B.T @ slope)
        sure = variance <= (1 + PULL) * self._variance(expected)
        return bool((moved**2 <= PULL**2 * variance).all() and sure.all())

    def expected(self, number: int, xi: Array, hessian: Array, before: Array) -> Array:
        """Returns (P, P) what minus the Hessian with a prior is compared with; `hessian`, `before`: with the prior before it, and
        what that was compared with."""
        change = self.each[number].curvature(xi)[2] - self.each[number - 1].curvature(xi)[2]
        return before + change if self.bent else hessian

    def _variance(self, hessian: Array) -> Array:
        """(q,) of the numbers."""
        return np.asarray(((self.read @ Metric.of(hessian).factor) ** 2).sum(axis=1))
