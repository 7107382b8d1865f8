"""Computes one client of a regression whose errors vary by row: log sigma = gamma_0 + s' gamma, s columns of X, without effects.

Rows are not those of a linear model, even of gaussian ones: squares of residuals weigh by exp(-2 s' gamma), so that no sums of
products stand for them. What else asks for a row's scale (densities, draws, quantiles) gets that of the row by `scale`.

Source: docs/spec/likelihood.md, section 3.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...arrays import Vector
from ...kernels import _rows as of
from ...kernels.families import FAMILIES
from .conditional import MOST, density, pieces, predictor
from .rows import Rows


@dataclass(frozen=True)
class Scaled(Rows):
    """Holds a client's rows, whose points end with gamma, and with log nu of a student response where that is learnt.

    Attributes
    ----------
    scales : the columns s of X
    """

    scales: tuple[int, ...] = field(default=(), kw_only=True)

    @property
    def scaled(self) -> bool:
        return True

    @property
    def S(self) -> Vector:
        """(n, 1 + q) the columns that gamma is multiplied by."""
        return np.column_stack([np.ones(len(self)), self.X[:, list(self.scales)]])

    def gamma(self, points: Vector) -> Vector:
        """Returns (.., 1 + q) the coefficients of log sigma at points (.., P)."""
        first = self.layout.p
        return points[..., first : first + 1 + len(self.scales)]

    def scale(self, points: Vector) -> Vector:
        """Returns (S, n) sigma of each row at points (S, P); of a student response (2, S, n) it and nu."""
        with np.errstate(over="ignore"):
            sd = np.exp(self.gamma(points) @ self.S.T)
        if self.layout.family == "gaussian":
            return np.asarray(sd)
        return np.stack([sd, np.broadcast_to(self._nu(points)[:, np.newaxis], sd.shape)])

    def _nu(self, points: Vector) -> Vector:
        """(S,) degrees of freedom."""
        given = self.layout.given
        return np.asarray(np.exp(np.full(len(points), given[0]) if given else points[:, -1]))

    def inner_values(self, points: Vector, nodes: int) -> Vector:
        """Returns (S,) log-likelihoods of the points (S, P); nothing is integrated out: `nodes` are not looked at."""
        value = np.empty(len(points))
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            for part in pieces(len(points), MOST // max(len(self), 1)):
                value[part] = density(self, predictor(self, points[part]), points[part]).sum(axis=1)
        return value

    def inner_curvature(self, points: Vector, nodes: int) -> tuple[Vector, Vector, Vector]:
        """Returns (c,) log-likelihoods at points (c, P), gradients (c, P) and minus Hessians (c, P, P)."""
        c, P = points.shape
        gradient, hessian = np.empty((c, P)), np.empty((c, P, P))
        columns = [self.X, self.S, np.ones((len(self), 1))]
        for i in range(c):
            first, curved = self._derivatives(points[i : i + 1])
            used = columns[: len(first) - len(self.layout.given)]
            gradient[i] = np.concatenate([Z.T @ slope for Z, slope in zip(used, first)])
            hessian[i] = np.block([[(Z.T * curved[a, b]) @ W for b, W in enumerate(used)] for a, Z in enumerate(used)])
        return self.inner_values(points, nodes), gradient, hessian

    def _derivatives(self, point: Vector) -> tuple[Vector, Vector]:
        """(m, n) derivatives of log-densities in eta, log sigma and log nu at a point (1, P); (m, m, n) minus the second ones."""
        record, y = FAMILIES[self.layout.family], self.y
        eta, scale = predictor(self, point)[0], self.scale(point)[..., 0, :]
        slope, observed = record.slope(y, eta, scale, None), record.observed(y, eta, scale, None)
        if self.layout.family == "gaussian":
            first, cross, second = of.gaussian_by_sd(y, eta, scale)
            slopes, across, twice = first[np.newaxis], cross[np.newaxis], second[np.newaxis, np.newaxis]
        else:
            slopes, across, twice = of.student_by_shapes(y, eta, *scale)
            of_nu, curve = of.student_constant(scale[1])
            slopes, twice = slopes + np.stack([np.full(len(y), -1.0), of_nu]), twice.copy()
            twice[1, 1] += curve
        m = 1 + len(slopes)
        curved = np.empty((m, m, len(y)))
        curved[0, 0], curved[0, 1:], curved[1:, 0], curved[1:, 1:] = observed, -across, -across, -twice
        return np.concatenate([slope[np.newaxis], slopes]), curved
