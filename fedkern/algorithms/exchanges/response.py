"""Sends the response to a server without a file of it, once, from one client that holds it.

`fedkern check` says so beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..core import legs, tells
from ..core.legs import Leg
from ..core.messages import ClientEffects, Event, Message, RemoteFault, ServerEffects


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
class Server(Leg[Response], answers=(Response,), needs="the server does not have the response yet; start the job again"):
    """Is the server's state, which asks one client alone, the `holder`."""

    holder: int

    @property
    def complete(self) -> bool:
        """Whether the holder has answered."""
        return bool(self.replies)

    @property
    def y(self) -> NDArray[np.float64]:
        """The response, once it is here."""
        return self.replies[self.holder].y

    def checked(self, sender: int, answer: Response) -> Response:
        """Returns a copy of the answer, whose bytes are the transport's."""
        if sender != self.holder:
            raise RemoteFault("Response was not expected")
        return replace(answer, y=answer.y.copy())


def start(holder: int) -> tuple[Server, ServerEffects]:
    """Asks the holder."""
    return Server((), holder), [(holder, AskResponse(0))]


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    if state.y is None:
        raise RemoteFault(f"server: AskResponse came to client {state.name!r}, which has no response to tell")
    return state, [Response(0, state.y)]


PROTOCOL = legs.protocol("response", Server, (AskResponse,), (Response,), client_receive)
