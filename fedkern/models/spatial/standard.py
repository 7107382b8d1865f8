"""Transforms hyperparameters to coordinates v in which their priors are standard normal: xi = (h(v), u) with u the rest of it.

    phi = lo + (hi - lo) Phi(v),     sigma_theta = |N|^-1(Phi(v)), the quantile of a half-normal;
    of 1 / sqrt r of a negative binomial too

The posterior of a phi that rows say little of is flat up to the ends of its range, and log sigma_theta has a long tail towards 0.
In v neither is so: a posterior is the likelihood times a standard normal density, a few units wide whatever rows say.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import erfinv, log_ndtr, ndtr, ndtri

from ...arrays import Matrix, Vector
from ...kernels.families import half_normal_root
from ..likelihood import HALF_LOG_TAU
from .site import SigmaPrior


@dataclass(frozen=True)
class Standard:
    """Is the server's term of a joint density, of (v, u)."""

    prior: SigmaPrior  # of xi

    @property
    def n_hyper(self) -> int:
        """The length of v."""
        return len(self.prior.layout.nonlinear)

    @property
    def n_linear(self) -> int:
        """U, the length of u."""
        return len(self.prior.layout.linear)

    @property
    def size(self) -> int:
        """P, the length of xi."""
        return self.prior.size

    @property
    def precision(self) -> Vector:
        """(U,) The precision of u."""
        return self.prior.precision

    def xi(self, v: Matrix, u: Matrix) -> Matrix:
        """Returns xi (m, P) at v (m, n_hyper) and u (m, U)."""
        out = np.empty((len(v), self.size))
        out[:, self.prior.layout.linear] = u
        for place, column in zip(self.prior.layout.nonlinear, v.T):
            out[:, place] = self._moved(int(place), column)[0]
        return out

    def log_jacobian(self, v: Matrix) -> Vector:
        """Returns log |dh / dv| (m,)."""
        out = np.zeros(len(v))
        for place, column in zip(self.prior.layout.nonlinear, v.T):
            out += self._moved(int(place), column)[1]
        return out

    def values(self, xi: Matrix) -> tuple[Vector, Matrix]:
        """Returns log p(xi) (m,), and its gradient in u (m, U)."""
        terms = [self.prior.log_prior_grad(term) for term in xi]
        return np.array([term[0] for term in terms]), np.array([term[1][self.prior.layout.linear] for term in terms])

    def _moved(self, place: int, v: Vector) -> tuple[Vector, Vector]:
        """Returns a hyperparameter as xi has it, and log of its derivative in v."""
        normal = -0.5 * v * v - HALF_LOG_TAU
        if place < self.prior.layout.parts["phi"].stop:
            below, above = log_ndtr(v), log_ndtr(-v)
            return below - above, normal - below - above
        sigma = np.where(v < 0, np.sqrt(2) * erfinv(ndtr(np.minimum(v, 0.0))), -ndtri(ndtr(-np.maximum(v, 0.0)) / 2))
        log_sigma, log_slope = np.log(sigma), normal + 0.5 * sigma * sigma + HALF_LOG_TAU - np.log(2) - np.log(sigma)
        if place in self._roots:
            return -2 * log_sigma, log_slope + np.log(2)
        return log_sigma, log_slope

    @cached_property
    def _roots(self) -> range:
        """The places of log r whose 1 / sqrt r has the half-normal prior."""
        dispersion, likelihood = self.prior.layout.parts["log_sd"], self.prior.likelihood
        rooted = self.prior.layout.dispersed and likelihood.unknown.prior is half_normal_root
        stop = dispersion.stop if rooted else dispersion.start
        return range(dispersion.start, stop)
