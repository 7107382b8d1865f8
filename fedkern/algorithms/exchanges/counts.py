"""After the last round of a Gibbs sampler: what every client counted in its own sweeps. Source: sparse.md, section 5."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..core import once
from ..core.messages import ClientEffects, ClientLost, Event, Message, RemoteFault, ServerEffects, Tells
from ..core.persistent import PersistentMap, PersistentSet

DIMS: dict[str, int] = {}


@dataclass(frozen=True)
class AskCounts(Message, kind=47):
    """Server to client: how often did it happen?"""

    round: int


@dataclass(frozen=True)
class Counts(Message, kind=48, tells=Tells("counts of its sampler's steps")):
    """Client to server: over the whole run, scales clipped, Cholesky factors that failed, and draws in data space."""

    round: int
    clipped: int
    fallbacks: int
    data_space: int

    @property
    def each(self) -> tuple[int, int, int]:
        """In this order."""
        return self.clipped, self.fallbacks, self.data_space


@dataclass(frozen=True)
class Client:
    """Its counts, in the order of `Counts`."""

    counts: tuple[int, int, int]


@dataclass(frozen=True)
class Server:
    """Counts that have come, and clients that will send none."""

    n_clients: int
    replies: PersistentMap[int, Counts] = field(default_factory=PersistentMap)
    lost: PersistentSet[int] = field(default_factory=PersistentSet)

    @property
    def total(self) -> tuple[int, int, int]:
        """Over the clients."""
        clipped, fallbacks, data_space = (sum(numbers) for numbers in zip((0, 0, 0), *(r.each for r in self.replies.values())))
        return clipped, fallbacks, data_space


def start(n_clients: int) -> tuple[Server, ServerEffects]:
    """Asks everybody."""
    return Server(n_clients), once.ask(n_clients, AskCounts(0))


def finished(state: Server) -> bool:
    """Whether everybody who still lives has answered."""
    return once.heard_of_all(state.replies, state.lost, state.n_clients)


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Answers."""
    if not isinstance(event, AskCounts):
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    return state, [Counts(0, *state.counts)]


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """One client's counts, or its loss: the draws are made, and the result lacks its counts alone."""
    if isinstance(event, ClientLost):
        return replace(state, lost=state.lost | {event.client}), []
    if not isinstance(event, Counts) or sender in state.replies or min(event.each) < 0:
        raise RemoteFault(f"client {sender}: {type(event).__name__} comes twice, or has a count below 0")
    return once.with_reply(state, sender, event), []


PROTOCOL = once.protocol("gibbs-counts", (AskCounts,), (Counts,), server_receive, client_receive, finished)
