"""After a job that asks for it: how well are rows foreseen without themselves? Each client sends sums over its rows.

A sum is of at least five rows: a client with fewer answers with zeros. No message has one row's number.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..core import once
from ..core.messages import SUM, ClientEffects, ClientLost, Event, Message, RemoteFault, ServerEffects, Tells
from ..core.persistent import PersistentMap, PersistentSet

BINS = 4
DIMS: dict[str, int] = {"bins": BINS}
LEAST = 5  # rows of a sum


@dataclass(frozen=True)
class AskLoo(Message, kind=147):
    """Server to client."""

    round: int


@dataclass(frozen=True)
class LooSums(Message, kind=148, tells=Tells(SUM)):
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
    """`lost`: clients that will send none; `asks` is False where there is nothing to be asked."""

    n_clients: int
    asks: bool = True
    replies: PersistentMap[int, LooSums] = field(default_factory=PersistentMap)
    lost: PersistentSet[int] = field(default_factory=PersistentSet)


def start(n_clients: int, asks: bool = True) -> tuple[Server, ServerEffects]:
    """Asks everybody, or nobody."""
    return Server(n_clients, asks), once.ask(n_clients, AskLoo(0)) if asks else []


def finished(state: Server) -> bool:
    """Whether everybody who still lives has answered."""
    return not state.asks or once.heard_of_all(state.replies, state.lost, state.n_clients)


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """The sums, or zeros where they would be of too few rows."""
    if not isinstance(event, AskLoo):
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    sums = state.sums
    enough = sums is not None and sums.rows >= LEAST
    return state, [sums if sums is not None and enough else LooSums(0, 0, 0.0, 0.0, 0.0, np.zeros(BINS))]


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """One client's sums, or its loss."""
    if isinstance(event, ClientLost):
        return replace(state, lost=state.lost | {event.client}), []
    if not isinstance(event, LooSums) or sender in state.replies:
        raise RemoteFault(f"client {sender}: {type(event).__name__} was not expected")
    numbers = (event.density, event.squares, event.effective)
    if not np.isfinite(numbers).all() or event.squares < 0 or not (event.rows == 0 or event.rows >= LEAST):
        raise RemoteFault(f"client {sender}: LooSums of {event.rows} rows and {numbers} cannot be")
    if (event.bins < 0).any() or (event.bins % 1).any() or event.bins.sum() != event.rows:
        raise RemoteFault(f"client {sender}: LooSums with {event.bins.tolist()} of {event.rows} rows cannot be")
    return once.with_reply(state, sender, event), []


PROTOCOL = once.protocol("loo-sums", (AskLoo,), (LooSums,), server_receive, client_receive, finished)
