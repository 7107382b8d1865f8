"""Computes the prior of one client's areas given the numbers that all clients share, exact inside the client.

    theta_j | z, phi ~ N(A_j z, S_jj - A_j A_j'),  z ~ N(0, I)

S_jj(phi) is the exact covariance of the client's areas, whatever A_j is: only the ties between clients are approximate. On a map
the areas of a client that touch another client's, its border b, separate the others, its interior i, from all other clients. So
A_j is known from the border alone. With Q = Q_0 + phi T the precision of all areas (Q_0 diagonal), S_bb = (U'U)^-1 the covariance
of the border, U lower triangular, and the whitened border e = U theta_b,

    e | z ~ N(W z, I - W W'),  theta_i | theta_b ~ N(-Q_ii^-1 Q_ib theta_b, Q_ii^-1).

`models.spatial.factors` computes W of all clients, |W| < 1. A client holds U, W and K = Q_bi Q_ii^-1 Q_ib at a few values of phi,
as splines between them, so that one evaluation solves nothing of the size of the client. Points of a Gaussian process are all
border.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve, lapack

from ...arrays import Indices, Matrix, Vector
from ...errors import NumericalError
from ...kernels import spatial
from ..likelihood import HALF_LOG_TAU
from .condition import Condition

Stack = NDArray[np.float64]  # a matrix for each of m draws, or of G nodes

DEGREE = 5  # of splines
LEAST_PHI = 1e-6  # loadings of areas go with the root of phi, whose derivative ends there


@dataclass(frozen=True, eq=False)
class Ties:
    """Holds U, W and K of m values of phi."""

    phi: Vector  # (m,)
    U: Stack  # (m, b, b) the inverse Cholesky factor of S_bb
    W: Stack  # (m, b, r) loadings of the whitened border
    K: Stack  # (m, b, b) the part of the border's precision that the interior takes
    G: Stack  # (m, b, b) (I - W W')^-1
    log_norm: Vector  # (m,) log density of theta_j = 0 given z = 0


@dataclass(frozen=True, eq=False)
class Sloped(Ties):
    """Holds the same with derivatives in phi."""

    # dU, dW, dK, dlog_norm: of U, W, K and log_norm
    dU: Stack
    dW: Stack
    dK: Stack
    dWW: Stack  # (m, b, b) dW W'
    dlog_norm: Vector


@dataclass(frozen=True, eq=False)
class Within:
    """Holds one client's part of the prior."""

    condition: Condition  # of phi
    nodes: Vector  # (g,) `condition.network` of the values of phi that splines go through, rising; one if phi is not free
    border: Indices  # (b,) its areas that touch others', rising
    diagonal: Vector  # (d,) of Q_0; 0 on the border
    T: Any  # (d, d) sparse, without the entries between areas of the border
    spectrum: Vector  # (d - b,) eigenvalues of T_ii, divided by the roots of `diagonal` on both sides
    # U, K: (g, b, b)
    U: Stack
    K: Stack
    W: Stack  # (g, b, r) loadings; over the root of phi if `rooted`
    rooted: bool = True  # whether loadings vanish with phi, as on a map, where areas are independent at phi = 0

    def __post_init__(self) -> None:
        d, b, g = len(self.diagonal), len(self.border), len(self.nodes)
        shapes = {"T": (d, d), "spectrum": (d - b,), "U": (g, b, b), "K": (g, b, b), "W": (g, b, self.W.shape[-1])}
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"within: {name} has shape {getattr(self, name).shape}; wanted {shape}")
        if 1 < g <= DEGREE:
            raise ValueError(f"within: {g} values of phi; wanted one, or more than {DEGREE}")

    @property
    def size(self) -> int:
        """d, the number of areas of the client."""
        return len(self.diagonal)

    @property
    def n_latents(self) -> int:
        """r, the length of the vector that all clients share."""
        return int(self.W.shape[2])

    @cached_property
    def _curves(self) -> tuple[Any, Stack, Stack, Stack]:
        """B-splines over the nodes, and coefficients of U, K and W by them; None and the values themselves if phi has one
        value."""
        from scipy.interpolate import BSpline, make_interp_spline  # takes a second, and most jobs need none

        if len(self.nodes) <= DEGREE:
            return None, self.U, self.K, self.W
        U, K, W = (make_interp_spline(self.nodes, values, k=DEGREE) for values in (self.U, self.K, self.W))
        return BSpline(U.t, np.eye(len(self.nodes)), DEGREE), U.c, K.c, W.c

    def _weights(self, phi: Vector) -> tuple[Matrix, Matrix, slice]:
        """Returns weights (m, n) of the coefficients, and their derivatives in phi; which n coefficients these are: six for one
        phi."""
        splines = self._curves[0]
        if splines is None:
            return np.ones((len(phi), 1)), np.zeros((len(phi), 1)), slice(0, 1)
        t = self.condition.network(phi)
        weights, slopes = splines(t), splines(t, 1) * self.condition.slope(phi)[:, np.newaxis]
        used = np.flatnonzero(((weights != 0) | (slopes != 0)).any(axis=0))
        where = slice(int(used[0]), int(used[-1]) + 1)
        return weights[:, where], slopes[:, where], where

    def ties(self, phi: Vector) -> Ties:
        """Returns U, W and K at phi (m,). Raises NumericalError: I - W W' is not positive definite there."""
        phi = np.maximum(phi, LEAST_PHI) if self.rooted else phi
        weights, _, where = self._weights(phi)
        of_W = np.sqrt(phi)[:, np.newaxis] * weights if self.rooted else weights
        _, *stacks = self._curves
        U, K, W = (np.tensordot(by, stack[where], 1) for by, stack in zip((weights, weights, of_W), stacks))
        G, log_norm = self._rest(phi, U, W)
        return Ties(phi, U, W, K, G, log_norm)

    def sloped(self, phi: Vector) -> Sloped:
        """Returns the same with derivatives in phi."""
        phi = np.maximum(phi, LEAST_PHI) if self.rooted else phi
        weights, slopes, where = self._weights(phi)
        both = of_W = np.concatenate([weights, slopes])  # a stack is read once
        if self.rooted:
            root = np.sqrt(phi)[:, np.newaxis]
            of_W = np.concatenate([root * weights, root * slopes + weights / (2 * root)])
        _, *stacks = self._curves
        (U, dU), (K, dK), (W, dW) = (
            np.split(np.tensordot(by, stack[where], 1), 2) for by, stack in zip((both, both, of_W), stacks)
        )
        G, log_norm = self._rest(phi, U, W)
        dWW = dW @ W.transpose(0, 2, 1)
        dlog_norm = 0.5 * (self.spectrum / (1 + phi[:, np.newaxis] * self.spectrum)).sum(axis=1)
        dlog_norm += (dU.diagonal(axis1=1, axis2=2) / U.diagonal(axis1=1, axis2=2)).sum(axis=1) + (G * dWW).sum(axis=(1, 2))
        return Sloped(phi, U, W, K, G, log_norm, dU, dW, dK, dWW, dlog_norm)

    def _rest(self, phi: Vector, U: Stack, W: Stack) -> tuple[Stack, Vector]:
        """Returns G and log_norm."""
        rest = np.eye(len(self.border)) - W @ W.transpose(0, 2, 1)
        try:
            factors = np.linalg.cholesky(rest)
        except np.linalg.LinAlgError:
            raise NumericalError(f"within: the factors are not whole at phi = {phi}; more values of phi are needed") from None
        log_norm = 0.5 * np.log(1 + phi[:, np.newaxis] * self.spectrum).sum(axis=1)
        log_norm += 0.5 * float(np.log(self.diagonal[self.diagonal > 0]).sum()) - self.size * HALF_LOG_TAU
        log_norm += np.log(U.diagonal(axis1=1, axis2=2)).sum(axis=1) - np.log(factors.diagonal(axis1=1, axis2=2)).sum(axis=1)
        return np.array([inverted(factor) for factor in factors]), log_norm

    def log_density(self, ties: Sloped, theta: Matrix, z: Matrix) -> tuple[Vector, Matrix, Matrix, Vector]:
        """Returns log p(theta_j | z, phi) (m,), and its derivatives in theta (m, d), z (m, r) and phi (m,)."""
        border = theta[:, self.border]
        pulled = np.asarray((self.T @ theta.T).T)
        product = self.diagonal * theta + ties.phi[:, np.newaxis] * pulled
        through = _times(ties.K, border)
        left = _times(ties.U, border) - _times(ties.W, z)
        s = _times(ties.G, left)
        g_z = _across(ties.W, s)
        value = ties.log_norm - 0.5 * (_dot(theta, product) + _dot(border, through) + _dot(left, s))
        g_theta = -product
        g_theta[:, self.border] -= through + _across(ties.U, s)
        g_phi = ties.dlog_norm - 0.5 * (_dot(theta, pulled) + _dot(border, _times(ties.dK, border)))
        g_phi += _dot(s, _times(ties.dW, z - g_z) - _times(ties.dU, border))
        return value, g_theta, g_z, g_phi

    @cached_property
    def entries(self) -> tuple[Indices, Indices, Vector]:
        """The rows, columns and values of T's entries."""
        T = self.T.tocoo()
        return *T.coords, T.data

    def precision(self, ties: Ties, k: int = 0) -> Matrix:
        """Returns the precision (d, d) of theta_j given z, at the k-th phi of `ties`."""
        row, column, data = self.entries
        out = np.zeros((self.size, self.size))
        out[row, column] = ties.phi[k] * data
        out[np.diag_indices(self.size)] += self.diagonal
        out[np.ix_(self.border, self.border)] += ties.K[k] + ties.U[k].T @ ties.G[k] @ ties.U[k]
        return out

    @cached_property
    def pattern(self) -> Pattern:
        """The pattern of the Cholesky factors of its precisions, the same for every phi."""
        return Pattern.of(self.T, self.border)

    @cached_property
    def _scattered(self) -> tuple[Vector, Vector]:
        """(f,) Q_0 and T, left of the border, in the pattern."""
        p = self.pattern
        fixed, slope = np.zeros(len(p.indices)), np.zeros(len(p.indices))
        fixed[p.indptr[:-1]] = self.diagonal[p.order[: p.inner]]
        slope[p.entries] = self.entries[2][p.kept]
        return fixed, slope

    def sparse_precision(self, ties: Ties, k: int = 0) -> Precision:
        """Returns `precision` in sparse form, but for the block of the border."""
        fixed, slope = self._scattered
        return Precision(self.pattern, fixed + ties.phi[k] * slope, ties.K[k] + ties.U[k].T @ ties.G[k] @ ties.U[k])

    def traced(self, inverse: Vector) -> float:
        """Returns the trace of T times a matrix whose entries in the pattern these are."""
        p = self.pattern
        return float(self._scattered[1] @ (inverse * np.where(p.indices == p.columns, 1.0, 2.0)))

    def without_own(self, ties: Ties, theta: Vector, z: Vector, k: int = 0) -> tuple[Vector, Vector]:
        """Returns mean and variance (d,) of each theta_i given all others' theta (d,) and z, without rows."""
        block = ties.K[k] + ties.U[k].T @ ties.G[k] @ ties.U[k]
        diagonal = self.diagonal + ties.phi[k] * np.asarray(self.T.diagonal())
        diagonal[self.border] += block.diagonal()
        pulled = -(self.diagonal * theta + ties.phi[k] * np.asarray(self.T @ theta))
        pulled[self.border] += ties.U[k].T @ (ties.G[k] @ (ties.W[k] @ z)) - block @ theta[self.border]
        return theta + pulled / diagonal, 1 / diagonal

    def pull(self, ties: Ties, k: int = 0) -> Matrix:
        """Returns the precision of theta_j given z, times A_j (d, r)."""
        out = np.zeros((self.size, self.n_latents))
        out[self.border] = ties.U[k].T @ ties.G[k] @ ties.W[k]
        return out

    def loadings(self, ties: Ties, k: int = 0) -> Matrix:
        """Returns A_j (d, r)."""
        return np.asarray(cho_solve(cho_factor(self.precision(ties, k)), self.pull(ties, k)))

    def covariance(self, ties: Ties, k: int = 0) -> Matrix:
        """Returns S_jj (d, d)."""
        A = self.loadings(ties, k)
        return np.asarray(cho_solve(cho_factor(self.precision(ties, k)), np.eye(self.size)) + A @ A.T)


def _times(M: Stack, x: Matrix) -> Matrix:
    """Returns M x, draw by draw."""
    return np.asarray((M @ x[:, :, np.newaxis])[:, :, 0])


def _across(M: Stack, x: Matrix) -> Matrix:
    """Returns M' x, draw by draw."""
    return np.asarray((x[:, np.newaxis, :] @ M)[:, 0, :])


def _dot(x: Matrix, y: Matrix) -> Vector:
    return np.asarray(np.einsum("mi,mi->m", x, y))


# --------------------
# Factors a client's precisions, which are sparse but for the block of the border (docs/spec/sigma.md, section 13).
#
# L L' of all of them has one pattern, with the border last. Its columns left of the border are `kernels.spatial`'s, the border's
# own block LAPACK's.


def inverted(factor: Matrix) -> Matrix:
    """Returns the inverse of a matrix from its lower Cholesky factor, whose other half is 0."""
    if not len(factor):
        return factor
    lower = lapack.dpotri(factor, lower=1)[0]
    out = lower + lower.T
    out.flat[:: len(out) + 1] /= 2
    return np.asarray(out)


@dataclass(frozen=True, eq=False)
class Pattern:
    """Describes the pattern of the Cholesky factors of a client."""

    order: Indices  # (d,) which area is eliminated when
    # indptr, indices: columns left of the border
    indptr: Indices
    indices: Indices
    entries: Indices  # (nnz,) the places of the entries of T among those of the pattern
    kept: Indices  # (nnz,) which entries of T these are: those of the lower triangle

    @classmethod
    def of(cls, T: Any, border: Indices) -> Pattern:
        """Returns the pattern of T (d, d), sparse and symmetric, whose border is dense."""
        T = sparse.coo_array(T)
        row, column = (np.asarray(numbers, np.int64) for numbers in T.coords)
        graph = sparse.csr_array(sparse.coo_array((np.ones(len(row)), (row, column)), shape=T.shape))
        graph.setdiag(0)
        graph.eliminate_zeros()
        graph.sort_indices()
        analysed = spatial.bordered_analyse(graph.indptr.astype(np.int64), graph.indices.astype(np.int64), border)
        place = np.argsort(analysed.order)
        kept = np.flatnonzero(place[row] >= place[column])
        below, left = place[row[kept]], place[column[kept]]
        columns = np.repeat(np.arange(len(analysed.indptr) - 1), np.diff(analysed.indptr))
        places = np.searchsorted(columns * T.shape[0] + analysed.indices, left * T.shape[0] + below)
        return cls(analysed.order, analysed.indptr, analysed.indices, places, kept)

    @property
    def inner(self) -> int:
        """The number of areas that are not on the border."""
        return len(self.indptr) - 1

    @cached_property
    def columns(self) -> Indices:
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
        return Precision(pattern, values, block)

    def factored(self) -> Factor:
        """Returns its Cholesky factor; raises NumericalError if it has none."""
        pattern = self.pattern
        values, rest = spatial.bordered_factor(self.values, pattern.indptr, pattern.indices, self.block)
        factor, failed = lapack.dpotrf(rest.T, lower=1, clean=1, overwrite_a=1) if len(rest) else (rest, 0)
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
        """Solves L' x for the given rows, which it overwrites; returns them in the areas' order."""
        p = self.pattern
        if len(self.border):
            x[:, p.inner :] = lapack.dtrtrs(self.border, x[:, p.inner :].T, lower=1, trans=1)[0].T
        out = np.empty_like(x)
        out[:, p.order] = spatial.bordered_solve(x, self.values, p.indptr, p.indices, back=True)
        return out

    @cached_property
    def inverse_block(self) -> Matrix:
        """(b, b) M^-1 of the border."""
        return inverted(self.border)

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
