"""Computes one client's part of the linear predictor: g = H w, with w a function of theta and H perhaps one of a network's
weights.

Every predictor is the same few pure functions, so that the models and protocols of vertical data know no difference between a
linear one, slopes that vary by group, and a network. Source: docs/spec/vertical.md, section 9.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import numpy as np

from ...arrays import Indices, Matrix, Vector
from ...kernels import mlp


class Predictor(Protocol):
    """Is g = design(phi) @ coefficients(theta); theta has a prior, phi is maximised."""

    @property
    def n_rows(self) -> int: ...
    @property
    def n_theta(self) -> int: ...
    @property
    def n_phi(self) -> int: ...
    def rows(self, index: Indices) -> Predictor:
        """Returns the same predictor for some of the rows."""

    def design(self, phi: Vector) -> Matrix:
        """Returns H (n, p)."""

    def coefficients(self, theta: Vector) -> Vector:
        """Returns w (p,)."""

    def pull(self, theta: Vector, grad_w: Vector) -> Vector:
        """Returns the gradient in theta, given that in w."""

    def log_prior(self, theta: Vector) -> float:
        """Returns log p(theta), normalised."""

    def grad_prior(self, theta: Vector) -> Vector:
        """Returns the gradient of log p(theta)."""

    def phi_gradient(self, phi: Vector, w: Vector, cotangent: Vector) -> Vector:
        """Returns the gradient in phi, given that in g."""

    @property
    def phi_precision(self) -> Vector:
        """(n_phi,) The precision of phi's normal prior about 0; zeros without a prior."""

    def initial(self, uniforms: Vector) -> tuple[Vector, Vector]:
        """Returns the start of theta and phi, from n_theta + n_phi uniform numbers."""


@dataclass(frozen=True)
class Linear:
    """Is g = H theta, theta ~ N(prior_mean, prior_sd^2 I)."""

    H: Matrix
    prior_mean: float = 0.0
    prior_sd: float = 1.0
    n_phi: int = 0

    @property
    def n_rows(self) -> int:
        return len(self.H)

    @property
    def n_theta(self) -> int:
        return int(self.H.shape[1])

    def rows(self, index: Indices) -> Linear:
        return replace(self, H=self.H[index])

    def design(self, phi: Vector) -> Matrix:
        return self.H

    def coefficients(self, theta: Vector) -> Vector:
        return theta

    def pull(self, theta: Vector, grad_w: Vector) -> Vector:
        return grad_w

    def log_prior(self, theta: Vector) -> float:
        r = (theta - self.prior_mean) / self.prior_sd
        return float(-0.5 * (r @ r) - len(r) * (np.log(self.prior_sd) + 0.5 * np.log(2 * np.pi)))

    def grad_prior(self, theta: Vector) -> Vector:
        return (self.prior_mean - theta) / self.prior_sd**2

    def phi_gradient(self, phi: Vector, w: Vector, cotangent: Vector) -> Vector:
        return np.empty(0)

    @property
    def phi_precision(self) -> Vector:
        return np.empty(0)

    def initial(self, uniforms: Vector) -> tuple[Vector, Vector]:
        return np.full(self.n_theta, self.prior_mean), np.empty(0)


@dataclass(frozen=True)
class Multilevel:
    """Models slopes that vary by group: g_i = x_i' beta^(l), l the group of row i.

    beta_k^(l) ~ N(mu_k, sd sigma_k), mu_k ~ N(0, sd 1), sigma_k ~ HalfNormal(1). theta is mu (p,), log sigma (p,), and for each
    level (L, p) the slopes themselves (`centred`) or b with beta = mu + sigma b. Source: docs/spec/vertical.md, section 9.2.
    """

    X: Matrix
    group: Indices
    n_levels: int
    centred: bool = False
    n_phi: int = 0

    @property
    def n_rows(self) -> int:
        return len(self.X)

    @property
    def n_theta(self) -> int:
        return int((2 + self.n_levels) * self.X.shape[1])

    def rows(self, index: Indices) -> Multilevel:
        return replace(self, X=self.X[index], group=self.group[index])

    @cached_property
    def _expanded(self) -> Matrix:
        """(n, L p) The design: the covariates of a row stand in the columns of its group."""
        n, p = self.X.shape
        H = np.zeros((n, self.n_levels, p))
        H[np.arange(n), self.group] = self.X
        return H.reshape(n, -1)

    def design(self, phi: Vector) -> Matrix:
        return self._expanded

    def _parts(self, theta: Vector) -> tuple[Vector, Vector, Matrix]:
        p = self.X.shape[1]
        return theta[:p], np.exp(theta[p : 2 * p]), theta[2 * p :].reshape(self.n_levels, p)

    def slopes(self, theta: Vector) -> Matrix:
        """Returns beta (L, p)."""
        mu, sigma, b = self._parts(theta)
        return b if self.centred else mu + sigma * b

    def coefficients(self, theta: Vector) -> Vector:
        return self.slopes(theta).ravel()

    def pull(self, theta: Vector, grad_w: Vector) -> Vector:
        mu, sigma, b = self._parts(theta)
        G = grad_w.reshape(b.shape)
        if self.centred:
            return np.concatenate([np.zeros(2 * len(mu)), grad_w])
        return np.concatenate([G.sum(axis=0), (G * b).sum(axis=0) * sigma, (G * sigma).ravel()])

    def log_prior(self, theta: Vector) -> float:
        mu, sigma, b = self._parts(theta)
        r = (b - mu) / sigma if self.centred else b
        normal = -0.5 * (mu @ mu) - 0.5 * (r * r).sum() - 0.5 * (len(mu) + r.size) * np.log(2 * np.pi)
        n_levels = self.n_levels if self.centred else 0
        jacobian = np.log(sigma).sum() * n_levels
        # half-normal sigma, with the logarithm's Jacobian
        scales = (0.5 * np.log(2 / np.pi) - 0.5 * sigma**2 + np.log(sigma)).sum()
        return float(normal - jacobian + scales)

    def grad_prior(self, theta: Vector) -> Vector:
        mu, sigma, b = self._parts(theta)
        scales = 1 - sigma**2
        if not self.centred:
            return np.concatenate([-mu, scales, -b.ravel()])
        r = (b - mu) / sigma
        slope = r / sigma
        return np.concatenate([slope.sum(axis=0) - mu, (r * r).sum(axis=0) - self.n_levels + scales, -slope.ravel()])

    def phi_gradient(self, phi: Vector, w: Vector, cotangent: Vector) -> Vector:
        return np.empty(0)

    @property
    def phi_precision(self) -> Vector:
        return np.empty(0)

    def initial(self, uniforms: Vector) -> tuple[Vector, Vector]:
        theta = np.zeros(self.n_theta)
        p = self.X.shape[1]
        theta[p : 2 * p] = -1.0  # slopes that vary little
        return theta, np.empty(0)


@dataclass(frozen=True)
class Network:
    """Is g = f_phi(X) w: a network's last hidden layer, then w ~ N(0, I). Source: docs/spec/vertical.md, section 9.3.

    phi is maximised. With `weight_sd` it has a prior, N(0, weight_sd^2 / inputs of the layer) for weights and biases, and is its
    mode; without (as published), only the number of steps keeps the network from learning its rows by heart.
    """

    X: Matrix
    hidden: tuple[int, ...] = (8, 8)
    features: int = 2
    activation: str = "relu"
    weight_sd: float | None = None
    sizes: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", (self.X.shape[1], *self.hidden, self.features))

    @property
    def n_rows(self) -> int:
        return len(self.X)

    @property
    def n_theta(self) -> int:
        return self.features

    @cached_property
    def n_phi(self) -> int:
        return mlp.n_parameters(self.sizes)

    def rows(self, index: Indices) -> Network:
        return replace(self, X=self.X[index])

    def design(self, phi: Vector) -> Matrix:
        return mlp.forward(self.X, phi, sizes=self.sizes, activation=self.activation)

    def coefficients(self, theta: Vector) -> Vector:
        return theta

    def pull(self, theta: Vector, grad_w: Vector) -> Vector:
        return grad_w

    def log_prior(self, theta: Vector) -> float:
        return float(-0.5 * (theta @ theta) - 0.5 * len(theta) * np.log(2 * np.pi))

    def grad_prior(self, theta: Vector) -> Vector:
        return -theta

    def phi_gradient(self, phi: Vector, w: Vector, cotangent: Vector) -> Vector:
        upstream = cotangent[:, None] * w
        return mlp.backward(self.X, phi, upstream, sizes=self.sizes, activation=self.activation)[0]

    @cached_property
    def phi_precision(self) -> Vector:
        if self.weight_sd is None:
            return np.zeros(self.n_phi)
        each = [np.full((d_in + 1) * d_out, d_in / self.weight_sd**2) for d_in, d_out in pairwise(self.sizes)]
        return np.concatenate(each)

    def initial(self, uniforms: Vector) -> tuple[Vector, Vector]:
        theta = (2 * uniforms[: self.features] - 1) / np.sqrt(self.features)
        return theta, start(self.sizes, uniforms[self.features :])


def start(sizes: tuple[int, ...], uniforms: Vector) -> Vector:
    """Returns weights and biases uniform in +-1 / sqrt(fan in), layer by layer."""
    parameters, begin = 2 * uniforms - 1, 0
    for d_in, d_out in pairwise(sizes):
        size = (d_in + 1) * d_out
        parameters[begin : begin + size] /= np.sqrt(d_in)
        begin += size
    return parameters
