"""Models with a trained prior that factorises over clients: the global unknowns xi, the server's prior, one client's rows.

    phi ~ p(phi),  z_G ~ N(0, I),  thetahat_j = the client's decoder of (phi, z_G, u_j),  u_j ~ N(0, I)
    deterministic:  theta_i = thetahat_i                  auxiliary:  theta_i ~ N(a thetahat_i, v_i)
    y ~ p(y | eta),  eta = o + b + x' beta + sigma_theta theta_i,  i the area (or grid point) of the row

a = 1 and v_i = tau_i^2, variances that make theta's prior as wide as the true one. With mixing (BYM2) thetahat is the spatial
part of variance 1, a = sqrt(rho) and v_i = 1 - rho + rho tau_i^2. Source: sigma.md, sections 4 to 6 and 9.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from .condition import Condition
from .likelihood import HALF_LOG_TAU, Likelihood, half_normal
from .sigma_decoder import Decoder, Hat

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Index = NDArray[np.int64]

COEFFICIENT_SD = 5.0  # of b and beta


@dataclass(frozen=True)
class Layout:
    """Where what stands in xi: (x_phi, z_G, logit rho, b, beta, log sigma_theta, log sigma), those that a model has.

    Attributes
    ----------
    free : whether there is a phi
    n_global : length of z_G
    mixing : BYM2: whether rho is unknown
    intercept : whether there is a b
    n_beta : covariates
    scaled : whether sigma_theta is unknown
    dispersed : whether the error standard deviation of a Gaussian response is unknown
    known_scale : sigma_theta where it is known
    """

    free: bool
    n_global: int
    mixing: bool = False
    intercept: bool = True
    n_beta: int = 0
    scaled: bool = True
    dispersed: bool = False
    known_scale: float = 1.0

    @cached_property
    def parts(self) -> dict[str, slice]:
        """Name -> place; empty where the model has no such unknown."""
        lengths = {
            "phi": int(self.free),
            "z": self.n_global,
            "rho": int(self.mixing),
            "intercept": int(self.intercept),
            "beta": self.n_beta,
            "log_scale": int(self.scaled),
            "log_sd": int(self.dispersed),
        }
        found, at = {}, 0
        for name, length in lengths.items():
            found[name] = slice(at, at + length)
            at += length
        return found

    @property
    def size(self) -> int:
        """P, the length of xi."""
        return int(self.parts["log_sd"].stop)

    def scale(self, xi: Vector) -> Vector:
        """sigma_theta of xi (.., P): (..,)."""
        at = self.parts["log_scale"].start
        return np.exp(xi[..., at]) if self.scaled else np.full(xi.shape[:-1], self.known_scale)


@dataclass(frozen=True)
class SigmaPrior:
    """The server's term: log p(xi), every Jacobian once.

    x_phi by the condition's prior; z_G ~ N(0, I); rho ~ U(0, 1) by its logit; b, beta ~ N(0, coefficient_sd^2); sigma_theta and
    sigma ~ HalfNormal(1) by their logarithms.
    """

    layout: Layout
    condition: Condition
    coefficient_sd: float = COEFFICIENT_SD

    def __post_init__(self) -> None:
        if self.layout.free != self.condition.free:
            raise ValueError(f"prior of xi: the condition is {self.condition.name!r}, and the layout says otherwise")

    @property
    def size(self) -> int:
        return self.layout.size

    def log_prior_grad(self, xi: Vector) -> tuple[float, Vector]:
        parts, gradient, value = self.layout.parts, np.empty(self.size), 0.0
        if self.layout.free:
            value, gradient[0] = self.condition.log_prior_grad(float(xi[0]))
        for name, sd in (("z", 1.0), ("intercept", self.coefficient_sd), ("beta", self.coefficient_sd)):
            r = xi[parts[name]] / sd
            value -= 0.5 * float(r @ r) + len(r) * float(np.log(sd) + HALF_LOG_TAU)
            gradient[parts[name]] = -r / sd
        for k in range(parts["rho"].start, parts["rho"].stop):
            value -= float(np.logaddexp(0.0, xi[k]) + np.logaddexp(0.0, -xi[k]))
            gradient[k] = 1 - 2 * expit(xi[k])
        for k in range(parts["log_scale"].start, parts["log_sd"].stop):
            share, gradient[k] = half_normal(float(xi[k]))
            value += share
        return value, gradient


@dataclass(frozen=True)
class Rows:
    """A client's rows.

    Attributes
    ----------
    y : (n,) responses
    area : (n,) which of the decoder's coordinates
    X : (n, p) covariates
    offset : (n,) known part of eta
    trials : (n,) of a binomial response, or None
    """

    y: Vector
    area: Index
    X: Matrix
    offset: Vector
    trials: Vector | None = None


@dataclass(frozen=True)
class Auxiliary:
    """tau^2 (G, d) at the values grid (G,) of phi, between which it is linear; G = 1: the same for all phi. Variances."""

    tau2: Matrix
    grid: Vector = field(default_factory=lambda: np.zeros(1))

    def at(self, phi: float) -> tuple[Vector, Vector]:
        """(d,) tau^2, and its derivative in phi."""
        if len(self.grid) == 1:
            return self.tau2[0], np.zeros(self.tau2.shape[1])
        k = int(np.clip(np.searchsorted(self.grid, phi) - 1, 0, len(self.grid) - 2))
        slope = (self.tau2[k + 1] - self.tau2[k]) / (self.grid[k + 1] - self.grid[k])
        inside = self.grid[0] <= phi <= self.grid[-1]
        shift = float(np.clip(phi, self.grid[0], self.grid[-1])) - self.grid[k]
        return self.tau2[k] + shift * slope, slope if inside else np.zeros_like(slope)


@dataclass(frozen=True)
class Spatial:
    """theta's conditional moments at one (xi, u), and what derivatives need: theta ~ N(a hat, v).

    Attributes
    ----------
    hat : of the decoder
    a, v : the factor and the variances (d,); v is None for the deterministic model
    da, dv : derivatives of a in logit rho, and of v in (phi, logit rho): (2, d)
    dphi, dt : derivatives of phi and of the networks' condition in x
    """

    hat: Hat
    a: float
    v: Vector | None
    da: float
    dv: Matrix | None
    dphi: float
    dt: float

    @property
    def mean(self) -> Vector:
        """(d,) E[theta | xi, u]."""
        mean: Vector = self.a * self.hat.theta[0]
        return mean


@dataclass(frozen=True)
class Site:
    """One client's term of the log joint density (`models.hierarchical.LocalModel`).

    u is u_L (p_L,), and, where theta is not integrated out of the auxiliary model, the standardised residuals (d,) behind it:
    theta = a thetahat + sqrt(v) e. A Gaussian response lets theta be integrated out, exactly.

    Attributes
    ----------
    decoder, condition, layout, likelihood, rows
    auxiliary : None is the deterministic model
    integrated : whether theta is integrated out; only of a Gaussian response
    """

    decoder: Decoder
    condition: Condition
    layout: Layout
    likelihood: Likelihood
    rows: Rows
    auxiliary: Auxiliary | None = None
    integrated: bool = False

    def __post_init__(self) -> None:
        if self.integrated and (self.auxiliary is None or self.likelihood.family != "gaussian"):
            raise ValueError("sigma: theta can be integrated out of an auxiliary model with a Gaussian response, and of no other")
        if self.layout.mixing and self.auxiliary is None:
            raise ValueError("sigma: BYM2 mixes in unstructured variation: it needs the auxiliary model")

    @property
    def n_global(self) -> int:
        return self.layout.size

    @property
    def size(self) -> int:
        return self.decoder.n_local + (self.decoder.size if self.sampled else 0)

    @property
    def sampled(self) -> bool:
        """Whether theta's residuals are unknowns of the client."""
        return self.auxiliary is not None and not self.integrated

    @cached_property
    def observed(self) -> Index:
        """Areas with rows."""
        return np.unique(self.rows.area)

    # ---- Between xi and the areas.

    def spatial(self, xi: Vector, u: Vector) -> Spatial:
        """theta's conditional moments at xi (P,) and u_L (p_L,)."""
        parts = self.layout.parts
        phi, dphi = self.condition.at(float(xi[0]))
        at = np.array([[phi]])
        hat = self.decoder.hat(xi[np.newaxis, parts["z"]], u[np.newaxis], self.condition.network(at))
        dt = float(self.condition.slope(at)[0, 0]) * dphi
        if self.auxiliary is None:
            return Spatial(hat, 1.0, None, 0.0, None, dphi, dt)
        tau2, by_phi = self.auxiliary.at(phi)
        if not self.layout.mixing:
            return Spatial(hat, 1.0, tau2, 0.0, np.stack([by_phi, np.zeros_like(by_phi)]), dphi, dt)
        rho = float(expit(xi[parts["rho"].start]))
        change = rho * (1 - rho)
        dv = np.stack([rho * by_phi, change * (tau2 - 1)])
        a = float(np.sqrt(rho))
        return Spatial(hat, a, 1 - rho + rho * tau2, 0.5 * change / a, dv, dphi, dt)

    def fixed(self, xi: Vector, rows: Rows | None = None) -> Vector:
        """(n,) offset + b + x' beta."""
        rows, parts = rows or self.rows, self.layout.parts
        eta: Vector = rows.offset + rows.X @ xi[parts["beta"]]
        return eta + xi[parts["intercept"].start] if self.layout.intercept else eta

    def pull(self, xi: Vector, s: Spatial, g_hat: Vector, g_a: float, g_v: Vector | None) -> tuple[Vector, Vector]:
        """Gradients in xi and u_L from those in thetahat (d,), a and v (d,)."""
        parts, g_xi = self.layout.parts, np.zeros(self.n_global)
        to_z, to_u, to_t = self.decoder.pull(s.hat, g_hat[np.newaxis])
        g_xi[parts["z"]] = to_z[0]
        if self.layout.free:
            g_xi[0] = to_t[0, 0] * s.dt
        if g_v is not None and s.dv is not None:
            by_phi, by_rho = s.dv @ g_v
            if self.layout.free:
                g_xi[0] += by_phi * s.dphi
            g_xi[parts["rho"]] = by_rho + g_a * s.da
        return g_xi, to_u[0]

    def add_rows(self, g_xi: Vector, slope: Vector, theta: Vector, scale: float) -> None:
        """Adds the gradients of b, beta and log sigma_theta from derivatives in eta (n,)."""
        parts, rows = self.layout.parts, self.rows
        g_xi[parts["beta"]] += rows.X.T @ slope
        g_xi[parts["intercept"]] += slope.sum()
        g_xi[parts["log_scale"]] += scale * float(slope @ theta[rows.area])

    def by_area(self, values: Vector) -> Vector:
        """(d,) sums of the rows' values."""
        return np.asarray(np.bincount(self.rows.area, weights=values, minlength=self.decoder.size), float)

    def given_theta(self, xi: Vector, theta: Vector) -> tuple[float, Vector, Vector, float]:
        """log p(y | theta, xi), its slopes in eta (n,) and in theta (d,), and its derivative in log sigma."""
        scale = float(self.layout.scale(xi))
        log_sd = float(xi[-1]) if self.layout.dispersed else 0.0
        eta = self.fixed(xi) + scale * theta[self.rows.area]
        like, y, trials = self.likelihood, self.rows.y, self.rows.trials
        slope = like.slope(y, eta, log_sd, trials)
        by_sd = float(like.slope_scale(y, eta, log_sd).sum()) if self.layout.dispersed else 0.0
        return float(like.value(y, eta, log_sd, trials).sum()), slope, scale * self.by_area(slope), by_sd

    # ---- The density.

    def log_joint_grad(self, xi: Vector, u: Vector) -> tuple[float, Vector, Vector]:
        """log p(y, u | xi), and its gradients in xi and in u."""
        local = u[: self.decoder.n_local]
        s = self.spatial(xi, local)
        if self.integrated:
            value, g_xi, g_local = self._integrated(xi, s)
            return value - self._normal(u), g_xi, g_local - u
        theta, e = s.mean, u[self.decoder.n_local :]
        if self.sampled:
            assert s.v is not None
            sd = np.sqrt(s.v)
            theta = theta + sd * e
        value, slope, g_theta, by_sd = self.given_theta(xi, theta)
        g_v = 0.5 * g_theta * e / sd if self.sampled else None
        g_xi, g_local = self.pull(xi, s, s.a * g_theta, float(g_theta @ s.hat.theta[0]), g_v)
        self.add_rows(g_xi, slope, theta, float(self.layout.scale(xi)))
        if self.layout.dispersed:
            g_xi[-1] += by_sd
        g_u = np.concatenate([g_local, sd * g_theta]) if self.sampled else g_local
        return value - self._normal(u), g_xi, g_u - u

    @staticmethod
    def _normal(u: Vector) -> float:
        """- log N(u; 0, I)."""
        return 0.5 * float(u @ u) + len(u) * float(HALF_LOG_TAU)

    def _integrated(self, xi: Vector, s: Spatial) -> tuple[float, Vector, Vector]:
        """log p(y | thetahat, xi) of a Gaussian response. The rows of one area share its theta: their covariance is
        noise^2 I + V 11', V = sigma_theta^2 v."""
        assert s.v is not None
        scale = float(self.layout.scale(xi))
        noise = self.likelihood.sd(float(xi[-1]) if self.layout.dispersed else 0.0) ** 2
        theta, V = s.mean, scale**2 * s.v
        r = self.rows.y - self.fixed(xi) - scale * theta[self.rows.area]
        n, S, Q = self.by_area(np.ones_like(r)), self.by_area(r), self.by_area(r * r)
        D = noise + n * V
        value = -0.5 * float(
            np.sum(2 * HALF_LOG_TAU * n + np.where(n > 0, (n - 1) * np.log(noise) + np.log(D), 0.0))
            + np.sum(Q / noise - V * S**2 / (noise * D))
        )
        slope = r / noise - (V * S / (noise * D))[self.rows.area]
        g_V = 0.5 * ((S / D) ** 2 - n / D)
        g_theta = scale * self.by_area(slope)
        g_xi, g_local = self.pull(xi, s, s.a * g_theta, float(g_theta @ s.hat.theta[0]), scale**2 * g_V)
        self.add_rows(g_xi, slope, theta, scale)
        if self.layout.scaled:
            g_xi[self.layout.parts["log_scale"]] += 2 * float(V @ g_V)
        if self.layout.dispersed:
            seen = n > 0
            by_noise = np.where(seen, -(n - 1) / noise - 1 / D, 0.0) + Q / noise**2 - S**2 * V * (noise + D) / (noise * D) ** 2
            g_xi[-1] += noise * float(by_noise.sum())
        return value, g_xi, g_local

    # ---- theta after the fit.

    def theta_given(self, xi: Vector, u: Vector, normals: Vector) -> Vector:
        """A draw of theta (d,) given xi and u; `normals` (d,) where theta was integrated out."""
        s = self.spatial(xi, u[: self.decoder.n_local])
        if s.v is None:
            return s.mean
        if self.sampled:
            return s.mean + np.sqrt(s.v) * u[self.decoder.n_local :]
        scale = float(self.layout.scale(xi))
        noise = self.likelihood.sd(float(xi[-1]) if self.layout.dispersed else 0.0) ** 2
        r = self.rows.y - self.fixed(xi) - scale * s.mean[self.rows.area]
        n, S = self.by_area(np.ones_like(r)), self.by_area(r)
        D = noise + n * scale**2 * s.v
        theta: Vector = s.mean + s.v * scale * S / D + np.sqrt(s.v * noise / D) * normals
        return theta
