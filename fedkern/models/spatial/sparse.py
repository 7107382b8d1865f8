"""Factors a client's precisions, which are sparse but for the block of the border (docs/spec/sigma.md, section 13).

L L' of all of them has one pattern, with the border last. Its columns left of the border are `kernels.spatial`'s, the border's
own block LAPACK's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import lapack

from ...errors import NumericalError
from ...kernels import spatial

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Index = NDArray[np.int64]


def symmetric(lower: Matrix) -> Matrix:
    """Returns the symmetric matrix of a triangle whose other half is 0."""
    out = lower + lower.T
    out.flat[:: len(out) + 1] /= 2
    return np.asarray(out)


@dataclass(frozen=True, eq=False)
class Pattern:
    """Describes the pattern of the Cholesky factors of a client.

    Attributes
    ----------
    order : (d,) which area is eliminated when
    indptr, indices : columns left of the border
    entries : (nnz,) the places of the entries of T among those of the pattern
    kept : (nnz,) which entries of T these are: those of the lower triangle
    """

    order: Index
    indptr: Index
    indices: Index
    entries: Index
    kept: Index

    @classmethod
    def of(cls, T: Any, border: Index) -> Pattern:
        """Returns the pattern of T (d, d), sparse and symmetric, whose border is dense."""
        T = sparse.coo_array(T)
        row, column = (np.asarray(one, np.int64) for one in T.coords)
        graph = sparse.csr_array(sparse.coo_array((np.ones(len(row)), (row, column)), shape=T.shape))
        graph.setdiag(0)
        graph.eliminate_zeros()
        graph.sort_indices()
        analysed = spatial.bordered_analyse(graph.indptr.astype(np.int64), graph.indices.astype(np.int64), border)
        place = np.argsort(analysed.order)
        kept = np.flatnonzero(place[row] >= place[column])
        below, left = place[row[kept]], place[column[kept]]
        columns = np.repeat(np.arange(len(analysed.indptr) - 1), np.diff(analysed.indptr))
        at = np.searchsorted(columns * T.shape[0] + analysed.indices, left * T.shape[0] + below)
        return cls(analysed.order, analysed.indptr, analysed.indices, at, kept)

    @property
    def inner(self) -> int:
        """The number of areas that are not on the border."""
        return len(self.indptr) - 1

    @cached_property
    def columns(self) -> Index:
        """(f,) The column of each entry."""
        return np.repeat(np.arange(self.inner), np.diff(self.indptr))


@dataclass(frozen=True, eq=False)
class Precision:
    """Holds the precision of a client's areas: entries left of the border, and the border's block."""

    pattern: Pattern
    values: Vector
    block: Matrix

    def plus(self, w: Vector) -> Precision:
        """Returns the precision with w (d,) added to the diagonal."""
        pattern, values, block = self.pattern, self.values.copy(), self.block.copy()
        ordered = w[pattern.order]
        values[pattern.indptr[:-1]] += ordered[: pattern.inner]
        block.flat[:: len(block) + 1] += ordered[pattern.inner :]
        return replace(self, values=values, block=block)

    def factored(self) -> Factor:
        """Returns its Cholesky factor; raises NumericalError if it has none."""
        pattern = self.pattern
        values, rest = spatial.bordered_factor(self.values, pattern.indptr, pattern.indices, self.block)
        factor, failed = lapack.dpotrf(rest, lower=1, clean=1) if len(rest) else (rest, 0)
        if failed:
            raise NumericalError("the precision is not positive definite")
        return Factor(pattern, values, factor)


@dataclass(frozen=True, eq=False)
class Factor:
    """Holds the Cholesky factor of a precision M: entries left of the border, and the border's own."""

    pattern: Pattern
    values: Vector
    border: Matrix

    @property
    def log_det(self) -> float:
        """The log determinant of M."""
        inner = self.values[self.pattern.indptr[:-1]]
        return 2 * float(np.log(inner).sum() + np.log(self.border.diagonal()).sum())

    def solve(self, right: Matrix) -> Matrix:
        """Returns M^-1 of each row (m, d)."""
        p = self.pattern
        x = spatial.bordered_solve(right[:, p.order], self.values, p.indptr, p.indices)
        if len(self.border):
            x[:, p.inner :] = lapack.dtrtrs(self.border, x[:, p.inner :].T, lower=1)[0].T
        return self._back(x)

    def drawn(self, normals: Matrix) -> Matrix:
        """Returns draws (m, d) of covariance M^-1, from standard normals."""
        return self._back(normals[:, self.pattern.order])

    def _back(self, x: Matrix) -> Matrix:
        """Solves L' x for the given rows; returns them in the areas' order."""
        p, x = self.pattern, x.copy()
        if len(self.border):
            x[:, p.inner :] = lapack.dtrtrs(self.border, x[:, p.inner :].T, lower=1, trans=1)[0].T
        out = np.empty_like(x)
        out[:, p.order] = spatial.bordered_solve(x, self.values, p.indptr, p.indices, back=True)
        return out

    @cached_property
    def inverse_block(self) -> Matrix:
        """(b, b) M^-1 of the border."""
        if not len(self.border):
            return self.border
        return symmetric(lapack.dpotri(self.border, lower=1)[0])

    @cached_property
    def inverse(self) -> Vector:
        """(f,) M^-1 in the pattern left of the border."""
        p = self.pattern
        return spatial.bordered_inverse(self.values, p.indptr, p.indices, self.inverse_block)

    @cached_property
    def variances(self) -> Vector:
        """(d,) The diagonal of M^-1."""
        out = np.empty(len(self.pattern.order))
        out[self.pattern.order] = np.concatenate([self.inverse[self.pattern.indptr[:-1]], self.inverse_block.diagonal()])
        return out
