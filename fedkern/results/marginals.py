"""Defines one number of a posterior: exact where the posterior is Gaussian, else by draws; and differences of two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Normal:
    """Holds a linear function of a Gaussian vector: its mean, and its (d,) coefficients in independent standard normals."""

    mean: float
    half: Array

    @property
    def sd(self) -> float:
        return float(np.sqrt(self.half @ self.half))

    def less(self, other: Normal | None) -> Normal:
        """Returns the difference of two functions of one vector; None is zero."""
        return self if other is None else Normal(self.mean - other.mean, self.half - other.half)

    @property
    def negated(self) -> Normal:
        return Normal(-self.mean, -self.half)

    def quantiles(self, levels: Sequence[float]) -> list[float]:
        return [self.mean + float(scipy.special.ndtri(p)) * self.sd for p in levels]


@dataclass(frozen=True)
class Drawn:
    """Holds (c, t) draws of a number."""

    draws: Array

    @property
    def mean(self) -> float:
        return float(self.draws.mean())

    @property
    def sd(self) -> float:
        return float(self.draws.std(ddof=1)) if self.draws.size > 1 else float("nan")

    def less(self, other: Drawn | None) -> Drawn:
        """Returns the difference, draw by draw; None is zero."""
        return self if other is None else Drawn(self.draws - other.draws)

    @property
    def negated(self) -> Drawn:
        return Drawn(-self.draws)

    def quantiles(self, levels: Sequence[float]) -> list[float]:
        ends: list[float] = np.quantile(self.draws, levels).tolist()
        return ends


Marginal = Normal | Drawn


def difference(first: Marginal | None, second: Marginal | None) -> Marginal | None:
    """Returns the first less the second, of one posterior; None is zero, as is a reference level, which has no coefficient."""
    if isinstance(first, Normal) and not isinstance(second, Drawn):
        return first.less(second)
    if isinstance(first, Drawn) and not isinstance(second, Normal):
        return first.less(second)
    return None if second is None else second.negated
