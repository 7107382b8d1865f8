"""Models a client's rows with a trained prior that factorises over clients: the global unknowns xi, the server's prior, the rows.

    phi ~ p(phi),  z_G ~ N(0, I),  thetahat_j = the client's decoder of (phi, z_G, u_j),  u_j ~ N(0, I)
    deterministic:  theta_i = thetahat_i                  auxiliary:  theta_i ~ N(a thetahat_i, v_i)
    y ~ p(y | eta),  eta = o + b + x' beta + gamma_t + sigma_theta theta_i,  i the area (or grid point) of the row, t its period

a = 1 and v_i = tau_i^2, variances that make theta's prior as wide as the true one. With mixing (BYM2) thetahat is the spatial
part of variance 1, a = sqrt(rho) and v_i = 1 - rho + rho tau_i^2. All of it is on the model's scale; `models.spatial.units` leads
to the data's. Source: docs/spec/sigma.md, sections 4 to 6 and 9.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ...arrays import Indices, Matrix, Vector
from ..likelihood import HALF_LOG_TAU, Bounded, Last, Likelihood, Noisy, cut_slope, cut_value, half_normal
from .condition import Condition
from .decoder import Decoder, Hat

COEFFICIENT_SD = 5.0  # of b and beta
MOST = 2.0**20  # of a cell in masked sums


@dataclass(frozen=True)
class Layout:
    """Gives the places of the unknowns in xi: (x_phi, z_G, logit rho, b, beta, v, log sigma_theta, log sigma_period, log sigma).

    Only those that a model has are there; v makes the periods' effects (`models.spatial.site`).
    """

    free: bool  # whether phi is unknown
    n_global: int  # length of z_G
    mixing: bool = False  # BYM2: whether rho is unknown
    intercept: bool = True  # whether the model has b
    n_beta: int = 0  # covariates
    scaled: bool = True  # whether sigma_theta is unknown
    # whether the likelihood has an unknown dispersion: the error standard deviation of a Gaussian response, r of a negative
    # binomial one, or the standard deviation of the rows' own effects
    dispersed: bool = False
    known_scale: float = 1.0  # sigma_theta if it is known
    n_periods: int = 0  # T; 0 if rows have no periods

    @cached_property
    def parts(self) -> dict[str, slice]:
        """The place of each name; empty if the model has no such unknown."""
        lengths = {
            "phi": int(self.free),
            "z": self.n_global,
            "rho": int(self.mixing),
            "intercept": int(self.intercept),
            "beta": self.n_beta,
            "period": max(self.n_periods - 1, 0),
            "log_scale": int(self.scaled),
            "log_period": int(self.n_periods > 0),
            "log_sd": int(self.dispersed),
        }
        places, begin = {}, 0
        for name, length in lengths.items():
            places[name] = slice(begin, begin + length)
            begin += length
        return places

    @property
    def size(self) -> int:
        """P, the length of xi."""
        return int(self.parts["log_sd"].stop)

    @cached_property
    def nonlinear(self) -> Indices:
        """The places of the unknowns given which log p(y, theta | xi) depends on (z, b, beta, v) through linear predictors
        alone."""
        parts = (self.parts[name] for name in ("phi", "rho", "log_scale", "log_period", "log_sd"))
        return np.array([k for part in parts for k in range(part.start, part.stop)], np.int64)

    @cached_property
    def linear(self) -> Indices:
        """The places of all others: z_G, b, beta and v, whose prior is Gaussian."""
        return np.setdiff1d(np.arange(self.size), self.nonlinear)

    def scale(self, xi: Vector) -> Vector:
        """Returns sigma_theta (..,) of xi (.., P)."""
        place = self.parts["log_scale"].start
        return np.exp(xi[..., place]) if self.scaled else np.full(xi.shape[:-1], self.known_scale)

    @cached_property
    def walk(self) -> Matrix:
        """(T, T - 1) The matrix that makes effects of periods of v."""
        return walk(self.n_periods)

    def periods(self, xi: Vector) -> Vector:
        """Returns gamma (.., T) of xi (.., P)."""
        place = self.parts["log_period"]
        return np.asarray(np.exp(xi[..., place]) * (xi[..., self.parts["period"]] @ self.walk.T))

    def period_step(self, xi: Vector) -> Vector:
        """Returns the standard deviation (..,) of a step from one period to the next, of xi (.., P)."""
        return np.asarray(np.exp(xi[..., self.parts["log_period"].start]) * step_sd(self.n_periods))


@dataclass(frozen=True)
class SigmaPrior:
    """Is the server's term: log p(xi), every Jacobian once.

    x_phi by the condition's prior; z_G ~ N(0, I); rho ~ U(0, 1) by its logit; b, beta ~ N(0, coefficient_sd^2); v ~ N(0, I);
    sigma_theta, sigma_period ~ HalfNormal(1) by their logarithms; the likelihood's dispersion by that's own prior.
    """

    layout: Layout
    condition: Condition
    coefficient_sd: float = COEFFICIENT_SD
    likelihood: Likelihood = field(default_factory=lambda: Likelihood("gaussian", None))

    def __post_init__(self) -> None:
        if self.layout.free != self.condition.free:
            raise ValueError(f"prior of xi: the condition is {self.condition.name!r}, and the layout says otherwise")

    @property
    def size(self) -> int:
        return self.layout.size

    @cached_property
    def precision(self) -> Vector:
        """(U,) The precision of the unknowns at `layout.linear`, which are independent."""
        diagonal = np.ones(self.size)
        for name in ("intercept", "beta"):
            diagonal[self.layout.parts[name]] = self.coefficient_sd**-2
        return np.asarray(diagonal[self.layout.linear])

    def log_prior_grad(self, xi: Vector) -> tuple[float, Vector]:
        parts, gradient, value = self.layout.parts, np.empty(self.size), 0.0
        if self.layout.free:
            value, gradient[0] = self.condition.log_prior_grad(float(xi[0]))
        normal = {"z": 1.0, "intercept": self.coefficient_sd, "beta": self.coefficient_sd, "period": 1.0}
        for name, sd in normal.items():
            r = xi[parts[name]] / sd
            value -= 0.5 * float(r @ r) + len(r) * float(np.log(sd) + HALF_LOG_TAU)
            gradient[parts[name]] = -r / sd
        for k in range(parts["rho"].start, parts["rho"].stop):
            value -= float(np.logaddexp(0.0, xi[k]) + np.logaddexp(0.0, -xi[k]))
            gradient[k] = 1 - 2 * expit(xi[k])
        for name in ("log_scale", "log_period", "log_sd"):
            for k in range(parts[name].start, parts[name].stop):
                prior = self.likelihood.unknown.prior if name == "log_sd" else half_normal
                share, gradient[k] = prior(float(xi[k]))
                value += share
        return value, gradient


@dataclass(frozen=True)
class Rows:
    """Holds a client's rows.

    Attributes
    ----------
    y : (n,) responses
    area : (n,) the coordinate of the decoder
    X : (n, p) covariates
    offset : (n,) known part of eta
    trials : (n,) of a binomial response, or None
    last : (n,) the largest that a count may be, of which y is the least; the law of the noise that counts have; None if all
        are known
    sd : (n,) known error standard deviations of a Gaussian response, or None
    period : (n,) the period; None if rows have none
    """

    y: Vector
    area: Indices
    X: Matrix
    offset: Vector
    trials: Vector | None = None
    last: Last = None
    sd: Vector | None = None
    period: Indices | None = None

    @property
    def censored(self) -> NDArray[np.bool_]:
        """(n,) Whether only an interval is known."""
        return self.last > self.y if isinstance(self.last, np.ndarray) else np.zeros(len(self.y), bool)

    @property
    def known(self) -> NDArray[np.bool_]:
        """(n,) Whether the response itself is known."""
        return np.zeros(len(self.y), bool) if isinstance(self.last, Noisy) else ~self.censored


def cut(rows: Rows, *, measured: bool) -> Rows:
    """Returns rows none of whose cells, in units that somebody else has told, takes a number out of a masked sum's words.

    A measured response is in standard deviations of all rows, of which no row is further off than the root of their number.
    """
    y = np.clip(rows.y, -MOST, MOST) if measured else rows.y
    X, offset = (np.clip(cells, -MOST, MOST) for cells in (rows.X, rows.offset))
    errors = None if rows.sd is None else np.clip(rows.sd, 1 / MOST, MOST)
    return replace(rows, y=y, X=X, offset=offset, sd=errors)


@dataclass(frozen=True)
class Auxiliary:
    """Holds tau^2 (G, d) at the values grid (G,) of phi, between which it is linear; G = 1: the same for all phi. Variances."""

    tau2: Matrix
    grid: Vector = field(default_factory=lambda: np.zeros(1))

    def at(self, phi: Vector) -> tuple[Matrix, Matrix]:
        """Returns tau^2 (m, d) at phi (m,), and its derivative in phi."""
        if len(self.grid) == 1:
            shape = (len(phi), self.tau2.shape[1])
            return np.broadcast_to(self.tau2, shape), np.zeros(shape)
        k = np.clip(np.searchsorted(self.grid, phi) - 1, 0, len(self.grid) - 2)
        slope = (self.tau2[k + 1] - self.tau2[k]) / (self.grid[k + 1] - self.grid[k])[:, np.newaxis]
        inside = (self.grid[0] <= phi) & (phi <= self.grid[-1])
        shift = np.clip(phi, self.grid[0], self.grid[-1]) - self.grid[k]
        return self.tau2[k] + shift[:, np.newaxis] * slope, slope * inside[:, np.newaxis]


@dataclass(frozen=True)
class Spatial:
    """Holds theta's conditional moments at m values of (xi, u), and the numbers that derivatives need: theta ~ N(a hat, v)."""

    hat: Hat  # of the decoder
    # a, v: (m, 1) factors and (m, d) variances; v is None for the deterministic model
    a: Matrix
    v: Matrix | None
    # da, by_phi, by_rho: derivatives of a in logit rho (m, 1), and of v in phi and in logit rho (m, d)
    da: Matrix
    by_phi: Matrix | None
    by_rho: Matrix | None
    # dphi, dt: (m,) derivatives of phi and of the networks' condition in x
    dphi: Vector
    dt: Vector

    @property
    def mean(self) -> Matrix:
        """(m, d) E[theta | xi, u]."""
        return self.a * self.hat.theta


class Observed(ABC):
    """Groups rows by area, and computes their information on theta: the common part of the sites of all priors."""

    layout: Layout
    likelihood: Likelihood
    rows: Rows

    @property
    @abstractmethod
    def n_areas(self) -> int:
        """d, the number of areas."""

    @cached_property
    def observed(self) -> Indices:
        """The areas with rows."""
        return np.unique(self.rows.area)

    @cached_property
    def counts(self) -> Vector:
        """(d,) The number of rows of each area."""
        return np.bincount(self.rows.area, minlength=self.n_areas).astype(float)

    @property
    def bounded(self) -> bool:
        """Whether each row's, or area's, part is cut to what a masked sum has room for."""
        return isinstance(self.likelihood, Bounded)

    def cut(self, slopes: Matrix) -> Matrix:
        """Returns derivatives of rows, or areas, cut where that is so."""
        return cut_slope(slopes) if self.bounded else slopes

    def fixed(self, xi: Matrix) -> Matrix:
        """Returns offset + b + x' beta + gamma_t (m, n)."""
        rows, parts = self.rows, self.layout.parts
        eta: Matrix = rows.offset + xi[:, parts["beta"]] @ rows.X.T
        if rows.period is not None:
            eta = eta + self.layout.periods(xi)[:, rows.period]
        return eta + xi[:, parts["intercept"]] if self.layout.intercept else eta

    def scale(self, xi: Matrix) -> Matrix:
        """Returns sigma_theta (m, 1)."""
        return self.layout.scale(xi)[:, np.newaxis]

    def log_sd(self, xi: Matrix) -> Matrix:
        """Returns log sigma (m, 1); 0 if it is known."""
        return xi[:, -1:] if self.layout.dispersed else np.zeros((len(xi), 1))

    def columns(self, xi: Vector) -> Matrix:
        """Returns the columns (n, U - r) of b, beta and v in eta, at one xi (P,)."""
        rows, ones = self.rows, np.ones((len(self.rows.y), int(self.layout.intercept)))
        walked = []
        if rows.period is not None:
            walked = [np.exp(xi[self.layout.parts["log_period"]]) * self.layout.walk[rows.period]]
        return np.column_stack([ones, rows.X, *walked])

    def add_fixed(self, g_xi: Matrix, slope: Matrix, xi: Matrix) -> None:
        """Adds the gradients of b, beta, v and log sigma_period from derivatives in eta (m, n)."""
        parts, rows = self.layout.parts, self.rows
        g_xi[:, parts["beta"]] += slope @ rows.X
        if self.layout.intercept:
            g_xi[:, parts["intercept"]] += slope.sum(axis=1, keepdims=True)
        if rows.period is not None:
            by_v = slope @ self.layout.walk[rows.period] * np.exp(xi[:, parts["log_period"]])
            g_xi[:, parts["period"]] += by_v
            g_xi[:, parts["log_period"]] += (by_v * xi[:, parts["period"]]).sum(axis=1, keepdims=True)

    def add_rows(self, g_xi: Matrix, slope: Matrix, theta: Matrix, xi: Matrix) -> None:
        """Adds the gradients of b, beta, v, log sigma_period and log sigma_theta from derivatives in eta (m, n)."""
        self.add_fixed(g_xi, slope, xi)
        if self.layout.scaled:
            by_scale = self.scale(xi) * (slope * theta[:, self.rows.area]).sum(axis=1, keepdims=True)
            g_xi[:, self.layout.parts["log_scale"]] += by_scale

    def by_area(self, values: Matrix) -> Matrix:
        """Returns sums (m, d) of the rows' values (m, n)."""
        m, d = len(values), self.n_areas
        cells = np.arange(m)[:, np.newaxis] * d + self.rows.area
        return np.bincount(cells.ravel(), weights=values.ravel(), minlength=m * d).astype(float).reshape(m, d)

    def given_theta(self, xi: Matrix, theta: Matrix) -> tuple[Vector, Matrix, Matrix, Matrix]:
        """Returns log p(y | theta, xi), its slopes in eta (m, n) and in theta (m, d), and its derivative in log sigma (m, 1)."""
        scale, log_sd = self.scale(xi), self.log_sd(xi)
        eta = self.fixed(xi) + scale * theta[:, self.rows.area]
        value, slope, by_sd = self.likelihood.terms(self.rows.y, eta, log_sd, self.rows.trials, self.rows.last)
        return value.sum(axis=1), slope, scale * self.by_area(slope), by_sd.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class Site(Observed):
    """Is one client's term of the log joint density (`models.hierarchical.LocalModel`).

    u is u_L (p_L,), and, if theta is not integrated out of the auxiliary model, the standardised residuals (d,) behind it: theta
    = a thetahat + sqrt(v) e. A Gaussian response lets theta be integrated out, exactly. Everything is computed for m values of
    (xi, u) at once: xi is (m, P) and u (m, size), except in `log_joint_grad`.
    """

    decoder: Decoder
    condition: Condition
    layout: Layout
    likelihood: Likelihood
    rows: Rows
    auxiliary: Auxiliary | None = None  # None is the deterministic model
    integrated: bool = False  # whether theta is integrated out; only of a Gaussian response

    def __post_init__(self) -> None:
        if self.integrated and (self.auxiliary is None or self.likelihood.record.link != "identity"):
            raise ValueError("sigma: theta can be integrated out of an auxiliary model with a Gaussian response, and of no other")
        if self.layout.mixing and self.auxiliary is None:
            raise ValueError("sigma: BYM2 mixes in unstructured variation: it needs the auxiliary model")

    @property
    def n_global(self) -> int:
        return self.layout.size

    @property
    def size(self) -> int:
        own_size = self.decoder.size if self.sampled else 0
        return self.decoder.n_local + own_size

    @property
    def n_areas(self) -> int:
        return self.decoder.size

    @property
    def sampled(self) -> bool:
        """Whether theta's residuals are unknowns of the client."""
        return self.auxiliary is not None and not self.integrated

    # ---- Between xi and the areas.

    def spatial(self, xi: Matrix, u: Matrix) -> Spatial:
        """Returns theta's conditional moments at xi (m, P) and u_L (m, p_L)."""
        parts, m = self.layout.parts, len(xi)
        level = xi[:, 0] if self.layout.free else np.zeros(m)
        phi, dphi = self.condition.at(level)
        dt = self.condition.slope(phi) * dphi
        hat = self.decoder.hat(xi[:, parts["z"]], u, self.condition.network(phi)[:, np.newaxis])
        a, da = np.ones((m, 1)), np.zeros((m, 1))
        if self.auxiliary is None:
            return Spatial(hat, a, None, da, None, None, dphi, dt)
        tau2, by_phi = self.auxiliary.at(phi)
        if not self.layout.mixing:
            return Spatial(hat, a, tau2, da, by_phi, None, dphi, dt)
        rho = expit(xi[:, parts["rho"]])
        change = rho * (1 - rho)
        a = np.sqrt(rho)
        return Spatial(hat, a, 1 - rho + rho * tau2, 0.5 * change / a, rho * by_phi, change * (tau2 - 1), dphi, dt)

    def pull(self, s: Spatial, g_hat: Matrix, g_a: Matrix, g_v: Matrix | None) -> tuple[Matrix, Matrix]:
        """Returns gradients in xi (m, P) and u_L from those in thetahat (m, d), a (m, 1) and v (m, d)."""
        parts, g_xi = self.layout.parts, np.zeros((len(g_hat), self.n_global))
        to_z, to_u, to_t = self.decoder.pull(s.hat, g_hat)
        g_xi[:, parts["z"]] = to_z
        if self.layout.free:
            g_xi[:, 0] = to_t[:, 0] * s.dt
            if g_v is not None and s.by_phi is not None:
                g_xi[:, 0] += (s.by_phi * g_v).sum(axis=1) * s.dphi
        if g_v is not None and s.by_rho is not None:
            g_xi[:, parts["rho"]] = (s.by_rho * g_v).sum(axis=1, keepdims=True) + g_a * s.da
        return g_xi, to_u

    # ---- The density.

    def log_joint_grad(self, xi: Vector, u: Vector) -> tuple[float, Vector, Vector]:
        """Returns log p(y, u | xi), and its gradients in xi (P,) and in u (size,)."""
        value, g_xi, g_u = self.log_joint_grads(xi[np.newaxis], u[np.newaxis])
        return float(value[0]), g_xi[0], g_u[0]

    def log_joint_grads(self, xi: Matrix, u: Matrix) -> tuple[Vector, Matrix, Matrix]:
        """Returns the same (m,), (m, P), (m, size) at m places."""
        local = u[:, : self.decoder.n_local]
        s = self.spatial(xi, local)
        normal = 0.5 * (u * u).sum(axis=1) + u.shape[1] * HALF_LOG_TAU
        if self.integrated:
            value, g_xi, g_local = self._integrated(xi, s)
            return value - normal, g_xi, g_local - u
        theta, e = s.mean, u[:, self.decoder.n_local :]
        if self.sampled:
            assert s.v is not None
            sd = np.sqrt(s.v)
            theta = theta + sd * e
        value, slope, g_theta, by_sd = self.given_theta(xi, theta)
        g_v = 0.5 * g_theta * e / sd if self.sampled else None
        g_xi, g_local = self.pull(s, s.a * g_theta, (g_theta * s.hat.theta).sum(axis=1, keepdims=True), g_v)
        self.add_rows(g_xi, slope, theta, xi)
        if self.layout.dispersed:
            g_xi[:, -1:] += by_sd
        g_u = np.concatenate([g_local, sd * g_theta], axis=1) if self.sampled else g_local
        return value - normal, g_xi, g_u - u

    def _integrated(self, xi: Matrix, s: Spatial) -> tuple[Vector, Matrix, Matrix]:
        """Returns log p(y | thetahat, xi) of a Gaussian response.

        The rows of one area share its theta: their covariance is noise^2 I + V 11', V = sigma_theta^2 v.
        """
        assert s.v is not None
        if self.rows.sd is not None:
            return self._with_known_errors(xi, s, s.v)
        scale, noise = self.scale(xi), self.likelihood.sd(self.log_sd(xi)) ** 2
        theta, V = s.mean, scale**2 * s.v
        r = self.rows.y - self.fixed(xi) - scale * theta[:, self.rows.area]
        n, S, Q = self.counts, self.by_area(r), self.by_area(r * r)
        D = noise + n * V
        seen = n > 0
        value = 2 * HALF_LOG_TAU * n + np.where(seen, (n - 1) * np.log(noise) + np.log(D), 0.0) + Q / noise
        value = self._summed(-0.5 * (value - V * S**2 / (noise * D)))
        slope = self.cut(r / noise - (V * S / (noise * D))[:, self.rows.area])
        g_V = 0.5 * ((S / D) ** 2 - n / D)
        g_theta = scale * self.by_area(slope)
        g_v = self.cut(scale**2 * g_V)
        g_xi, g_local = self.pull(s, s.a * g_theta, (g_theta * s.hat.theta).sum(axis=1, keepdims=True), g_v)
        self.add_rows(g_xi, slope, theta, xi)
        if self.layout.scaled:
            g_xi[:, self.layout.parts["log_scale"]] += 2 * self.cut(V * g_V).sum(axis=1, keepdims=True)
        if self.layout.dispersed:
            by_noise = np.where(seen, -(n - 1) / noise - 1 / D, 0.0) + Q / noise**2 - S**2 * V * (noise + D) / (noise * D) ** 2
            g_xi[:, -1:] += noise * self.cut(by_noise).sum(axis=1, keepdims=True)
        return value, g_xi, g_local

    def _summed(self, values: Matrix) -> Vector:
        """Returns sums (m,) over areas of log densities (m, d)."""
        bounded = cut_value(values) if self.bounded else values
        return np.asarray(bounded.sum(axis=1))

    @cached_property
    def _certain(self) -> tuple[Vector, Vector]:
        """(n,) One over each row's error variance, and (d,) their sums by area, if variances are known."""
        assert self.rows.sd is not None
        weights = self.rows.sd**-2
        return weights, self.by_area(weights[np.newaxis])[0]

    def _with_known_errors(self, xi: Matrix, s: Spatial, v: Matrix) -> tuple[Vector, Matrix, Matrix]:
        """Returns the same as `_integrated`, each row with its own error variance.

        With W = diag(1 / sd^2) of an area's rows their covariance is W^-1 + V 11', of log determinant log(1 + V 1'W1) - log|W|.
        """
        scale, (weights, K) = self.scale(xi), self._certain
        theta, V = s.mean, scale**2 * v
        r = self.rows.y - self.fixed(xi) - scale * theta[:, self.rows.area]
        S, D = self.by_area(weights * r), 1 + V * K
        value = np.full(len(r), 0.5 * float(np.log(weights).sum()) - len(r.T) * HALF_LOG_TAU)
        if self.bounded:
            value += self._summed(-0.5 * (self.by_area(weights * r * r) + np.log(D) - V * S**2 / D))
        else:
            value = value - 0.5 * (weights * r * r).sum(axis=1) - 0.5 * (np.log(D) - V * S**2 / D).sum(axis=1)
        slope = self.cut(weights * (r - (V * S / D)[:, self.rows.area]))
        g_V = 0.5 * ((S / D) ** 2 - K / D)
        g_theta = scale * self.by_area(slope)
        g_v = self.cut(scale**2 * g_V)
        g_xi, g_local = self.pull(s, s.a * g_theta, (g_theta * s.hat.theta).sum(axis=1, keepdims=True), g_v)
        self.add_rows(g_xi, slope, theta, xi)
        if self.layout.scaled:
            g_xi[:, self.layout.parts["log_scale"]] += 2 * self.cut(V * g_V).sum(axis=1, keepdims=True)
        return value, g_xi, g_local

    # ---- theta after the fit.

    def without_rows(self, xi: Matrix, u: Matrix, theta: Matrix) -> tuple[Matrix, Matrix | None]:
        """Returns mean and variance (m, d) of each theta_i without its rows, given all else of a draw; None: it has no
        variance."""
        s = self.spatial(xi, u[:, : self.decoder.n_local])
        return s.mean, s.v

    def theta_given(self, xi: Matrix, u: Matrix, normals: Matrix) -> Matrix:
        """Returns draws of theta (m, d) given xi and u; `normals` (m, d) if theta was integrated out."""
        s = self.spatial(xi, u[:, : self.decoder.n_local])
        if s.v is None:
            return s.mean
        if self.sampled:
            return s.mean + np.sqrt(s.v) * u[:, self.decoder.n_local :]
        scale = self.scale(xi)
        if self.rows.sd is not None:
            weights, K = self._certain
            D = 1 + K * scale**2 * s.v
            S = self.by_area(weights * (self.rows.y - self.fixed(xi) - scale * s.mean[:, self.rows.area]))
            return np.asarray(s.mean + s.v * scale * S / D + np.sqrt(s.v / D) * normals)
        noise = self.likelihood.sd(self.log_sd(xi)) ** 2
        S = self.by_area(self.rows.y - self.fixed(xi) - scale * s.mean[:, self.rows.area])
        D = noise + self.counts * scale**2 * s.v
        theta: Matrix = s.mean + s.v * scale * S / D + np.sqrt(s.v * noise / D) * normals
        return theta


# --------------------
# Models effects of T periods: a random walk of first order that sums to 0, scaled to a geometric mean of 1 of its variances.
#
#     gamma = sigma_period B v,  v ~ N(0, I_{T-1}),  B B' = R^- / s,  gamma' R gamma = sum (gamma_t+1 - gamma_t)^2
#
# R, the walk's structure, is the Laplacian of a path, whose eigenvectors are cosines: all parties have the same B, to the last
# bits of a cosine. With D the differences of neighbours R = D'D, and D R^- D' = I: steps from one period to the next are
# independent, N(0, sigma_period^2 / s) each, and a walk that goes on beyond the last period is the walk of T + 1 periods, about
# the level of the first T. Source: docs/spec/sigma.md, section 9; Sorbye and Rue (2014), Spatial Statistics 8, 39-51.


def walk(n: int) -> Matrix:
    """Returns B (n, n - 1), smooth columns first."""
    k = np.arange(1, n)
    vectors = np.cos(np.pi * np.outer(np.arange(n) + 0.5, k) / n) * np.sqrt(2 / n)
    B = vectors / (2 * np.sin(np.pi * k / (2 * n)))
    return np.asarray(B / np.exp(0.5 * np.log((B**2).sum(axis=1)).mean()))


def step_sd(n: int) -> float:
    """Returns 1 / sqrt(s), the standard deviation of a step from one of n periods to the next if sigma_period is 1."""
    return float(np.linalg.norm(np.diff(walk(n)[:2], axis=0)))
