"""After a job that asks for it: how well are rows foreseen without themselves? Each client sends sums over its rows.

A sum is of at least five rows, whatever the job's least number: a client with fewer answers with zeros. Sums are in thousandths.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..core import once
from ..core.messages import ClientEffects, ClientLost, Event, Message, RemoteFault, ServerEffects
from ..core.persistent import PersistentMap, PersistentSet
from .rounding import DIGITS, LARGEST, bounded, rounded

BINS = 4
DIMS: dict[str, int] = {"bins": BINS}
LEAST = 5  # rows of a sum
MOST_ROWS = 10**15  # counted exactly, with those of other clients


@dataclass(frozen=True)
class AskLoo(Message, kind=147):
    """Server to client."""

    round: int


@dataclass(frozen=True)
class LooSums(Message, kind=148):
    """Client to server: number of rows; sums of their leave-one-out log predictive densities, of the squares of those, and of
    their effective numbers of parameters; how many rows have a k-hat of at most 0.5, 0.7, 1, and more."""

    round: int
    rows: int
    density: float
    squares: float
    effective: float
    bins: Annotated[NDArray[np.float64], "bins"]


@dataclass(frozen=True)
class Client:
    """Its sums; None where it has nothing to make them of."""

    sums: LooSums | None


@dataclass(frozen=True)
class Server:
    """`lost`: clients that will send none; `dropped`: client -> why its sums are nobody's; `asks` is False where there is nothing
    to be asked."""

    n_clients: int
    asks: bool = True
    replies: PersistentMap[int, LooSums] = field(default_factory=PersistentMap)
    lost: PersistentSet[int] = field(default_factory=PersistentSet)
    dropped: PersistentMap[int, str] = field(default_factory=PersistentMap)


def start(n_clients: int, asks: bool = True) -> tuple[Server, ServerEffects]:
    """Asks everybody, or nobody."""
    return Server(n_clients, asks), once.ask(n_clients, AskLoo(0)) if asks else []


def finished(state: Server) -> bool:
    """Whether everybody who still lives has answered."""
    return not state.asks or once.heard_of_all(state.replies, state.lost, state.n_clients, state.dropped)


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """The sums, or zeros where they would be of too few rows."""
    if not isinstance(event, AskLoo):
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    sums = state.sums
    if sums is None or sums.rows < LEAST:
        return state, [LooSums(0, 0, 0.0, 0.0, 0.0, np.zeros(BINS))]
    density, effective = rounded([sums.density, sums.effective]).tolist()
    squares = float(np.round(min(sums.squares, LARGEST**2), DIGITS))
    return state, [replace(sums, density=density, squares=squares, effective=effective)]


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """One client's sums, or its loss; of sums that cannot be only why."""
    if isinstance(event, ClientLost):
        return replace(state, lost=state.lost | {event.client}), []
    if not isinstance(event, LooSums) or sender in state.replies or sender in state.dropped:
        raise RemoteFault(f"client {sender}: {type(event).__name__} was not expected")
    if why := _wrong(event):
        return replace(state, dropped=state.dropped.plus(sender, why)), []
    return once.with_reply(state, sender, event), []


def _wrong(sums: LooSums) -> str:
    """Why these are no client's sums; "" where they can be."""
    if not (sums.rows == 0 or LEAST <= sums.rows <= MOST_ROWS):
        return f"its LooSums are of {sums.rows} rows"
    if (sums.bins < 0).any() or (sums.bins > sums.rows).any() or (sums.bins % 1).any() or sums.bins.sum() != sums.rows:
        return "its LooSums count rows that are not there"
    if not (bounded([sums.density, sums.effective]) and 0 <= sums.squares and bounded(sums.squares, LARGEST**2)):
        return "its LooSums are too large to be any"
    # Cauchy-Schwarz, with what rounding has taken
    if abs(sums.density) > (1 + 1e-9) * math.sqrt(sums.rows * (sums.squares + 10**-DIGITS)) + 10**-DIGITS:
        return "its LooSums have squares that are too small for their sum"
    return ""


PROTOCOL = once.protocol("loo-sums", (AskLoo,), (LooSums,), server_receive, client_receive, finished)
