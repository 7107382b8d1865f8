"""Asks each client, after the rounds of an open variational job, for one bit: does its posterior still move?

The bit is of `core.windows`: whether mean and sd of every unknown that only the client knows have settled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..core import once, tells
from ..core.masked import Masked, Sum
from ..core.messages import Message
from ..core.until import Settlement

DIMS: dict[str, int] = {}


@dataclass(frozen=True)
class AskSettled(Message, kind=160):
    """Server to client: have your own unknowns settled?"""

    round: int


@dataclass(frozen=True)
class Settled(Settlement, Message, kind=161, tells=tells.Bit()):
    """Client to server: 1 where they have, else 0."""


@dataclass(frozen=True)
class MaskedSettled(Masked, Message, kind=296, tells=tells.Bit().masked):
    """Client to server: `Settled`, masked."""

    words: Annotated[bytes, "masked_settled"]


SUMS = (Sum(Settled, MaskedSettled),)


def _wrong(reply: Settled) -> str:
    return "" if reply.settled in (0, 1) else f"its Settled is {reply.settled}, wanted 0 or 1"


QUESTION = once.Question("settled", AskSettled, Settled, _wrong)
PROTOCOL = QUESTION.protocol
