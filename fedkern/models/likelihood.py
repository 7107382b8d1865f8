"""Observation models with one linear predictor eta: log-densities, their slopes, and what is known of their curvature.

y ~ p(y | eta, gamma), where gamma is the logarithm of an unknown error standard deviation, or nothing. Source: vertical.md,
sections 1, 8 and 9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, gammaln

Vector = NDArray[np.float64]
Scale = float | Vector  # a number, or (m, 1) where eta is (m, n)
FAMILIES = ("bernoulli", "binomial", "poisson", "gaussian")
MOST = 30.0  # of a Poisson log-rate
HALF_LOG_TAU = 0.5 * np.log(2 * np.pi)


@dataclass(frozen=True)
class Likelihood:
    """log p(y | eta) of every row.

    Attributes
    ----------
    family : "bernoulli" or "binomial" (logit link), "poisson" (log link) or "gaussian"
    scale : error standard deviation of "gaussian"; None: unknown, sigma ~ HalfNormal(1), represented by log sigma
    """

    family: str
    scale: float | None = 1.0

    @property
    def dispersed(self) -> bool:
        """Whether there is a dispersion to learn."""
        return self.family == "gaussian" and self.scale is None

    def sd(self, log_scale: Scale = 0.0) -> Any:
        """Error standard deviation of "gaussian"."""
        return np.exp(log_scale) if self.scale is None else self.scale

    def value(self, y: Vector, eta: Vector, log_scale: Scale = 0.0, trials: Vector | None = None) -> Vector:
        """(n,) log p(y | eta), normalised in y; `trials` (n,) of a binomial y."""
        if self.family == "bernoulli":
            return np.asarray(-np.logaddexp(0.0, np.where(y > 0.5, -eta, eta)))
        if self.family == "binomial":
            assert trials is not None
            ways = gammaln(trials + 1) - gammaln(y + 1) - gammaln(trials - y + 1)
            return np.asarray(ways + y * eta - trials * np.logaddexp(0.0, eta))
        if self.family == "poisson":
            rate = np.minimum(eta, MOST)
            return np.asarray(y * rate - np.exp(rate) - gammaln(y + 1))
        sd = self.sd(log_scale)
        return np.asarray(-0.5 * ((y - eta) / sd) ** 2 - np.log(sd) - HALF_LOG_TAU)

    def slope(self, y: Vector, eta: Vector, log_scale: Scale = 0.0, trials: Vector | None = None) -> Vector:
        """(n,) d log p / d eta."""
        if self.family == "bernoulli":
            return np.asarray(y - expit(eta))
        if self.family == "binomial":
            assert trials is not None
            return np.asarray(y - trials * expit(eta))
        if self.family == "poisson":
            return np.asarray(y - np.exp(np.minimum(eta, MOST)))
        return np.asarray((y - eta) / self.sd(log_scale) ** 2)

    def slope_scale(self, y: Vector, eta: Vector, log_scale: Scale = 0.0) -> Vector:
        """(n,) d log p / d log sigma."""
        return np.asarray(((y - eta) / self.sd(log_scale)) ** 2 - 1)

    @property
    def curvature_bound(self) -> float | None:
        """kappa with -l'' <= kappa for every y and eta; None where there is none."""
        if self.family == "bernoulli":
            return 0.25
        return None if self.family == "poisson" or self.scale is None else self.scale**-2

    def mean(self, eta: Vector) -> Vector:
        """E[y | eta]; of a binomial y the probability."""
        if self.family in ("bernoulli", "binomial"):
            return np.asarray(expit(eta))
        return np.exp(np.minimum(eta, MOST)) if self.family == "poisson" else eta

    def link_variance(self, y: Vector, log_scale: Scale = 0.0) -> float:
        """1 / E(-l''), the variance of a row's information on the link scale (section 11)."""
        if self.family == "gaussian":
            return float(self.sd(log_scale)) ** 2
        average = float(np.mean(y))
        return 4.0 if self.family == "bernoulli" else 1 / max(average, 1e-12)


def half_normal(log_scale: float) -> tuple[float, float]:
    """Log-density of w = log sigma where sigma ~ HalfNormal(1), Jacobian included once, and its derivative."""
    square = float(np.exp(2 * log_scale))
    return 0.5 * float(np.log(2 / np.pi)) - 0.5 * square + log_scale, 1 - square
