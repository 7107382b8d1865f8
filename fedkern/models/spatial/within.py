"""The prior of one client's areas given what all clients share, exact inside the client.

    theta_j | z, phi ~ N(A_j z, S_jj - A_j A_j'),  z ~ N(0, I)

S_jj(phi) is the exact covariance of the client's areas, whatever A_j is: only what ties clients together is approximate. On a map
the areas of a client that touch another client's, its border b, separate the others, its interior i, from all other clients. So
A_j is known from the border alone. With Q = Q_0 + phi T the precision of all areas (Q_0 diagonal), S_bb = (U'U)^-1 the covariance
of the border, U lower triangular, and the whitened border e = U theta_b,

    e | z ~ N(W z, I - W W'),  theta_i | theta_b ~ N(-Q_ii^-1 Q_ib theta_b, Q_ii^-1).

`models.spatial.factors` finds W of all clients, |W| < 1. A client holds U, W and K = Q_bi Q_ii^-1 Q_ib at a few values of phi, as
splines between them, so that one evaluation solves nothing of the size of the client. Points of a Gaussian process are all
border.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import BSpline, make_interp_spline
from scipy.linalg import cho_factor, cho_solve

from ...errors import NumericalError
from ..likelihood import HALF_LOG_TAU
from .condition import Condition
from .sparse import Pattern, Precision

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Stack = NDArray[np.float64]  # a matrix for each of m draws, or of G nodes
Index = NDArray[np.int64]

DEGREE = 5  # of splines
LEAST_PHI = 1e-6  # loadings of areas go with the root of phi, whose derivative ends there


@dataclass(frozen=True, eq=False)
class Ties:
    """U, W and K of m values of phi, with their derivatives in phi.

    Attributes
    ----------
    phi : (m,)
    U, dU : (m, b, b) the inverse Cholesky factor of S_bb
    W, dW : (m, b, r) loadings of the whitened border
    K, dK : (m, b, b) what the interior takes from the border's precision
    G : (m, b, b) (I - W W')^-1
    log_norm, dlog_norm : (m,) log density of theta_j = 0 given z = 0, and its derivative
    """

    phi: Vector
    U: Stack
    dU: Stack
    W: Stack
    dW: Stack
    K: Stack
    dK: Stack
    G: Stack
    log_norm: Vector
    dlog_norm: Vector


@dataclass(frozen=True, eq=False)
class Within:
    """What one client holds of the prior.

    Attributes
    ----------
    condition : of phi
    nodes : (g,) what `condition.network` makes of the values of phi that splines go through, rising; one where phi is not free
    border : (b,) its areas that touch others', rising
    diagonal : (d,) of Q_0; 0 on the border
    T : (d, d) sparse, without what lies between areas of the border
    spectrum : (d - b,) eigenvalues of T_ii, divided by the roots of `diagonal` on both sides
    U, K : (g, b, b)
    W : (g, b, r) loadings; over the root of phi where `rooted`
    rooted : whether loadings vanish with phi, as on a map, where areas are independent at phi = 0
    """

    condition: Condition
    nodes: Vector
    border: Index
    diagonal: Vector
    T: Any
    spectrum: Vector
    U: Stack
    K: Stack
    W: Stack
    rooted: bool = True

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
        """d, areas of the client."""
        return len(self.diagonal)

    @property
    def n_latents(self) -> int:
        """r, numbers that all clients share."""
        return int(self.W.shape[2])

    @cached_property
    def _splines(self) -> BSpline | None:
        """Weights of the nodes."""
        return make_interp_spline(self.nodes, np.eye(len(self.nodes)), k=DEGREE) if len(self.nodes) > DEGREE else None

    def _weights(self, phi: Vector) -> tuple[Matrix, Matrix]:
        """(m, g) weights of the nodes, and their derivatives in phi."""
        if self._splines is None:  # phi has one value
            return np.ones((len(phi), 1)), np.zeros((len(phi), 1))
        t = self.condition.network(phi)
        return self._splines(t), self._splines(t, 1) * self.condition.slope(phi)[:, np.newaxis]

    def ties(self, phi: Vector) -> Ties:
        """U, W and K at phi (m,).

        Raises
        ------
        NumericalError
            I - W W' is not positive definite there.
        """
        phi = np.maximum(phi, LEAST_PHI) if self.rooted else phi
        weights, slopes = self._weights(phi)
        both = np.concatenate([weights, slopes])  # a stack is read once
        (U, dU), (K, dK), (W, dW) = (np.split(np.tensordot(both, stack, 1), 2) for stack in (self.U, self.K, self.W))
        if self.rooted:
            root = np.sqrt(phi)[:, np.newaxis, np.newaxis]
            W, dW = root * W, root * dW + W / (2 * root)
        rest = np.eye(len(self.border)) - W @ W.transpose(0, 2, 1)
        try:
            lengths = np.linalg.cholesky(rest).diagonal(axis1=1, axis2=2)
        except np.linalg.LinAlgError:
            raise NumericalError(f"within: the factors are not whole at phi = {phi}; more values of phi are needed") from None
        G = np.asarray(np.linalg.inv(rest), dtype=np.float64)
        sd_inverse = U.diagonal(axis1=1, axis2=2)
        shares = 1 + phi[:, np.newaxis] * self.spectrum
        log_norm = 0.5 * np.log(shares).sum(axis=1) + 0.5 * float(np.log(self.diagonal[self.diagonal > 0]).sum())
        log_norm += np.log(sd_inverse).sum(axis=1) - np.log(lengths).sum(axis=1) - self.size * HALF_LOG_TAU
        dlog_norm = 0.5 * (self.spectrum / shares).sum(axis=1) + (dU.diagonal(axis1=1, axis2=2) / sd_inverse).sum(axis=1)
        dlog_norm += (W * (G @ dW)).sum(axis=(1, 2))
        return Ties(phi, U, dU, W, dW, K, dK, G, log_norm, dlog_norm)

    def log_density(self, ties: Ties, theta: Matrix, z: Matrix) -> tuple[Vector, Matrix, Matrix, Vector]:
        """log p(theta_j | z, phi) (m,), and its derivatives in theta (m, d), z (m, r) and phi (m,)."""
        border = theta[:, self.border]
        pulled = np.asarray((self.T @ theta.T).T)
        own = self.diagonal * theta + ties.phi[:, np.newaxis] * pulled
        through = _times(ties.K, border)
        left = _times(ties.U, border) - _times(ties.W, z)
        s = _times(ties.G, left)
        g_z = _across(ties.W, s)
        value = ties.log_norm - 0.5 * (_dot(theta, own) + _dot(border, through) + _dot(left, s))
        g_theta = -own
        g_theta[:, self.border] -= through + _across(ties.U, s)
        g_phi = ties.dlog_norm - 0.5 * (_dot(theta, pulled) + _dot(border, _times(ties.dK, border)))
        g_phi += _dot(s, _times(ties.dW, z - g_z) - _times(ties.dU, border))
        return value, g_theta, g_z, g_phi

    def precision(self, ties: Ties, k: int = 0) -> Matrix:
        """(d, d) of theta_j given z, at the k-th phi of `ties`."""
        out = np.asarray((self.T * ties.phi[k]).todense(), dtype=np.float64)
        out[np.diag_indices(self.size)] += self.diagonal
        out[np.ix_(self.border, self.border)] += ties.K[k] + ties.U[k].T @ ties.G[k] @ ties.U[k]
        return out

    @cached_property
    def pattern(self) -> Pattern:
        """Of the Cholesky factors of its precisions, the same for every phi."""
        return Pattern.of(self.T, self.border)

    @cached_property
    def _scattered(self) -> tuple[Vector, Vector]:
        """(f,) Q_0 and T, left of the border, in the pattern."""
        p = self.pattern
        fixed, slope = np.zeros(len(p.indices)), np.zeros(len(p.indices))
        fixed[p.indptr[:-1]] = self.diagonal[p.order[: p.inner]]
        slope[p.entries] = np.asarray(self.T.tocoo().data)[p.kept]
        return fixed, slope

    def sparse_precision(self, ties: Ties, k: int = 0) -> Precision:
        """`precision`, as it is: sparse but for the block of the border."""
        fixed, slope = self._scattered
        return Precision(self.pattern, fixed + ties.phi[k] * slope, ties.K[k] + ties.U[k].T @ ties.G[k] @ ties.U[k])

    def traced(self, inverse: Vector) -> float:
        """The trace of T times a matrix whose entries in the pattern these are."""
        p = self.pattern
        return float(self._scattered[1] @ (inverse * np.where(p.indices == p.columns, 1.0, 2.0)))

    def without_own(self, ties: Ties, theta: Vector, z: Vector, k: int = 0) -> tuple[Vector, Vector]:
        """(d,) mean and variance of each theta_i given all others' theta (d,) and z, without rows."""
        block = ties.K[k] + ties.U[k].T @ ties.G[k] @ ties.U[k]
        diagonal = self.diagonal + ties.phi[k] * np.asarray(self.T.diagonal())
        diagonal[self.border] += block.diagonal()
        pulled = -(self.diagonal * theta + ties.phi[k] * np.asarray(self.T @ theta))
        pulled[self.border] += ties.U[k].T @ (ties.G[k] @ (ties.W[k] @ z)) - block @ theta[self.border]
        return theta + pulled / diagonal, 1 / diagonal

    def pull(self, ties: Ties, k: int = 0) -> Matrix:
        """(d, r) the precision of theta_j given z, times A_j."""
        out = np.zeros((self.size, self.n_latents))
        out[self.border] = ties.U[k].T @ ties.G[k] @ ties.W[k]
        return out

    def loadings(self, ties: Ties, k: int = 0) -> Matrix:
        """(d, r) A_j."""
        return np.asarray(cho_solve(cho_factor(self.precision(ties, k)), self.pull(ties, k)))

    def covariance(self, ties: Ties, k: int = 0) -> Matrix:
        """(d, d) S_jj."""
        A = self.loadings(ties, k)
        return np.asarray(cho_solve(cho_factor(self.precision(ties, k)), np.eye(self.size)) + A @ A.T)


def _times(M: Stack, x: Matrix) -> Matrix:
    """M x, draw by draw."""
    return np.asarray((M @ x[:, :, np.newaxis])[:, :, 0])


def _across(M: Stack, x: Matrix) -> Matrix:
    """M' x, draw by draw."""
    return np.asarray((x[:, np.newaxis, :] @ M)[:, 0, :])


def _dot(x: Matrix, y: Matrix) -> Vector:
    return np.asarray(np.einsum("mi,mi->m", x, y))
