"""Ends the sums of a job: each client adds a zero, or words by chance if one of its numbers was none.

What a client's rows bring about must not end an exchange: which question did it would tell of the rows, and who has ended it,
whose they are. So a client that has no number to give gives another, and shows at the next barrier, the beginning of an exchange,
that the job must end: from there on all its words are random, masks do not cancel, and one sentence says so for all clients.
Here is the last barrier, before anything is published.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...privacy.masks import ROUND
from ..core import tells
from ..core.exchange import Added


@dataclass(frozen=True)
class SumEnd(
    Added,
    kind=292,
    tells=tells.Bit(),
    name="sum-end",
    ask=("AskSumEnd", 291),
    masked=("masked_sum_end", 293),
    form=ROUND,
    least=0,
):
    """Client to server: nothing but a zero, which is masked."""

    zero: float
