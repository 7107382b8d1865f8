"""After a spatial job that asks for it: how well are areas foreseen without their own rows? Each client sends sums over areas.

A sum is of at least five areas: a client with fewer that have rows answers with zeros. No message has one area's number.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..core import once
from ..core.messages import ClientEffects, Event, Message, RemoteFault, ServerEffects, Tells
from ..core.persistent import PersistentMap
from ..core.rounds import in_order, needed

DIMS: dict[str, int] = {}
LEAST = 5  # areas of a sum


@dataclass(frozen=True)
class AskFitSums(Message, kind=145):
    """Server to client."""

    round: int


@dataclass(frozen=True)
class FitSums(Message, kind=146, tells=Tells("sums over this client's areas")):
    """Client to server: number of areas; sums of their log predictive densities, of the squares of those, and of their effective
    numbers of parameters; how many of the densities are not reliable."""

    round: int
    areas: int
    density: float
    squares: float
    effective: float
    unreliable: int


@dataclass(frozen=True)
class Client:
    """Its sums."""

    sums: FitSums


@dataclass(frozen=True)
class Server:
    n_clients: int
    replies: PersistentMap[int, FitSums] = field(default_factory=PersistentMap)

    @property
    def total(self) -> FitSums:
        """Over all clients, added in their order."""
        told = in_order(self.replies)
        areas, unreliable = sum(one.areas for one in told), sum(one.unreliable for one in told)
        density, squares, effective = (
            float(sum(getattr(one, name) for one in told)) for name in ("density", "squares", "effective")
        )
        return FitSums(0, areas, density, squares, effective, unreliable)


def start(n_clients: int) -> tuple[Server, ServerEffects]:
    """Asks everybody."""
    return Server(n_clients), once.ask(n_clients, AskFitSums(0))


def finished(state: Server) -> bool:
    return len(state.replies) == state.n_clients


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """The sums, or zeros where they would be of too few areas."""
    if not isinstance(event, AskFitSums):
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    return state, [state.sums if state.sums.areas >= LEAST else FitSums(0, 0, 0.0, 0.0, 0.0, 0)]


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """One client's sums."""
    needed(event, "its part of the fit's sums had not come; --resume goes on from the last checkpoint")
    if not isinstance(event, FitSums) or sender in state.replies:
        raise RemoteFault(f"client {sender}: {type(event).__name__} was not expected")
    numbers = (event.density, event.squares, event.effective)
    if not np.isfinite(numbers).all() or event.squares < 0 or not (event.areas == 0 or event.areas >= LEAST):
        raise RemoteFault(f"client {sender}: FitSums of {event.areas} areas and {numbers} cannot be")
    if not 0 <= event.unreliable <= event.areas:
        raise RemoteFault(f"client {sender}: FitSums with {event.unreliable} unreliable of {event.areas} areas cannot be")
    return once.with_reply(state, sender, event), []


PROTOCOL = once.protocol("fit-sums", (AskFitSums,), (FitSums,), server_receive, client_receive, finished)
