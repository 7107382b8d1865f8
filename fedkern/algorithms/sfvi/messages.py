"""Defines the messages of structured federated variational inference (see `machine`).

Source: docs/spec/sigma.md, section 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ...errors import NumericalError
from ...privacy.masks import LEAST_DENSITY
from ..core.masked import MOVING, MaskedGradient, MaskedGradientMore, Sum, all_or_none
from ..core.messages import AREAS, KNOWN, LIKELIHOOD, Message, Tells

Draws = Annotated[NDArray[np.float64], "s xi"]
Parameters = Annotated[NDArray[np.float64], "k"]


@dataclass(frozen=True)
class Global(Message, kind=70):
    """Server to client: draws of xi."""

    round: int
    xi: Draws


@dataclass(frozen=True)
class GlobalGradient(Message, kind=71, tells=Tells(LIKELIHOOD, AREAS, KNOWN)):
    """Client to server: G_j of each draw, and nothing else. (A client has one open question, so no round is needed.)"""

    gradient: Draws

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> tuple[int, int]:
        """Returns how many numbers are added, and the one place that may be out of range: all of them."""
        return dims["s"] * dims["xi"], 1

    def numbers(self, largest: float) -> tuple[Draws, NDArray[np.bool_]]:
        """Returns the gradient, zeros where a number of it has no place in a sum, and whether that is so."""
        return all_or_none(self.gradient, largest)

    @classmethod
    def of_sum(cls, round: int, numbers: Draws, outside: NDArray[np.bool_], dims: Mapping[str, int]) -> GlobalGradient:
        """Returns the answer of all clients together; NumericalError where one of them has none."""
        return cls(_whole(numbers, outside, dims))


@dataclass(frozen=True)
class GlobalGradientBound(Message, kind=72, tells=Tells(LIKELIHOOD, AREAS, KNOWN)):
    """Client to server, instead, in a job with a trace: also F_j, its term of the bound at these draws, on average."""

    gradient: Draws
    bound: float

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> tuple[int, int]:
        """Returns how many numbers are added, and the one place that may be out of range: all of them."""
        return dims["s"] * dims["xi"] + 1, 1

    def numbers(self, largest: float) -> tuple[Draws, NDArray[np.bool_]]:
        """Returns the gradient as `GlobalGradient` does, and the bound, which has a lowest value."""
        gradient, outside = all_or_none(self.gradient, largest)
        bound = min(max(self.bound, LEAST_DENSITY), -LEAST_DENSITY)
        return np.concatenate([gradient, [bound]]), outside

    @classmethod
    def of_sum(cls, round: int, numbers: Draws, outside: NDArray[np.bool_], dims: Mapping[str, int]) -> GlobalGradientBound:
        """Returns the answer of all clients together; NumericalError where one of them has none."""
        return cls(_whole(numbers[:-1], outside, dims), float(numbers[-1]))


@dataclass(frozen=True)
class Fitted(Message, kind=73):
    """Server to client, at the end: the flat parameters of q(xi'), and the numbers of the map from xi' to xi (see `shear`).

    With these the client knows q(xi), and so q(u_j).
    """

    round: int
    parameters: Parameters
    ridge: Annotated[NDArray[np.float64], "ridge"]


@dataclass(frozen=True)
class Start(Message, kind=74):
    """Server to client, SFVI-Avg: q(xi), from which the client takes its own steps."""

    round: int
    parameters: Parameters


@dataclass(frozen=True)
class Reached(Message, kind=75, tells=Tells(LIKELIHOOD)):
    """Client to server, SFVI-Avg: q(xi) after its steps."""

    round: int
    parameters: Parameters


def _whole(numbers: Draws, outside: NDArray[np.bool_], dims: Mapping[str, int]) -> Draws:
    """Returns the gradient of all clients together."""
    if outside.any():
        raise NumericalError("the gradient of a client left the numbers that can be added: lower learning_rate")
    return numbers.reshape(dims["s"], dims["xi"])


SUMS = (Sum(GlobalGradient, MaskedGradient), Sum(GlobalGradientBound, MaskedGradientMore), MOVING)
