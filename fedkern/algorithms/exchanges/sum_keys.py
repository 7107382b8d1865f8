"""Brings the public keys of all clients to each, by which they mask what the server adds (`core.masked`).

Each client makes a key for this start of the run, and forgets it at its end. The keys travel through the server. Where clients
have identities that others can check (`Signer`), each then signs the keys of all as it was told them, with the job and the
names, and none goes on before all have. A signature holds for one start of a run, since every client's key is new: an old one
cannot be told again. Without signatures a server could put keys of its own in the place of others', and read.

Where not all are neighbours of all (`privacy.masks`), keys decide who is. A client that works with the server would know all
other keys before it tells its own, and could try keys until a certain client stands among its friends. So each tells a digest of
its key first, and its key once it knows the digests of all; a key of another digest is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any
from typing import Protocol as Shape

from ...errors import JobError
from ...privacy.masks import KEY, LABEL, Group, Pairs, n_neighbours, public_key
from ..core import legs, once, tells
from ..core.legs import Leg
from ..core.messages import ClientEffects, Event, Message, Protocol, RemoteFault, ServerEffects, evolve

LONGEST = 1280  # bytes of a signature, with all that is needed to check it
GONE = "client {client} is gone before the first round; start the job again when it is back"


class Signer(Shape):
    """Signs for a client, and checks what others have signed: the identity that a site has for the others.

    Who vouches for identities must not be the server: else it protects against nobody that runs the server.
    """

    def sign(self, content: bytes) -> bytes:
        """Returns this client's signature of some bytes, of 1 to 1,280 bytes."""

    def fault(self, name: str, content: bytes, signature: bytes) -> str:
        """Returns why these bytes are not signed by the client of this name, as the end of a sentence; empty where they are."""


@dataclass(frozen=True)
class AskSumKey(Message, kind=240):
    """Server to client: send the public key by which you mask your answers."""

    round: int


@dataclass(frozen=True)
class SumKey(Message, kind=241, tells=tells.Nothing()):
    """Client to server: its public key, and whether (1 or 0) it signs, and wants the others to."""

    key: Annotated[bytes, "key"]
    signs: int


@dataclass(frozen=True)
class SumCommitment(Message, kind=256, tells=tells.Nothing()):
    """Client to server, where keys decide who is whose neighbour: the digest of the key that it will tell."""

    commitment: Annotated[bytes, "commitment"]


@dataclass(frozen=True)
class SumCommitments(Message, kind=257):
    """Server to client: the digests of the keys of all clients; now send the key."""

    commitments: Annotated[bytes, "commitments"]


@dataclass(frozen=True)
class SumKeys(Message, kind=242):
    """Server to client: the keys of all clients, in the order of their numbers, and whether (1 or 0) all are to sign them."""

    keys: Annotated[bytes, "keys"]
    signed: int


@dataclass(frozen=True)
class SumSignature(Message, kind=280, tells=tells.Nothing()):
    """Client to server: its signature of the keys of all; empty where it has no identity."""

    signature: Annotated[bytes, "signature"]


@dataclass(frozen=True)
class SumSignatures(Message, kind=281):
    """Server to client: the signatures of all clients, one after another, and the length of each."""

    lengths: Annotated[bytes, "lengths"]
    signatures: Annotated[bytes, "signatures"]


COMMIT, TELL, SIGN, DONE = 0, 1, 2, 3  # the legs; the first one is left out where all are neighbours of all


@dataclass(frozen=True)
class Server(Leg[Any], answers=(SumCommitment, SumKey, SumSignature), needs=GONE):
    """Is the server's state; `signed`: whether somebody signs, so that all are asked to."""

    signed: bool = False

    @property
    def done(self) -> bool:
        """Whether all have what they need."""
        return self.leg == DONE

    def checked(self, sender: int, message: Any) -> Any:
        """Refuses what is no key, and no digest of one."""
        if isinstance(message, SumSignature):  # of any length: each client looks at it
            return message
        content = message.commitment if isinstance(message, SumCommitment) else message.key
        if len(content) != KEY:
            raise RemoteFault(f"{type(message).__name__} of {len(content)} bytes, needs {KEY}")
        return message

    def combined(self, answers: list[Any]) -> tuple[Server, ServerEffects]:
        """Tells all what all have told."""
        if self.leg == COMMIT:
            return self.ask(SumCommitments(b"".join(answer.commitment for answer in answers)))
        if self.leg == TELL:
            signed = any(answer.signs for answer in answers)
            keys = SumKeys(b"".join(answer.key for answer in answers), int(signed))
            leg = SIGN if signed else DONE
            return self.ask(keys, signed=signed, leg=leg)
        signatures = [answer.signature for answer in answers]
        lengths = b"".join(len(signature).to_bytes(2, "little") for signature in signatures)
        return self.ask(SumSignatures(lengths, b"".join(signatures)))


@dataclass(frozen=True)
class Client:
    """Is a client's state."""

    # index, names, job: its number; all names; the job's digest
    index: int
    names: tuple[str, ...]
    job: bytes
    secret: bytes = field(repr=False)  # 32 bytes that are new, and that nobody else has
    signer: Signer | None = None  # its identity; None where it has none
    commitments: tuple[bytes, ...] = ()  # of all clients, once it was told them
    keys: tuple[bytes, ...] = ()  # of all clients, once it was told them
    pairs: Pairs | None = None  # what it shares with each other client, at the end


def dims(n_clients: int) -> dict[str, int]:
    """Returns the sizes of the messages."""
    of_all = {
        "commitments": KEY * n_clients,
        "keys": KEY * n_clients,
        "lengths": 2 * n_clients,
        "signatures": LONGEST * n_clients,
    }
    return {"commitment": KEY, "key": KEY, "signature": LONGEST, **of_all}


def start(names: tuple[str, ...]) -> tuple[Server, ServerEffects]:
    """Returns the server's first state and its questions."""
    leg = COMMIT if commits(len(names)) else TELL
    return Server(names, leg=leg), once.ask(len(names), AskSumKey(0))


def commits(n_clients: int) -> bool:
    """Tells whether each client tells a digest of its key first: where not all are neighbours of all."""
    return n_neighbours(n_clients) < n_clients - 1


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Tells its key, where it has to first a digest of it, signs the keys of all, and then checks all signatures. Raises
    JobError: the keys are not signed by a client that has one of them, or a key is none."""
    n, first = len(state.names), commits(len(state.names))
    if isinstance(event, AskSumKey) and not state.keys and not state.commitments:
        if first:
            return state, [SumCommitment(commitment(state.index, public_key(state.secret)))]
        return state, [_key(state)]
    if isinstance(event, SumCommitments) and first and not state.commitments:
        if len(event.commitments) != KEY * n:
            raise RemoteFault(f"server: SumCommitments are not those of {n} clients")
        return evolve(state, commitments=_cut(event.commitments, n)), [_key(state)]
    if isinstance(event, SumKeys) and not state.keys and bool(state.commitments) == first:
        return _take_keys(state, event)
    if isinstance(event, SumSignatures) and state.keys and state.pairs is None:
        _check_signatures(state, _parts(event, len(state.names)))
        return evolve(state, pairs=_agreed(state)), []
    raise RemoteFault(f"server: {type(event).__name__} was not expected")


def commitment(k: int, key: bytes) -> bytes:
    """Returns the digest of a client's key, by which it is bound to this key before it knows the others'."""
    return hashlib.blake2b(k.to_bytes(4, "little") + key, digest_size=KEY, person=b"fedkern commits").digest()


def _key(state: Client) -> SumKey:
    return SumKey(public_key(state.secret), int(state.signer is not None))


def _cut(content: bytes, n: int) -> tuple[bytes, ...]:
    """Returns the parts of all clients."""
    return tuple(content[KEY * k : KEY * (k + 1)] for k in range(n))


def _take_keys(state: Client, event: SumKeys) -> tuple[Client, ClientEffects]:
    n = len(state.names)
    if len(event.keys) != KEY * n:
        raise RemoteFault(f"server: SumKeys are not those of {n} clients")
    state = evolve(state, keys=_cut(event.keys, n))
    if state.commitments:
        for k, (committed, key) in enumerate(zip(state.commitments, state.keys, strict=True)):
            if committed != commitment(k, key):
                raise JobError(
                    f"client {state.names[state.index]!r}: the key of client {state.names[k]!r} is another than it has committed "
                    "itself to: somebody chooses keys, by which neighbours are found; ask who runs the server"
                )
    pairs = _agreed(state)  # before anything is signed: the keys are keys, and its own is among them
    if event.signed:
        signature = b"" if state.signer is None else state.signer.sign(signed(state, state.index))
        return state, [SumSignature(signature)]
    # It has told that it signs. A server that forgets it could have put keys of its own in the place of others'.
    if state.signer is not None:
        name = state.names[state.index]
        raise JobError(f"client {name!r}: it signs its key, and the server asks nobody to sign; ask who runs it")
    return evolve(state, pairs=pairs), []


def _parts(event: SumSignatures, n: int) -> list[bytes]:
    """Returns the signatures of all clients."""
    sizes = [int.from_bytes(event.lengths[2 * k : 2 * k + 2], "little") for k in range(n)]
    if len(event.lengths) != 2 * n or len(event.signatures) != sum(sizes):
        raise RemoteFault(f"server: SumSignatures are not those of {n} clients")
    return [event.signatures[sum(sizes[:k]) : sum(sizes[: k + 1])] for k in range(n)]


def _check_signatures(state: Client, signatures: Sequence[bytes]) -> None:
    """Raises JobError, which names a client, where this one knows identities, and the keys are not signed by all others."""
    for k, name in enumerate(state.names):
        if state.signer is None or k == state.index:
            continue
        fault = state.signer.fault(name, signed(state, k), signatures[k]) if signatures[k] else "it has signed nothing"
        if fault:
            raise JobError(f"client {state.names[state.index]!r}: the key of client {name!r} is not signed by it: {fault}")


def _agreed(state: Client) -> Pairs:
    return Pairs.agree(state.index, state.secret, state.names, state.keys, state.job)


def signed(state: Client, k: int, what: bytes = b"keys ", about: bytes = b"") -> bytes:
    """Returns the bytes that client k signs, if it was told the same keys as this one; `about`: what else, of one length."""
    return LABEL + what + Group.of(state.job, state.names, state.keys).digest + about + state.names[k].encode()


def pairs_of(clients: Mapping[int, Client]) -> dict[int, Pairs]:
    """Returns the secrets that clients share with the others, from their last states. Raises RemoteFault: the server has ended
    the exchange before a client had checked the others' keys."""
    out = {}
    for k, client in clients.items():
        if client.pairs is None:
            raise RemoteFault("server: it ends the exchange of keys before they are checked")
        out[k] = client.pairs
    return out


TO_CLIENT, TO_SERVER = (AskSumKey, SumKeys, SumSignatures), (SumKey, SumSignature)
PROTOCOL = legs.protocol("sum-keys", Server, TO_CLIENT, TO_SERVER, client_receive)
COMMITTED = replace(PROTOCOL, to_client=(*TO_CLIENT, SumCommitments), to_server=(*TO_SERVER, SumCommitment))


def protocol(n_clients: int) -> Protocol[Server, Client]:
    """Returns the exchange of so many clients."""
    return COMMITTED if commits(n_clients) else PROTOCOL
