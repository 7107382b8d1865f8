"""Defines generalised linear mixed models with random intercepts by group within a client, as models of `models.hierarchical`.

Source: sigma.md, sections 4 and 6; vertical.md, section 9.2 (the Jacobian of a logarithm: once, at the party that owns it).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedkern.arrays import Vector
from fedkern.models.likelihood import HALF_LOG_TAU, Likelihood, half_normal


@dataclass(frozen=True)
class MixedModel:
    """Computes a client's term of a mixed model with random intercepts by group.

    y_i ~ p(y | eta_i), eta_i = o_i + x_i' beta + tau u_g, u_g ~ N(0, 1), g the group of row i.
    xi is beta (p,), log tau, and log sigma where the error standard deviation of "gaussian" is unknown.
    """

    # X, y: (n, p), (n,) rows
    X: Vector
    y: Vector
    group: NDArray[np.int64]  # (n,) numbers 0 .. n_groups - 1 of the groups of this client; their names stay with it
    n_groups: int  # length of u
    likelihood: Likelihood  # of y
    offset: Vector | None = None  # (n,) known part of eta, or None
    centred: bool = False  # whether u_g ~ N(0, sd tau) is the intercept itself

    @property
    def n_global(self) -> int:
        return int(self.X.shape[1]) + 1 + int(self.likelihood.dispersed)

    @property
    def size(self) -> int:
        return self.n_groups

    def predictor(self, xi: Vector, u: Vector) -> Vector:
        """Returns (n,) eta."""
        p = self.X.shape[1]
        intercepts = u if self.centred else np.exp(xi[p]) * u
        eta: Vector = self.X @ xi[:p] + intercepts[self.group]
        return eta if self.offset is None else eta + self.offset

    def log_joint_grad(self, xi: Vector, u: Vector) -> tuple[float, Vector, Vector]:
        p, tau = self.X.shape[1], float(np.exp(xi[self.X.shape[1]]))
        log_scale = float(xi[-1]) if self.likelihood.dispersed else 0.0
        eta = self.predictor(xi, u)
        r = self.likelihood.slope(self.y, eta, log_scale)
        by_group = np.bincount(self.group, weights=r, minlength=self.n_groups)
        value = float(self.likelihood.value(self.y, eta, log_scale).sum()) - len(u) * float(HALF_LOG_TAU)
        g_xi = np.empty(self.n_global)
        g_xi[:p] = self.X.T @ r
        if self.centred:
            square = float(u @ u) / tau**2
            value -= 0.5 * square + len(u) * float(xi[p])
            g_xi[p], g_u = square - len(u), by_group - u / tau**2
        else:
            value -= 0.5 * float(u @ u)
            g_xi[p], g_u = tau * float(u @ by_group), tau * by_group - u
        if self.likelihood.dispersed:
            g_xi[-1] = self.likelihood.slope_scale(self.y, eta, log_scale).sum()
        return value, g_xi, g_u


@dataclass(frozen=True)
class MixedPrior:
    """Computes the prior beta ~ N(0, sd), tau ~ HalfNormal(scale), and sigma ~ HalfNormal(1) where it is unknown.

    Scales are represented by their logarithms.
    """

    n_coefficients: int  # p
    sd: float = 1.0  # standard deviation of each coefficient
    scale: float = 1.0  # of tau
    dispersed: bool = False  # whether xi ends with log sigma

    @property
    def size(self) -> int:
        return self.n_coefficients + 1 + int(self.dispersed)

    def log_prior_grad(self, xi: Vector) -> tuple[float, Vector]:
        p = self.n_coefficients
        gradient = np.empty(self.size)
        r = xi[:p] / self.sd
        value = -0.5 * float(r @ r) - p * (float(np.log(self.sd)) + float(HALF_LOG_TAU))
        gradient[:p] = -r / self.sd
        # log(tau / scale) has the density of the logarithm of a standard half-normal number
        shares = [half_normal(float(xi[p]) - float(np.log(self.scale)))]
        shares += [half_normal(float(xi[-1]))] if self.dispersed else []
        gradient[p:] = [slope for _, slope in shares]
        return value + sum(share for share, _ in shares), gradient
