"""Defines the messages of structured federated variational inference (see `machine`).

Source: docs/spec/sigma.md, section 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ...privacy.masks import WIDE
from ..core import tells
from ..core.masked import MOVING, MaskedGradient, MaskedGradientMore, Sum
from ..core.messages import Message

Draws = Annotated[NDArray[np.float64], "s xi"]
Parameters = Annotated[NDArray[np.float64], "k"]


@dataclass(frozen=True)
class Global(Message, kind=70):
    """Server to client: draws of xi."""

    round: int
    xi: Draws


@dataclass(frozen=True)
class GlobalGradient(Message, kind=71, tells=tells.AreaSums()):
    """Client to server: G_j of each draw, and nothing else. (A client has one open question, so no round is needed.)"""

    gradient: Draws

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> int:
        """Returns how many numbers are added."""
        return dims["s"] * dims["xi"]

    def numbers(self) -> Draws:
        """Returns the gradient."""
        return self.gradient.ravel()

    @classmethod
    def of_sum(cls, round: int, numbers: Draws, dims: Mapping[str, int]) -> GlobalGradient:
        """Returns the answer of all clients together."""
        return cls(numbers.reshape(dims["s"], dims["xi"]))


@dataclass(frozen=True)
class GlobalGradientBound(Message, kind=72, tells=tells.AreaSums()):
    """Client to server, instead, in a job with a trace: also F_j, its term of the bound at these draws, on average."""

    gradient: Draws
    bound: float

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> int:
        """Returns how many numbers are added."""
        return dims["s"] * dims["xi"] + 1

    def numbers(self) -> Draws:
        """Returns the gradient, and the bound."""
        return np.append(self.gradient, self.bound)

    @classmethod
    def of_sum(cls, round: int, numbers: Draws, dims: Mapping[str, int]) -> GlobalGradientBound:
        """Returns the answer of all clients together."""
        return cls(numbers[:-1].reshape(dims["s"], dims["xi"]), float(numbers[-1]))


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
class Reached(Message, kind=75, tells=tells.Figure()):
    """Client to server, SFVI-Avg: q(xi) after its steps."""

    round: int
    parameters: Parameters


SUMS = (Sum(GlobalGradient, MaskedGradient, WIDE), Sum(GlobalGradientBound, MaskedGradientMore, WIDE), MOVING)
