"""Asks each client, after the rounds of an open variational job, for one bit: does its posterior still move?

The bit is of `core.windows`: whether mean and sd of every unknown that only the client knows have settled.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...privacy.masks import ROUND
from ..core import tells
from ..core.exchange import Conditions, Exchange
from ..core.until import Settlement


@dataclass(frozen=True)
class Settled(
    Settlement,
    Exchange,
    kind=161,
    tells=tells.Bit(),
    name="settled",
    ask=("AskSettled", 160),
    masked=("masked_settled", 296),
    form=ROUND,
):
    """Client to server: 1 where they have, else 0."""

    def honest(self) -> Conditions:
        yield self.settled in (0, 1), f"is {self.settled}, wanted 0 or 1"
