"""Ends the sums of a job: each client adds a zero, or words by chance if one of its numbers was none.

What a client's rows bring about must not end an exchange: which question did it would tell of the rows, and who has ended it,
whose they are. So a client that has no number to give gives another, and shows at the next barrier, the beginning of an exchange,
that the job must end: from there on all its words are random, masks do not cancel, and one sentence says so for all clients.
Here is the last barrier, before anything is published.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..core import once, tells
from ..core.masked import Masked, Sum
from ..core.messages import Message
from .added import Added


@dataclass(frozen=True)
class AskSumEnd(Message, kind=291):
    """Server to client: was all that you have sent a number?"""

    round: int


@dataclass(frozen=True)
class SumEnd(Added, Message, kind=292, tells=tells.Bit()):
    """Client to server: nothing but a zero, which is masked."""

    round: int
    zero: float


@dataclass(frozen=True)
class MaskedSumEnd(Masked, Message, kind=293, tells=tells.Bit().masked):
    """Client to server: `SumEnd`, masked."""

    words: Annotated[bytes, "masked_sum_end"]


SUMS = (Sum(SumEnd, MaskedSumEnd),)
QUESTION = once.Question("sum-end", AskSumEnd, SumEnd)
PROTOCOL = QUESTION.protocol
DIMS: dict[str, int] = {}
