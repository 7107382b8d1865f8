"""Defines the messages of partitioned variational inference (see `machine`), of its client-level form, and of the baseline
without sites.

`Refused`, which other machines have too, is in `core.messages`. Source: docs/spec/pvi.md, sections 7, 11 and 13.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ...privacy.masks import WIDE
from ..core import tells
from ..core.masked import Masked, Sum
from ..core.messages import Message
from ..exchanges.arrival import Slope

Vector = NDArray[np.float64]
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
    updates.
    """

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
        return cls(round, int(version) if version.is_integer() else -1, 0, dh, dP)


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
