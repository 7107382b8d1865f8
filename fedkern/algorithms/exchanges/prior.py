"""Checks, before a spatial job, that each client has the file that belongs to the server's. Only digests travel.

The server says which artifact it has, and the digest of the client's file in it; a client with another file ends the job, and
names it. Source: docs/spec/sigma.md, section 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ...errors import JobError
from ..core import once, tells
from ..core.messages import ClientEffects, Event, Message, RemoteFault, ServerEffects, evolve
from ..core.rounds import needed

DIMS = {"digest": 64}


@dataclass(frozen=True)
class Expected(Message, kind=96):
    """Server to client: the artifact, and the digest of this client's file."""

    artifact: Annotated[bytes, "digest"]
    digest: Annotated[bytes, "digest"]


@dataclass(frozen=True)
class Holds(Message, kind=97, tells=tells.Nothing()):
    """Client to server: it has that file."""

    round: int


@dataclass(frozen=True)
class Client:
    """Is a client's state: the artifact and the digest of its file, and where that file is."""

    name: str
    artifact: str
    digest: str
    source: str
    agreed: bool = False


@dataclass(frozen=True)
class Server:
    """Is the server's state: the artifact, and client -> digest."""

    names: tuple[str, ...]
    artifact: str
    digests: tuple[str, ...]
    waiting: frozenset[int] = frozenset()

    @property
    def round(self) -> int:
        return 0


def start(names: tuple[str, ...], artifact: str, digests: tuple[str, ...]) -> tuple[Server, ServerEffects]:
    """Returns the server's first state and its questions."""
    state = Server(names, artifact, digests, frozenset(range(len(names))))
    return state, [(k, Expected(artifact.encode(), digest.encode())) for k, digest in enumerate(digests)]


def finished(state: Server) -> bool:
    return not state.waiting


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """Notes that one client has its file."""
    needed(event, "client {client} is gone before the first round; start the job again when it is back", state.names)
    if not isinstance(event, Holds) or sender not in state.waiting:
        raise RemoteFault(f"{type(event).__name__} was not expected", sender)
    return evolve(state, waiting=state.waiting - {sender}), []


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Compares the digests; raises JobError that names a wrong file."""
    if not isinstance(event, Expected):
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    artifact, digest = event.artifact.decode("ascii", "replace"), event.digest.decode("ascii", "replace")
    if (artifact, digest) != (state.artifact, state.digest):
        what = f"of prior {state.artifact[:12]}, the server has {artifact[:12]}"
        if artifact == state.artifact:
            what = f"with digest {state.digest[:12]}, the server expects {digest[:12]}"
        raise JobError(
            f"client {state.name!r}: {state.source} is a file {what}; copy this client's file from the folder in which the "
            "server's was made"
        )
    return evolve(state, agreed=True), [Holds(0)]


PROTOCOL = once.protocol("prior", (Expected,), (Holds,), server_receive, client_receive, finished)
