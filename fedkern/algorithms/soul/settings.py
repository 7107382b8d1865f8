"""Holds the numbers of SOUL that all parties have in common (see `machine`). Source: docs/spec/vertical.md, section 10."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Settings:
    """Holds numbers that all parties of a job have in common.

    Attributes
    ----------
    model : "augmented" (AV) or "power" (PL)
    response : where y is: "server", or "shared" with all clients (PL: always)
    rounds : of which the second half is averaged
    langevin_steps : M, of each client in each round
    rho : standard deviation of z about g
    keep : draws of theta that each client keeps, at most
    dispersed : whether log sigma is maximised with z
    """

    seed: int
    rounds: int
    n_rows: int
    n_clients: int
    rho: float
    model: str
    response: str
    langevin_steps: int
    keep: int
    dispersed: bool

    def __post_init__(self) -> None:
        def refuse(what: str, wanted: str) -> None:
            raise ValueError(f"soul: {what} must be {wanted}, got {getattr(self, what)!r}")

        for name, least in (("rounds", 2), ("n_rows", 1), ("n_clients", 1), ("langevin_steps", 1), ("keep", 1)):
            if getattr(self, name) < least:
                refuse(name, f"at least {least}")
        if not 1e-6 < self.rho < 1e6:
            refuse("rho", "in (1e-6, 1e6): it is a standard deviation")
        if self.model not in ("augmented", "power"):
            refuse("model", "'augmented' or 'power'")
        if self.response not in ("server", "shared"):
            refuse("response", "'server' or 'shared'")
        if self.model == "power" and self.response != "shared":
            refuse("response", "'shared' with model = 'power', whose clients need y")

    @property
    def power(self) -> bool:
        """Whether the model is the power likelihood."""
        return self.model == "power"

    def dims(self) -> dict[str, int]:
        """Returns the sizes of the messages."""
        return {"n": self.n_rows, "gamma": int(self.dispersed)}

    def decay(self, round: int) -> float:
        """Returns c_k, k = round + 1."""
        return float(min(1.0, (50 / (round + 1)) ** 0.6))

    @property
    def first(self) -> int:
        """The first round of the second half, which is averaged."""
        return (self.rounds + 1) // 2

    @property
    def thin(self) -> int:
        """The number of rounds between two draws that are kept."""
        return -(-(self.rounds - self.first) // self.keep)

    @property
    def crowd(self) -> float:
        """The number of times that kappa stands in the curvature of z."""
        J = self.n_clients
        return (J - 1) ** 2 / J if self.power else J

    def moved(self, z: Vector, message: Vector, g: Vector, kappa: Vector | float, round: int) -> Vector:
        """Returns z after its Robbins-Monro step.

        With a kappa of each row (counts), rows of all clients together move by 1 at most.
        """
        pull = 1 / self.rho**2
        step = self.decay(round) / (pull + self.crowd * kappa) * (message - pull * (z - g))
        if isinstance(kappa, np.ndarray):
            step = np.clip(step, -1 / self.n_clients, 1 / self.n_clients)
        out: Vector = z + step
        return out
