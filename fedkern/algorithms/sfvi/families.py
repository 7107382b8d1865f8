"""Defines the variational family of structured federated variational inference, as pure functions of arrays.

Source: docs/spec/sigma.md, section 6.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from ...models.hierarchical import LocalModel
from ...models.variational import FURTHEST, Block

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


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
        own = self.given(parameters, xi - centre)
        return own[: self.block.size], self.block.sd(own)

    def coupling(self, parameters: Vector) -> Matrix:
        """Returns B."""
        if not self.coupled:
            return np.zeros((self.block.size, self.n_global))
        return parameters[self.block.n_parameters :].reshape(self.block.size, self.n_global)

    def given(self, parameters: Vector, shift: Vector) -> Vector:
        """Returns the block's parameters of q(u | xi), shift = xi - c."""
        own = parameters[: self.block.n_parameters].copy()
        if self.coupled:
            own[: self.block.size] += self.coupling(parameters) @ shift
        return own

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
        own = self.given(parameters, shift)
        value, h_xi, h_u = model.log_joint_grad(xi, self.block.sample(own, eps))
        flat = self.block.gradient(own, eps, h_u, path=path)
        value = value - self.block.log_density(own, eps) if bound else np.nan
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
    (S^1/2 C_j S^1/2)^1/2 of Alvarez-Esteban et al. (2016).

    Parameters
    ----------
    parameters : (J, k)
    weights : (J,) positive, adding up to 1
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
