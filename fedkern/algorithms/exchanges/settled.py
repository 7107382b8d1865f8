"""After the rounds of an open variational job: does a client's own posterior still move? One bit of each.

The bit is of `core.windows`: whether mean and sd of every unknown that only the client knows have settled.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..core import once
from ..core.messages import BIT, ClientEffects, ClientLost, Event, Message, RemoteFault, ServerEffects, Tells
from ..core.persistent import PersistentMap, PersistentSet

DIMS: dict[str, int] = {}


@dataclass(frozen=True)
class AskSettled(Message, kind=160):
    """Server to client: have your own unknowns settled?"""

    round: int


@dataclass(frozen=True)
class Settled(Message, kind=161, tells=Tells(BIT)):
    """Client to server: 1 where they have, else 0."""

    round: int
    settled: int


@dataclass(frozen=True)
class Server:
    """Bits that have come, and clients that will send none."""

    n_clients: int
    replies: PersistentMap[int, bool] = field(default_factory=PersistentMap)
    lost: PersistentSet[int] = field(default_factory=PersistentSet)


@dataclass(frozen=True)
class Client:
    """The bit is known before the question comes."""

    settled: bool


def start(n_clients: int) -> tuple[Server, ServerEffects]:
    """Asks everybody."""
    return Server(n_clients), once.ask(n_clients, AskSettled(0))


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """One bit, or the loss of a client; RemoteFault where it is no bit, or has come before."""
    if isinstance(event, ClientLost):
        return replace(state, lost=state.lost | {event.client}), []
    if not isinstance(event, Settled) or sender in state.replies:
        raise RemoteFault(f"client {sender}: {type(event).__name__} was not expected")
    if event.settled not in (0, 1):
        raise RemoteFault(f"client {sender}: Settled.settled is {event.settled}, wanted 0 or 1")
    return once.with_reply(state, sender, bool(event.settled)), []


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Answers."""
    if not isinstance(event, AskSettled):
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    return state, [Settled(event.round, int(state.settled))]


def finished(state: Server) -> bool:
    """Whether everybody who still lives has answered."""
    return once.heard_of_all(state.replies, state.lost, state.n_clients)


PROTOCOL = once.protocol("settled", (AskSettled,), (Settled,), server_receive, client_receive, finished)
