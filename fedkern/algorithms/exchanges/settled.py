"""Asks each client, after the rounds of an open variational job, for one bit: does its posterior still move?

The bit is of `core.windows`: whether mean and sd of every unknown that only the client knows have settled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..core import once
from ..core.masked import HIDES, Masked, Sum
from ..core.messages import BIT, Message, Tells

DIMS: dict[str, int] = {}


@dataclass(frozen=True)
class AskSettled(Message, kind=160):
    """Server to client: have your own unknowns settled?"""

    round: int


@dataclass(frozen=True)
class Settled(Message, kind=161, tells=Tells(BIT)):
    """Client to server: 1 where they have, else 0."""

    round: int
    settled: int

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> int:
        """Returns how many numbers are added."""
        return 1

    def numbers(self) -> NDArray[np.float64]:
        """Returns 1 where they have not, else 0."""
        return np.array([float(self.settled != 1)])

    @classmethod
    def of_sum(cls, round: int, numbers: NDArray[np.float64], dims: Mapping[str, int]) -> Settled:
        """Returns the answer of all clients together: 1 where those of all have settled."""
        return cls(round, int(numbers[0] == 0))


@dataclass(frozen=True)
class MaskedSettled(Masked, Message, kind=296, tells=Tells(f"{BIT}, masked: {HIDES}")):
    """Client to server: `Settled`, masked."""

    words: Annotated[bytes, "masked_settled"]


SUMS = (Sum(Settled, MaskedSettled),)


def _wrong(reply: Settled) -> str:
    return "" if reply.settled in (0, 1) else f"its Settled is {reply.settled}, wanted 0 or 1"


QUESTION = once.Question("settled", AskSettled, Settled, _wrong)
PROTOCOL = QUESTION.protocol
