"""Tells each client with which of several families the job goes on, as the evidence of all rows together has it."""

from __future__ import annotations

from dataclasses import dataclass

from ..core import tells
from ..core.exchange import Answer, Ask
from ..core.messages import RemoteFault


@dataclass(frozen=True)
class TellFamily(Ask, kind=276):
    """Server to client: the number of the family, in the order in which they were tried."""

    number: int


@dataclass(frozen=True)
class FamilyHeard(Answer, kind=277, tells=tells.Nothing(), name="family", ask=TellFamily):
    """Client to server: the family has come."""


def make_reply(told: TellFamily, tried: int) -> FamilyHeard:
    """Returns a client's answer; `tried`: the number of families.

    Raises
    ------
    RemoteFault
        No family has this number.
    """
    if not 0 <= told.number < tried:
        raise RemoteFault(f"server: its TellFamily has the number {told.number}, wanted 0 to {tried - 1}")
    return FamilyHeard(told.round)
