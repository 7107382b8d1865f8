"""The numbers and the variational family of structured federated variational inference: pure functions of arrays.

Source: docs/methods/sigma.md, section 6.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from ...kernels import rng
from ...models.hierarchical import LocalModel
from ...models.variational import Block
from ..core.messages import SERVER
from ..core.optim import OPTIMISERS

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

LARGEST_FULL = 64  # local unknowns up to which L_j is triangular by default


@dataclass(frozen=True)
class Settings:
    """Settings that every party of a job knows.

    Attributes
    ----------
    rounds : questions of the server
    covariance : of q(xi), "full" or "diagonal"
    local_covariance : of q(u_j | xi), "full", "diagonal" or "auto" (full up to 64 unknowns)
    coupled : whether there is a B_j; without it u_j and xi are independent under q
    draws : of (xi, u) in each step
    path : sticking-the-landing gradients, or the closed-form entropy
    optimiser, learning_rate : "adam", "adagrad" or "sgd"
    decay : share of the rounds, at the end, over which the rate falls to nothing
    centre_every : steps between two moves of the centring point
    initial_sd, local_sd : of q(xi), and of q(u_j | xi), at the start
    bound : whether clients send their term of the bound, one number a round
    local_steps : of SFVI-Avg in each round; 0 for SFVI
    weights : of SFVI-Avg, public, adding up to 1; empty for equal ones
    seed : of the keyed random streams
    """

    rounds: int = 10_000
    covariance: str = "full"
    local_covariance: str = "auto"
    coupled: bool = True
    draws: int = 1
    path: bool = True
    optimiser: str = "adam"
    learning_rate: float = 0.01
    decay: float = 0.5
    centre_every: int = 100
    initial_sd: float = 0.1
    local_sd: float = 1.0
    bound: bool = False
    local_steps: int = 0
    weights: tuple[float, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        def refuse(what: str, wanted: str) -> None:
            raise ValueError(f"sfvi: {what} must be {wanted}, got {getattr(self, what)!r}")

        for name, least in (("rounds", 1), ("draws", 1), ("centre_every", 1), ("local_steps", 0)):
            if getattr(self, name) < least:
                refuse(name, f"at least {least}")
        for name in ("learning_rate", "initial_sd", "local_sd"):
            if not 0 < getattr(self, name) < np.inf:
                refuse(name, "positive and finite")
        if self.covariance not in ("full", "diagonal"):
            refuse("covariance", "'full' or 'diagonal'")
        if self.local_covariance not in ("full", "diagonal", "auto"):
            refuse("local_covariance", "'full', 'diagonal' or 'auto'")
        if self.optimiser not in OPTIMISERS:
            refuse("optimiser", " or ".join(OPTIMISERS))
        if not 0 <= self.decay <= 1:
            refuse("decay", "in [0, 1]")
        if self.weights and not (min(self.weights) > 0 and abs(sum(self.weights) - 1) < 1e-9):
            refuse("weights", "positive, adding up to 1")
        if self.bound and self.local_steps:
            refuse("bound", "False with local_steps > 0: clients of SFVI-Avg have no common draw of xi after their first step")

    def block(self, size: int) -> Block:
        """q(xi)."""
        return Block(size, self.covariance == "full")

    def family(self, model: LocalModel) -> Family:
        """q(u_j | xi)."""
        small = self.local_covariance == "auto" and model.size <= LARGEST_FULL
        return Family(Block(model.size, small or self.local_covariance == "full"), model.n_global, self.coupled)

    def sizes(self, n_global: int) -> dict[str, int]:
        """Lengths of the messages' arrays: s draws of xi numbers, k parameters of q(xi)."""
        return {"s": self.draws, "xi": n_global, "k": self.block(n_global).n_parameters}

    def rate(self, round: int) -> float:
        """The learning rate of a round."""
        falling = self.decay * self.rounds
        return self.learning_rate * (min(1.0, (self.rounds - round) / falling) if falling else 1.0)

    def weight(self, client: int, n_clients: int) -> float:
        """w_j."""
        return self.weights[client] if self.weights else 1 / n_clients

    def normals(self, round: int, step: int, size: int) -> Matrix:
        """(draws, size) The normals of xi, the same for all who need them."""
        count = round * max(self.local_steps, 1) + step
        e = rng.normal(self.draws * size, key=rng.key(self.seed, "draws"), client=SERVER, step=count)
        return e.reshape(self.draws, size)


@dataclass(frozen=True)
class Family:
    """q(u | xi) = N(a + B (xi - c), L L'). Flat parameters: a and L as in `Block`, then B (d, P) row by row."""

    block: Block
    n_global: int
    coupled: bool = True

    @property
    def n_parameters(self) -> int:
        """Length of the flat parameters."""
        return self.block.n_parameters + self.block.size * self.n_global * int(self.coupled)

    @property
    def n_normals(self) -> int:
        """Normals of one draw."""
        return self.block.size

    def initial(self, sd: float) -> Vector:
        """The parameters of N(0, sd^2 I), whatever xi is."""
        parameters = np.zeros(self.n_parameters)
        parameters[: self.block.n_parameters] = self.block.initial(0.0, sd)
        return parameters

    def sample(self, parameters: Vector, xi: Vector, centre: Vector, eps: Vector) -> Vector:
        """u of the draw of `eps`."""
        return self.block.sample(self.given(parameters, xi - centre), eps)

    def coupling(self, parameters: Vector) -> Matrix:
        """B."""
        if not self.coupled:
            return np.zeros((self.block.size, self.n_global))
        return parameters[self.block.n_parameters :].reshape(self.block.size, self.n_global)

    def given(self, parameters: Vector, shift: Vector) -> Vector:
        """The block's parameters of q(u | xi), shift = xi - c."""
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
        """F_j at the draw of `eps` (NaN where no `bound` is wanted), G_j (P,), and the gradient in the flat parameters."""
        d, shift = self.block.size, xi - centre
        own = self.given(parameters, shift)
        value, h_xi, h_u = model.log_joint_grad(xi, self.block.sample(own, eps))
        flat = self.block.gradient(own, eps, h_u, path=path)
        value = value - self.block.log_density(own, eps) if bound else np.nan
        if not self.coupled:
            return value, h_xi, flat
        G = h_xi + self.coupling(parameters).T @ h_u
        return value, G, np.concatenate([flat, np.outer(flat[:d], shift).ravel()])

    def moved(self, parameters: Vector, change: Vector) -> Vector:
        """The parameters that mean the same where c has moved by `change`."""
        out = parameters.copy()
        if self.coupled:
            out[: self.block.size] += self.coupling(parameters) @ change
        return out


def barycentre(block: Block, parameters: Matrix, weights: Vector, tolerance: float = 1e-13) -> Vector:
    """The flat parameters of the Wasserstein barycentre of Gaussians: means averaged; standard deviations averaged, or for full
    covariances the fixed point S = sum_j w_j (S^1/2 C_j S^1/2)^1/2 of Alvarez-Esteban et al. (2016).

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
