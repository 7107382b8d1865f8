"""Sums, after a spatial job that asks for it, how well areas are foreseen without their own rows.

A sum is of at least five areas: a client with fewer that have rows answers with zeros. No message has one area's number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from ...privacy.masks import ONCE
from ..core import once, tells
from ..core.masked import Masked, Sum
from ..core.messages import Message
from ..core.rounds import in_order
from .added import Added
from .rounding import LARGEST, bounded

DIMS: dict[str, int] = {}
LEAST = 5  # areas of a sum
MOST_AREAS = 10**15


@dataclass(frozen=True)
class AskFitSums(Message, kind=145):
    """Server to client."""

    round: int


@dataclass(frozen=True)
class FitSums(Added, Message, kind=146, tells=tells.Sums("sums over this client's areas")):
    """Client to server: number of areas; sums of their log predictive densities, of the squares of those, and of their effective
    numbers of parameters; the densities and these numbers by WAIC; how many of the densities are not reliable."""

    round: int
    areas: int
    density: float
    squares: float
    effective: float
    waic: float
    waic_effective: float
    unreliable: int


@dataclass(frozen=True)
class MaskedFitSums(Masked, Message, kind=265, tells=tells.Sums("sums over this client's areas").masked):
    """Client to server: `FitSums`, masked."""

    words: Annotated[bytes, "masked_fit"]


NOBODY = FitSums(0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0)
SUMS = (Sum(FitSums, MaskedFitSums, ONCE),)
FIELDS = ("density", "squares", "effective", "waic", "waic_effective")


def make_reply(sums: FitSums) -> FitSums:
    """Returns the sums, or zeros if they are of too few areas."""
    return sums if sums.areas >= LEAST else NOBODY


def total(replies: Mapping[int, FitSums]) -> FitSums:
    """Returns the sums over all clients, added in their order."""
    every = in_order(replies)
    areas, unreliable = sum(one.areas for one in every), sum(one.unreliable for one in every)
    sums = {name: float(sum(getattr(one, name) for one in every)) for name in FIELDS}
    return FitSums(0, areas, **sums, unreliable=unreliable)


def _wrong(sums: FitSums) -> str:
    """Returns the reason why these are no client's sums, or "" if they can be."""
    if not (sums.areas == 0 or LEAST <= sums.areas <= MOST_AREAS) or not 0 <= sums.unreliable <= sums.areas:
        return f"its FitSums are of {sums.areas} areas, {sums.unreliable} of them unreliable"
    each = [sums.density, sums.effective, sums.waic, sums.waic_effective]
    if not (bounded(each) and 0 <= sums.squares and bounded(sums.squares, LARGEST**2)):
        return "its FitSums are too large to be any"
    if abs(sums.density) > (1 + 1e-9) * math.sqrt(sums.areas * sums.squares):
        return "its FitSums have squares that are too small for their sum"
    return ""


NEEDS = "its part of the fit's sums had not come; --resume goes on from the last checkpoint"
QUESTION = once.Question("fit-sums", AskFitSums, FitSums, _wrong, drops=True, needs=NEEDS)
PROTOCOL = QUESTION.protocol
