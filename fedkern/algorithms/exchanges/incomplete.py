"""Counts, before the first round of an open job that leaves out or fills incomplete rows, how many of them each client has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ...privacy.masks import ONCE
from ..core import once, tells
from ..core.masked import Masked, Sum
from ..core.messages import Message
from .added import Added

COUNTS = "counts of its rows"
DIMS: dict[str, int] = {}


@dataclass(frozen=True)
class AskIncomplete(Message, kind=167):
    """Server to client: how many of its rows lack a cell?"""

    round: int


@dataclass(frozen=True)
class Incomplete(Added, Message, kind=168, tells=tells.Fact(COUNTS)):
    """Client to server: how many rows its file has, and how many of them lack a cell that the job uses."""

    round: int
    rows: int
    lacking: int


@dataclass(frozen=True)
class MaskedIncomplete(Masked, Message, kind=270, tells=tells.Fact(COUNTS).masked):
    """Client to server: `Incomplete`, masked."""

    words: Annotated[bytes, "masked_incomplete"]


SUMS = (Sum(Incomplete, MaskedIncomplete, ONCE),)


def _wrong(reply: Incomplete) -> str:
    return "" if 0 <= reply.lacking <= reply.rows else "its Incomplete has counts that cannot be"


QUESTION = once.Question("incomplete", AskIncomplete, Incomplete, _wrong)  # the rounds will say what becomes of who is lost
PROTOCOL = QUESTION.protocol
