"""After the rounds of an open vertical job the server tells each client by how much its standard deviations are too small.

The server alone knows it: it has the response, hence the weights of rows, and what every client has sent of them. Nothing is
answered. Source: docs/methods/vertical.md, section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..core import once
from ..core.messages import ClientEffects, Event, Message, RemoteFault, ServerEffects

DIMS: dict[str, int] = {}


@dataclass(frozen=True)
class Narrow(Message, kind=77):
    """Server to client: standard deviations along your part of the predictor over those that the joint posterior has."""

    round: int
    ratio: float


@dataclass(frozen=True)
class Client:
    """`ratio` once it is known."""

    ratio: float | None = None


@dataclass(frozen=True)
class Server:
    """Nothing is left to do."""

    @property
    def round(self) -> int:
        return 0


def start(ratios: Sequence[float]) -> tuple[Server, ServerEffects]:
    """Tells each client its own."""
    return Server(), [(k, Narrow(0, ratio)) for k, ratio in enumerate(ratios)]


def finished(state: Server) -> bool:
    return True


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    raise RemoteFault(f"client {sender}: {type(event).__name__} was not expected")


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    if not isinstance(event, Narrow) or state.ratio is not None:
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    if not 0 < event.ratio <= 1:
        raise RemoteFault(f"server: Narrow of {event.ratio:g} cannot be")
    return replace(state, ratio=event.ratio), []


PROTOCOL = once.protocol("narrow", (Narrow,), (), server_receive, client_receive, finished)
