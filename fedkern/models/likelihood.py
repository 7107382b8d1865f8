"""Observation models with one linear predictor eta: a family, and its dispersion, which is a number or unknown.

y ~ p(y | eta, gamma), where gamma is the logarithm of an unknown dispersion, or nothing. Source: vertical.md, sections 1, 8
and 9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.families import FAMILIES, HALF_LOG_TAU, MOST, Dispersion, Family, Scale, Unknown, half_normal

__all__ = ["HALF_LOG_TAU", "MOST", "Likelihood", "Scale", "half_normal"]

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class _Counts:
    """The counts (k, 1, .., n) that rows may have of which an interval is known; eta, trials and log probabilities (k, .., n)."""

    each: Vector
    eta: Vector
    trials: Vector | None
    values: Vector

    @property
    def total(self) -> Vector:
        """(.., n) log P(one of them)."""
        return np.asarray(np.logaddexp.reduce(self.values))

    def averaged(self, numbers: Vector) -> Vector:
        """(.., n) of a number of each count, by their probabilities."""
        return np.asarray((np.exp(self.values - self.total) * numbers).sum(axis=0))


@dataclass(frozen=True)
class Likelihood:
    """log p(y | eta) of every row.

    Attributes
    ----------
    family : name of a record of `kernels.families`
    scale : its dispersion, where it has one; None: unknown, with the family's prior, represented by its logarithm
    """

    family: str
    scale: float | None = 1.0

    def __post_init__(self) -> None:
        if self.scale is None and self.record.dispersion is not None and self.record.dispersion.unknown is None:
            raise ValueError(f"likelihood: scale of the {self.family} family must be given")

    @property
    def record(self) -> Family:
        """All that is known of the family."""
        return FAMILIES[self.family]

    @property
    def dispersed(self) -> bool:
        """Whether there is a dispersion to learn."""
        return self.record.dispersion is not None and self.scale is None

    @property
    def unknown(self) -> Unknown:
        """How the dispersion is learnt, where it is."""
        dispersion = self.record.dispersion
        assert isinstance(dispersion, Dispersion)
        assert dispersion.unknown is not None
        return dispersion.unknown

    def sd(self, log_scale: Scale = 0.0) -> Any:
        """The dispersion: of "gaussian" the error standard deviation."""
        return np.exp(log_scale) if self.scale is None else self.scale

    def value(
        self, y: Vector, eta: Vector, log_scale: Scale = 0.0, trials: Vector | None = None, last: Vector | None = None
    ) -> Vector:
        """(n,) log p(y | eta), normalised in y; `trials` (n,) of a binomial y. Of a count that is only known to be y to `last`
        (n,): log P(y <= Y <= last | eta)."""
        found = self.record.value(y, self.record.kept(eta), self.sd(log_scale), trials)
        if last is not None and (wide := last > y).any():
            found[..., wide] = self._counts(y, eta, log_scale, trials, last, wide).total
        return found

    def slope(
        self, y: Vector, eta: Vector, log_scale: Scale = 0.0, trials: Vector | None = None, last: Vector | None = None
    ) -> Vector:
        """(n,) d log p / d eta: of an interval the mean of the slopes of its counts, given that it is one of them."""
        found = self.record.slope(y, self.record.kept(eta), self.sd(log_scale), trials)
        if last is not None and (wide := last > y).any():
            counts = self._counts(y, eta, log_scale, trials, last, wide)
            found[..., wide] = counts.averaged(self.record.slope(counts.each, counts.eta, self.sd(log_scale), counts.trials))
        return found

    def expected(
        self, y: Vector, eta: Vector, log_scale: Scale = 0.0, trials: Vector | None = None, last: Vector | None = None
    ) -> Vector:
        """(n,) E[Y | y <= Y <= last, eta]; y itself where it is known."""
        if last is None or not (wide := last > y).any():
            return y
        counts, found = self._counts(y, eta, log_scale, trials, last, wide), y.copy()
        found[wide] = counts.averaged(counts.each)
        return found

    def _counts(
        self, y: Vector, eta: Vector, log_scale: Scale, trials: Vector | None, last: Vector, wide: NDArray[np.bool_]
    ) -> _Counts:
        """All that each of these rows may be."""
        first, most = y[wide], last[wide]
        eta, trials = self.record.kept(eta)[..., wide], None if trials is None else trials[wide]
        k = np.arange((most - first).max() + 1).reshape(-1, *[1] * eta.ndim)
        each = np.minimum(first + k, most)
        values = np.where(first + k <= most, self.record.value(each, eta, self.sd(log_scale), trials), -np.inf)
        return _Counts(each, eta, trials, values)

    def slope_scale(
        self, y: Vector, eta: Vector, log_scale: Scale = 0.0, trials: Vector | None = None, last: Vector | None = None
    ) -> Vector:
        """(n,) d log p / d log sigma: of an interval the mean of those of its counts."""
        scale = self.sd(log_scale)
        found = self.unknown.slope(y, self.record.kept(eta), scale)
        if last is not None and (wide := last > y).any():
            counts = self._counts(y, eta, log_scale, trials, last, wide)
            found[..., wide] = counts.averaged(self.unknown.slope(counts.each, counts.eta, scale))
        return found

    def terms(
        self, y: Vector, eta: Vector, log_scale: Scale = 0.0, trials: Vector | None = None, last: Vector | None = None
    ) -> tuple[Vector, Vector, Vector]:
        """(n,) of log p, its slope in eta, and that in the logarithm of the unknown dispersion, 0 where there is none."""
        seen = (y, eta, log_scale, trials, last)
        return self.value(*seen), self.slope(*seen), self.slope_scale(*seen) if self.dispersed else np.zeros_like(eta)

    @property
    def curvature_bound(self) -> float | None:
        """kappa with -l'' <= kappa for every y and eta; None where there is none."""
        curvature = self.record.curvature
        if curvature is None or self.dispersed or not self.record.bounded:
            return None
        return float(curvature(np.inf, self.scale))

    def curvature(self, y: Vector | None, eta: Vector, log_scale: float) -> Vector | float:
        """kappa >= -l'' of each row: a number where it is the same for all (then y may be None), else (n,).

        Where there is no bound, good for moves of eta by at most 1 (section 8).
        """
        if self.dispersed:
            assert self.unknown.curvature is not None
            return self.unknown.curvature(log_scale)
        kappa: Vector | float
        if self.record.curvature is not None:
            kappa = self.record.curvature(y, self.scale)
            return kappa
        assert self.record.local_curvature is not None
        kappa = self.record.local_curvature(eta, self.scale)
        return kappa

    def mean(self, eta: Vector) -> Vector:
        """E[y | eta]; of a binomial y the probability."""
        return self.record.mean(eta)

    def cdf(self, y: Vector, eta: Vector, log_scale: Scale = 0.0, trials: Vector | None = None) -> Vector:
        """(m, n) P(Y <= y) of a new response of each row."""
        return self.record.cdf(y, self.mean(eta), self.sd(log_scale), trials)

    def fitted(self, eta: Vector, log_scale: Scale = 0.0, trials: Vector | None = None) -> tuple[Vector, Vector]:
        """(n,) mean of Y over draws of eta (m, n), and its variance about that given the other unknowns."""
        mu, scale = self.mean(eta).mean(axis=0), np.asarray(self.sd(log_scale))
        if self.dispersed and self.record.counted:
            variance = self.record.spread(mu[np.newaxis], scale, trials).mean(axis=0)
        else:
            variance = np.asarray(self.record.spread(mu, np.sqrt(np.mean(scale**2)), trials))
        return mu if trials is None else trials * mu, variance

    def link_variance(self, y: Vector, log_scale: Scale = 0.0) -> float:
        """1 / E(-l''), the variance of a row's information on the link scale (section 11)."""
        assert self.record.variance is not None
        return self.record.variance(y, self.sd(log_scale))
