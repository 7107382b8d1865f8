"""Brings the public keys of all clients to each, by which they mask what the server adds (`core.masked`).

Each client makes a key for this start of the run, and forgets it at its end. The keys travel through the server. Where the
clients have identities that others can check (`Signer`), each signs its key together with the job and its name, and none goes on
with a key whose signature is another's. Without them a server could put keys of its own in the place of others', and read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated
from typing import Protocol as Shape

from ...errors import JobError
from ...privacy.masks import KEY, LABEL, Pairs, public_key
from ..core import once
from ..core.messages import NOTHING, ClientEffects, Event, Message, RemoteFault, ServerEffects, Tells, evolve
from ..core.persistent import PersistentMap
from ..core.rounds import needed

LONGEST = 1024  # bytes of a signature


class Signer(Shape):
    """Signs for a client, and checks what others have signed: the identity that a site has in the engine that carries messages.

    The authority that vouches for identities must not be the server's: else it protects against nobody that runs the server.
    """

    def sign(self, content: bytes) -> bytes:
        """Returns this client's signature of some bytes, of at most 1,024 bytes."""

    def verify(self, name: str, content: bytes, signature: bytes) -> bool:
        """Tells whether the client of this name has signed these bytes."""


@dataclass(frozen=True)
class AskSumKey(Message, kind=240):
    """Server to client: send the public key by which you mask your answers."""

    round: int


@dataclass(frozen=True)
class SumKey(Message, kind=241, tells=Tells(NOTHING)):
    """Client to server: its public key, and its signature of it; empty where clients have no identities."""

    key: Annotated[bytes, "key"]
    signature: Annotated[bytes, "signature"]


@dataclass(frozen=True)
class SumKeys(Message, kind=242):
    """Server to client: the keys of all clients, in the order of their numbers, and their signatures, filled up with zeros."""

    keys: Annotated[bytes, "keys"]
    lengths: Annotated[bytes, "lengths"]
    signatures: Annotated[bytes, "signatures"]


@dataclass(frozen=True)
class Server:
    """Is the server's state: the clients' names, and the answers so far."""

    names: tuple[str, ...]
    replies: PersistentMap[int, SumKey] = field(default_factory=PersistentMap)

    @property
    def round(self) -> int:
        return 0


@dataclass(frozen=True)
class Client:
    """Is a client's state.

    Attributes
    ----------
    index, names, job : its number; all names; the job's digest
    secret : 32 bytes that are new, and that nobody else has
    signer : its identity; None where clients have none
    pairs : what it shares with each other client, at the end
    """

    index: int
    names: tuple[str, ...]
    job: bytes
    secret: bytes = field(repr=False)
    signer: Signer | None = None
    pairs: Pairs | None = None


def dims(n_clients: int) -> dict[str, int]:
    """Returns the sizes of the messages."""
    of_all = {"keys": KEY * n_clients, "lengths": 2 * n_clients, "signatures": LONGEST * n_clients}
    return {"key": KEY, "signature": LONGEST, **of_all}


def start(names: tuple[str, ...]) -> tuple[Server, ServerEffects]:
    """Returns the server's first state and its questions."""
    return Server(names), once.ask(len(names), AskSumKey(0))


def finished(state: Server) -> bool:
    return len(state.replies) == len(state.names)


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """Takes one key; after the last all are told all."""
    needed(event, "client {client} is gone before the first round; start the job again when it is back", state.names)
    if not isinstance(event, SumKey) or sender in state.replies:
        raise RemoteFault(f"client {sender}: {type(event).__name__} was not expected")
    if len(event.key) != KEY:
        raise RemoteFault(f"client {sender}: SumKey.key of {len(event.key)} bytes, needs {KEY}")
    state = evolve(state, replies=state.replies.plus(sender, event))
    if not finished(state):
        return state, []
    told = [state.replies[k] for k in range(len(state.names))]
    keys = b"".join(one.key for one in told)
    lengths = b"".join(len(one.signature).to_bytes(2, "little") for one in told)
    signatures = b"".join(one.signature.ljust(LONGEST, b"\0") for one in told)
    return state, [(k, SumKeys(keys, lengths, signatures)) for k in range(len(state.names))]


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Tells its key, and then checks all keys.

    Raises
    ------
    JobError
        A key is not signed by the client whose it is said to be, or is none.
    """
    if isinstance(event, AskSumKey) and state.pairs is None:
        key = public_key(state.secret)
        signature = b"" if state.signer is None else state.signer.sign(_signed(state, state.index, key))
        return state, [SumKey(key, signature)]
    if not isinstance(event, SumKeys) or state.pairs is not None:
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    n = len(state.names)
    wanted = dims(n)
    if any(len(getattr(event, name)) != wanted[name] for name in ("keys", "lengths", "signatures")):
        raise RemoteFault(f"server: SumKeys are not those of {n} clients")
    keys = [event.keys[KEY * k : KEY * (k + 1)] for k in range(n)]
    if state.signer is not None:
        for k, name in enumerate(state.names):
            length = int.from_bytes(event.lengths[2 * k : 2 * k + 2], "little")
            signature = event.signatures[LONGEST * k : LONGEST * k + length]
            if k != state.index and not state.signer.verify(name, _signed(state, k, keys[k]), signature):
                raise JobError(
                    f"client {state.names[state.index]!r}: the key of client {name!r} is not signed by it: somebody has put "
                    "another in its place, or its identity is not the one that is known here; ask that client for its fingerprint"
                )
    return evolve(state, pairs=Pairs.agree(state.index, state.secret, state.names, keys, state.job)), []


def _signed(state: Client, k: int, key: bytes) -> bytes:
    """Returns the bytes that client k signs."""
    name = state.names[k].encode()
    return LABEL + b"key " + state.job + len(name).to_bytes(4, "little") + name + key


def pairs_of(clients: Mapping[int, Client]) -> dict[int, Pairs]:
    """Returns the secrets that clients share with the others, from their last states."""
    out = {}
    for k, client in clients.items():
        assert client.pairs is not None
        out[k] = client.pairs
    return out


PROTOCOL = once.protocol("sum-keys", (AskSumKey, SumKeys), (SumKey,), server_receive, client_receive, finished)
