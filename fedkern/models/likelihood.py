"""Defines observation models with one linear predictor eta: a family, and its dispersion, which is a number or unknown.

y ~ p(y | eta, gamma), where gamma is the logarithm of an unknown dispersion, or nothing. Source: vertical.md, sections 1, 8
and 9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..arrays import Vector
from ..kernels.families import FAMILIES, HALF_LOG_TAU, MOST, Dispersion, Family, Scale, Unknown, half_normal
from .saturated import LIMIT

__all__ = ["HALF_LOG_TAU", "LIMIT", "MOST", "Bounded", "Likelihood", "Noisy", "Scale", "cut_slope", "cut_value", "half_normal"]

LEFT_OUT = 1e-12  # probability of noise beyond the counts over which sums go
MOST_SLOPE = 2.0**32  # of a row, or area, in a sum that is masked


@dataclass(frozen=True)
class Noisy:
    """Describes counts to which two-sided geometric noise was added: a noisy y* stands in the place of y.

    P(y* | y) = g(y* - y) = tanh(decay / 2) e^(-decay |y* - y|).
    """

    decay: float

    def __getitem__(self, rows: object) -> Noisy:
        """Returns the same for some of the rows, as the largest counts of intervals are indexed."""
        return self

    def ends(self, y: Vector, trials: Vector | None) -> tuple[Vector, Vector]:
        """Returns (n,) the least and the largest count over which sums go: all noise but for a probability of 1e-12."""
        reach = math.ceil(-math.log(LEFT_OUT) / self.decay)
        most = np.inf if trials is None else trials
        return np.clip(y - reach, 0, most), np.clip(y + reach, 0, most)

    def log_chance(self, noise: Vector) -> Vector:
        """Returns log g."""
        return np.asarray(math.log(math.tanh(self.decay / 2)) - self.decay * np.abs(noise))


def _surely(noise: Vector) -> Vector:
    """Returns log g of an interval, which is 0."""
    return np.zeros_like(noise)


Last: TypeAlias = Vector | Noisy | None  # the knowledge of a count beside y: the largest that it may be, or its noise


@dataclass(frozen=True)
class _Counts:
    """Holds the counts of rows of which an interval is known, or a noisy count."""

    total: Vector  # (.., n) log P(observation)
    mean: Vector  # (.., n) of the counts, given the observation
    each: Vector  # (k, .., n) the counts
    chance: Vector  # (k, .., n) of each, given the observation
    eta: Vector  # (.., n) of these rows


@dataclass(frozen=True)
class Likelihood:
    """Computes log p(y | eta) of every row."""

    family: str  # name of a record of `kernels.families`
    # its dispersion, where it has one: a number, or (n,) of every row; None: unknown, with the family's prior, represented by its
    # logarithm
    scale: float | Vector | None = 1.0

    def __post_init__(self) -> None:
        if self.scale is None and self.record.dispersion is not None and self.record.dispersion.unknown is None:
            raise ValueError(f"likelihood: scale of the {self.family} family must be given")

    @property
    def record(self) -> Family:
        """The record of the family."""
        return FAMILIES[self.family]

    @property
    def dispersed(self) -> bool:
        """Whether a dispersion is to be learnt."""
        return self.record.dispersion is not None and self.scale is None

    @property
    def unknown(self) -> Unknown:
        """The way in which the dispersion is learnt, where it is."""
        dispersion = self.record.dispersion
        assert isinstance(dispersion, Dispersion)
        assert dispersion.unknown is not None
        return dispersion.unknown

    def sd(self, log_scale: Scale = 0.0) -> Any:
        """Returns the dispersion: of "gaussian" the error standard deviation."""
        return np.exp(log_scale) if self.scale is None else self.scale

    def value(self, y: Vector, eta: Vector, log_scale: Scale = 0.0, trials: Vector | None = None, last: Last = None) -> Vector:
        """Returns (n,) log p(y | eta), normalised in y.

        Parameters
        ----------
        trials : (n,) of a binomial y
        last : (n,) the largest value of a count of which only y to `last` is known: log P(y <= Y <= last | eta); or the noise in
            y:
            log sum p(Y | eta) g(y - Y)
        """
        if last is None:
            return self.record.value(y, self.record.kept(eta), self.sd(log_scale), trials)
        return self.both(y, eta, log_scale, trials, last)[0]

    def slope(self, y: Vector, eta: Vector, log_scale: Scale = 0.0, trials: Vector | None = None, last: Last = None) -> Vector:
        """Returns (n,) d log p / d eta.

        For an interval, or a count with noise, it is the mean of the slopes of its counts given the observation. The slope's
        derivative is then E l'' + Var l', which may be above 0.
        """
        if last is None:
            return self.record.slope(y, self.record.kept(eta), self.sd(log_scale), trials)
        return self.both(y, eta, log_scale, trials, last)[1]

    def both(
        self, y: Vector, eta: Vector, log_scale: Scale = 0.0, trials: Vector | None = None, last: Last = None
    ) -> tuple[Vector, Vector]:
        """Returns `value` and `slope`, in one pass through the counts that a row may have."""
        eta, scale, record = self.record.kept(eta), self.sd(log_scale), self.record
        counts, wide = self._counts(y, eta, scale, trials, last)
        if counts is None:
            return record.value(y, eta, scale, trials), record.slope(y, eta, scale, trials)
        if isinstance(last, Noisy):
            return counts.total, record.slope(counts.mean, eta, scale, trials)  # which is linear in the count
        value, slope = record.value(y, eta, scale, trials), record.slope(y, eta, scale, trials)
        some = None if trials is None else trials[wide]
        value[..., wide], slope[..., wide] = counts.total, record.slope(counts.mean, eta[..., wide], scale, some)
        return value, slope

    def expected(self, y: Vector, eta: Vector, log_scale: Scale = 0.0, trials: Vector | None = None, last: Last = None) -> Vector:
        """Returns (n,) E[Y | observation, eta]; y itself where it is known."""
        counts, wide = self._counts(y, self.record.kept(eta), self.sd(log_scale), trials, last)
        if counts is None:
            return y
        mean = y.copy()
        mean[wide] = counts.mean
        return mean

    def _counts(
        self, y: Vector, eta: Vector, scale: Any, trials: Vector | None, last: Last
    ) -> tuple[_Counts | None, NDArray[np.bool_]]:
        """Returns all counts that rows may have, and which rows those are; None where all counts are known.

        Every family of counts is exponential in them: log p(k | eta) = h(k) + k theta(eta) - A(eta), so that only two counts are
        needed for the part that depends on eta.
        """
        if isinstance(last, Noisy):
            wide, (first, most), log_chance = np.ones(len(y), bool), last.ends(y, trials), last.log_chance
        elif last is not None and (wide := last > y).any():
            trials = None if trials is None else trials[wide]
            y, most, eta = y[wide], last[wide], eta[..., wide]
            first, log_chance = y, _surely
        else:
            return None, np.zeros(len(y), bool)
        # Every row gets as many counts as the widest: those beyond a row's largest have no weight.
        k = np.arange((most - first).max(initial=0) + 1).reshape(-1, *[1] * eta.ndim)
        each, zero = np.minimum(first + k, most), np.zeros_like(y)
        some = None if trials is None else np.maximum(trials, 1)

        def log_odds(eta: Vector) -> Vector:
            """Returns log p(1 | eta) - log p(0 | eta), which is theta up to a constant."""
            return self.record.value(zero + 1, eta, scale, some) - self.record.value(zero, eta, scale, some)

        each_log = self.record.value(each, zero, scale, trials) + np.where(first + k <= most, log_chance(y - each), -np.inf)
        none = self.record.value(zero, eta, scale, trials) - self.record.value(zero, zero, scale, trials)
        chance = each * (log_odds(eta) - log_odds(zero))
        chance += each_log
        top = chance.max(axis=0)
        chance -= top
        np.exp(chance, out=chance)
        total = chance.sum(axis=0)
        chance /= total
        return _Counts(none + top + np.log(total), (chance * each).sum(axis=0), each, chance, eta), wide

    def slope_scale(
        self, y: Vector, eta: Vector, log_scale: Scale = 0.0, trials: Vector | None = None, last: Last = None
    ) -> Vector:
        """Returns (n,) d log p / d log sigma: of an interval, or of a noisy count, the mean of those of its counts."""
        eta, scale = self.record.kept(eta), self.sd(log_scale)
        counts, wide = self._counts(y, eta, scale, trials, last)
        if counts is None:
            return self.unknown.slope(y, eta, scale)
        slope = self.unknown.slope(np.where(wide, 0.0, y), eta, scale)
        slope[..., wide] = (counts.chance * self.unknown.slope(counts.each, counts.eta, scale)).sum(axis=0)
        return slope

    def terms(
        self, y: Vector, eta: Vector, log_scale: Scale = 0.0, trials: Vector | None = None, last: Last = None
    ) -> tuple[Vector, Vector, Vector]:
        """Returns (n,) log p, its slope in eta, and that in the logarithm of the unknown dispersion, 0 without one."""
        seen = (y, eta, log_scale, trials, last)
        by_scale = self.slope_scale(*seen) if self.dispersed else np.zeros_like(eta)
        return *self.both(*seen), by_scale

    @property
    def curvature_bound(self) -> float | None:
        """The bound kappa with -l'' <= kappa for every y and eta; None where there is none."""
        curvature = self.record.curvature
        if curvature is None or self.dispersed or not self.record.bounded:
            return None
        return float(curvature(np.inf, self.scale))

    def curvature(self, y: Vector | None, eta: Vector, log_scale: float) -> Vector | float:
        """Returns kappa >= -l'' of each row: a number where it is the same for all (then y may be None), else (n,).

        Without a global bound it holds for moves of eta by at most 1 (section 8).
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
        """Returns E[y | eta]; of a binomial y the probability."""
        return self.record.mean(eta)

    def mean_of_new(self, eta: Vector, log_scale: Scale = 0.0) -> Vector:
        """Returns E[y | eta] of a new response; of a binomial y the probability."""
        return self.mean(eta)

    def cdf(self, y: Vector, eta: Vector, log_scale: Scale = 0.0, trials: Vector | None = None) -> Vector:
        """Returns (m, n) P(Y <= y) of a new response of each row."""
        return self.record.cdf(y, self.mean(eta), self.sd(log_scale), trials)

    def fitted(self, eta: Vector, log_scale: Scale = 0.0, trials: Vector | None = None) -> tuple[Vector, Vector]:
        """Returns (n,) the mean of Y over draws of eta (m, n), and its variance about that given the other unknowns."""
        mu, scale = self.mean(eta).mean(axis=0), np.asarray(self.sd(log_scale))
        if self.dispersed and self.record.counted:
            variance = self.record.spread(mu[np.newaxis], scale, trials).mean(axis=0)
        else:
            known = np.sqrt(np.mean(scale**2)) if self.dispersed else scale
            variance = np.asarray(self.record.spread(mu, known, trials))
        expected = mu if trials is None else trials * mu
        return expected, variance

    def link_variance(self, y: Vector, log_scale: Scale = 0.0) -> float:
        """Returns 1 / E(-l''), the variance of a row's information on the link scale (section 11)."""
        assert self.record.variance is not None
        return self.record.variance(y, self.sd(log_scale))


@dataclass(frozen=True)
class Bounded(Likelihood):
    """Computes the same, with each row's terms cut: then a sum over rows has room in a word, whatever the rows are.

    A row whose density is no number has the least one, and no slope.
    """

    def value(self, y: Vector, eta: Vector, log_scale: Scale = 0.0, trials: Vector | None = None, last: Last = None) -> Vector:
        return cut_value(super().value(y, eta, log_scale, trials, last))

    def slope(self, y: Vector, eta: Vector, log_scale: Scale = 0.0, trials: Vector | None = None, last: Last = None) -> Vector:
        return cut_slope(super().slope(y, eta, log_scale, trials, last))

    def terms(
        self, y: Vector, eta: Vector, log_scale: Scale = 0.0, trials: Vector | None = None, last: Last = None
    ) -> tuple[Vector, Vector, Vector]:
        with np.errstate(all="ignore"):
            value, slope, by_scale = super().terms(y, eta, log_scale, trials, last)
        return cut_value(value), cut_slope(slope), cut_slope(by_scale)


def cut_value(values: Vector) -> Vector:
    """Returns log densities of rows, or areas, as a masked sum takes them."""
    return np.clip(np.where(np.isnan(values), -LIMIT, values), -LIMIT, LIMIT)


def cut_slope(slopes: Vector) -> Vector:
    """Returns derivatives of rows, or areas, as a masked sum takes them."""
    return np.clip(np.where(np.isnan(slopes), 0.0, slopes), -MOST_SLOPE, MOST_SLOPE)
