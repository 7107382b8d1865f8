"""The Gaussian that stands in for a client's areas given all else, whatever its precision is factored by.

Source: docs/methods/sigma.md, section 13.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, solve_triangular

from .sparse import Factor, symmetric
from .within import Within

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


class Gaussian(ABC):
    """q(theta | xi) of one xi, N(mean, M^-1), whatever M is factored by.

    Attributes
    ----------
    mean : (d,)
    w, h : (d,) what the rows add to Lambda's diagonal and to Lambda A_j z
    """

    mean: Vector
    w: Vector
    h: Vector

    @property
    @abstractmethod
    def log_det(self) -> float:
        """Of M."""

    @property
    @abstractmethod
    def sd(self) -> Vector:
        """(d,) of theta."""

    @abstractmethod
    def solved(self, right: Matrix) -> Matrix:
        """(d, k) M^-1 right."""

    @abstractmethod
    def drawn(self, normals: Matrix) -> Matrix:
        """(m, d) draws, from standard normals."""

    @abstractmethod
    def within_border(self, prior: Within) -> Matrix:
        """(b, b) covariance of the border."""

    @abstractmethod
    def traced(self, prior: Within) -> float:
        """The trace of T M^-1."""

    def bound(self, expected: float, pull: Vector) -> float:
        """F but for what q does not change, from the mean of log p(y | theta, xi)."""
        own = self.w @ (self.mean**2 + self.sd**2) + self.mean @ (pull - self.h)
        return expected + 0.5 * (float(own) - self.log_det)


@dataclass(frozen=True)
class Posterior(Gaussian):
    """With a dense factor.

    Attributes
    ----------
    factor : (d, d) lower Cholesky factor of M
    """

    mean: Vector
    factor: Matrix
    w: Vector
    h: Vector

    @property
    def log_det(self) -> float:
        """Of M."""
        return 2 * float(np.log(self.factor.diagonal()).sum())

    def solved(self, right: Matrix) -> Matrix:
        """(d, k) M^-1 right."""
        out, _ = lapack.dpotrs(self.factor, right, lower=1)
        return np.asarray(out)

    @cached_property
    def covariance(self) -> Matrix:
        """(d, d) M^-1."""
        return symmetric(lapack.dpotri(self.factor, lower=1)[0])

    @cached_property
    def sd(self) -> Vector:
        """(d,) of theta; without the rest of M^-1, which takes twice as long."""
        inverse, _ = lapack.dtrtri(self.factor, lower=1)
        return np.asarray(np.sqrt(np.einsum("ij,ij->j", inverse, inverse)))

    def drawn(self, normals: Matrix) -> Matrix:
        """(m, d) draws, from standard normals."""
        return np.asarray(self.mean + solve_triangular(self.factor, normals.T, lower=True, trans="T").T)

    def within_border(self, prior: Within) -> Matrix:
        """(b, b) covariance of the border."""
        return self.covariance[np.ix_(prior.border, prior.border)]

    def traced(self, prior: Within) -> float:
        """The trace of T M^-1."""
        row, column, data = prior.entries
        return float(data @ self.covariance[row, column])


@dataclass(frozen=True)
class SparsePosterior(Gaussian):
    """With a sparse factor."""

    mean: Vector
    factor: Factor
    w: Vector
    h: Vector

    @property
    def log_det(self) -> float:
        """Of M."""
        return self.factor.log_det

    @cached_property
    def sd(self) -> Vector:
        """(d,) of theta."""
        return np.asarray(np.sqrt(self.factor.variances))

    def solved(self, right: Matrix) -> Matrix:
        """(d, k) M^-1 right."""
        return self.factor.solve(right.T).T

    def drawn(self, normals: Matrix) -> Matrix:
        """(m, d) draws, from standard normals."""
        return np.asarray(self.mean + self.factor.drawn(normals))

    def within_border(self, prior: Within) -> Matrix:
        """(b, b) covariance of the border."""
        return self.factor.inverse_block

    def traced(self, prior: Within) -> float:
        """The trace of T M^-1."""
        return float(prior.traced(self.factor.inverse))
