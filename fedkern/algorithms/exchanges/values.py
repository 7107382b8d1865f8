"""Asks, before a sparse job's scales, how many different values each column has at each client. Source: sparse.md, section 7.

A client says, of each column, whether it has no value, one, two, or more; it sends no value and no count beyond two. The others'
answers reach clients only in a job without a server (`topology = "allgather"`): then every client makes the server's draws.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..core import once, tells
from ..core.messages import ClientEffects, Event, Message, Protocol, RemoteFault, ServerEffects
from ..core.persistent import PersistentMap
from ..core.rounds import all_of, needed
from .scales import column_moments

Array = NDArray[np.float64]
MORE = 3  # what stands for more than two


@dataclass(frozen=True)
class AskValues(Message, kind=130):
    """Server to client: how many different values have your columns?"""

    round: int


@dataclass(frozen=True)
class ColumnValues(Message, kind=131, tells=tells.Fact("whether each column has no value, one, two or more different ones")):
    """Client to server: 0, 1, 2, or 3 for more, of each column."""

    round: int
    values: Annotated[NDArray[np.float64], "w"]


@dataclass(frozen=True)
class AllValues(Message, kind=132):
    """Server to client: those of all clients, in client order."""

    round: int
    values: Annotated[NDArray[np.float64], "m w"]


@dataclass(frozen=True)
class Client:
    """Holds the numbers that it tells, `own` (w,), and those that it has been told, `every` (m, w)."""

    own: Array
    every: Array | None = None


@dataclass(frozen=True)
class Server:
    """Holds `every` (m, w) once all have answered; `tell`: whether clients get it as well."""

    clients: tuple[str, ...]
    tell: bool
    every: Array | None = None
    replies: PersistentMap[int, ColumnValues] = field(default_factory=PersistentMap)


def count_values(values: Array) -> Array:
    """Returns 0, 1, 2 or `MORE` different values (w,) for each column of (n, w).

    NaN is no value, and rounding of a constant column is one.
    """
    out = np.zeros(values.shape[1])
    _, squares = column_moments(values)
    for j, column in enumerate(values.T):
        there = column[~np.isnan(column)]
        if not squares[j] > 0:
            out[j] = min(len(there), 1)
        else:  # most columns show it in their first rows, and need not be sorted
            out[j] = MORE if len(np.unique(there[:100])) >= MORE else min(len(np.unique(there)), MORE)
    return out


def start(clients: tuple[str, ...], *, tell: bool) -> tuple[Server, ServerEffects]:
    """Returns the first state and the questions."""
    return Server(clients, tell), once.ask(len(clients), AskValues(0))


def finished(state: Server) -> bool:
    return state.every is not None


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Answers with its own numbers, or keeps those of all.

    Raises
    ------
    RemoteFault
        The server tells numbers that can't be, or another one of this client's own than it has told.
    """
    if isinstance(event, AskValues):
        return state, [ColumnValues(0, state.own)]
    if isinstance(event, AllValues) and state.every is None:
        if not _possible(event.values) or not (event.values == state.own).all(axis=1).any():
            raise RemoteFault("server: AllValues.values must be 0, 1, 2 or 3, with this client's own among them")
        return replace(state, every=event.values.copy()), []
    raise RemoteFault(f"server: {type(event).__name__} was not expected")


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """Takes one client's answer; after the last, in a job without a server, it sends all of them to everybody."""
    needed(event, "client {client} is gone before the first round; start again when it is back", state.clients)
    if not isinstance(event, ColumnValues) or sender in state.replies or not _possible(event.values):
        raise RemoteFault(f"{type(event).__name__} comes twice, or has a number that is not 0, 1, 2 or 3", sender)
    state = once.with_reply(state, sender, event)
    if len(state.replies) < len(state.clients):
        return state, []
    every = np.stack([reply.values for reply in all_of(state.replies, ColumnValues)])
    told = once.ask(len(state.clients), AllValues(1, every)) if state.tell else []
    return replace(state, every=every), told


def _possible(values: Array) -> bool:
    return bool(np.isin(values, np.arange(MORE + 1.0)).all())


PROTOCOL: Protocol[Server, Client] = once.protocol(
    "values", (AskValues, AllValues), (ColumnValues,), server_receive, client_receive, finished
)


def protocol(*, tell: bool) -> Protocol[Server, Client]:
    """Returns the protocol with only the messages that a job can send."""
    return PROTOCOL if tell else replace(PROTOCOL, to_client=(AskValues,))
