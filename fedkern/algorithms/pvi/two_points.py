"""Computes means of logistic gradients over columns of which some are declared as binary, and the others count as normal.

A binary column has two points, whose chances the job file tells; m are the mean squares of columns. Over all combinations c of
these points (columns count as independent), with chances w_c, values x_c and, for a q with means mu and variances s^2,

    eta_c = x_c'mu,  V_c = sum of m_d (s_d^2 + mu_d^2) over normal columns + sum of x_cd^2 s_d^2 over the others,
    k_c = 1 / sqrt(1 + pi V_c / 8),  p_c = logistic(k_c eta_c),

the mean of logistic(x'theta) x_d is sum w_c x_cd p_c; for a normal column m_d mu_d sum w_c k_c p_c (1 - p_c) (Stein). Less that
at 0, and over m_d / 4, these are points in which gradients are lines. Source: docs/spec/pvi.md, section 16.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Vector = NDArray[np.float64]

PROBIT = np.pi / 8  # E logistic(a) of a Gaussian a is about logistic(mean / sqrt(1 + PROBIT x variance))
MOST = 8  # binary columns, of which all combinations are formed
STEPS, REST = 100, 1e-12  # of Newton


@dataclass(frozen=True)
class TwoPoints:
    """Holds the columns of a design.

    Attributes
    ----------
    spread : (d,) mean squares
    weights, values : (c,) chances of the combinations, and (c, d) the values that columns which are no normal ones have in each
    discrete : (d,) which are none: the intercept, and binary columns
    """

    spread: Vector
    weights: Vector
    values: Vector
    discrete: NDArray[np.bool_]

    @classmethod
    def of(cls, spread: Vector, shares: Mapping[int, float], intercept: bool) -> TwoPoints:
        """Returns the design of these binary columns.

        `shares`: coefficient of a standardised binary column -> the share of ones.
        """
        points = [
            ((share, math.sqrt((1 - share) / share)), (1 - share, -math.sqrt(share / (1 - share)))) for share in shares.values()
        ]
        weights, values = np.ones(2 ** len(points)), np.zeros((2 ** len(points), len(spread)))
        if intercept:
            values[:, 0] = 1.0
        for c, combination in enumerate(product(*points)):
            for column, (chance, value) in zip(shares, combination):
                weights[c] *= chance
                values[c, column] = value
        return cls(spread, weights, values, (values != 0).any(axis=0))

    def points(self, mu: Vector, variances: Vector) -> tuple[Vector, Vector]:
        """Returns points (n, d), and how much a row's curvature counts in the gradient in omega: variances x d point / d mu."""
        point, (k, p, eta) = self._point(mu, variances)
        X, w, m, own = self.values, self.weights, self.spread, ~self.discrete
        bend = p * (1 - p)
        factor = (w * k * bend) @ (X * X) * 4 / m
        by_k = bend + k * eta * bend * (1 - 2 * p)
        of_normal = (w * k * bend).sum(axis=1)[:, None] - PROBIT * m * mu * mu * (w * k**3 * by_k).sum(axis=1)[:, None]
        factor[:, own] = 4 * of_normal[:, own]
        return point, variances * factor

    def _point(self, mu: Vector, variances: Vector) -> tuple[Vector, tuple[Vector, Vector, Vector]]:
        """Returns points; and k, p and eta of each combination."""
        X, w, m, own = self.values, self.weights, self.spread, ~self.discrete
        V = ((mu * mu + variances) * m)[:, own].sum(axis=1)[:, None] + variances @ (X * X).T
        eta = mu @ X.T
        k = 1 / np.sqrt(1 + PROBIT * V)
        p = expit(k * eta)
        point = ((p - 0.5) * w) @ X * 4 / m
        point[:, own] = 4 * mu[:, own] * (w * k * p * (1 - p)).sum(axis=1)[:, None]
        return point, (k, p, eta)

    @property
    def farthest(self) -> Vector:
        """(d,) How large a point can be."""
        of_discrete = 2 * (self.weights @ np.abs(self.values)) / self.spread
        return np.where(self.discrete, of_discrete, 1 / np.sqrt(PROBIT * self.spread))

    def at(self, point: Vector) -> tuple[Vector, Vector]:
        """Returns the coefficients of a point without spread, by Newton, and d point / d coefficients there.

        Raises ArithmeticError if no coefficients have these points.
        """
        theta, none = np.zeros(len(point)), np.zeros((1, len(point)))
        for _ in range(STEPS):
            here, parts = self._point(theta[None], none)
            slope = self._slope(theta, *(part[0] for part in parts))
            step = np.linalg.solve(slope, point - here[0])
            length = float(np.linalg.norm(step))
            if length < REST:
                return theta, slope
            theta = theta + step * min(1.0, 1.0 / length)
        raise ArithmeticError("no coefficients have these points")

    def _slope(self, mu: Vector, k: Vector, p: Vector, eta: Vector) -> Vector:
        """Returns d point / d mu (d, d), if q has no spread."""
        X, w, m, own = self.values, self.weights, self.spread, ~self.discrete
        bend = p * (1 - p)
        by_k = bend + k * eta * bend * (1 - 2 * p)
        dk = np.where(own, -PROBIT * m * mu, 0.0) * (k**3)[:, None]  # (c, d)
        dp = bend[:, None] * (k[:, None] * X + eta[:, None] * dk)
        slope: Vector = (X.T * w) @ dp * 4 / m[:, None]
        of_k = w @ (k[:, None] ** 2 * (bend * (1 - 2 * p))[:, None] * X + by_k[:, None] * dk)
        of_normal = np.diag(np.full(len(mu), float((w * k * bend).sum()))) + np.outer(mu, of_k)
        slope[own] = 4 * of_normal[own]
        return slope
