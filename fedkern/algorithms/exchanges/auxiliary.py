"""Tells the clients how far auxiliary variables may be from their parts, before the first is drawn.

The server computes it from the response, which the clients may not have. Nothing is answered. Source: docs/spec/vertical.md,
section 11.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..core import once
from ..core.messages import ClientEffects, Event, Message, RemoteFault, ServerEffects

DIMS: dict[str, int] = {}


@dataclass(frozen=True)
class AuxiliarySd(Message, kind=76):
    """Server to client: rho, the standard deviation of z about g, and the factor of the client's coefficients at the end."""

    round: int
    rho: float
    factor: float


@dataclass(frozen=True)
class Client:
    """Holds `rho` and `factor` once they are known."""

    name: str
    rho: float | None = None
    factor: float = 1.0


@dataclass(frozen=True)
class Server:
    """Holds the numbers that were sent."""

    rho: float
    factor: float

    @property
    def round(self) -> int:
        return 0


def start(n_clients: int, rho: float, factor: float) -> tuple[Server, ServerEffects]:
    """Sends the numbers to everybody."""
    return Server(rho, factor), once.ask(n_clients, AuxiliarySd(0, rho, factor))


def finished(state: Server) -> bool:
    return True


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    raise RemoteFault(f"{type(event).__name__} was not expected", sender)


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    if not isinstance(event, AuxiliarySd) or state.rho is not None:
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    if not (np.isfinite(event.rho) and event.rho > 0 and 0 < event.factor <= 1):
        raise RemoteFault(f"server: AuxiliarySd of {event.rho:g} and {event.factor:g} cannot be")
    return replace(state, rho=event.rho, factor=event.factor), []


PROTOCOL = once.protocol("auxiliary-sd", (AuxiliarySd,), (), server_receive, client_receive, finished)
