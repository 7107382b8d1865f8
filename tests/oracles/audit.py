"""Lower bounds on what a mechanism gives away, from how often an attack on it errs.

An attack is told the data and one row, sees a transcript, and says whether the row was there. Gaussian differential privacy of mu
allows it no false alarms and misses below the curve of N(0, 1) against N(mu, 1) (Dong, Roth and Su 2022); (epsilon, delta) allows
1 - misses <= exp(epsilon) alarms + delta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import integrate, optimize, special, stats


@dataclass(frozen=True)
class Errors:
    """What an attack did in `runs` runs without the row and as many with it."""

    alarms: int  # it said that the row was there, and it was not
    misses: int  # the other way round
    runs: int
    error: float = 1e-4  # the probability with which a bound may be wrong; half of it for each of the two rates

    @classmethod
    def of(cls, without, with_row, threshold, error=1e-4):
        """Of the attack that says yes above a threshold, which must not have been chosen on these runs."""
        without, with_row = np.asarray(without), np.asarray(with_row)
        assert len(without) == len(with_row)
        return cls(int((without > threshold).sum()), int((with_row <= threshold).sum()), len(without), error)

    def largest(self, count):
        """The upper limit of Clopper and Pearson."""
        return float(stats.beta.ppf(1 - self.error / 2, count + 1, self.runs - count)) if count < self.runs else 1.0

    @property
    def mu(self):
        """Lower bound of mu."""
        return float(stats.norm.isf(self.largest(self.alarms)) - stats.norm.ppf(self.largest(self.misses)))

    def epsilon(self, delta):
        """Lower bound of epsilon, whatever the mechanism."""
        alarms, misses = self.largest(self.alarms), self.largest(self.misses)
        return max(0.0, *(math.log(max(1 - delta - b, 1e-300) / a) for a, b in ((alarms, misses), (misses, alarms))))


def gaussian_epsilon(mu, delta):
    """Epsilon of Gaussian differential privacy of mu (Balle and Wang 2018)."""

    def gap(epsilon):
        return special.ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon + special.log_ndtr(-mu / 2 - epsilon / mu)) - delta

    return optimize.brentq(gap, 0, 300, xtol=1e-12) if mu > 0 and gap(0) > 0 else 0.0


def hockey_stick(p, q, epsilon):
    """The delta of two mixtures of normals at epsilon: the integral of max(0, p - exp(epsilon) q).

    Mixtures are {mean: weight}, with one standard deviation, which is 1.
    """

    def density(mixture, x):
        return sum(weight * stats.norm.pdf(x, mean) for mean, weight in mixture.items())

    edges = [*p, *q]
    grid = np.linspace(min(edges) - 12, max(edges) + 12, 40_001)
    return float(integrate.simpson(np.maximum(density(p, grid) - math.exp(epsilon) * density(q, grid), 0), x=grid))


def mixture_epsilon(p, q, delta):
    """Epsilon of two such mixtures at delta, the worse of the two orders."""

    def gap(epsilon):
        return max(hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon)) - delta

    return optimize.brentq(gap, 0, 60, xtol=1e-6) if gap(0) > 0 else 0.0
