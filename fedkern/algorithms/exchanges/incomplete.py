"""Before the first round of an open job that leaves out or fills rows which lack a cell: how many each client has of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..core import once
from ..core.messages import ClientEffects, ClientLost, Event, Message, RemoteFault, ServerEffects, Tells
from ..core.persistent import PersistentMap, PersistentSet

DIMS: dict[str, int] = {}


@dataclass(frozen=True)
class AskIncomplete(Message, kind=167):
    """Server to client: how many of its rows lack a cell?"""

    round: int


@dataclass(frozen=True)
class Incomplete(Message, kind=168, tells=Tells("counts of its rows")):
    """Client to server: how many rows its file has, and how many of them lack a cell that the job uses."""

    round: int
    rows: int
    lacking: int


@dataclass(frozen=True)
class Client:
    """Rows of its file, and those that lack a cell."""

    rows: int
    lacking: int


@dataclass(frozen=True)
class Server:
    """Counts that have come, and clients that will send none."""

    n_clients: int
    replies: PersistentMap[int, Incomplete] = field(default_factory=PersistentMap)
    lost: PersistentSet[int] = field(default_factory=PersistentSet)


def start(n_clients: int) -> tuple[Server, ServerEffects]:
    """Asks everybody."""
    return Server(n_clients), once.ask(n_clients, AskIncomplete(0))


def finished(state: Server) -> bool:
    """Whether everybody who still lives has answered."""
    return once.heard_of_all(state.replies, state.lost, state.n_clients)


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Answers."""
    if not isinstance(event, AskIncomplete):
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    return state, [Incomplete(0, state.rows, state.lacking)]


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """One client's counts, or its loss: the rounds will say what becomes of it."""
    if isinstance(event, ClientLost):
        return replace(state, lost=state.lost | {event.client}), []
    if not isinstance(event, Incomplete) or sender in state.replies or not 0 <= event.lacking <= event.rows:
        raise RemoteFault(f"client {sender}: {type(event).__name__} comes twice, or has counts that cannot be")
    return once.with_reply(state, sender, event), []


PROTOCOL = once.protocol("incomplete", (AskIncomplete,), (Incomplete,), server_receive, client_receive, finished)
