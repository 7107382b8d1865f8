"""Computes with Gaussian exponential families in natural parameters.

density(theta; h, P) is proportional to exp(h'theta - theta'P theta / 2). A product of densities is a sum of parameters, a
quotient their difference, so sites and cavities are plain array arithmetic. On the wire, and wherever parameters are only
added, a precision is *packed*: (d,) for a diagonal one, the d (d + 1) / 2 numbers of the lower triangle, row by row, for a
full one. Source: docs/spec/pvi.md, section 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtri

from ..arrays import Matrix, Vector
from ..errors import NumericalError


def packed_size(d: int, covariance: str) -> int:
    """Returns the length of a packed precision: d ("diagonal") or d (d + 1) / 2 ("full")."""
    return d if covariance == "diagonal" else d * (d + 1) // 2


@lru_cache(maxsize=8)
def _triangle(d: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    return np.tril_indices(d)


def pack(P: Vector) -> Vector:
    """Returns (d,) unchanged, or the lower triangle of (d, d)."""
    return P if P.ndim == 1 else P[_triangle(len(P))]


def unpack(packed: Vector, d: int) -> Vector:
    """Returns the inverse of `pack`: (d,) or a symmetric (d, d)."""
    if len(packed) == d and d != 1:
        return packed
    if d == 1:  # a full 1 x 1 matrix and a diagonal of length 1 are the same number
        return packed
    P = np.empty((d, d))
    rows, columns = _triangle(d)
    P[rows, columns] = packed
    P[columns, rows] = packed
    return P


@dataclass(frozen=True)
class Gaussian:
    """Holds a proper Gaussian in natural parameters."""

    h: Vector  # (d,) array, shift: precision times mean
    P: Vector  # (d,) array of precisions (independent coordinates), or (d, d) precision matrix

    @classmethod
    def from_moments(cls, mean: Vector, covariance: Vector) -> Gaussian:
        """Makes one from mean (d,) and variances (d,) or covariance matrix (d, d)."""
        P = 1 / covariance if covariance.ndim == 1 else inverse(covariance)
        h = P * mean if P.ndim == 1 else P @ mean
        return cls(h, P)

    @property
    def d(self) -> int:
        return len(self.h)

    @property
    def diagonal(self) -> bool:
        return self.P.ndim == 1

    @cached_property
    def _factor(self) -> Vector:
        return _proper(factor, self.P)

    @cached_property
    def mean(self) -> Vector:
        return self.h / self.P if self.diagonal else solve(self._factor, self.h)

    @property
    def covariance(self) -> Vector:
        """The covariance matrix (d, d)."""
        return np.diag(1 / self.P) if self.diagonal else solve(self._factor, np.eye(self.d))

    @property
    def sd(self) -> Vector:
        """The marginal standard deviations (d,)."""
        variance = 1 / self.P if self.diagonal else np.diag(self.covariance)
        return np.sqrt(variance)

    @property
    def scale_tril(self) -> Vector:
        """The lower Cholesky factor of the covariance (d, d)."""
        return np.diag(self.sd) if self.diagonal else _proper(scale_of, self.P)

    def log_density(self, theta: Vector) -> Vector:
        """Returns the log density (...) of points (..., d)."""
        z = theta - self.mean
        square = (z * z) @ self.P if self.diagonal else np.einsum("...i,ij,...j->...", z, self.P, z)
        density: Vector = 0.5 * (self.log_det_precision - self.d * np.log(2 * np.pi) - square)
        return density

    @property
    def log_det_precision(self) -> float:
        if self.diagonal:
            return float(np.log(self.P).sum())
        return float(2 * np.log(np.diag(self._factor)).sum())

    def variance_of(self, X: Vector) -> Vector:
        """Returns the variance of X theta, row by row: (n,)."""
        if self.diagonal:
            return (X * X) @ (1 / self.P)
        half = X @ self.scale_tril
        return np.asarray((half * half).sum(axis=1))


def _proper(made_of: Callable[[Vector], Vector], P: Vector) -> Vector:
    """Applies a function to a precision matrix; NumericalError where it is not positive definite."""
    try:
        return made_of(P)
    except np.linalg.LinAlgError as error:
        raise NumericalError(
            f"the precision matrix is not positive definite ({error}): lower the damping or the learning rate"
        ) from None


def kl(p: Gaussian, q: Gaussian) -> float:
    """Returns KL(p || q) in nats."""
    difference = p.mean - q.mean
    if p.diagonal and q.diagonal:
        ratio = q.P / p.P
        return float(0.5 * (ratio - 1 - np.log(ratio) + q.P * difference**2).sum())
    Q = np.diag(q.P) if q.diagonal else q.P
    trace = float((Q * p.covariance).sum())
    return 0.5 * (trace - p.d + p.log_det_precision - q.log_det_precision + float(difference @ Q @ difference))


def keeps_proper(P: Vector, dP: Vector, alpha: float, factor: float = 0.1) -> bool:
    """Returns whether P + alpha dP >= factor P, coordinate by coordinate or as matrices; NaN is never proper.

    Source: pvi.md, section 9.
    """
    if P.ndim == 1:
        return bool((P + alpha * dP >= factor * P).all())
    try:
        np.linalg.cholesky((1 - factor) * P + alpha * dP)
    except np.linalg.LinAlgError:
        return False
    return bool(np.isfinite(dP).all())


def floored(P: Vector, floor: Vector) -> tuple[Vector, int]:
    """Raises small coordinates of P (or eigenvalues relative to the floor) to the floor, and counts them.

    Parameters
    ----------
    P : (d,) or (d, d), perhaps not positive
    floor : (d,) positive

    Returns
    -------
    P without small coordinates, and how many were raised

    Source: docs/spec/pvi.md, section 9 (cavity).
    """
    if P.ndim == 1:
        low = np.logical_not(P > floor)  # NaN counts as low
        return np.where(low, floor, P), int(low.sum())
    root = np.sqrt(floor)
    values, vectors = np.linalg.eigh(P / np.outer(root, root))
    low = ~(values > 1)
    if not low.any():
        return P, 0
    raised = (vectors * np.maximum(values, 1)) @ vectors.T
    return raised * np.outer(root, root), int(low.sum())


# --------------------
# Computes Cholesky factors and their solutions by SciPy's LAPACK, without checks that take longer than a small matrix.


def factor(A: Matrix) -> Matrix:
    """Returns the lower Cholesky factor of A (d, d), of which the lower triangle is read; above the diagonal it is A. Raises
    numpy.linalg.LinAlgError: a is not positive definite, or not finite."""
    L, info = dpotrf(A, lower=1, clean=0)
    if info or not np.isfinite(L.trace()):  # what is not finite in a row reaches its diagonal
        raise np.linalg.LinAlgError(f"the {info or len(A)}-th leading minor is not positive definite")
    return np.asarray(L)


def solve(L: Matrix, b: Matrix) -> Matrix:
    """Returns A^-1 b for b (d,) or (d, m), from the factor of A."""
    if not len(L):
        return np.array(b)
    x, _ = dpotrs(L, b, lower=1)
    return np.asarray(x)


def inverse(A: Matrix) -> Matrix:
    """Returns A^-1 from the lower triangle of A."""
    return solve(factor(A), np.eye(len(A)))


def scale_of(P: Matrix) -> Matrix:
    """Returns the lower triangular L, its diagonal positive, of L L' = P^-1, without computing the inverse.

    Rounding would take the inverse's positive definiteness where columns tell only sums of coefficients. Raises
    numpy.linalg.LinAlgError: p is not positive definite, or not finite.
    """
    if not len(P):
        return np.array(P)
    reverse, _ = dtrtri(np.tril(factor(P[::-1, ::-1])), lower=1)  # of P = U U', U upper triangular
    return np.ascontiguousarray(reverse.T[::-1, ::-1])


def packed(hessian: Matrix) -> Matrix:
    """Returns the (c, P(P+1)/2) lower triangles, row by row."""
    rows, columns = _triangle(hessian.shape[-1])
    return np.ascontiguousarray(hessian[:, rows, columns])


def unpacked(triangle: Matrix, size: int) -> Matrix:
    """Returns the matrices from which `packed` makes these triangles."""
    rows, columns = _triangle(size)
    out = np.empty((len(triangle), size, size))
    out[:, rows, columns] = triangle
    out[:, columns, rows] = triangle
    return out
