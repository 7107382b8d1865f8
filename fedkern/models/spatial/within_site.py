"""A client's term of the log joint density where its own prior is exact (`models.spatial.within`).

    theta_j | z, phi ~ N(A_j z, S_jj - A_j A_j'),  y ~ p(y | eta),  eta = o + b + x' beta + sigma_theta theta_i

With a Gaussian response of error s theta is integrated out. With n_i rows of area i, M = Lambda + sigma_theta^2 diag(n) / s^2,
Lambda the precision of theta given z, h = Lambda A_j z + sigma_theta (sums of r by area) / s^2, r = y less all of eta but theta,

    log p(y | z, phi, ..) = log p(theta = 0 | z, phi) + h'M^-1 h / 2 - log|M| / 2 + (d/2) log 2 pi
                            - r'r / (2 s^2) - (rows / 2) log 2 pi s^2,

and its derivatives are those of log p(y, theta | z, phi, ..), averaged over theta ~ N(M^-1 h, M^-1) (Fisher's identity).
Otherwise theta = R u, R an inverse Cholesky factor of the precision that theta has about given its rows: u is on the scale of its
posterior.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import cholesky, lapack, solve_triangular

from ..likelihood import HALF_LOG_TAU, Likelihood
from .condition import Condition
from .site import Layout, Observed, Rows
from .within import Ties, Within

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

STEP = 1e-4  # of eta, for the information of rows


@dataclass(frozen=True)
class Posterior:
    """theta given z, phi and Gaussian rows, for one draw.

    Attributes
    ----------
    mean : (d,)
    factor : (d, d) lower Cholesky factor of its precision M
    log_det : of M
    """

    mean: Vector
    factor: Matrix
    log_det: float

    @cached_property
    def covariance(self) -> Matrix:
        """(d, d) M^-1."""
        inverse, _ = lapack.dpotri(self.factor, lower=1)
        return np.asarray(np.tril(inverse) + np.tril(inverse, -1).T)


@dataclass(frozen=True)
class WithinSite(Observed):
    """One client's term (`models.hierarchical.LocalModel`); u is theta, or empty where theta is integrated out.

    Attributes
    ----------
    prior : what the client holds of it
    condition : of phi, as the job has it
    layout, likelihood, rows
    integrated : whether theta is integrated out; only of a Gaussian response
    """

    prior: Within
    condition: Condition
    layout: Layout
    likelihood: Likelihood
    rows: Rows
    integrated: bool = False

    def __post_init__(self) -> None:
        if self.integrated and self.likelihood.record.link != "identity":
            raise ValueError("within: theta can be integrated out of a model with a Gaussian response, and of no other")
        if self.layout.mixing or self.layout.n_global != self.prior.n_latents:
            raise ValueError(f"within: xi has {self.layout.n_global} latents, the prior {self.prior.n_latents} and no mixing")

    @property
    def n_global(self) -> int:
        return self.layout.size

    @property
    def n_areas(self) -> int:
        return self.prior.size

    @property
    def size(self) -> int:
        return 0 if self.integrated else self.prior.size

    @cached_property
    def root(self) -> Matrix:
        """(d, d) R."""
        like, rows, ones = self.likelihood, self.rows, np.zeros(1)
        up, down = (like.slope(rows.y, rows.offset + step, ones, rows.trials) for step in (STEP, -STEP))
        information = np.bincount(rows.area, weights=np.maximum((down - up) / (2 * STEP), 0.0), minlength=self.n_areas)
        middle = self.condition.at(np.zeros(1))[0]
        M = self.prior.precision(self.prior.ties(middle)) + self.layout.known_scale**2 * np.diag(information)
        return np.asarray(solve_triangular(cholesky(M), np.eye(self.n_areas)))

    @cached_property
    def log_volume(self) -> float:
        """log |R|."""
        return float(np.log(self.root.diagonal()).sum())

    # ---- The density.

    def log_joint_grad(self, xi: Vector, u: Vector) -> tuple[float, Vector, Vector]:
        """log p(y, u | xi), and its gradients in xi (P,) and in u (size,)."""
        value, g_xi, g_u = self.log_joint_grads(xi[np.newaxis], u[np.newaxis])
        return float(value[0]), g_xi[0], g_u[0]

    def log_joint_grads(self, xi: Matrix, u: Matrix) -> tuple[Vector, Matrix, Matrix]:
        """The same (m,), (m, P), (m, size) at m places."""
        parts, g_xi = self.layout.parts, np.zeros((len(xi), self.n_global))
        ties, dphi = self._ties(xi)
        if self.integrated:
            value, by_phi = self._integrated(xi, ties, g_xi)
            g_u = np.zeros((len(xi), 0))
        else:
            theta = u @ self.root.T
            value, slope, g_theta, by_sd = self.given_theta(xi, theta)
            more, g_more, g_xi[:, parts["z"]], by_phi = self.prior.log_density(ties, theta, xi[:, parts["z"]])
            self.add_rows(g_xi, slope, theta, self.scale(xi))
            if self.layout.dispersed:
                g_xi[:, -1:] += by_sd
            value, g_u = value + more + self.log_volume, (g_theta + g_more) @ self.root
        if self.layout.free:
            g_xi[:, 0] = by_phi * dphi
        return value, g_xi, g_u

    def _ties(self, xi: Matrix) -> tuple[Ties, Vector]:
        """What the prior is at phi, and the derivative of phi in x."""
        phi, dphi = self.condition.at(xi[:, 0] if self.layout.free else np.zeros(len(xi)))
        return self.prior.ties(phi), dphi

    def _noise(self, xi: Matrix) -> Vector:
        """(m,) variances of the error."""
        return np.asarray(np.broadcast_to(self.likelihood.sd(self.log_sd(xi)) ** 2, (len(xi), 1))[:, 0])

    def _posterior(self, ties: Ties, k: int, z: Vector, sums: Vector, scale: float, noise: float) -> tuple[Posterior, float]:
        """theta given z and rows whose residuals have these sums by area, and h'M^-1 h."""
        M = self.prior.precision(ties, k)
        M[np.diag_indices(self.n_areas)] += scale**2 * self.counts / noise
        h = self.prior.pull(ties, k) @ z + scale * sums / noise
        factor = cholesky(M, lower=True)
        left = solve_triangular(factor, h, lower=True)
        mean = solve_triangular(factor, left, lower=True, trans="T")
        return Posterior(mean, factor, 2 * float(np.log(factor.diagonal()).sum())), float(left @ left)

    def _integrated(self, xi: Matrix, ties: Ties, g_xi: Matrix) -> tuple[Vector, Vector]:
        """log p(y | xi) and its derivative in phi, (m,) both; the other derivatives are added to `g_xi`."""
        parts, n, n_rows = self.layout.parts, self.counts, len(self.rows.y)
        r, scales, noises = self.rows.y - self.fixed(xi), self.scale(xi)[:, 0], self._noise(xi)
        sums, value, by_phi = self.by_area(r), np.empty(len(xi)), np.empty(len(xi))
        slopes, border, T = np.empty_like(r), self.prior.border, sparse.coo_array(self.prior.T)
        for k, (z, scale, noise) in enumerate(zip(xi[:, parts["z"]], scales, noises)):
            at, square = self._posterior(ties, k, z, sums[k], scale, noise)
            m, P, Q = at.mean, at.covariance, float(r[k] @ r[k])
            U, W, G, dU, dW = ties.U[k], ties.W[k], ties.G[k], ties.dU[k], ties.dW[k]
            toward = W @ z
            value[k] = ties.log_norm[k] - 0.5 * float(toward @ G @ toward) + 0.5 * (square - at.log_det - Q / noise)
            value[k] += self.n_areas * HALF_LOG_TAU - n_rows * (HALF_LOG_TAU + 0.5 * float(np.log(noise)))
            # the prior's slopes, averaged over theta: of s = G (U theta_b - W z) mean and covariances are needed
            s, with_border = G @ (U @ m[border] - toward), G @ U @ P[np.ix_(border, border)]
            own = with_border @ U.T @ G
            g_z = W.T @ s
            g_xi[k, parts["z"]] += g_z
            drift = float(m @ (T @ m)) + float(T.data @ P[T.coords]) + float(m[border] @ ties.dK[k] @ m[border])
            drift += float((ties.dK[k] * P[np.ix_(border, border)]).sum())
            by_phi[k] = ties.dlog_norm[k] - 0.5 * drift + float(s @ (dW @ (z - g_z) - dU @ m[border]))
            by_phi[k] -= float(((dW @ W.T) * own).sum() + (dU * with_border).sum())
            # and the rows'
            slopes[k] = (r[k] - scale * m[self.rows.area]) / noise
            second = m * m + P.diagonal()
            if self.layout.scaled:
                g_xi[k, parts["log_scale"]] += (scale * float(sums[k] @ m) - scale**2 * float(n @ second)) / noise
            if self.layout.dispersed:
                g_xi[k, -1] += (Q - 2 * scale * float(sums[k] @ m) + scale**2 * float(n @ second)) / noise - n_rows
        g_xi[:, parts["beta"]] += slopes @ self.rows.X
        if self.layout.intercept:
            g_xi[:, parts["intercept"]] += slopes.sum(axis=1, keepdims=True)
        return value, by_phi

    # ---- theta after the fit.

    def without_rows(self, xi: Matrix, u: Matrix, theta: Matrix) -> tuple[Matrix, Matrix | None]:
        """(m, d) mean and variance of each theta_i without its rows, given all else of a draw: the other areas' theta too."""
        ties, _ = self._ties(xi)
        mean, variance = np.empty_like(theta), np.empty_like(theta)
        for k, z in enumerate(xi[:, self.layout.parts["z"]]):
            precision = self.prior.precision(ties, k)
            variance[k] = 1 / precision.diagonal()
            mean[k] = theta[k] + variance[k] * (self.prior.pull(ties, k) @ z - precision @ theta[k])
        return mean, variance

    def theta_given(self, xi: Matrix, u: Matrix, normals: Matrix) -> Matrix:
        """Draws of theta (m, d) given xi and u; `normals` (m, d) where theta was integrated out."""
        if not self.integrated:
            return np.asarray(u @ self.root.T)
        ties, _ = self._ties(xi)
        sums, scales, noises = self.by_area(self.rows.y - self.fixed(xi)), self.scale(xi)[:, 0], self._noise(xi)
        theta = np.empty_like(normals)
        for k, (z, scale, noise) in enumerate(zip(xi[:, self.layout.parts["z"]], scales, noises)):
            at, _ = self._posterior(ties, k, z, sums[k], scale, noise)
            theta[k] = at.mean + solve_triangular(at.factor, normals[k], lower=True, trans="T")
        return theta
