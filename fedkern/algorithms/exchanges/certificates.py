"""After the last round: every client tells what it has spent in this job. All numbers are functions of public ones.

The server could count too, but only the client's own budget knows what it charged: a crash may have cost a charge, an update may
have been shortened. What the holder has spent in other jobs stays at home.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from ...privacy.certificate_fields import problem
from ..core import once
from ..core.messages import ClientEffects, ClientLost, Event, Message, RemoteFault, ServerEffects
from ..core.persistent import PersistentMap, PersistentSet

BYTES = 4096
DIMS = {"certificate": BYTES}


@dataclass(frozen=True)
class AskCertificate(Message, kind=4):
    """Server to client: what have you spent?"""

    round: int


@dataclass(frozen=True)
class Certificate(Message, kind=5):
    """Client to server: JSON with the fields of `privacy.certificate_fields`, every one of its type and in its range."""

    round: int
    text: Annotated[bytes, "certificate"]


@dataclass(frozen=True)
class Server:
    """Certificates that have come, and clients that will send none; `dropped`: client -> why what it sent is none."""

    n_clients: int
    replies: PersistentMap[int, Mapping[str, Any]] = field(default_factory=PersistentMap)
    lost: PersistentSet[int] = field(default_factory=PersistentSet)
    dropped: PersistentMap[int, str] = field(default_factory=PersistentMap)


@dataclass(frozen=True)
class Client:
    """`certificate` is complete before the question comes."""

    certificate: Mapping[str, Any]


def start(n_clients: int) -> tuple[Server, ServerEffects]:
    """Asks everybody."""
    return Server(n_clients), once.ask(n_clients, AskCertificate(0))


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """One certificate, or the loss of a client. Budgets are spent: of a text that is no JSON, lacks a field or has one too many,
    or has a value that cannot be, only why is kept, and the result stands.

    Raises
    ------
    RemoteFault
        It has come before, or is another message.
    """
    if isinstance(event, ClientLost):
        return replace(state, lost=state.lost | {event.client}), []
    if not isinstance(event, Certificate) or sender in state.replies or sender in state.dropped:
        raise RemoteFault(f"client {sender}: {type(event).__name__} came twice")
    try:
        content = json.loads(event.text)
    except (ValueError, RecursionError):
        return _without(state, sender, ".text is not JSON"), []
    if wrong := problem(content):
        return _without(state, sender, wrong), []
    return once.with_reply(state, sender, content), []


def _without(state: Server, sender: int, wrong: str) -> Server:
    return replace(state, dropped=state.dropped.plus(sender, f"its Certificate{wrong}"))


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Answers."""
    if not isinstance(event, AskCertificate):
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    plain = {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in state.certificate.items()}
    return state, [Certificate(event.round, json.dumps(plain, allow_nan=False).encode())]


def finished(state: Server) -> bool:
    """Whether everybody who still lives has answered."""
    return once.heard_of_all(state.replies, state.lost, state.n_clients, state.dropped)


PROTOCOL = once.protocol("certificates", (AskCertificate,), (Certificate,), server_receive, client_receive, finished)
