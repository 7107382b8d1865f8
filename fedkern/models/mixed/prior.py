"""Computes the prior of xi, the unknowns that all parties of a mixed regression share."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from ...kernels.families import HALF_LOG_TAU
from ..encoding import INTERCEPT
from .layout import Layout
from .shapes import LOG_HALF_NORMAL, Density, HalfNormal, LogHalfNormal

Vector = NDArray[np.float64]

PRIOR_SD, INTERCEPT_SD = 2.5, 5.0  # of coefficients, of columns in their standard deviations, and of an intercept
# Times a default prior that would decide what rows decide, of a response with a unit and of others, where a wider one would let
# a slope grow until few rows weigh; the last stands for none.
WIDER, LESS_WIDE = (1, 10, 100, 1000, 10_000, 1_000_000), (1, 2, 4, 1000)


@dataclass(frozen=True)
class Prior:
    """Holds the prior of xi.

    beta_k ~ N(mean_k, sd_k^2); entries of T and T_c: diagonal ~ HalfNormal(tau_sd), below it N(0, tau_sd^2); the family's numbers
    as `shapes` say, with the standard deviation of a gaussian response ~ HalfNormal(dispersion_sd).

    Densities are of xi's coordinates, Jacobians of logarithms included once; that of phi is the half-normal one, of |phi|.

    Attributes
    ----------
    layout : of xi
    mean, sd : (p,) of the coefficients
    tau_sd, dispersion_sd : see above
    effects : (p, p) C, where the first prior is of effects: C (beta - mean) ~ N(0, 1)
    """

    layout: Layout
    mean: Vector
    sd: Vector
    tau_sd: float = 1.0
    dispersion_sd: float = 1.0
    effects: Vector | None = None

    @classmethod
    def usual(
        cls,
        layout: Layout,
        *,
        prior_sd: float = PRIOR_SD,
        intercept_sd: float = INTERCEPT_SD,
        intercept_centre: float = 0.0,
        tau_sd: float = 1.0,
        pooled_sd: float = 1.0,
    ) -> Prior:
        """Makes a prior with one standard deviation for all coefficients but the intercept.

        If the response has a unit of its own, all of them are times `pooled_sd`.
        """
        unit = pooled_sd if layout.measured else 1.0
        own = np.array([name == INTERCEPT for name in layout.coefficients])
        sd = unit * np.where(own, intercept_sd, prior_sd)
        return cls(layout, np.where(own, intercept_centre, 0.0), sd, tau_sd * unit, unit)

    def of_effects(self, K: Vector, blocks: int = 1) -> Prior:
        """Returns the prior where other effects u (q,) have it, of which the coefficients of each of some blocks are K u.

        The first effect is the intercept where the first coefficient is; all others have the standard deviation of the last.
        """
        sd = np.full(K.shape[1], self.sd[-1])
        sd[0] = self.sd[0]
        R = np.linalg.qr((K * sd).T, mode="r")  # coefficients have the covariance R'R
        effects = np.kron(np.eye(blocks), solve_triangular(R, np.eye(len(R)), trans="T"))
        return replace(self, effects=effects)

    @property
    def size(self) -> int:
        """P, the number of unknowns."""
        return self.layout.size

    @cached_property
    def _logs(self) -> tuple[NDArray[np.int64], Vector]:
        """Coordinates that are logarithms of half-normal numbers, and the scales of these."""
        return self.layout.diagonal, np.full(len(self.layout.diagonal), self.tau_sd)

    @cached_property
    def _shapes(self) -> list[tuple[int, Density]]:
        """The family's numbers: coordinates and their priors."""

        def scaled(prior: Density) -> Density:
            return replace(prior, sd=prior.sd * self.dispersion_sd) if isinstance(prior, HalfNormal | LogHalfNormal) else prior

        return [(k, scaled(s.prior)) for k, s in enumerate(self.layout.shapes, start=self.layout.shapes_at.start)]

    def values(self, points: Vector) -> Vector:
        """Returns (S,) log-densities of the points (S, P)."""
        total = self.without_jacobian(points) + points[:, self._logs[0]].sum(axis=1)
        for k, prior in self._shapes:
            total = total + prior.log_jacobian(points[:, k])
        return np.asarray(total)

    def without_jacobian(self, points: Vector) -> Vector:
        """Returns (S,) log-densities of the numbers themselves, where coordinates are their logarithms.

        The sensitivity to the prior raises these to a power.
        """
        beta = points[:, : self.layout.p] - self.mean
        if self.effects is None:
            value = -0.5 * ((beta / self.sd) ** 2).sum(axis=1) - np.log(self.sd).sum()
        else:
            value = -0.5 * ((beta @ self.effects.T) ** 2).sum(axis=1) + np.linalg.slogdet(self.effects)[1]
        value -= self.layout.p * HALF_LOG_TAU
        below = points[:, self.layout.off_diagonal] / self.tau_sd
        value -= 0.5 * (below**2).sum(axis=1) + below.shape[1] * (math.log(self.tau_sd) + HALF_LOG_TAU)
        at, scale = self._logs
        with np.errstate(over="ignore"):
            value += (LOG_HALF_NORMAL - np.log(scale) - 0.5 * np.exp(2 * points[:, at]) / scale**2).sum(axis=1)
        for k, prior in self._shapes:
            value += prior.value(points[:, k])
        return np.asarray(value)

    def curvature(self, xi: Vector) -> tuple[float, Vector, Vector]:
        """Returns the log-density at xi (P,), its gradient (P,), and minus its Hessian (P, P), diagonal but for effects."""
        p = self.layout.p
        gradient, curvature = np.zeros(self.size), np.zeros(self.size)
        curvature[:p] = self.sd**-2.0
        gradient[:p] = -(xi[:p] - self.mean) * curvature[:p]
        below = self.layout.off_diagonal
        curvature[below] = self.tau_sd**-2.0
        gradient[below] = -xi[below] * curvature[below]
        at, scale = self._logs
        square = np.exp(2 * xi[at]) / scale**2
        gradient[at], curvature[at] = 1 - square, 2 * square
        for k, prior in self._shapes:
            gradient[k], curvature[k] = prior.slope(xi[k : k + 1])[0], prior.curve(xi[k : k + 1])[0]
        hessian = np.diag(curvature)
        if (C := self.effects) is not None:
            hessian[:p, :p] = C.T @ C
            gradient[:p] = -hessian[:p, :p] @ (xi[:p] - self.mean)
        return float(self.values(xi[np.newaxis])[0]), gradient, hessian
