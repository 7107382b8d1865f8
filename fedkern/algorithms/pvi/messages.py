"""Defines the messages of partitioned variational inference (see `machine`), of its client-level form, and of the baseline
without sites.

`Refused`, which other machines have too, is in `core.messages`. Source: docs/spec/pvi.md, sections 7, 11 and 13.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ...arrays import Array, Vector
from ...errors import NumericalError
from ...models.expfam import Gaussian, unpack
from ...privacy.masks import MOST_OF_ROW, WIDE
from ..core import tells
from ..core.box import Box
from ..core.masked import Masked, Sum
from ..core.messages import Message, RemoteFault
from ..core.schedule import Rules
from ..exchanges.arrival import Slope

# Settings --------------------


VARIANTS = ("pvi", "local-averaging", "virtual-clients", "global-vi", "bcm-split")
SHARDED = ("local-averaging", "virtual-clients")


@dataclass(frozen=True)
class Settings:
    """Settings that every party of a job knows.

    Attributes
    ----------
    family, scale : of the response: a name of `kernels.families`, and its dispersion where it has one
    covariance : "diagonal" or "full"
    variant, schedule : see `VARIANTS`; a name of `core.schedule.KINDS`
    rounds : after how many the server stops; None goes on until every client's budget is spent
    client_weights : public weights of the random schedule, one a client; empty for equal ones
    local_steps : steps of the local optimiser in one update
    optimiser, learning_rate : "adagrad", "adam", "sgd" or "exact"
    estimator, draws : of the expected log-likelihood's gradient: "analytic", "weight-mc", "activation-mc", "stl", "total"
    batch_rate : sampling rate of a non-private step (a private step samples by its mechanism)
    damping, damping_form : in (0, 1]; "moment" or "natural"
    average : "half" releases the mean of (mu, omega) over the second half of all updates, "none" the last q; of private
        asynchronous clients, who make unequal numbers of updates, each site's mean over the second half of its own
    shards : of local averaging and virtual clients
    updates_per_client : public cap on one client's updates; None for no cap
    lead : answers by which an asynchronous client may be ahead of the slowest before it waits; None for any number
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
    lead: int | None
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
        variance = self.scale**2 if self.family == "gaussian" else 1.0
        return MOST_OF_ROW / variance

    def rules(self, n_clients: int) -> Rules:
        """Returns the rules of the schedule."""
        rounds, chance = looks(self.rounds or 0) if self.until else (), (self.client_weights, self.seed)
        return Rules(n_clients, self.rounds, rounds, self.updates_per_client, self.lead, *chance)

    def sizes(self, d: int) -> dict[str, int]:
        """Returns the lengths of the messages' arrays: d coefficients, p numbers of a packed precision."""
        p = d if self.covariance == "diagonal" else d * (d + 1) // 2
        return {"d": d, "p": p}


FIRST_LOOK = 3  # rounds, and then after twice as many each time


def looks(most: int) -> tuple[int, ...]:
    """Returns the numbers of rounds after which a job of at most `most` asks how far q is.

    After the last it is asked in any case.
    """
    rounds, look = [], FIRST_LOOK
    while look < most:
        rounds.append(look)
        look *= 2
    return tuple(rounds)


# Messages --------------------


Shift = Annotated[NDArray[np.float64], "d"]
Precision = Annotated[NDArray[np.float64], "p"]

LARGEST = 1e12  # of any number in a SiteDelta; far beyond what a posterior of standardised columns can need


@dataclass(frozen=True)
class QUpdate(Message, kind=10):
    """Server to client: q. `version` counts the updates that are in it."""

    round: int
    version: int
    h: Shift
    P: Precision


@dataclass(frozen=True)
class SiteDelta(Message, kind=11, tells=tells.Sites(private=tells.NOISED)):
    """Client to server: damped change of its site, computed from q of that version; `delta_id` counts the client's own
    updates."""

    round: int
    version: int
    delta_id: int
    dh: Shift
    dP: Precision

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> int:
        """Returns how many numbers are added."""
        return 2 + dims["d"] + dims["p"]

    def numbers(self) -> Vector:
        """Returns a one, the version, and the change, whose client has seen to it that no number is beyond `LARGEST`."""
        return np.concatenate([[1.0, self.version], self.dh, self.dP])

    @classmethod
    def of_sum(cls, round: int, numbers: Vector, dims: Mapping[str, int]) -> SiteDelta:
        """Returns the change of all clients' sites together.

        All were asked at one version, or their masks would not cancel, so it is the sum over the count; -1 if that is none.
        """
        clients, versions, d = numbers[0], numbers[1], dims["d"]
        version = float(versions / clients) if clients >= 1 else -1.0
        dh, dP = np.split(numbers[2:], [d])
        number = int(version) if version.is_integer() else -1
        return cls(round, number, 0, dh, dP)


@dataclass(frozen=True)
class ScaledQUpdate(QUpdate, kind=17):
    """Server to client, of a job that learns its scale: q, and the residual variance at which it is."""

    variance: float


@dataclass(frozen=True)
class ScaledSiteDelta(SiteDelta, kind=18, tells=tells.Sites(where=tells.FEW_OR_SUMS)):
    """Client to server, of a job that learns its scale: the change in units of 1 / variance, and sums of its residuals.

    They are, under the q of the question, the sum of squares about the mean, the addition of q's own spread to it over the
    variance, and the sum of the weights.
    """

    misfit: float
    used: float
    weight: float

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> int:
        """Returns how many numbers are added."""
        return SiteDelta.count(dims) + 3

    def numbers(self) -> Vector:
        """Returns those of the change, and the sums."""
        return np.concatenate([super().numbers(), [self.misfit, self.used, self.weight]])

    @classmethod
    def of_sum(cls, round: int, numbers: Vector, dims: Mapping[str, int]) -> ScaledSiteDelta:
        """Returns the answer of all clients together."""
        delta, (misfit, used, weight) = SiteDelta.of_sum(round, numbers[:-3], dims), numbers[-3:].tolist()
        return cls(delta.round, delta.version, delta.delta_id, delta.dh, delta.dP, misfit, used, weight)


@dataclass(frozen=True)
class LearntVariance(Message, kind=19):
    """Server to client, after the rounds: the residual variance that was learnt."""

    variance: float


@dataclass(frozen=True)
class SiteApplied(Message, kind=12):
    """Server to client: your site has changed by alpha times that delta (0: refused, it would have made q improper)."""

    delta_id: int
    alpha: float


@dataclass(frozen=True)
class Readmitted(Message, kind=22):
    """Server to a client that was lost, before all else: its site, as the server has it, and how often it has answered."""

    answers: int
    h: Shift
    P: Precision


@dataclass(frozen=True)
class Stored(Message, kind=23, tells=tells.Nothing()):
    """Client to server: 1 where the site that it had stored is the server's, else 0. The server's stands."""

    same: int


@dataclass(frozen=True)
class SiteShare(Message, kind=14):
    """Server to every client (averaged-sites): the change of its site, the M-th part of q's gain."""

    round: int
    dh: Shift
    dP: Precision


@dataclass(frozen=True)
class Parameters(Message, kind=20):
    """Server to client: mean and log standard deviations of q."""

    round: int
    mu: Shift
    omega: Shift


@dataclass(frozen=True)
class Gradient(Message, kind=21, tells=tells.WeightedSums(private=tells.NOISED)):
    """Client to server: gradient of its expected log-likelihood, clipped and noised if the job is private."""

    round: int
    mu: Shift
    omega: Shift

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> int:
        """Returns how many numbers are added."""
        return 2 * dims["d"]

    def numbers(self) -> Vector:
        """Returns the gradient."""
        return np.concatenate([self.mu, self.omega])

    @classmethod
    def of_sum(cls, round: int, numbers: Vector, dims: Mapping[str, int]) -> Gradient:
        """Returns the gradient of all clients together."""
        return cls(round, numbers[: dims["d"]], numbers[dims["d"] :])


# Where the server gets sums alone --------------------


@dataclass(frozen=True)
class MaskedSiteDelta(Masked, Message, kind=250, tells=tells.Sites().masked):
    """Client to server: a `SiteDelta`, masked."""

    words: Annotated[bytes, "masked_delta"]


@dataclass(frozen=True)
class MaskedScaledSiteDelta(Masked, Message, kind=251, tells=tells.Sites().masked):
    """Client to server: a `ScaledSiteDelta`, masked."""

    words: Annotated[bytes, "masked_scaled_delta"]


@dataclass(frozen=True)
class MaskedGradientOfQ(Masked, Message, kind=253, tells=tells.WeightedSums().masked):
    """Client to server: a `Gradient`, masked."""

    words: Annotated[bytes, "masked_gradient_of_q"]


SUMS = (
    Sum(SiteDelta, MaskedSiteDelta, WIDE),
    Sum(ScaledSiteDelta, MaskedScaledSiteDelta, WIDE),
    Sum(Gradient, MaskedGradientOfQ, WIDE),
    *Slope.hidden,
)


# Box --------------------


WIDER, NARROWEST = 4.0, 2.0**-40  # prior sds that q's may have


@dataclass(frozen=True)
class BoxOfQ(Box):
    """Holds a box of q's means, and the range of its standard deviations.

    `sd`: (d,) of the prior; see `WIDER` and `NARROWEST`.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.algorithms.pvi.messages import BoxOfQ
    >>> BoxOfQ.about(np.zeros(2), np.full(2, 20.0)).of(np.ones(2)).check_moments(np.ones(2), np.ones(2), "Parameters")
    """

    sd: tuple[float, ...] = ()

    def of(self, sd: Array) -> BoxOfQ:
        """Returns the same box, of a prior with these standard deviations."""
        return replace(self, sd=tuple(sd.tolist()))

    def check_q(self, h: Array, P: Array, what: str) -> None:
        """Refuses (RemoteFault) a question about a q, by shift and packed precision, that is none or outside of the box."""
        q = Gaussian(h, unpack(P, len(h)))
        try:
            with np.errstate(all="ignore"):
                mean, sd = q.mean, q.sd
        except (NumericalError, ArithmeticError, ValueError):  # of a precision that is none
            mean, sd = np.full(len(h), np.nan), np.full(len(h), np.nan)
        self.check_moments(mean, sd, what)

    def check_moments(self, mean: Array, sd: Array, what: str) -> None:
        """Refuses (RemoteFault) a question about a q of these means and standard deviations."""
        prior = np.array(self.sd)
        if not ((sd <= WIDER * prior) & (sd >= NARROWEST * prior)).all():
            raise RemoteFault(
                f"server: {what} asks at a q whose standard deviations are none that a client with secure sums answers about: up "
                f"to {WIDER:g} of the prior's"
            )
        self.check(mean, what)
