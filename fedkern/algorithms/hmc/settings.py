"""Holds the numbers of Hamiltonian Monte Carlo that every party knows: the schedule of its warm-up, and its random numbers.

Source: docs/spec/sigma.md, section 7; the windows are those of Stan's reference manual.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...kernels import rng
from ..core.box import Box
from ..core.messages import SERVER

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

STREAM = "momenta"
ACCEPT, JITTER, START = 1, 2, 3  # draws of the stream beside the momenta, which are draw 0
REACH, LONGEST = 2.0**20, 8.0  # of masked chains: no posterior comes near the first, no chain is stable with half of the second


@dataclass(frozen=True)
class Settings:
    """Holds settings that every party of a job knows.

    Attributes
    ----------
    draws : kept of each chain, one a trajectory
    warmup : trajectories before them, in which step and standard deviations adapt; 0: `step` and ones
    chains : they run side by side, in the same messages; a chain's numbers do not depend on the number of chains
    leapfrog : steps of a trajectory, each of them one exchange; 1 is MALA
    step : h, at the start
    jitter : h of a trajectory is uniform on step (1 - jitter, 1 + jitter), against periodic orbits
    seed : of the keyed random streams
    whole : whether the clients' messages are of the log-likelihood of rows, and not of areas with effects of their own
    box : of xi, where clients mask their answers: a trajectory that leaves it is rejected, their own coordinates stay within
        bounds (`reach`), and no step is longer than `LONGEST`
    """

    draws: int
    warmup: int
    chains: int
    leapfrog: int
    step: float
    seed: int
    jitter: float = 0.2
    whole: bool = False
    box: Box | None = None

    def __post_init__(self) -> None:
        def refuse(what: str, wanted: str) -> None:
            raise ValueError(f"hmc: {what} must be {wanted}, got {getattr(self, what)!r}")

        for name, least in (("draws", 1), ("warmup", 0), ("chains", 1), ("leapfrog", 1)):
            if getattr(self, name) < least:
                refuse(name, f"at least {least}")
        if not 0 < self.step < np.inf:
            refuse("step", "positive and finite")
        if not 0 <= self.jitter < 1:
            refuse("jitter", "in [0, 1)")

    @property
    def rounds(self) -> int:
        """The number of trajectories of each chain."""
        return self.warmup + self.draws

    @property
    def wanted(self) -> float:
        """The acceptance rate that the step is adapted to."""
        return 0.57 if self.leapfrog == 1 else 0.8

    @property
    def reach(self) -> float:
        """The bound of a client's own coordinates, and of its velocity."""
        return np.inf if self.box is None else REACH

    def keeps(self, round: int) -> bool:
        """Tells whether the state after this trajectory is a draw."""
        return round >= self.warmup

    def windows(self) -> tuple[int, tuple[int, ...]]:
        """Returns the first trajectory whose draws count for the standard deviations, and those after which they change."""
        if self.warmup < 20:
            return self.warmup, ()
        first, width, last = (75, 25, 50) if self.warmup >= 150 else (0, 0, 0)
        if not width:
            first, last = int(0.15 * self.warmup), int(0.1 * self.warmup)
            return first, (self.warmup - last - 1,)
        end, at, ends = self.warmup - last, first, []
        while at < end:
            at += width if at + 3 * width <= end else end - at  # what is left is no window of its own
            ends.append(at - 1)
            width *= 2
        return first, tuple(ends)

    def sizes(self, n_global: int) -> dict[str, int]:
        """Returns the lengths of the messages' arrays."""
        return {"s": self.chains, "xi": n_global}

    def normals(self, party: int, round: int, size: int, draw: int = 0, seed: int | None = None) -> Matrix:
        """Returns the momenta (chains, size), before scaling, of a party's coordinates; `seed`: of a party that has its own."""
        seed = self.seed if seed is None else seed
        out = np.empty((self.chains, size))
        for chain, row in enumerate(out):
            rng.normal(size, key=rng.key(seed, STREAM, chain), client=party, step=round, draw=draw, out=row)
        return out

    def uniforms(self, round: int, draw: int) -> Vector:
        """Returns the server's uniform numbers (chains,) of a trajectory."""
        keys = (rng.key(self.seed, STREAM, chain) for chain in range(self.chains))
        return np.array([rng.uniform(1, key=key, client=SERVER, step=round, draw=draw)[0] for key in keys])

    def starts(self, party: int, size: int, mean: Vector | float = 0.0, sd: Vector | float = 1.0) -> Matrix:
        """Returns start values (chains, size) scattered about `mean`; `party` is a client's number or SERVER."""
        return np.asarray(mean + sd * self.normals(party, 0, size, draw=START), np.float64)
