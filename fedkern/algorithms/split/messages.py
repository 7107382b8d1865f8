"""Defines the messages of the vertical protocols (see `machine`). Source: docs/spec/vertical.md, section 6."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ...arrays import Indices, Vector
from ...kernels import rng
from ..core import tells
from ..core.messages import SERVER, Message, evolve
from ..core.windows import Windows, reach

Rows = Annotated[NDArray[np.float64], "s n"]
Draws = Annotated[NDArray[np.float64], "s"]
Dispersions = Annotated[NDArray[np.float64], "s gamma"]


@dataclass(frozen=True)
class Begin(Message, kind=50):
    """Server to client: draw, and send the first z."""

    round: int


@dataclass(frozen=True)
class ZShare(
    Message,
    kind=51,
    tells=tells.PerRow(
        f"{tells.DRAW} for every row",
        f"{tells.PART}, and of columns of few values these values, up to their names",
        private="a noised number for every row, charged to its budget",
    ),
):
    """Client to server: z_j of the round's rows, for each of S draws."""

    round: int
    z: Rows


@dataclass(frozen=True)
class Residual(Message, kind=52):
    """Server to client: the slopes r of the log-likelihood, and nothing else."""

    round: int
    r: Rows


@dataclass(frozen=True)
class PredictorSum(Message, kind=53):
    """Server to client: Z = offset + sum_j z_j, and the draws of b and of log sigma."""

    round: int
    Z: Rows
    b: Draws
    log_scale: Dispersions


@dataclass(frozen=True)
class LikelihoodShare(Message, kind=54, tells=tells.PerRow()):
    """Client to server (PL): rho_j, its sum over rows, and this client's part of the slope in log sigma."""

    round: int
    rho: Rows
    slopes: Draws
    scales: Dispersions


@dataclass(frozen=True)
class LikelihoodSum(Message, kind=55):
    """Server to client (PL): R = sum_j rho_j."""

    round: int
    R: Rows


@dataclass(frozen=True)
class BoundShare(Message, kind=56, tells=tells.Figure()):
    """Client to server, if the job asks for the trace of the ELBO: this client's terms of it, one number."""

    round: int
    value: float


# Settings --------------------


LEAST_MEMORY, WINDOW = 0.9, 20.0


@dataclass(frozen=True)
class Settings:
    """Holds numbers that all parties of a job have in common."""

    seed: int
    # rounds, most: of all; or of the length at hand, and the longest, if the job goes on until all has settled (`core.until`)
    rounds: int
    n_rows: int
    n_clients: int
    most: int
    model: str  # "augmented" (AV), "power" (PL), or "none" (the split network: z = g)
    response: str  # where y is: "server", or "shared" with all clients
    draws: int  # S, joint draws an iteration
    batch: int | None  # rows of a mini-batch; None for all
    local_steps: int  # K, steps of a client on its own minorant of the ELBO from one exchange (AV)
    curvature: float | None  # kappa with -l'' <= kappa; needed if local_steps > 1
    optimiser: str
    learning_rate: float
    cool_down: float  # share of the rounds, the last ones, over which the learning rate falls to 0
    # of the average of messages that amortised families get; "rising": over about the last twentieth of the rounds
    memory: float | str
    average: str  # "half": the released parameters are the mean over the second half of all rounds
    # bound, bound_every: whether clients send their terms of the ELBO; in the last round and every so many before it
    bound: bool
    bound_every: int
    dispersed: bool
    private: bool  # whether clients release z with noise, and may say that their budget is spent (`private`)
    lead: int  # answers by which a client may be ahead of the slowest; 0: all answer in each round (AV otherwise)

    def __post_init__(self) -> None:
        if self.lead and self.model == "power":
            raise ValueError("vertical: lead is for the augmented model; a power likelihood has slopes of one joint draw of all")
        if self.most and (self.private or not 0 < self.cool_down < 1):
            raise ValueError("vertical: most needs an open job, and cool_down between 0 and 1")

    def dims(self) -> dict[str, int]:
        """Returns the sizes of the messages."""
        return {"s": self.draws, "n": self.batch or self.n_rows, "gamma": int(self.dispersed)}

    @cached_property
    def key(self) -> int:
        """The key of the normal numbers of all draws."""
        return rng.key(self.seed, "draws")

    @cached_property
    def factor(self) -> float:
        """All rows over those of a batch."""
        return 1.0 if self.batch is None else self.n_rows / self.batch

    def bounded(self, round: int) -> bool:
        """Tells whether clients send their terms of the ELBO in this round."""
        return self.bound and (self.rounds - 1 - round) % self.bound_every == 0

    @cached_property
    def steady(self) -> int:
        """The number of rounds at the full rate."""
        return round((1 - self.cool_down) * self.rounds)

    @cached_property
    def _cooling(self) -> float:
        """The number of rounds over which the rate falls."""
        return max(self.cool_down * self.rounds, 1e-300)

    def windows(self, size: int) -> Windows:
        """Returns the windows of `size` unknowns before the first round."""
        return Windows.of(self.steady, size, reach(self.optimiser, self.learning_rate, self.steady * max(self.local_steps, 1)))

    def rate(self, round: int) -> float:
        """Returns the learning rate of a round."""
        left = (self.rounds - round) / self._cooling
        return self.learning_rate if left >= 1 else self.learning_rate * left

    def memory_weight(self, round: int) -> float:
        """Returns the weight of the old average of messages when that of a round comes.

        The others' noise varies between rounds, and a window that grows with the rounds takes it out; early on the average must
        follow parameters that still move. With batches, a row's rounds are those that it is in.
        """
        if not isinstance(self.memory, str):
            return self.memory
        seen = round / self.factor
        return max(LEAST_MEMORY, seen / (seen + WINDOW))


@lru_cache(maxsize=4)
def _shuffled(seed: int, n_rows: int, epoch: int) -> Indices:
    coins = rng.uniform(n_rows, key=rng.key(seed, "batch"), client=SERVER, step=epoch)
    return np.argsort(coins, kind="stable")


def batch_of(settings: Settings, round: int) -> Indices | None:
    """Returns the rows of a round, the same at every party: each epoch goes once through a fresh shuffle (section 7)."""
    if settings.batch is None:
        return None
    epoch, k = divmod(round, settings.n_rows // settings.batch)
    shuffled = _shuffled(settings.seed, settings.n_rows, epoch)
    return np.sort(shuffled[k * settings.batch : (k + 1) * settings.batch])


def of_batch(values: Vector, index: Indices | None) -> Vector:
    """Returns the values of a round's rows; all of them without batches."""
    return values if index is None else values[index]


def stacked(draws: list[Vector]) -> Vector:
    """Returns (S, n) of one array for each draw; a single one is not copied."""
    return draws[0][np.newaxis] if len(draws) == 1 else np.stack(draws)


# Seen --------------------


NAMES = ("z", "slopes", "counts")


@dataclass(frozen=True)
class Seen:
    """Holds sums by row."""

    z: Vector  # (J, N) of each client's z
    slopes: Vector  # (N,) of the slopes of the log-likelihood in the predictor
    counts: Vector  # (N,) how many draws are in them

    @classmethod
    def of(cls, n_clients: int, n_rows: int) -> Seen:
        """Returns the sums before the first round."""
        return cls(np.zeros((n_clients, n_rows)), np.zeros(n_rows), np.zeros(n_rows))

    def with_z(self, sent: Mapping[int, Vector], index: Indices | None) -> Seen:
        """Returns the sums with (S, n) of all clients, or of some, for the rows of a round."""
        z, counts = self.z.copy(), self.counts.copy()
        rows = slice(None) if index is None else index
        for k, z_of_client in sent.items():
            z[k, rows] += z_of_client.sum(axis=0)
        counts[rows] += len(next(iter(sent.values()))) * (len(sent) / len(z))
        return evolve(self, z=z, counts=counts)

    def with_slopes(self, slopes: Vector, index: Indices | None, share: float = 1.0) -> Seen:
        """Returns the sums with a share of (S, n) slopes of the rows of a round."""
        out = self.slopes.copy()
        rows = slice(None) if index is None else index
        out[rows] += share * slopes.sum(axis=0)
        return evolve(self, slopes=out)

    def parts(self, variance: float) -> Vector | None:
        """Returns the clients' parts of the predictor (J, N); None if a row was never seen.

        `variance`: by which a slope moves z.
        """
        if not (self.counts > 0).all():
            return None
        return np.asarray((self.z - variance * self.slopes) / self.counts)

    @property
    def mean_slopes(self) -> Vector:
        """(N,) The mean slopes; 0 for a row that was never seen."""
        return np.asarray(self.slopes / np.maximum(self.counts, 1))
