"""Computes a client's term of the log joint density if its own prior is exact (`models.spatial.within`).

    theta_j | z, phi ~ N(A_j z, S_jj - A_j A_j'),  y ~ p(y | eta),  eta = o + b + x' beta + gamma_t + sigma_theta theta_i

theta may be integrated out: by q(theta | xi) = N(m, M^-1), the Gaussian that makes the bound

    F(xi) = E_q[log p(y | theta, xi) + log p(theta | z, phi) - log q] <= log p(y | xi)

largest. With a Gaussian response it is theta's conditional, and F is log p(y | xi) itself. In general (Opper and Archambeau,
2009)

    M = Lambda + diag(w),  M m = Lambda A_j z + h,  Lambda the precision of theta given z,
    w_i = -sigma_theta^2 sum E_q[l''],  h_i = w_i m_i + sigma_theta sum E_q[l'],

sums over the rows of area i, l their log-likelihood in eta: a fixed point, which repeated Newton steps find. At the largest bound
its derivatives in xi are those of log p(y, theta | xi), averaged over q. Nothing of q is kept from one xi to the next, so that F
is a function of xi alone.

Precisions of large clients are factored in sparse form (`models.spatial.within`). Given xi theta is not normal if the response is
not, and areas with few cases show it: a table of areas has draws of each area given its own exact likelihood and all others
(`models.spatial.checks`). Otherwise theta = R u, R an inverse Cholesky factor of theta's approximate precision given its rows: u
is on the scale of its posterior.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, lapack, solve_triangular
from scipy.special import logsumexp, ndtr

from ...arrays import Indices, Matrix, Vector
from ...errors import NumericalError
from ..likelihood import HALF_LOG_TAU, Likelihood
from .checks import Tilted
from .condition import Condition
from .posterior import Gaussian, Posterior, SparsePosterior
from .site import Layout, Observed, Rows
from .units import pooled_level, sums
from .within import Precision, Sloped, Ties, Within

Stack = NDArray[np.float64]  # of matrices

STEP = 1e-4  # of eta, for the information of rows
CLOSE = 1e-5  # steps of eta that are the last of a fixed point
MOST_STEPS = 50
NEGLIGIBLE = 1e-12  # of a bound: rounding
LONGEST = 3.0  # step of eta from the rows' common level to a first guess
LEAST_CURVATURE = 1e-6
SPARSE = 110  # areas from which a sparse factor takes less time than a dense one, where at most SHARE of them are on the border
SHARE = 0.6
HELD = 2**24  # numbers of ties that are held at once: 128 MB
SWEEPS = 1  # over areas, of the draws of a table of areas
STEPS = 1  # from the fixed point at the mean of xi to that at a draw
LEAST_SHARE = 1e-6  # of an area's precision, that is not of its rows
AT, WEIGHT = np.polynomial.hermite_e.hermegauss(21)
WEIGHT /= WEIGHT.sum()


@dataclass(frozen=True)
class Place:
    """Holds one xi, as rows see it."""

    fixed: Vector  # (n,) offset + b + x' beta + gamma_t
    scale: float  # sigma_theta
    log_sd: float  # log sigma; 0 if it is known


@dataclass(frozen=True)
class Expected:
    """Holds means over q(theta | xi) of one xi."""

    value: float  # of log p(y | theta, xi)
    # slope, curvature: (n,) of l' and of -l''
    slope: Vector
    curvature: Vector
    by_scale: float  # of the derivative in log sigma_theta
    by_sd: float  # of the derivative in log sigma


@dataclass(frozen=True)
class WithinSite(Observed):
    """Is one client's term (`models.hierarchical.LocalModel`); u is theta, or empty if theta is integrated out."""

    prior: Within  # the client's part of it
    condition: Condition  # of phi, as the job has it
    layout: Layout
    likelihood: Likelihood
    rows: Rows
    integrated: bool = False  # whether theta is integrated out

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
        """Returns log p(y, u | xi), and its gradients in xi (P,) and in u (size,)."""
        value, g_xi, g_u = self.log_joint_grads(xi[np.newaxis], u[np.newaxis])
        return float(value[0]), g_xi[0], g_u[0]

    def log_joint_grads(self, xi: Matrix, u: Matrix) -> tuple[Vector, Matrix, Matrix]:
        """Returns the same (m,), (m, P), (m, size) at m places."""
        parts, g_xi = self.layout.parts, np.zeros((len(xi), self.n_global))
        phi, dphi = self._phi(xi)
        ties = self.prior.sloped(phi)
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

    def _phi(self, xi: Matrix) -> tuple[Vector, Vector]:
        """Returns phi (m,), and its derivative in x."""
        x = xi[:, 0] if self.layout.free else np.zeros(len(xi))
        return self.condition.at(x)

    def _ties(self, xi: Matrix) -> Ties:
        """Returns the prior's ties at phi."""
        return self.prior.ties(self._phi(xi)[0])

    # ---- theta integrated out.

    def _places(self, xi: Matrix) -> list[Place]:
        """Returns the places of m values of xi."""
        columns = zip(self.fixed(xi), self.scale(xi)[:, 0], self.log_sd(xi)[:, 0])
        return [Place(fixed, scale, log_sd) for fixed, scale, log_sd in columns]

    def _expected(self, place: Place, mean: Vector, sd: Vector) -> Expected:
        """Returns means for theta_i ~ N(mean_i, sd_i^2), by Gauss-Hermite quadrature."""
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

    def _slopes(self, place: Place, mean: Vector, sd: Vector) -> tuple[Vector, Vector]:
        """Returns of the same means those of l' and of -l'' alone."""
        rows, spread = self.rows, place.scale * sd[self.rows.area]
        eta = place.fixed + (place.scale * mean[rows.area] + AT[:, np.newaxis] * spread)
        slope = self.likelihood.slope(rows.y, eta, place.log_sd, rows.trials, rows.last)
        return WEIGHT @ slope, -((WEIGHT * AT) @ slope) / spread

    @property
    def tilted(self) -> bool:
        """Whether theta is integrated out and, given xi, not normal."""
        return self.integrated and self.likelihood.record.link != "identity"

    @cached_property
    def sparse(self) -> bool:
        """Whether precisions of theta are factored in sparse form: they are large, and most areas are not on the border."""
        return self.n_areas >= SPARSE and len(self.prior.border) <= SHARE * self.n_areas

    def _precision(self, ties: Ties, k: int) -> Matrix | Precision:
        """Returns Lambda at the k-th phi of `ties`."""
        return self.prior.sparse_precision(ties, k) if self.sparse else self.prior.precision(ties, k)

    def _pull(self, ties: Ties, z: Vector, k: int) -> Vector:
        """Returns Lambda A_j z (d,)."""
        out = np.zeros(self.n_areas)
        out[self.prior.border] = ties.U[k].T @ (ties.G[k] @ (ties.W[k] @ z))
        return out

    def _posterior(self, Lambda: Matrix | Precision, pull: Vector, place: Place) -> Gaussian:
        """Returns q(theta | xi), Lambda and Lambda A_j z given."""
        if self.likelihood.record.link == "identity":
            if self.rows.sd is not None:
                w = place.scale**2 * self._sums(self.rows.sd**-2)
                return self._solved(Lambda, pull, w, place.scale * self._sums((self.rows.y - place.fixed) / self.rows.sd**2))
            noise = np.float64(self.likelihood.sd(place.log_sd)) ** 2  # which divides by 0 without an exception
            w = place.scale**2 * self.counts / noise
            return self._solved(Lambda, pull, w, place.scale / noise * self._sums(self.rows.y - place.fixed))
        information, guess = self._guess
        w = place.scale**2 * self._sums(information)
        good = posterior = self._solved(Lambda, pull, w, place.scale * self._sums(information * (guess - place.fixed)))
        target, share, most = (posterior.w, posterior.h), 1.0, -np.inf
        for _ in range(MOST_STEPS):
            means = self._expected(place, posterior.mean, posterior.sd)
            bound = posterior.bound(means.value, pull)
            if bound < most - NEGLIGIBLE * abs(most):  # too far: back, and half as far
                share /= 2
            else:
                if place.scale * float(np.abs(posterior.mean - good.mean).max()) < CLOSE and most > -np.inf:
                    return posterior
                w = place.scale**2 * self._sums(np.maximum(means.curvature, LEAST_CURVATURE))
                target = w, w * posterior.mean + place.scale * self._sums(means.slope)
                good, most, share = posterior, bound, min(1.0, 1.5 * share)
            w, h = (old + share * (new - old) for old, new in zip((good.w, good.h), target))
            posterior = self._solved(Lambda, pull, w, h)
        return good

    def _sums(self, values: Vector) -> Vector:
        """Returns sums (d,) by area of the rows' values (n,)."""
        return np.asarray(np.bincount(self.rows.area, weights=values, minlength=self.n_areas), float)

    @cached_property
    def _guess(self) -> tuple[Vector, Vector]:
        """(n,) Each row's information about eta and a guess of eta, by a step from the rows' common level."""
        rows, like = self.rows, self.likelihood
        eta = rows.offset + (pooled_level(like.family, [sums(like.family, rows)]) or 0.0)
        y = like.expected(rows.y, eta, 0.0, rows.trials, rows.last)
        information = np.maximum(like.record.information(y, eta, like.sd(), rows.trials), LEAST_CURVATURE)
        return information, eta + np.clip(like.slope(rows.y, eta, 0.0, rows.trials, rows.last) / information, -LONGEST, LONGEST)

    def _solved(self, Lambda: Matrix | Precision, pull: Vector, w: Vector, h: Vector) -> Gaussian:
        if isinstance(Lambda, Precision):
            try:
                whole = Lambda.plus(w).factored()
            except NumericalError:
                raise NumericalError("within: the precision of theta is not positive definite; lower learning_rate") from None
            return SparsePosterior(whole.solve((pull + h)[np.newaxis])[0], whole, w, h)
        M = Lambda.copy()
        M.flat[:: self.n_areas + 1] += w
        factor, failed = lapack.dpotrf(M, lower=1, clean=1)
        if failed:
            raise NumericalError("within: the precision of theta is not positive definite; lower learning_rate")
        mean, _ = lapack.dpotrs(factor, pull + h, lower=1)
        return Posterior(mean, factor, w, h)

    def _integrated(self, xi: Matrix, ties: Sloped, g_xi: Matrix) -> tuple[Vector, Vector]:
        """Returns F(xi) and its derivative in phi, (m,) both; the other derivatives are added to `g_xi`."""
        parts, border, T = self.layout.parts, self.prior.border, self.prior.T
        value, by_phi, slopes = np.empty(len(xi)), np.empty(len(xi)), np.empty((len(xi), len(self.rows.y)))
        for k, (place, z) in enumerate(zip(self._places(xi), xi[:, parts["z"]])):
            pull = self._pull(ties, z, k)
            posterior = self._posterior(self._precision(ties, k), pull, place)
            m, P = posterior.mean, posterior.within_border(self.prior)
            means = self._expected(place, m, posterior.sd)
            U, W, G, dU, dW = ties.U[k], ties.W[k], ties.G[k], ties.dU[k], ties.dW[k]
            toward = W @ z
            value[k] = posterior.bound(means.value, pull) + ties.log_norm[k] - 0.5 * float(toward @ G @ toward)
            value[k] += self.n_areas * HALF_LOG_TAU
            # the prior's slopes, averaged over theta: of s = G (U theta_b - W z) mean and covariances are needed
            s, with_border = G @ (U @ m[border] - toward), G @ U @ P
            through_border = with_border @ U.T @ G
            g_z = W.T @ s
            g_xi[k, parts["z"]] += g_z
            drift = float(m @ (T @ m)) + posterior.traced(self.prior) + float(m[border] @ ties.dK[k] @ m[border])
            drift += float((ties.dK[k] * P).sum())
            by_phi[k] = ties.dlog_norm[k] - 0.5 * drift + float(s @ (dW @ (z - g_z) - dU @ m[border]))
            by_phi[k] -= float((ties.dWW[k] * through_border).sum() + (dU * with_border).sum())
            slopes[k] = means.slope
            if self.layout.scaled:
                g_xi[k, parts["log_scale"]] += means.by_scale
            if self.layout.dispersed:
                g_xi[k, -1] += means.by_sd
        self.add_fixed(g_xi, slopes, xi)
        return value, by_phi

    def log_marginal(self, xi: Vector, normals: Matrix) -> float:
        """Returns an estimate of log p(y | xi), exact for a Gaussian response.

        It is the mean over draws of theta from q(theta | xi), which `normals` (m, d) give, of p(y, theta | xi) / q(theta | xi).
        """
        return float(logsumexp(self.log_ratios(xi[np.newaxis], normals)) - np.log(len(normals)))

    def log_ratios(self, xi: Matrix, normals: Matrix) -> Matrix:
        """Returns log p(y, theta | xi) / q(theta | xi) (s, m) at each xi (s, P) for draws of theta.

        With M = Lambda + diag(w) and M mean = Lambda A_j z + h it is

            log p(y | theta, xi) + (w' theta^2 + mean' M mean - log|M|) / 2 - h' theta

        without the terms that theta and q do not change. For a Gaussian response it is the same for every theta.
        """
        ties, gaussian = self._ties(xi), self.likelihood.record.link == "identity"
        # Any q will do for draws of theta.
        near, out = None if gaussian else self._near(xi.mean(axis=0)), np.empty((len(xi), len(normals)))
        for k, (place, point) in enumerate(zip(self._places(xi), xi)):
            Lambda, pull, constant = self._given(ties, k, point)
            posterior = self._posterior(Lambda, pull, place) if near is None else self._stepped(Lambda, pull, place, near)
            used = normals[:1] if gaussian else normals
            theta = posterior.drawn(used)
            eta = place.fixed + place.scale * theta[:, self.rows.area]
            like = self.likelihood.value(self.rows.y, eta, place.log_sd, self.rows.trials, self.rows.last).sum(axis=1)
            constant += 0.5 * (float(posterior.mean @ (pull + posterior.h)) - posterior.log_det)
            out[k] = like + (0.5 * theta**2 @ posterior.w - theta @ posterior.h + constant)
        return out

    def _given(self, ties: Ties, k: int, xi: Vector) -> tuple[Matrix | Precision, Vector, float]:
        """Returns Lambda, Lambda A_j z, and log p(theta | z, phi) where theta is 0, times tau^(d/2), at the k-th phi of
        `ties`."""
        z = xi[self.layout.parts["z"]]
        toward = ties.W[k] @ z
        constant = float(ties.log_norm[k]) - 0.5 * float(toward @ ties.G[k] @ toward) + self.n_areas * float(HALF_LOG_TAU)
        return self._precision(ties, k), self._pull(ties, z, k), constant

    def curvatures(self, xi: Matrix) -> tuple[Vector, Matrix, Matrix]:
        """Returns F at each xi (m, P), its gradient in u, xi at `layout.linear`, (m, U), and minus its Hessian there (m, U, U).

        With C = [1, X, the columns of v] and k_r = E_q[-l''] of the rows, minus the Hessian of log p(y, theta | xi) in (u, theta)
        has the blocks

            diag(A' Lambda A, C'kC),   [-Lambda A, sigma_theta Z'kC]',   M = Lambda + diag(w),

        Z the rows' areas. The result is its Schur complement after theta: exact for a Gaussian response, and for others but for
        how the variance of q follows u.
        """
        ties = self._ties(xi)
        size, r = len(self.layout.linear), self.layout.n_global
        value, gradient, hessian = np.empty(len(xi)), np.empty((len(xi), size)), np.zeros((len(xi), size, size))
        for k, (place, point) in enumerate(zip(self._places(xi), xi)):
            Lambda, pull, constant = self._given(ties, k, point)
            posterior = self._posterior(Lambda, pull, place)
            means = self._expected(place, posterior.mean, posterior.sd)
            value[k] = posterior.bound(means.value, pull) + constant
            W, G, C = ties.W[k], ties.G[k], self.columns(point)
            left = ties.U[k] @ posterior.mean[self.prior.border] - W @ point[self.layout.parts["z"]]
            gradient[k] = np.concatenate([W.T @ G @ left, C.T @ means.slope])
            weighted = np.maximum(means.curvature, LEAST_CURVATURE)[:, np.newaxis] * C
            hessian[k, :r, :r], hessian[k, r:, r:] = W.T @ G @ W, C.T @ weighted
            beside = np.column_stack([-self.prior.pull(ties, k), *(place.scale * self._sums(column) for column in weighted.T)])
            hessian[k] -= beside.T @ posterior.solved(beside)
        return value, gradient, 0.5 * (hessian + hessian.transpose(0, 2, 1))

    # ---- theta after the fit.

    def _parts(self, m: int) -> list[slice]:
        """Returns draws whose ties are held at once."""
        numbers = len(self.prior.border) * (6 * len(self.prior.border) + 2 * self.prior.n_latents)
        size = max(min(HELD // max(numbers, 1), m), 1)
        return [slice(k, min(k + size, m)) for k in range(0, m, size)]

    def without_rows(self, xi: Matrix, u: Matrix, theta: Matrix) -> tuple[Matrix, Matrix | None]:
        """Returns mean and variance (m, d) of each theta_i without its rows, given all else of a draw: the other areas' theta
        too."""
        mean, variance = np.empty_like(theta), np.empty_like(theta)
        for part in self._parts(len(xi)):
            ties = self._ties(xi[part])
            for k, z in enumerate(xi[part, self.layout.parts["z"]]):
                i = part.start + k
                mean[i], variance[i] = self.prior.without_own(ties, theta[i], z, k)
        return mean, variance

    def theta_given(self, xi: Matrix, u: Matrix, normals: Matrix, uniforms: Stack | None = None) -> Matrix:
        """Returns draws of theta (m, d) given xi and u; `normals` (m, d) if theta was integrated out.

        The fixed point of q(theta | xi) is searched at the mean of xi, and STEPS steps lead from there to that of each draw.
        `uniforms` (s, m, d): with them draws of theta are not q's. Each area's are moved to the place that its exact likelihood
        gives them, the others' approximation as before (a draw's share of draws below it stays); then s sweeps draw each area
        anew, given the others. For a Gaussian response q is exact, and they are not used.
        """
        if not self.integrated:
            return np.asarray(u @ self.root.T)
        near = self._near(xi.mean(axis=0)) if self.tilted else None
        theta, places = np.empty_like(normals), self._places(xi)
        for part in self._parts(len(xi)):
            ties = self._ties(xi[part])
            moments = np.empty((4, part.stop - part.start, self.n_areas))
            for k, (place, z) in enumerate(zip(places[part], xi[part, self.layout.parts["z"]])):
                Lambda, pull = self._precision(ties, k), self._pull(ties, z, k)
                posterior = self._posterior(Lambda, pull, place) if near is None else self._stepped(Lambda, pull, place, near)
                theta[part.start + k] = posterior.drawn(normals[np.newaxis, part.start + k])[0]
                if uniforms is not None and self.tilted:
                    moments[:, k] = posterior.mean, posterior.sd, posterior.w, posterior.h
            if uniforms is not None and self.tilted:
                theta[part] = self._corrected(xi[part], ties, moments, theta[part], uniforms[:, part])
        return theta

    def _near(self, xi: Vector) -> tuple[Vector, Vector]:
        """Returns each row's information (n,) about eta and the eta that it suggests, at the fixed point of q(theta | xi)."""
        ties = self._ties(xi[np.newaxis])
        place = self._places(xi[np.newaxis])[0]
        posterior = self._posterior(self._precision(ties, 0), self._pull(ties, xi[self.layout.parts["z"]], 0), place)
        return self._said(place, posterior, self._expected(place, posterior.mean, posterior.sd))

    def _said(self, place: Place, q: Gaussian, means: Expected) -> tuple[Vector, Vector]:
        """Returns each row's information (n,) about eta and the eta that it suggests, about q."""
        information = np.maximum(means.curvature, LEAST_CURVATURE)
        return information, place.fixed + place.scale * q.mean[self.rows.area] + means.slope / information

    def _stepped(self, Lambda: Matrix | Precision, pull: Vector, place: Place, near: tuple[Vector, Vector]) -> Gaussian:
        """Returns q(theta | xi) after STEPS steps, from the rows' information at a xi nearby."""
        information, pseudo = near
        w, h = place.scale**2 * self._sums(information), place.scale * self._sums(information * (pseudo - place.fixed))
        for _ in range(STEPS):
            posterior = self._solved(Lambda, pull, w, h)
            slope, curvature = self._slopes(place, posterior.mean, posterior.sd)
            w = place.scale**2 * self._sums(np.maximum(curvature, LEAST_CURVATURE))
            h = w * posterior.mean + place.scale * self._sums(slope)
        return self._solved(Lambda, pull, w, h)

    # ---- theta given the rest is not normal.

    @cached_property
    def _together(self) -> list[Indices]:
        """Areas that depend on each other through others only, and may be drawn at once.

        Those left of the border are grouped by colours, those of the border stand one by one.
        """
        T, border = self.prior.T.tocsr(), np.zeros(self.n_areas, bool)
        border[self.prior.border] = True
        colour = np.full(self.n_areas, -1)
        for i in np.flatnonzero(~border):
            taken = set(colour[T.indices[T.indptr[i] : T.indptr[i + 1]]].tolist())
            colour[i] = next(c for c in range(len(taken) + 1) if c not in taken)
        return [np.flatnonzero(colour == c) for c in range(colour.max(initial=-1) + 1)] + list(self.prior.border[:, np.newaxis])

    def _corrected(self, xi: Matrix, ties: Ties, moments: Stack, theta: Matrix, uniforms: Stack) -> Matrix:
        """Returns draws (m, d) with each area's exact likelihood, from draws of q with these moments (4, m, d): mean, sd, w,
        h."""
        fixed, scale, log_sd, prior = self.fixed(xi), self.scale(xi), self.log_sd(xi), self.prior
        mean, sd, w, h = moments
        v = 1 / np.maximum(1 / sd**2 - w, LEAST_SHARE / sd**2)
        tilted = Tilted(self, np.arange(self.n_areas), fixed, scale, log_sd)
        theta = tilted.drawn(v * (mean / sd**2 - h), v, w, h, ndtr((theta - mean) / sd))
        block = ties.K + ties.U.transpose(0, 2, 1) @ ties.G @ ties.U
        z, border, T = xi[:, self.layout.parts["z"]], prior.border, prior.T.tocsr()
        pull = np.zeros_like(theta)
        pull[:, border] = np.einsum("mba,mbc,mcr,mr->ma", ties.U, ties.G, ties.W, z, optimize=True) if len(border) else 0.0
        phi, diagonal = ties.phi[:, np.newaxis], np.asarray(T.diagonal())
        place = dict(zip(border.tolist(), range(len(border))))
        parts = [(areas, T[areas], Tilted(self, areas, fixed, scale, log_sd)) for areas in self._together]
        for sweep in uniforms:
            for areas, row, tilted in parts:
                precision = prior.diagonal[areas] + phi * diagonal[areas]
                pulled = prior.diagonal[areas] * theta[:, areas] + phi * np.asarray((row @ theta.T).T) - pull[:, areas]
                if (i := place.get(int(areas[0]))) is not None:
                    precision = precision + block[:, i, i, np.newaxis]
                    pulled = pulled + (block[:, i] * theta[:, border]).sum(axis=1, keepdims=True)
                mean = theta[:, areas] - pulled / precision
                theta[:, areas] = tilted.drawn(mean, 1 / precision, w[:, areas], h[:, areas], sweep[:, areas])
        return theta
