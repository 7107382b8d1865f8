"""Checks, before a spatial job, that each client has the file that belongs to the server's. Only digests travel.

The server says which artifact it has, and the digest of the client's file in it; a client with another file ends the job, and
names it. Source: docs/spec/sigma.md, section 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ...errors import JobError
from ..core import legs, tells
from ..core.legs import Leg
from ..core.messages import ClientEffects, Event, Message, RemoteFault, ServerEffects, evolve

DIMS = {"digest": 64}
GONE = "client {client} is gone before the first round; start the job again when it is back"


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
class Server(Leg[Holds], answers=(Holds,), needs=GONE):
    """Is the server's state."""


def start(names: tuple[str, ...], artifact: str, digests: tuple[str, ...]) -> tuple[Server, ServerEffects]:
    """Returns the server's first state and its questions; `digests` of the clients' files, in their order."""
    return Server(names), [(k, Expected(artifact.encode(), digest.encode())) for k, digest in enumerate(digests)]


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


PROTOCOL = legs.protocol("prior", Server, (Expected,), (Holds,), client_receive)
