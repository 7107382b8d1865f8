"""Defines the variational family of structured federated variational inference, as pure functions of arrays.

Source: docs/spec/sigma.md, section 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy.linalg import eigh
from scipy.special import expit, gammaln

from ...arrays import Array, Matrix, Vector
from ...models.hierarchical import LocalModel
from ...models.likelihood import HALF_LOG_TAU, Noisy
from ...models.spatial.site import Site
from ...models.variational import FURTHEST, Block


@dataclass(frozen=True)
class Family:
    """Is the family q(u | xi) = N(a + B (xi - c), L L'). Flat parameters: a and L as in `Block`, then B (d, P) row by row."""

    block: Block
    n_global: int
    coupled: bool = True

    @property
    def n_parameters(self) -> int:
        """The length of the flat parameters."""
        return self.block.n_parameters + self.block.size * self.n_global * int(self.coupled)

    @property
    def n_normals(self) -> int:
        """The number of normals of one draw."""
        return self.block.size

    def initial(self, sd: float) -> Vector:
        """Returns the parameters of N(0, sd^2 I), whatever xi is."""
        parameters = np.zeros(self.n_parameters)
        parameters[: self.block.n_parameters] = self.block.initial(0.0, sd)
        return parameters

    def sample(self, parameters: Vector, xi: Vector, centre: Vector, eps: Vector) -> Vector:
        """Returns u of the draw of `eps`."""
        return self.block.sample(self.given(parameters, xi - centre), eps)

    def moments(self, parameters: Vector, xi: Vector, centre: Vector) -> tuple[Vector, Vector]:
        """Returns means and standard deviations of u given xi."""
        conditional = self.given(parameters, xi - centre)
        return conditional[: self.block.size], self.block.sd(conditional)

    def coupling(self, parameters: Vector) -> Matrix:
        """Returns B."""
        if not self.coupled:
            return np.zeros((self.block.size, self.n_global))
        return parameters[self.block.n_parameters :].reshape(self.block.size, self.n_global)

    def given(self, parameters: Vector, shift: Vector) -> Vector:
        """Returns the block's parameters of q(u | xi), shift = xi - c."""
        conditional = parameters[: self.block.n_parameters].copy()
        if self.coupled:
            conditional[: self.block.size] += self.coupling(parameters) @ shift
        return conditional

    def gradient(
        self,
        model: LocalModel,
        parameters: Vector,
        xi: Vector,
        centre: Vector,
        eps: Vector,
        *,
        path: bool = True,
        bound: bool = True,
    ) -> tuple[float, Vector, Vector]:
        """Returns F_j at the draw of `eps` (NaN if no `bound` is wanted), G_j (P,), and the gradient in the flat parameters."""
        d, shift = self.block.size, xi - centre
        conditional = self.given(parameters, shift)
        value, h_xi, h_u = model.log_joint_grad(xi, self.block.sample(conditional, eps))
        flat = self.block.gradient(conditional, eps, h_u, path=path)
        value = value - self.block.log_density(conditional, eps) if bound else np.nan
        if not self.coupled:
            return value, h_xi, flat
        G = h_xi + self.coupling(parameters).T @ h_u
        return value, G, np.concatenate([flat, np.outer(flat[:d], shift).ravel()])

    def limited(self, parameters: Vector) -> Vector:
        """Returns the nearest parameters that are within bounds which no posterior comes near (`Block.limited`)."""
        n = self.block.n_parameters
        return np.concatenate([self.block.limited(parameters[:n]), np.clip(parameters[n:], -FURTHEST, FURTHEST)])

    def moved(self, parameters: Vector, change: Vector) -> Vector:
        """Returns the parameters of the same distribution after c has moved by `change`."""
        out = parameters.copy()
        if self.coupled:
            out[: self.block.size] += self.coupling(parameters) @ change
        return out


def barycentre(block: Block, parameters: Matrix, weights: Vector, tolerance: float = 1e-13) -> Vector:
    """Returns the flat parameters of the Wasserstein barycentre of Gaussians.

    Means are averaged; standard deviations are averaged, or for full covariances the result is the fixed point S = sum_j w_j
    (S^1/2 C_j S^1/2)^1/2 of Alvarez-Esteban et al. (2016). `parameters`: (J, k); `weights`: (J,) positive, adding up to 1.
    """
    means, spreads = zip(*(block.moments(row) for row in parameters))
    mean = weights @ np.array(means)
    if not block.full or not block.size:
        return block.at(mean, weights @ np.array(spreads))
    S = np.einsum("j,jkl->kl", weights, np.array(spreads))
    for _ in range(200):
        values, vectors = eigh(S)
        root = (vectors * np.sqrt(values)) @ vectors.T
        inverse = (vectors / np.sqrt(values)) @ vectors.T
        T = sum(w * _root(root @ C @ root) for w, C in zip(weights, spreads))
        new = inverse @ T @ T @ inverse
        new = 0.5 * (new + new.T)
        moved, S = np.abs(new - S).max(), new
        if moved <= tolerance * np.abs(S).max():
            break
    return block.at(mean, S)


def _root(C: Matrix) -> Matrix:
    values, vectors = eigh(0.5 * (C + C.T))
    out: Matrix = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return out


# Nested --------------------
# Defines the variational family of an auxiliary model whose theta can't be integrated out: q(u | xi) q(theta | xi, u).
#
# For an area with rows q(theta_i | xi, u) is the posterior of theta_i ~ N(a thetahat_i, v_i) after one Gaussian observation c_i
# of eta_i = f_i(xi) + sigma_theta theta_i with precision w_i, its spread times a free factor,
#
#     N((1 - k_i) a thetahat_i + k_i (c_i - f_i) / sigma_theta, s_i^2),  k_i = sigmoid(log w_i + 2 log sigma_theta + log v_i),
#     s_i = sqrt(v_i (1 - k_i)) exp(delta_i),
#
# f_i the mean over the area's rows of o + b + x' beta. Without rows it is the prior. So it contains the conditional of a Gaussian
# response at every xi: theta gives way when b, beta, phi or sigma_theta moves. With k_i, s_i and k_i c_i constant, as in
# sigma.md, section 6, the posterior of b and sigma_theta would be too narrow; with slope 1 instead of 1 - k_i, that of z_G as
# well.


DELTA = (-8.0, 8.0)  # of the logarithm of the free factor


@dataclass(frozen=True)
class NestedFamily:
    """Is the family q(u | xi) of `outer`, and q(theta | xi, u).

    Flat parameters: of `outer`, then log w, c and delta of the areas with rows.
    """

    outer: Family  # of u_L
    site: Site  # whose theta is sampled

    def __post_init__(self) -> None:
        if not self.site.sampled or self.outer.block.size != self.site.decoder.n_local:
            raise ValueError("sigma: a nested family is for a model that samples theta, beside a family of its u_L")

    @cached_property
    def n_observed(self) -> int:
        """The number of areas with rows."""
        return len(self.site.observed)

    @property
    def n_parameters(self) -> int:
        """The length of the flat parameters."""
        return self.outer.n_parameters + 3 * self.n_observed

    @property
    def n_normals(self) -> int:
        """The number of normals of one draw."""
        return self.outer.n_normals + self.n_observed

    def initial(self, sd: float) -> Vector:
        """Returns the parameters at which c and s are those of the response alone: by a step of Newton's method from a common
        mean."""
        site, rows = self.site, self.site.rows
        if not len(rows.y):
            return self.outer.initial(sd)
        by_area = site.by_area(np.stack([self._information(), self._score()]))[:, site.observed]
        information = np.maximum(by_area[0], 1e-3)
        residual = by_area[1] / information
        eta = self._mean_by_area(self._common()) + np.clip(residual, -3, 3)
        start = [np.log(information), eta, np.zeros(self.n_observed)]
        return np.concatenate([self.outer.initial(sd), *start])

    def _mean_by_area(self, values: Vector) -> Vector:
        """Returns, for the areas with rows, the mean of their rows' values (n,)."""
        site, observed = self.site, self.site.observed
        return np.asarray(site.by_area(values[np.newaxis])[0, observed] / site.counts[observed])

    @cached_property
    def _X(self) -> Matrix:
        """(areas with rows, p) The means of their covariates."""
        X = self.site.rows.X
        return np.array([self._mean_by_area(column) for column in X.T]).reshape(X.shape[1], self.n_observed).T

    @cached_property
    def _offset(self) -> Vector:
        """The means of the offsets of the areas with rows."""
        return self._mean_by_area(self.site.rows.offset)

    def _pulled(self, xi: Vector, c: Vector) -> Vector:
        """Returns (c - f(xi)) / sigma_theta: the value of theta that y suggests."""
        layout, f = self.site.layout, self._offset + self._X @ xi[self.site.layout.parts["beta"]]
        if layout.intercept:
            f = f + xi[layout.parts["intercept"]]
        return np.asarray((c - f) / float(layout.scale(xi)))

    @cached_property
    def _y(self) -> Vector:
        """The responses that can be: counts with noise may be below 0, or above their trials."""
        rows = self.site.rows
        return np.clip(rows.y, 0, rows.trials) if isinstance(rows.last, Noisy) else rows.y

    def _common(self) -> Vector:
        """Returns eta if all rows had one level beside their offsets."""
        rows, like = self.site.rows, self.site.likelihood
        if like.record.link == "log":
            level = np.log((self._y.sum() + 0.5) / (np.exp(rows.offset).sum() + 0.5))
        elif like.record.link == "identity":
            level = float((rows.y - rows.offset).mean())
        else:
            trials = 1.0 if rows.trials is None else rows.trials
            failures = trials - self._y
            level = np.log((self._y.sum() + 0.5) / (failures @ np.exp(rows.offset) + 0.5))
        eta: Vector = rows.offset + level
        return eta

    def _score(self) -> Vector:
        rows = self.site.rows
        return self.site.likelihood.slope(self._y, self._common(), 0.0, rows.trials)

    def _information(self) -> Vector:
        """Returns the information (n,) of a row about eta; for counts with the 1/2 that keeps empty areas from having none."""
        rows, like = self.site.rows, self.site.likelihood
        return like.record.information(self._y, self._common(), like.sd(), rows.trials)

    def inner(self, parameters: Vector, xi: Vector, v: Vector) -> tuple[Vector, Vector, Vector]:
        """Returns k, (c - f) / sigma_theta and s of the areas with rows, given their v."""
        log_w, c, delta = parameters[self.outer.n_parameters :].reshape(3, self.n_observed)
        shift = log_w + 2 * np.log(float(self.site.layout.scale(xi))) + np.log(v)
        sd = np.sqrt(v * expit(-shift)) * np.exp(np.clip(delta, *DELTA))
        return expit(shift), self._pulled(xi, c), sd

    def sample(self, parameters: Vector, xi: Vector, centre: Vector, eps: Vector) -> Vector:
        """Returns u as the model has it, at a draw of `eps` (n_normals,): u_L, then residuals; 0 in areas without rows."""
        of_outer, n = parameters[: self.outer.n_parameters], self.outer.n_normals
        local = self.outer.sample(of_outer, xi, centre, eps[:n])
        observed = self.site.observed
        s = self.site.spatial(xi[np.newaxis], local[np.newaxis])
        assert s.v is not None
        k, pulled, sd = self.inner(parameters, xi, s.v[0, observed])
        residual = np.zeros(self.site.decoder.size)
        residual[observed] = (k * (pulled - s.mean[0, observed]) + sd * eps[n:]) / np.sqrt(s.v[0, observed])
        return np.concatenate([local, residual])

    def moments(self, parameters: Vector, xi: Vector, centre: Vector) -> tuple[Vector, Vector]:
        """Returns means and standard deviations given xi (n_normals,): of u_L, then of theta in areas with rows, at the mean of
        u_L."""
        mean, sd = self.outer.moments(parameters[: self.outer.n_parameters], xi, centre)
        s = self.site.spatial(xi[np.newaxis], mean[np.newaxis])
        assert s.v is not None
        k, pulled, sd_of_theta = self.inner(parameters, xi, s.v[0, self.site.observed])
        theta = (1 - k) * s.mean[0, self.site.observed] + k * pulled
        return np.concatenate([mean, theta]), np.concatenate([sd, sd_of_theta])

    def gradient(
        self,
        model: LocalModel,
        parameters: Vector,
        xi: Vector,
        centre: Vector,
        eps: Vector,
        *,
        path: bool = True,
        bound: bool = True,
    ) -> tuple[float, Vector, Vector]:
        """Returns bound and gradients as `Family.gradient`."""
        site, outer, observed = self.site, self.outer, self.site.observed
        n, d, shift = outer.n_normals, outer.block.size, xi - centre
        moved = outer.given(parameters[: outer.n_parameters], shift)
        local = outer.block.sample(moved, eps[:n])
        s = site.spatial(xi[np.newaxis], local[np.newaxis])
        assert s.v is not None
        mean, v, e, scale = s.mean[0, observed], s.v[0, observed], eps[n:], float(site.layout.scale(xi))
        k, pulled, sd = self.inner(parameters, xi, v)
        theta = s.mean.copy()
        theta[0, observed] = (1 - k) * mean + k * pulled + sd * e
        values, slope, g_theta, by_sd = site.given_theta(xi[np.newaxis], theta)
        value, like, r = float(values[0]), g_theta[0, observed], theta[0, observed] - mean
        # At fixed e the path of -log q in xi is that of log s: its dependence on the mean cancels that of the draw.
        slide = (pulled - mean) * k * (1 - k) - 0.5 * k * sd * e  # d theta / d logit k
        to_k = (like - r / v) * slide - 0.5 * k
        g_mean, g_v = np.zeros_like(theta), np.zeros_like(theta)
        g_mean[0, observed] = (1 - k) * like + k * r / v
        g_v[0, observed] = (0.5 * r * r / v + 0.5 * (like - r / v) * sd * e + to_k) / v
        to_xi, to_u = site.pull(s, s.a * g_mean, (g_mean * s.hat.theta).sum(axis=1, keepdims=True), g_v)
        site.add_rows(to_xi, slope, theta, xi[np.newaxis])
        if site.layout.dispersed:
            to_xi[:, -1:] += by_sd
        h_xi, h_u = to_xi[0], to_u[0] - local
        back, parts = -k * (like - r / v), site.layout.parts  # what b, beta and log sigma_theta do through c - f and k
        h_xi[parts["beta"]] += back @ self._X / scale
        h_xi[parts["intercept"]] += back.sum() / scale
        h_xi[parts["log_scale"]] += back @ pulled + 2 * to_k.sum()
        # Along the path of the draw log q is differentiated at fixed e; else its own derivatives stand beside.
        of_draw, of_k, of_sd = (e / sd, 0.0, 0.0) if path else (0.0, 0.5 * k, 1.0)
        total = like - r / v + of_draw
        inner = np.concatenate([total * slide - of_k, total * k / scale, total * sd * e + of_sd])
        flat = outer.block.gradient(moved, eps[:n], h_u, path=path)
        if bound:
            value += float(np.sum(0.5 * (e * e - r * r / v) + np.log(sd) - 0.5 * np.log(v)))
            value -= 0.5 * float(local @ local) + d * float(HALF_LOG_TAU) + outer.block.log_density(moved, eps[:n])
        else:
            value = np.nan
        if not outer.coupled:
            return value, h_xi, np.concatenate([flat, inner])
        G = h_xi + outer.coupling(parameters[: outer.n_parameters]).T @ h_u
        return value, G, np.concatenate([flat, np.outer(flat[:d], shift).ravel(), inner])

    def limited(self, parameters: Vector) -> Vector:
        """Returns parameters as `Family.limited`."""
        n = self.outer.n_parameters
        return np.concatenate([self.outer.limited(parameters[:n]), np.clip(parameters[n:], -FURTHEST, FURTHEST)])

    def moved(self, parameters: Vector, change: Vector) -> Vector:
        """Returns parameters as `Family.moved`."""
        n = self.outer.n_parameters
        return np.concatenate([self.outer.moved(parameters[:n], change), parameters[n:]])


# Shear --------------------
# Shears the global unknowns, so that q(xi) need not learn a ridge that is known beforehand (see `server`).
#
# If one unknown b can make up for others the posterior is a narrow ridge, and if it makes up for a product of unknowns the ridge
# is bent: no normal q holds it. q is normal in xi',
#
#     b = b' + s(xi),  the rest as it is,
#
# s a known function of the rest; the data tell b', which hardly depends on it. The Jacobian is 1, and the gradient in xi' is that
# in xi with the share of b times the slopes of s added. Messages of rounds carry xi. Source: docs/spec/sigma.md, section 6.4.


class Ridge(Protocol):
    """Says where b stands in xi, and for which function it makes up."""

    @property
    def row(self) -> int:
        """The place of b."""

    @property
    def numbers(self) -> Vector:
        """The numbers that a party needs beside public ones to know s."""

    def beside(self, xi: Matrix) -> Vector:
        """Returns s (m,) at xi (m, P), whatever their b."""

    def slopes(self, xi: Vector) -> Vector:
        """Returns its derivatives (P,) at xi; that in b is 0."""


@dataclass(frozen=True)
class Shear:
    """Maps xi' to xi; without a ridge they are the same."""

    ridge: Ridge | None = None

    def out(self, inner: Matrix) -> Matrix:
        """Returns xi (m, P) of xi' (m, P)."""
        if self.ridge is None:
            return inner
        xi = inner.copy()
        xi[:, self.ridge.row] += self.ridge.beside(inner)
        return xi

    def pulled(self, inner: Vector, gradient: Vector) -> Vector:
        """Returns a gradient in xi, at the xi of xi' `inner`, as that in xi'."""
        if self.ridge is None:
            return gradient
        return np.asarray(gradient + self.ridge.slopes(inner) * gradient[self.ridge.row])

    def moments(self, block: Block, parameters: Vector) -> tuple[Vector, Vector]:
        """Returns mean and covariance of xi, from the parameters of q(xi').

        They are standard deviations if q is diagonal and nothing is sheared. If s is not linear, they are those of its tangent at
        the mean.
        """
        if self.ridge is None:
            return block.moments(parameters)
        factor = self._factor(block, parameters)
        return self._mean(block, parameters), factor @ factor.T

    def mean_sd(self, block: Block, parameters: Vector) -> tuple[Vector, Vector]:
        """Returns means and standard deviations of xi, likewise."""
        if self.ridge is None:
            return parameters[: block.size], block.sd(parameters)
        row, sd = self.ridge.row, block.sd(parameters)
        sd[row] = np.linalg.norm(self._row(block, parameters))
        return self._mean(block, parameters), sd

    def _mean(self, block: Block, parameters: Vector) -> Vector:
        return np.asarray(self.out(parameters[np.newaxis, : block.size])[0])

    def _row(self, block: Block, parameters: Vector) -> Vector:
        """Returns the row of b of a factor of the covariance."""
        assert self.ridge is not None
        scale, slopes = block.scale(parameters), self.ridge.slopes(parameters[: block.size])
        slopes[self.ridge.row] = 1.0
        row = slopes @ scale if block.full else slopes * scale
        return np.asarray(row)

    def _factor(self, block: Block, parameters: Vector) -> Matrix:
        assert self.ridge is not None
        scale = block.scale(parameters)
        factor = scale.copy() if block.full else np.diag(scale)
        factor[self.ridge.row] = self._row(block, parameters)
        return factor


# Wide --------------------
# Draws where q does not: wide in a few unknowns, and from q given these.
#
# Draws of a q that is too narrow never see the regions that it leaves out, and their weights say that all is well. With h those
# of the unknowns that scale others, r the rest,
#
#     h ~ t_5(mean of q, 1.5^2 covariance of q),  r | h ~ q(r | h):
#
# wide in all unknowns few draws would be worth anything. Source: docs/concepts/convergence.md, "Whether it is right".


FREEDOM = 5  # degrees of it
WIDER = 1.5  # than q


@dataclass(frozen=True)
class Wide:
    """Holds S draws."""

    inner: Array  # (S, P) in the coordinates in which q is normal
    log_q: Array  # (S,) log density of q at them
    beside: Array  # (S,) that less the log density that they are drawn from


def normals(size: int) -> int:
    """Returns how many standard normals one draw of `size` unknowns takes."""
    return size + FREEDOM


def draws(block: Block, parameters: Array, places: Sequence[int], e: Array) -> Wide:
    """Returns the draws of standard normals `e` (S, `normals(P)`); `places`: those of h, none for draws of q itself."""
    P, k = block.size, len(places)
    order = np.array([*places, *(i for i in range(P) if i not in places)], int)
    scale = block.scale(parameters)
    covariance = scale @ scale.T if block.full else np.diag(scale**2)
    factor = np.linalg.cholesky(covariance[np.ix_(order, order)])
    y, u = e[:, :P].copy(), e[:, :k] * np.sqrt(FREEDOM / (e[:, P:] ** 2).sum(axis=1))[:, np.newaxis]
    y[:, :k] = WIDER * u
    inner = np.empty_like(y)
    inner[:, order] = parameters[:P][order] + y @ factor.T
    half_tau, square = 0.5 * np.log(2 * np.pi), (u**2).sum(axis=1)
    log_t = gammaln(0.5 * (FREEDOM + k)) - gammaln(0.5 * FREEDOM) - 0.5 * k * np.log(FREEDOM * np.pi) - k * np.log(WIDER)
    log_t = log_t - 0.5 * (FREEDOM + k) * np.log1p(square / FREEDOM)
    beside = -0.5 * WIDER**2 * square - k * half_tau - log_t
    log_q = -0.5 * (y**2).sum(axis=1) - np.log(factor.diagonal()).sum() - P * half_tau
    return Wide(inner, log_q, beside)
