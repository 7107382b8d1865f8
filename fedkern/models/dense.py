"""Computes Cholesky factors and their solutions by SciPy's LAPACK, without checks that take longer than a small matrix."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtri

Matrix = NDArray[np.float64]


def factor(A: Matrix) -> Matrix:
    """Returns the lower Cholesky factor of A (d, d), of which the lower triangle is read; above the diagonal it is A.

    Raises
    ------
    numpy.linalg.LinAlgError
        A is not positive definite, or not finite.
    """
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

    Rounding would take the inverse's positive definiteness where columns tell only sums of coefficients.

    Raises
    ------
    numpy.linalg.LinAlgError
        P is not positive definite, or not finite.
    """
    if not len(P):
        return np.array(P)
    reverse, _ = dtrtri(np.tril(factor(P[::-1, ::-1])), lower=1)  # of P = U U', U upper triangular
    return np.ascontiguousarray(reverse.T[::-1, ::-1])


def packed(hessian: Matrix) -> Matrix:
    """Returns the (c, P(P+1)/2) lower triangles, row by row."""
    rows, columns = np.tril_indices(hessian.shape[-1])
    return np.ascontiguousarray(hessian[:, rows, columns])


def unpacked(triangle: Matrix, size: int) -> Matrix:
    """Returns the matrices from which `packed` makes these triangles."""
    rows, columns = np.tril_indices(size)
    out = np.empty((len(triangle), size, size))
    out[:, rows, columns] = triangle
    out[:, columns, rows] = triangle
    return out
