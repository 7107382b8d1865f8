"""Holds the numbers of structured federated variational inference that every party knows.

Source: docs/spec/sigma.md, section 6.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...kernels import rng
from ...models.hierarchical import LocalModel
from ...models.variational import Block
from ..core.box import Box
from ..core.messages import SERVER
from ..core.optim import OPTIMISERS
from ..core.windows import Windows, reach
from .families import Family

Matrix = NDArray[np.float64]

LARGEST_FULL = 64  # local unknowns up to which L_j is triangular by default


@dataclass(frozen=True)
class Settings:
    """Holds settings that every party of a job knows.

    Attributes
    ----------
    rounds : questions of the server; of the length at hand if they go on until all has settled
    most : 0, or the longest length of such a job (`core.until`)
    covariance : of q(xi), "full" or "diagonal"
    local_covariance : of q(u_j | xi), "full", "diagonal" or "auto" (full up to 64 unknowns)
    coupled : whether q(u_j | xi) has a B_j; without it u_j and xi are independent under q
    draws : of (xi, u) in each step
    path : sticking-the-landing gradients, or the closed-form entropy
    optimiser, learning_rate : "adam", "adagrad" or "sgd"
    decay : share of the rounds, at the end, over which the rate falls to nothing
    centre_every : steps between two moves of the centring point
    initial_sd, local_sd : of q(xi), and of q(u_j | xi), at the start
    bound : whether clients send their term of the bound, one number a round
    sheared : whether the server may shear xi (see `shear`)
    local_steps : of SFVI-Avg in each round; 0 for SFVI
    weights : of SFVI-Avg, public, adding up to 1; empty for equal ones
    seed : of the keyed random streams
    box : of xi, where clients mask their answers: their own numbers stay within bounds then, too
    """

    rounds: int
    most: int
    covariance: str
    local_covariance: str
    coupled: bool
    draws: int
    path: bool
    optimiser: str
    learning_rate: float
    decay: float
    initial_sd: float
    bound: bool
    sheared: bool
    local_steps: int
    seed: int
    centre_every: int = 100
    local_sd: float = 1.0
    weights: tuple[float, ...] = ()
    box: Box | None = None

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
        if self.most and not 0 < self.decay < 1:
            refuse("decay", "between 0 and 1 where rounds go on until all has settled")
        if self.weights and not (min(self.weights) > 0 and abs(sum(self.weights) - 1) < 1e-9):
            refuse("weights", "positive, adding up to 1")
        if self.bound and self.local_steps:
            refuse("bound", "False with local_steps > 0: clients of SFVI-Avg have no common draw of xi after their first step")
        if self.sheared and self.local_steps:
            refuse("sheared", "False with local_steps > 0: clients of SFVI-Avg take steps of q(xi) itself")

    def block(self, size: int) -> Block:
        """Returns q(xi), or q(xi') if xi is sheared."""
        return Block(size, self.covariance == "full")

    def family(self, model: LocalModel) -> Family:
        """Returns q(u_j | xi)."""
        small = self.local_covariance == "auto" and model.size <= LARGEST_FULL
        return Family(Block(model.size, small or self.local_covariance == "full"), model.n_global, self.coupled)

    def sizes(self, n_global: int, told: int = 0) -> dict[str, int]:
        """Returns the lengths of the messages' arrays: s draws of xi numbers, k parameters of q, and the `told` numbers of a
        ridge.
        """
        return {"s": self.draws, "xi": n_global, "k": self.block(n_global).n_parameters, "ridge": told}

    @property
    def steady(self) -> int:
        """The number of rounds at the full rate."""
        return round((1 - self.decay) * self.rounds)

    def windows(self, size: int) -> Windows:
        """Returns the windows of `size` unknowns before the first round."""
        return Windows.of(self.steady, size, reach(self.optimiser, self.learning_rate, self.steady * max(self.local_steps, 1)))

    def rate(self, round: int) -> float:
        """Returns the learning rate of a round."""
        falling = self.decay * self.rounds
        return self.learning_rate * (min(1.0, (self.rounds - round) / falling) if falling else 1.0)

    def weight(self, client: int, n_clients: int) -> float:
        """Returns w_j."""
        return self.weights[client] if self.weights else 1 / n_clients

    def normals(self, round: int, step: int, size: int) -> Matrix:
        """Returns the normals (draws, size) of xi, the same for all who need them."""
        count = round * max(self.local_steps, 1) + step
        e = rng.normal(self.draws * size, key=rng.key(self.seed, "draws"), client=SERVER, step=count)
        return e.reshape(self.draws, size)
