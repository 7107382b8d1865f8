"""Holds the numbers of a partitioned variational inference, as the machines need them: plain, frozen and already validated."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...privacy.masks import MOST_OF_ROW

VARIANTS = ("pvi", "local-averaging", "virtual-clients", "global-vi", "bcm-split")
SHARDED = ("local-averaging", "virtual-clients")
SCHEDULES = ("sequential", "synchronous", "random", "asynchronous")


@dataclass(frozen=True)
class Settings:
    """Settings that every party of a job knows.

    Attributes
    ----------
    family, scale : of the response: a name of `kernels.families`, and its dispersion where it has one
    covariance : "diagonal" or "full"
    variant, schedule : see `VARIANTS`, `SCHEDULES`
    rounds : after how many the server stops; None goes on until every client's budget is spent
    client_weights : public weights of the random schedule, one a client; empty for equal ones
    local_steps : steps of the local optimiser in one update
    optimiser, learning_rate : "adagrad", "adam", "sgd" or "exact"
    estimator, draws : of the expected log-likelihood's gradient: "analytic", "weight-mc", "activation-mc", "stl", "total"
    batch_rate : sampling rate of a non-private step (a private step samples by its mechanism)
    damping, damping_form : in (0, 1]; "moment" or "natural"
    average : "half" releases the mean of (mu, omega) over the second half of all updates, "none" the last q
    shards : of local averaging and virtual clients
    updates_per_client : public cap on one client's updates; None for no cap
    seed : of the keyed random streams
    learn_scale : the server learns the residual variance of a Gaussian response, and says it with each question (section 2.1)
    by_client : whole clients are protected: one whose optimiser fails answers with no change
    until : rounds end when q is where the posterior of all rows is, asked after 3, 6, 12, 24, .. of them
    bounded : the server gets sums alone, so what one row adds has a limit, and a local fit that fails does not show

    Source: docs/spec/pvi.md, sections 5, 8, 9 and 12.
    """

    family: str
    scale: float
    covariance: str
    variant: str
    schedule: str
    rounds: int | None
    client_weights: tuple[float, ...]
    local_steps: int
    optimiser: str
    learning_rate: float
    estimator: str
    draws: int
    batch_rate: float
    damping: float
    damping_form: str
    average: str
    shards: int
    updates_per_client: int | None
    seed: int
    by_client: bool
    until: bool
    learn_scale: bool
    bounded: bool = False

    @property
    def most_of_row(self) -> float:
        """The largest size of a row's part in one number of a gradient or a curvature; of a measured response in units of
        1 / variance."""
        if not self.bounded:
            return math.inf
        return MOST_OF_ROW / (self.scale**2 if self.family == "gaussian" else 1.0)

    def staleness(self, n_clients: int) -> int:
        """Returns the number of updates after which an asynchronous answer is too old."""
        return 4 * n_clients

    def looks(self, round: int) -> bool:
        """Tells whether clients are asked after `round` rounds how far q is from the posterior of all rows."""
        return self.until and round in looks(self.rounds or 0)

    def stop(self, round: int, *, budget: bool, lost: bool) -> str | None:
        """Returns the reason why no more is asked, or None to go on.

        All rounds are done, a budget (or the public cap) is spent, or clients are lost.
        """
        if self.rounds is not None and round >= self.rounds:
            return "rounds"
        return "budget" if budget else "lost" if lost else None

    def sizes(self, d: int) -> dict[str, int]:
        """Returns the lengths of the messages' arrays: d coefficients, p numbers of a packed precision."""
        return {"d": d, "p": d if self.covariance == "diagonal" else d * (d + 1) // 2}


FIRST_LOOK = 3  # rounds, and then after twice as many each time


def looks(most: int) -> tuple[int, ...]:
    """Returns the numbers of rounds after which a job of at most `most` asks how far q is.

    After the last it is asked in any case.
    """
    rounds, at = [], FIRST_LOOK
    while at < most:
        rounds.append(at)
        at *= 2
    return tuple(rounds)
