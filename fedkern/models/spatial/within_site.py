"""A client's term of the log joint density where its own prior is exact (`models.spatial.within`).

    theta_j | z, phi ~ N(A_j z, S_jj - A_j A_j'),  y ~ p(y | eta),  eta = o + b + x' beta + gamma_t + sigma_theta theta_i

theta may be integrated out: by q(theta | xi) = N(m, M^-1), the Gaussian that makes the bound

    F(xi) = E_q[log p(y | theta, xi) + log p(theta | z, phi) - log q] <= log p(y | xi)

largest. With a Gaussian response it is theta's conditional, and F is log p(y | xi) itself. In general
(Opper and Archambeau, 2009)

    M = Lambda + diag(w),  M m = Lambda A_j z + h,  Lambda the precision of theta given z,
    w_i = -sigma_theta^2 sum E_q[l''],  h_i = w_i m_i + sigma_theta sum E_q[l'],

sums over the rows of area i, l their log-likelihood in eta: a fixed point, which repeated Newton steps find. At the largest bound
its derivatives in xi are those of log p(y, theta | xi), averaged over q. Nothing of q is kept from one xi to the next, so that F
is a function of xi alone.
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
from scipy.special import logsumexp

from ...errors import NumericalError
from ..likelihood import HALF_LOG_TAU, Likelihood
from .condition import Condition
from .site import Layout, Observed, Rows
from .units import pooled_level, sums
from .within import Ties, Within

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

STEP = 1e-4  # of eta, for the information of rows
CLOSE = 1e-5  # steps of eta that are the last of a fixed point
MOST_STEPS = 50
NEGLIGIBLE = 1e-12  # of a bound: rounding
LONGEST = 3.0  # step of eta from the rows' common level to a first guess
LEAST_CURVATURE = 1e-6
AT, WEIGHT = np.polynomial.hermite_e.hermegauss(21)
WEIGHT /= WEIGHT.sum()


@dataclass(frozen=True)
class Posterior:
    """q(theta | xi) of one xi.

    Attributes
    ----------
    mean : (d,)
    factor : (d, d) lower Cholesky factor of its precision M
    w, h : (d,) what the rows add to Lambda's diagonal and to Lambda A_j z
    """

    mean: Vector
    factor: Matrix
    w: Vector
    h: Vector

    @property
    def log_det(self) -> float:
        """Of M."""
        return 2 * float(np.log(self.factor.diagonal()).sum())

    def bound(self, expected: float, pull: Vector) -> float:
        """F but for what q does not change, from the mean of log p(y | theta, xi)."""
        own = self.w @ (self.mean**2 + self.sd**2) + self.mean @ (pull - self.h)
        return expected + 0.5 * (float(own) - self.log_det)

    @cached_property
    def covariance(self) -> Matrix:
        """(d, d) M^-1."""
        inverse, _ = lapack.dpotri(self.factor, lower=1)
        return np.asarray(np.tril(inverse) + np.tril(inverse, -1).T)

    @cached_property
    def sd(self) -> Vector:
        """(d,) of theta; without the rest of M^-1, which takes twice as long."""
        inverse, _ = lapack.dtrtri(self.factor, lower=1)
        return np.asarray(np.sqrt(np.einsum("ij,ij->j", inverse, inverse)))


@dataclass(frozen=True)
class Place:
    """One xi, as rows see it.

    Attributes
    ----------
    fixed : (n,) offset + b + x' beta + gamma_t
    scale : sigma_theta
    log_sd : log sigma; 0 where it is known
    """

    fixed: Vector
    scale: float
    log_sd: float


@dataclass(frozen=True)
class Expected:
    """Means over q(theta | xi) of one xi.

    Attributes
    ----------
    value : of log p(y | theta, xi)
    slope, curvature : (n,) of l' and of -l''
    by_scale : of the derivative in log sigma_theta
    by_sd : of the derivative in log sigma
    """

    value: float
    slope: Vector
    curvature: Vector
    by_scale: float
    by_sd: float


@dataclass(frozen=True)
class WithinSite(Observed):
    """One client's term (`models.hierarchical.LocalModel`); u is theta, or empty where theta is integrated out.

    Attributes
    ----------
    prior : what the client holds of it
    condition : of phi, as the job has it
    layout, likelihood, rows
    integrated : whether theta is integrated out
    """

    prior: Within
    condition: Condition
    layout: Layout
    likelihood: Likelihood
    rows: Rows
    integrated: bool = False

    def __post_init__(self) -> None:
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
        up, down = (like.slope(rows.y, rows.offset + step, ones, rows.trials, rows.last) for step in (STEP, -STEP))
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
            self.add_rows(g_xi, slope, theta, xi)
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

    # ---- theta integrated out.

    def _places(self, xi: Matrix) -> list[Place]:
        """Of m places."""
        columns = zip(self.fixed(xi), self.scale(xi)[:, 0], self.log_sd(xi)[:, 0])
        return [Place(fixed, float(scale), float(log_sd)) for fixed, scale, log_sd in columns]

    def _expected(self, place: Place, mean: Vector, sd: Vector) -> Expected:
        """Where theta_i ~ N(mean_i, sd_i^2), by Gauss-Hermite quadrature."""
        rows, like, area = self.rows, self.likelihood, self.rows.area
        spread = place.scale * sd[area]
        middle = place.scale * mean[area]
        beside = middle + AT[:, np.newaxis] * spread
        eta = place.fixed + beside
        value, slope, by_sd = like.terms(rows.y, eta, place.log_sd, rows.trials, rows.last)
        return Expected(
            float(WEIGHT @ value.sum(axis=1)),
            WEIGHT @ slope,
            -((WEIGHT * AT) @ slope) / spread,
            float(WEIGHT @ (slope * beside).sum(axis=1)),
            float(WEIGHT @ by_sd.sum(axis=1)),
        )

    def _posterior(self, Lambda: Matrix, pull: Vector, place: Place) -> Posterior:
        """q(theta | xi), Lambda and Lambda A_j z given."""
        if self.likelihood.record.link == "identity":
            noise = np.float64(self.likelihood.sd(place.log_sd)) ** 2  # which divides by 0 without an exception
            w = place.scale**2 * self.counts / noise
            return self._solved(Lambda, pull, w, place.scale / noise * self._sums(self.rows.y - place.fixed))
        information, guess = self._guess
        w = place.scale**2 * self._sums(information)
        good = at = self._solved(Lambda, pull, w, place.scale * self._sums(information * (guess - place.fixed)))
        target, share, most = (at.w, at.h), 1.0, -np.inf
        for _ in range(MOST_STEPS):
            found = self._expected(place, at.mean, at.sd)
            bound = at.bound(found.value, pull)
            if bound < most - NEGLIGIBLE * abs(most):  # too far: back, and half as far
                share /= 2
            else:
                if place.scale * float(np.abs(at.mean - good.mean).max()) < CLOSE and most > -np.inf:
                    return at
                w = place.scale**2 * self._sums(np.maximum(found.curvature, LEAST_CURVATURE))
                target = w, w * at.mean + place.scale * self._sums(found.slope)
                good, most, share = at, bound, min(1.0, 1.5 * share)
            w, h = (old + share * (new - old) for old, new in zip((good.w, good.h), target))
            at = self._solved(Lambda, pull, w, h)
        return good

    def _sums(self, values: Vector) -> Vector:
        """(d,) by area of the rows' values (n,)."""
        return np.asarray(np.bincount(self.rows.area, weights=values, minlength=self.n_areas), float)

    @cached_property
    def _guess(self) -> tuple[Vector, Vector]:
        """(n,) of each row its information about eta and a guess of eta, by a step from the rows' common level."""
        rows, like = self.rows, self.likelihood
        eta = rows.offset + (pooled_level(like.family, [sums(like.family, rows)]) or 0.0)
        y = like.expected(rows.y, eta, 0.0, rows.trials, rows.last)
        information = np.maximum(like.record.information(y, eta, like.sd(), rows.trials), LEAST_CURVATURE)
        return information, eta + np.clip(like.slope(rows.y, eta, 0.0, rows.trials, rows.last) / information, -LONGEST, LONGEST)

    def _solved(self, Lambda: Matrix, pull: Vector, w: Vector, h: Vector) -> Posterior:
        M = Lambda.copy()
        M.flat[:: self.n_areas + 1] += w
        factor, failed = lapack.dpotrf(M, lower=1, clean=1)
        if failed:
            raise NumericalError("within: the precision of theta is not positive definite; lower learning_rate")
        mean, _ = lapack.dpotrs(factor, pull + h, lower=1)
        return Posterior(mean, factor, w, h)

    def _integrated(self, xi: Matrix, ties: Ties, g_xi: Matrix) -> tuple[Vector, Vector]:
        """F(xi) and its derivative in phi, (m,) both; the other derivatives are added to `g_xi`."""
        parts, border, T = self.layout.parts, self.prior.border, sparse.coo_array(self.prior.T)
        value, by_phi, slopes = np.empty(len(xi)), np.empty(len(xi)), np.empty((len(xi), len(self.rows.y)))
        for k, (place, z) in enumerate(zip(self._places(xi), xi[:, parts["z"]])):
            pull = self.prior.pull(ties, k) @ z
            at = self._posterior(self.prior.precision(ties, k), pull, place)
            m, P = at.mean, at.covariance
            found = self._expected(place, m, at.sd)
            U, W, G, dU, dW = ties.U[k], ties.W[k], ties.G[k], ties.dU[k], ties.dW[k]
            toward = W @ z
            value[k] = at.bound(found.value, pull) + ties.log_norm[k] - 0.5 * float(toward @ G @ toward)
            value[k] += self.n_areas * HALF_LOG_TAU
            # the prior's slopes, averaged over theta: of s = G (U theta_b - W z) mean and covariances are needed
            s, with_border = G @ (U @ m[border] - toward), G @ U @ P[np.ix_(border, border)]
            own = with_border @ U.T @ G
            g_z = W.T @ s
            g_xi[k, parts["z"]] += g_z
            row, column = T.coords
            drift = float(T.data @ (m[row] * m[column] + P[row, column])) + float(m[border] @ ties.dK[k] @ m[border])
            drift += float((ties.dK[k] * P[np.ix_(border, border)]).sum())
            by_phi[k] = ties.dlog_norm[k] - 0.5 * drift + float(s @ (dW @ (z - g_z) - dU @ m[border]))
            by_phi[k] -= float(((dW @ W.T) * own).sum() + (dU * with_border).sum())
            slopes[k] = found.slope
            if self.layout.scaled:
                g_xi[k, parts["log_scale"]] += found.by_scale
            if self.layout.dispersed:
                g_xi[k, -1] += found.by_sd
        self.add_fixed(g_xi, slopes, xi)
        return value, by_phi

    def log_marginal(self, xi: Vector, normals: Matrix) -> float:
        """An estimate of log p(y | xi), exact of a Gaussian response: the mean over draws of theta from q(theta | xi), which
        `normals` (m, d) give, of p(y, theta | xi) / q(theta | xi), whose logarithm is

            F - E_q[log p(y | theta, xi) + w' theta^2 / 2 - h' theta] + log p(y | theta, xi) + w' theta^2 / 2 - h' theta
        """
        ties, _ = self._ties(xi[np.newaxis])
        place, z = self._places(xi[np.newaxis])[0], xi[self.layout.parts["z"]]
        pull = self.prior.pull(ties, 0) @ z
        at = self._posterior(self.prior.precision(ties, 0), pull, place)
        found = self._expected(place, at.mean, at.sd)
        toward = ties.W[0] @ z
        value = at.bound(found.value, pull) + float(ties.log_norm[0]) - 0.5 * float(toward @ ties.G[0] @ toward)
        value += self.n_areas * float(HALF_LOG_TAU)
        theta = at.mean + solve_triangular(at.factor, normals.T, lower=True, trans="T").T
        like = self.given_theta(np.broadcast_to(xi, (len(theta), len(xi))), theta)[0]
        own = 0.5 * (theta**2 - at.mean**2 - at.sd**2) @ at.w - (theta - at.mean) @ at.h
        return value - found.value + float(logsumexp(like + own) - np.log(len(theta)))

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
        theta = np.empty_like(normals)
        for k, (place, z) in enumerate(zip(self._places(xi), xi[:, self.layout.parts["z"]])):
            at = self._posterior(self.prior.precision(ties, k), self.prior.pull(ties, k) @ z, place)
            theta[k] = at.mean + solve_triangular(at.factor, normals[k], lower=True, trans="T")
        return theta
