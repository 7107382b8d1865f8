"""Holds the Gaussian that stands in for a client's areas given all else, with a dense or a sparse factor of its precision.

Source: docs/spec/sigma.md, section 13.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import lapack, solve_triangular

from ...arrays import Matrix, Vector
from .within import Factor, Within, inverted


class Gaussian(ABC):
    """Is q(theta | xi) of one xi, N(mean, M^-1), with any factor of M."""

    mean: Vector  # (d,)
    # w, h: (d,) the rows' addition to Lambda's diagonal and to Lambda A_j z
    w: Vector
    h: Vector

    @property
    @abstractmethod
    def log_det(self) -> float:
        """The log determinant of M."""

    @property
    @abstractmethod
    def sd(self) -> Vector:
        """(d,) The standard deviations of theta."""

    @abstractmethod
    def solved(self, right: Matrix) -> Matrix:
        """Returns M^-1 right (d, k)."""

    @abstractmethod
    def drawn(self, normals: Matrix) -> Matrix:
        """Returns draws (m, d), from standard normals."""

    @abstractmethod
    def within_border(self, prior: Within) -> Matrix:
        """Returns the covariance (b, b) of the border."""

    @abstractmethod
    def traced(self, prior: Within) -> float:
        """Returns the trace of T M^-1."""

    def bound(self, expected: float, pull: Vector) -> float:
        """Returns F without the terms that q does not change, from the mean of log p(y | theta, xi)."""
        quadratic = self.w @ (self.mean**2 + self.sd**2) + self.mean @ (pull - self.h)
        return expected + 0.5 * (float(quadratic) - self.log_det)


@dataclass(frozen=True)
class Posterior(Gaussian):
    """Is the Gaussian with a dense factor."""

    mean: Vector
    factor: Matrix  # (d, d) lower Cholesky factor of M
    w: Vector
    h: Vector

    @property
    def log_det(self) -> float:
        """The log determinant of M."""
        return 2 * float(np.log(self.factor.diagonal()).sum())

    def solved(self, right: Matrix) -> Matrix:
        """Returns M^-1 right (d, k)."""
        out, _ = lapack.dpotrs(self.factor, right, lower=1)
        return np.asarray(out)

    @cached_property
    def covariance(self) -> Matrix:
        """(d, d) M^-1."""
        return inverted(self.factor)

    @cached_property
    def sd(self) -> Vector:
        """(d,) The standard deviations of theta, without the rest of M^-1, which takes twice as long."""
        inverse, _ = lapack.dtrtri(self.factor, lower=1)
        return np.asarray(np.sqrt(np.einsum("ij,ij->j", inverse, inverse)))

    def drawn(self, normals: Matrix) -> Matrix:
        """Returns draws (m, d), from standard normals."""
        return np.asarray(self.mean + solve_triangular(self.factor, normals.T, lower=True, trans="T").T)

    def within_border(self, prior: Within) -> Matrix:
        """Returns the covariance (b, b) of the border."""
        return self.covariance[np.ix_(prior.border, prior.border)]

    def traced(self, prior: Within) -> float:
        """Returns the trace of T M^-1."""
        row, column, data = prior.entries
        return float(data @ self.covariance[row, column])


@dataclass(frozen=True)
class SparsePosterior(Gaussian):
    """Is the Gaussian with a sparse factor."""

    mean: Vector
    factor: Factor
    w: Vector
    h: Vector

    @property
    def log_det(self) -> float:
        """The log determinant of M."""
        return self.factor.log_det

    @cached_property
    def sd(self) -> Vector:
        """(d,) The standard deviations of theta."""
        return np.asarray(np.sqrt(self.factor.variances))

    def solved(self, right: Matrix) -> Matrix:
        """Returns M^-1 right (d, k)."""
        return self.factor.solve(right.T).T

    def drawn(self, normals: Matrix) -> Matrix:
        """Returns draws (m, d), from standard normals."""
        return np.asarray(self.mean + self.factor.drawn(normals))

    def within_border(self, prior: Within) -> Matrix:
        """Returns the covariance (b, b) of the border."""
        return self.factor.inverse_block

    def traced(self, prior: Within) -> float:
        """Returns the trace of T M^-1."""
        return float(prior.traced(self.factor.inverse))
