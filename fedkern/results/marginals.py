"""One number of a posterior, by its name: exact where the posterior is Gaussian, else by draws; and differences of two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Normal:
    """A linear function of a Gaussian vector: mean, and (d,) what it is of independent standard normals."""

    mean: float
    half: Array

    @property
    def sd(self) -> float:
        return float(np.sqrt(self.half @ self.half))

    def less(self, other: Normal | None) -> Normal:
        """The difference of two of one vector; None is zero."""
        return self if other is None else Normal(self.mean - other.mean, self.half - other.half)

    @property
    def negated(self) -> Normal:
        return Normal(-self.mean, -self.half)

    def quantiles(self, at: Sequence[float]) -> list[float]:
        return [self.mean + float(scipy.special.ndtri(p)) * self.sd for p in at]


@dataclass(frozen=True)
class Drawn:
    """Draws (c, t)."""

    draws: Array

    @property
    def mean(self) -> float:
        return float(self.draws.mean())

    @property
    def sd(self) -> float:
        return float(self.draws.std(ddof=1)) if self.draws.size > 1 else float("nan")

    def less(self, other: Drawn | None) -> Drawn:
        """The difference, draw by draw; None is zero."""
        return self if other is None else Drawn(self.draws - other.draws)

    @property
    def negated(self) -> Drawn:
        return Drawn(-self.draws)

    def quantiles(self, at: Sequence[float]) -> list[float]:
        found: list[float] = np.quantile(self.draws, at).tolist()
        return found


Marginal = Normal | Drawn


def difference(first: Marginal | None, second: Marginal | None) -> Marginal | None:
    """The first less the second, of one posterior; what is None is zero, as a reference level without a coefficient."""
    if isinstance(first, Normal) and not isinstance(second, Drawn):
        return first.less(second)
    if isinstance(first, Drawn) and not isinstance(second, Normal):
        return first.less(second)
    return None if second is None else second.negated
