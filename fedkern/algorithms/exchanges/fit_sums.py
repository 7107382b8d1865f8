"""After a spatial job that asks for it: how well are areas foreseen without their own rows? Each client sends sums over areas.

A sum is of at least five areas: a client with fewer that have rows answers with zeros. No area's own number has a message.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from ..core import once
from ..core.messages import ClientEffects, Event, Message, RemoteFault, ServerEffects
from ..core.persistent import PersistentMap
from ..core.rounds import in_order, needed
from .rounding import LARGEST, bounded

DIMS: dict[str, int] = {}
LEAST = 5  # areas of a sum
MOST_AREAS = 10**15


@dataclass(frozen=True)
class AskFitSums(Message, kind=145):
    """Server to client."""

    round: int


@dataclass(frozen=True)
class FitSums(Message, kind=146):
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
    """Sums that have come; `dropped`: client -> why what it sent is none."""

    n_clients: int
    replies: PersistentMap[int, FitSums] = field(default_factory=PersistentMap)
    dropped: PersistentMap[int, str] = field(default_factory=PersistentMap)

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
    return once.heard_of_all(state.replies, (), state.n_clients, state.dropped)


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """The sums, or zeros where they would be of too few areas."""
    if not isinstance(event, AskFitSums):
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    return state, [state.sums if state.sums.areas >= LEAST else FitSums(0, 0, 0.0, 0.0, 0.0, 0)]


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """One client's sums; of sums that cannot be only why."""
    needed(event, "its part of the fit's sums had not come; --resume goes on from the last checkpoint")
    if not isinstance(event, FitSums) or sender in state.replies or sender in state.dropped:
        raise RemoteFault(f"client {sender}: {type(event).__name__} was not expected")
    if why := _wrong(event):
        return replace(state, dropped=state.dropped.plus(sender, why)), []
    return once.with_reply(state, sender, event), []


def _wrong(sums: FitSums) -> str:
    """Why these are no client's sums; "" where they can be."""
    if not (sums.areas == 0 or LEAST <= sums.areas <= MOST_AREAS) or not 0 <= sums.unreliable <= sums.areas:
        return f"its FitSums are of {sums.areas} areas, {sums.unreliable} of them unreliable"
    if not (bounded([sums.density, sums.effective]) and 0 <= sums.squares and bounded(sums.squares, LARGEST**2)):
        return "its FitSums are too large to be any"
    if abs(sums.density) > (1 + 1e-9) * math.sqrt(sums.areas * sums.squares):
        return "its FitSums have squares that are too small for their sum"
    return ""


PROTOCOL = once.protocol("fit-sums", (AskFitSums,), (FitSums,), server_receive, client_receive, finished)
