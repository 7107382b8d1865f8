"""Models counts that vary more than their family lets them, by a further effect of each row, which is integrated out.

    p(y | eta, tau) = integral of p(y | eta + tau e) N(e; 0, 1) de,  tau ~ HalfNormal(1), known by its logarithm

log p(y | .) of counts is concave and at most 0, so that the integrand has one mode, at most sqrt(-2 log p(y | eta)) from 0, and
falls on both sides of it at least as fast as a standard normal density. The trapezium rule between two places where it is next to
nothing converges geometrically in the number of nodes, however skewed it is. Slopes are means over the nodes of those of
p(y | eta + tau e).
Source: docs/spec/sigma.md, section 9.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..arrays import Vector
from ..kernels.families import Unknown
from .likelihood import HALF_LOG_TAU, Bounded, Last, Likelihood, Noisy, Scale, half_normal

NODES = 21, 22.0, 101  # at least, more for each unit of tau (which skews the integrand), and at most
FALL = 26.0  # of the logarithm of the integrand from its top to both ends
WIDEST = float(np.sqrt(2 * FALL))  # how far an end can be: the integrand falls as a standard normal density at least
INSIDE = 3.0  # widths from the mode where the search for an end begins
TO_MODE, TO_END = 30, 4  # Newton steps at most
CLOSE = 0.03  # steps to the mode, in widths: ends are sought from there, and nothing else
AT_ONCE = 2_000  # of eta: the arrays of their nodes stay in a core's cache
NORMAL = 31  # nodes of a new response's effect


@dataclass(frozen=True)
class Overdispersed(Likelihood):
    """Adds an effect N(0, tau^2) of each row to eta; it is `dispersed`, with log tau in the place of log sigma."""

    def __post_init__(self) -> None:
        if self.record.dispersion is not None or not self.record.counted:
            raise ValueError(f"overdispersed: counts without a dispersion of their own have a further effect, not {self.family}")

    @cached_property
    def given(self) -> Likelihood:
        """The likelihood p(y | eta + tau e)."""
        return Likelihood(self.family)

    @property
    def dispersed(self) -> bool:
        return True

    @property
    def unknown(self) -> Unknown:
        return Unknown(slope=self.slope_scale, prior=half_normal)

    def value(self, y: Vector, eta: Vector, log_scale: Scale = 0.0, trials: Vector | None = None, last: Last = None) -> Vector:
        return self.terms(y, eta, log_scale, trials, last)[0]

    def slope(self, y: Vector, eta: Vector, log_scale: Scale = 0.0, trials: Vector | None = None, last: Last = None) -> Vector:
        return self.terms(y, eta, log_scale, trials, last)[1]

    def both(
        self, y: Vector, eta: Vector, log_scale: Scale = 0.0, trials: Vector | None = None, last: Last = None
    ) -> tuple[Vector, Vector]:
        return self.terms(y, eta, log_scale, trials, last)[:2]

    def slope_scale(
        self, y: Vector, eta: Vector, log_scale: Scale = 0.0, trials: Vector | None = None, last: Last = None
    ) -> Vector:
        return self.terms(y, eta, log_scale, trials, last)[2]

    def terms(
        self, y: Vector, eta: Vector, log_scale: Scale = 0.0, trials: Vector | None = None, last: Last = None
    ) -> tuple[Vector, Vector, Vector]:
        """Returns the same as `Likelihood.terms`."""
        if isinstance(last, Noisy):
            raise ValueError("overdispersed: counts have no noise")
        n, rows = eta.shape[-1], eta.reshape(-1, eta.shape[-1])
        tau = np.broadcast_to(np.exp(np.asarray(log_scale, float)), (*eta.shape[:-1], 1)).reshape(-1, 1)
        step = max(AT_ONCE // max(n, 1), 1)
        parts = [self._terms(y, rows[k : k + step], tau[k : k + step], trials, last) for k in range(0, len(rows), step)]
        value, slope, by_tau = (np.concatenate(part).reshape(eta.shape) for part in zip(*parts))
        return value, slope, by_tau

    def _terms(
        self, y: Vector, eta: Vector, tau: Vector, trials: Vector | None, last: Vector | None
    ) -> tuple[Vector, Vector, Vector]:
        """Computes them for eta (m, n) and tau (m, 1)."""
        row = _Integrand(self.given, y, eta, tau, trials, last)
        mode, width = row.mode()
        low, high = mode - row.end(mode, width, -1.0), mode + row.end(mode, width, 1.0)
        least, more, most = NODES
        nodes = int(np.nan_to_num(np.minimum(least + more * tau.max(initial=0.0), most), nan=least))
        step = (high - low) / (nodes - 1)
        e = low + np.arange(nodes)[:, np.newaxis, np.newaxis] * step
        values, slopes = row.both(e)
        # Subtract the largest value, so that no exponential overflows.
        top = values.max(axis=0)
        weights = np.exp(values - top)
        total = weights.sum(axis=0)
        weights *= slopes / total
        return top + np.log(total * step) - HALF_LOG_TAU, weights.sum(axis=0), (weights * tau * e).sum(axis=0)

    def fitted(self, eta: Vector, log_scale: Scale = 0.0, trials: Vector | None = None) -> tuple[Vector, Vector]:
        """Returns mean and variance with the rows' effects in both."""
        record = self.record
        n = 1.0 if trials is None else trials
        means, squares, inside = np.zeros_like(eta), np.zeros_like(eta), np.zeros_like(eta)
        for e, weight in zip(*_normal()):
            mu = self.mean(eta + np.exp(log_scale) * e)
            means += weight * n * mu
            squares += weight * (n * mu) ** 2
            inside += weight * record.spread(mu, 1.0, trials)
        return means.mean(axis=0), (inside + squares - means**2).mean(axis=0)

    def mean_of_new(self, eta: Vector, log_scale: Scale = 0.0) -> Vector:
        """Returns the mean over the effect that a new row has."""
        shift = np.exp(log_scale)
        return np.asarray(sum(weight * self.mean(eta + shift * e) for e, weight in zip(*_normal())))

    def cdf(self, y: Vector, eta: Vector, log_scale: Scale = 0.0, trials: Vector | None = None) -> Vector:
        """Returns the distribution function with the effect of a new row in it."""
        shift = np.exp(log_scale)
        return np.asarray(sum(weight * self.given.cdf(y, eta + shift * e, 0.0, trials) for e, weight in zip(*_normal())))


@dataclass(frozen=True)
class _BoundedOverdispersed(Bounded, Overdispersed):
    """Cuts each row's terms, its further effect integrated out."""


def bounded(likelihood: Likelihood) -> Likelihood:
    """Returns the likelihood whose rows' terms are cut to what a masked sum has room for."""
    kind = _BoundedOverdispersed if isinstance(likelihood, Overdispersed) else Bounded
    return kind(likelihood.family, likelihood.scale)


@dataclass(frozen=True)
class _Integrand:
    """Computes log p(y | eta + tau e) - e^2 / 2 of rows (m, n), as a function of e (.., m, n)."""

    given: Likelihood
    y: Vector
    eta: Vector
    tau: Vector
    trials: Vector | None
    last: Vector | None

    def value(self, e: Vector) -> Vector:
        density = self.given.value(self.y, self.eta + self.tau * e, 0.0, self.trials, self.last)
        return np.asarray(density - 0.5 * e * e)

    def both(self, e: Vector) -> tuple[Vector, Vector]:
        """Returns the value, and the slope of log p(y | eta) in eta."""
        value, slope = self.given.both(self.y, self.eta + self.tau * e, 0.0, self.trials, self.last)
        return np.asarray(value - 0.5 * e * e), slope

    def slope(self, e: Vector) -> Vector:
        """Returns the slope in e."""
        slope = self.given.slope(self.y, self.eta + self.tau * e, 0.0, self.trials, self.last)
        return np.asarray(self.tau * slope - e)

    def information(self, e: Vector) -> Vector:
        """Returns minus the second derivative, of an interval at most that of a count: links are canonical."""
        record, eta = self.given.record, self.eta + self.tau * e
        return np.asarray(1 + self.tau**2 * record.spread(record.mean(eta), 1.0, self.trials))

    def guess(self) -> Vector:
        """Returns where it would be largest if log p(y | .) were a parabola about the predictor that fits the row."""
        middle = self.y if self.last is None else (self.y + self.last) / 2
        y = middle + 0.5
        share = y if self.trials is None else y / (self.trials + 1)
        fits = np.log(share) if self.trials is None else np.log(share / (1 - share))
        information = self.tau * self.given.record.spread(share, 1.0, self.trials)
        return np.asarray(information * (fits - self.eta) / (1 + self.tau * information))

    def mode(self) -> tuple[Vector, Vector]:
        """Returns where it is largest, and its width there.

        Newton steps are taken; the bracket of the mode is halved where a step leaves it, or the last one did little.
        """
        high = np.sqrt(np.maximum(-2 * self.value(np.zeros(self.eta.shape)), 0.0))
        e, low = np.clip(self.guess(), -high, high), -high
        before = np.full(self.eta.shape, np.inf)
        for _ in range(TO_MODE):
            slope, information = self.slope(e), self.information(e)
            low, high = np.where(slope >= 0, e, low), np.where(slope <= 0, e, high)
            newton = e + slope / information
            good = (np.abs(slope) < 0.5 * before) & (newton >= low) & (newton <= high)
            new = np.where(good, newton, (low + high) / 2)
            moved = float(np.max(np.abs(new - e) * np.sqrt(information), initial=0.0))
            e, before = new, np.abs(slope)
            if not moved > CLOSE:
                break
        return e, 1 / np.sqrt(self.information(e))

    def end(self, mode: Vector, width: Vector, side: float) -> Vector:
        """Returns how far from the mode it has fallen by `FALL`.

        Newton steps from inside lead outside, and from there never back, for it is concave.
        """
        top, far = self.value(mode), INSIDE * width
        for _ in range(TO_END):
            e = mode + side * far
            value, slope = self.both(e)
            far = np.minimum(far - (value - top + FALL) / np.minimum(side * (self.tau * slope - e), -0.1), WIDEST)
        return far


def _normal() -> tuple[Vector, Vector]:
    """Returns nodes and weights of N(0, 1)."""
    nodes, weight = np.polynomial.hermite_e.hermegauss(NORMAL)
    return nodes, weight / weight.sum()
