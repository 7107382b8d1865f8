"""Each client's least-squares estimates and standard errors, for a meta-analysis beside the hierarchical model; if a job asks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..core import once
from ..core.messages import LIKELIHOOD, ClientEffects, Event, Message, RemoteFault, ServerEffects, Tells
from ..core.persistent import PersistentMap
from ..core.rounds import needed

Columns = Annotated[NDArray[np.float64], "w"]


@dataclass(frozen=True)
class AskFit(Message, kind=45):
    """Server to client."""

    round: int


@dataclass(frozen=True)
class SiteFit(Message, kind=46, tells=Tells(LIKELIHOOD)):
    """Client to server: slopes and standard errors on the data's scale; an error of 0 says that there is no estimate."""

    round: int
    estimate: Columns
    error: Columns


@dataclass(frozen=True)
class Client:
    """NaN where there is no estimate."""

    estimate: NDArray[np.float64]
    error: NDArray[np.float64]


@dataclass(frozen=True)
class Server:
    n_clients: int
    replies: PersistentMap[int, SiteFit] = field(default_factory=PersistentMap)


def start(n_clients: int) -> tuple[Server, ServerEffects]:
    """Asks everybody."""
    return Server(n_clients), once.ask(n_clients, AskFit(0))


def finished(state: Server) -> bool:
    return len(state.replies) == state.n_clients


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    there = np.isfinite(state.estimate) & np.isfinite(state.error)
    return state, [SiteFit(0, np.where(there, state.estimate, 0.0), np.where(there, state.error, 0.0))]


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    needed(event, "its own fit had not come; --resume goes on from the last checkpoint")
    if not isinstance(event, SiteFit) or sender in state.replies or event.error.min(initial=0) < 0:
        raise RemoteFault(f"client {sender}: {type(event).__name__} comes twice, or has an error below 0")
    return once.with_reply(state, sender, event), []


PROTOCOL = once.protocol("site-fits", (AskFit,), (SiteFit,), server_receive, client_receive, finished)
