"""Sends the response to a server without a file of it, once, from one client that holds it.

`fedkern check` says so beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..core import once, tells
from ..core.messages import ClientEffects, Event, Message, RemoteFault, ServerEffects
from ..core.rounds import needed


@dataclass(frozen=True)
class AskResponse(Message, kind=57):
    """Server to the client that holds the response."""

    round: int


@dataclass(frozen=True)
class Response(Message, kind=58, tells=tells.PerRow("values of its rows", "the response of every row")):
    """Client to server: y of all rows (PL: of the rows that are kept for testing)."""

    round: int
    y: Annotated[NDArray[np.float64], "n"]


@dataclass(frozen=True)
class Client:
    """Holds `y`, which is None at clients that are not asked."""

    name: str
    y: NDArray[np.float64] | None


@dataclass(frozen=True)
class Server:
    holder: int
    y: NDArray[np.float64] | None = None


def start(holder: int) -> tuple[Server, ServerEffects]:
    """Asks the holder."""
    return Server(holder), [(holder, AskResponse(0))]


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    if state.y is None:
        raise RemoteFault(f"server: AskResponse came to client {state.name!r}, which has no response to tell")
    return state, [Response(0, state.y)]


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    needed(event, "the server does not have the response yet; start the job again")
    if not isinstance(event, Response) or sender != state.holder or state.y is not None:
        raise RemoteFault(f"{type(event).__name__} was not expected", sender)
    return replace(state, y=event.y.copy()), []


def finished(state: Server) -> bool:
    return state.y is not None


PROTOCOL = once.protocol("response", (AskResponse,), (Response,), server_receive, client_receive, finished)
