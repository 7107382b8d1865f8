"""Defines the messages of Hamiltonian Monte Carlo (see `machine`). Source: docs/spec/sigma.md, section 7."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ...privacy.masks import WIDE
from ..core import tells
from ..core.masked import Masked, MaskedGradient, MaskedGradientMore, Sum
from ..core.messages import Message

Positions = Annotated[NDArray[np.float64], "s xi"]
Chains = Annotated[NDArray[np.float64], "s"]


@dataclass(frozen=True)
class Place(Message, kind=90):
    """Server to client, once: where xi starts. The answer is `Slope`."""

    xi: Positions


@dataclass(frozen=True)
class Launch(Message, kind=91):
    """Server to client: which chains accept the last trajectory (1 or 0), the steps of a new one, and xi after its first."""

    round: int
    accepted: Chains
    step: Chains
    xi: Positions


@dataclass(frozen=True)
class Move(Message, kind=92):
    """Server to client: xi after the next step of this trajectory."""

    xi: Positions


@dataclass(frozen=True)
class Decided(Message, kind=93):
    """Server to client, at the end: which chains accept the last trajectory."""

    round: int
    accepted: Chains


@dataclass(frozen=True)
class Slope(Message, kind=94, tells=tells.AreaSums()):
    """Client to server: dF_j/dxi, and nothing else."""

    gradient: Positions

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> int:
        """Returns how many numbers are added."""
        return dims["s"] * dims["xi"]

    def numbers(self) -> NDArray[np.float64]:
        """Returns the gradient. Clipped it is a force that depends on the place alone, which leaves a trajectory valid."""
        return self.gradient.ravel()

    @classmethod
    def of_sum(cls, round: int, numbers: NDArray[np.float64], dims: Mapping[str, int]) -> Slope:
        """Returns the answer of all clients together."""
        return cls(numbers.reshape(dims["s"], dims["xi"]))


@dataclass(frozen=True)
class SlopeChange(Message, kind=95, tells=tells.AreaSums()):
    """Client to server, at the end of a trajectory: dF_j/dxi, and the change of F_j less that of the kinetic energy."""

    gradient: Positions
    change: Chains

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> int:
        """Returns how many numbers are added."""
        return dims["s"] * (dims["xi"] + 1)

    def numbers(self) -> NDArray[np.float64]:
        """Returns the gradient, as `Slope` does, and changes."""
        return np.concatenate([self.gradient.ravel(), self.change])

    @classmethod
    def of_sum(cls, round: int, numbers: NDArray[np.float64], dims: Mapping[str, int]) -> SlopeChange:
        """Returns the answer of all clients together; a trajectory that one of them has lost is lost."""
        s = dims["s"]
        return cls(numbers[:-s].reshape(s, dims["xi"]), numbers[-s:])


@dataclass(frozen=True)
class LikelihoodSlope(Slope, kind=212, tells=tells.WeightedSums()):
    """Client to server, of a client without local unknowns: the same, of its log-likelihood."""


@dataclass(frozen=True)
class LikelihoodChange(SlopeChange, kind=213, tells=tells.WeightedSums()):
    """Client to server, of a client without local unknowns: the same, of its log-likelihood, which is all that changes."""


@dataclass(frozen=True)
class MaskedSlope(Masked, Message, kind=246, tells=tells.WeightedSums().masked):
    """Client to server: a `LikelihoodSlope`, masked."""

    words: Annotated[bytes, "masked_slope"]


@dataclass(frozen=True)
class MaskedChange(Masked, Message, kind=247, tells=tells.WeightedSums().masked):
    """Client to server: a `LikelihoodChange`, masked."""

    words: Annotated[bytes, "masked_change"]


SUMS = (
    Sum(LikelihoodSlope, MaskedSlope, WIDE),
    Sum(LikelihoodChange, MaskedChange, WIDE),
    Sum(Slope, MaskedGradient, WIDE),
    Sum(SlopeChange, MaskedGradientMore, WIDE),
)
