"""Brings numbers of all clients to each, masked and signed, so that each adds them up itself and need not believe the server.

A client masks its numbers (`core.masked`), and signs the masked words by its identity (`sum_keys.Signer`). The server hands all
words and signatures to every client. Each looks whether its own words are among them as it sent them, and those of each other
client signed by it; then it adds. A signature is of the job, its clients, their keys, the question and all that was told before:
keys are new at each start, so words of an earlier start, or of another question, are none of this one. A client answers once, so
that there is one signature of each, and all clients get the same sum or none.

No client learns more of another than the sum of all others: masks cancel nowhere else.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from binascii import Error
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ..._core import words as compiled
from ...arrays import Array
from ...errors import JobError
from ...privacy.masks import ONCE, from_words, to_words, total
from ..core import masked, once, pieces, tells
from ..core.kept import PersistentMap
from ..core.messages import ClientEffects, Event, Message, Protocol, RemoteFault, ServerEffects, evolve
from ..core.rounds import in_order, needed
from . import sum_keys

DIMS = {"counted": pieces.PIECE}
ROUNDS = 3
ENDS = "ask who runs the server, and start the job again"


@dataclass(frozen=True)
class AskCounts(Message, kind=316):
    """Server to client: how many rows of each kind have you? `round`: 0 of all columns together, 1 of values; 2: are they too few
    for values of the likelihood at draws?"""

    round: int


@dataclass(frozen=True)
class SignedCounts(
    pieces.Piece,
    kind=317,
    tells=tells.Sums("numbers of its rows of each kind", together="these numbers of all clients together").masked,
):
    """Client to server: its numbers, masked, and its signature of the masked words."""

    text: Annotated[bytes, "counted"]


@dataclass(frozen=True)
class AllCounts(pieces.Piece, kind=318):
    """Server to client: the masked numbers and signatures of all clients."""

    text: Annotated[bytes, "counted"]


SUM = masked.Sum(SignedCounts, SignedCounts, ONCE)


@dataclass(frozen=True)
class Client:
    """Is a client's state."""

    round: int  # of its question
    known: sum_keys.Client  # the identities and keys of this start
    hider: masked.Hider  # masks its numbers
    numbers: Array  # its own
    words: bytes = b""  # them, masked, once they were sent
    about: bytes = b""  # the digest of what its signature is of beside the words
    pieces: tuple[bytes, ...] = ()  # of an unfinished message
    # total, others: the numbers of all clients, and of all but this one, at the end
    total: Array | None = None
    others: Array | None = None

    @property
    def signer(self) -> sum_keys.Signer:
        """Its identity."""
        assert self.known.signer is not None  # nobody else takes part
        return self.known.signer


@dataclass(frozen=True)
class Server:
    """Is the server's state: the round, the clients' names, and the answers so far."""

    round: int
    names: tuple[str, ...]
    pieces: PersistentMap[int, tuple[bytes, ...]] = field(default_factory=PersistentMap)
    replies: PersistentMap[int, dict[str, Any]] = field(default_factory=PersistentMap)


def start(round: int, names: tuple[str, ...]) -> tuple[Server, ServerEffects]:
    """Returns the server's first state and its questions."""
    return Server(round, names), once.ask(len(names), AskCounts(round))


def finished(state: Server) -> bool:
    """Tells whether all have answered."""
    return len(state.replies) == len(state.names)


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """Takes one client's words; after the last all are told all."""
    needed(event, f"client {{client}} is gone, and {masked.NEEDED}", state.names)
    if not isinstance(event, SignedCounts) or sender in state.replies:
        raise RemoteFault(f"{type(event).__name__} was not expected", sender)
    have, content = pieces.add("SignedCounts", state.pieces.get(sender, ()), event)
    if content is None:
        return evolve(state, pieces=state.pieces.plus(sender, have)), []
    state = evolve(state, replies=state.replies.plus(sender, content), pieces=state.pieces.minus(sender))
    if not finished(state):
        return state, []
    texts = pieces.cut({"every": in_order(state.replies)})
    return state, [(k, AllCounts(state.round, *piece)) for piece in texts for k in range(len(state.names))]


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Sends its numbers, and then adds up those of all. Raises JobError: words are not signed by the client whose they are said
    to be, or are not those that this one has sent. Raises RemoteFault: the server asks twice, or tells something else."""
    if isinstance(event, AskCounts) and event.round == state.round and not state.words:
        question = hashlib.blake2b(state.hider.known + masked.digest(event), digest_size=32, person=b"fedkern counts").digest()
        state.hider.asked("counts-AskCounts", question, ROUNDS)
        words = state.hider.hide(state.numbers, SUM, question)
        state = evolve(state, words=words, about=question)
        signature = state.signer.sign(_signed(state, state.known.index, words))
        texts = pieces.cut({"words": b64encode(words).decode(), "signature": b64encode(signature).decode()})
        return state, [SignedCounts(state.round, *piece) for piece in texts]
    if not isinstance(event, AllCounts) or not state.words or state.total is not None:
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    have, content = pieces.add("server: AllCounts", state.pieces, event)
    state = evolve(state, pieces=have)
    return (state, []) if content is None else (_added(state, _checked(state, content)), [])


def total_of(state: Server) -> Array:
    """Returns the numbers of all clients together, at the end."""
    return from_words(_summed([b64decode(answer["words"]) for answer in in_order(state.replies)]), ONCE)


def _checked(state: Client, content: dict[str, Any]) -> list[bytes]:
    """Returns the words of all clients, each as its client has signed it."""
    names, index = state.known.names, state.known.index
    contents = content.get("every")
    if not isinstance(contents, list) or len(contents) != len(names):
        raise RemoteFault(f"server: AllCounts are not those of {len(names)} clients")
    parts = []
    for k, (name, entry) in enumerate(zip(names, contents)):
        try:
            words, signature = (b64decode(entry[what], validate=True) for what in ("words", "signature"))
        except (Error, KeyError, TypeError, ValueError):
            raise RemoteFault(f"server: AllCounts of client {name!r} cannot be read") from None
        begin = f"client {names[index]!r}: the numbers of client {name!r}"
        if k == index:
            fault = "" if words == state.words else "are others than it has sent"
        else:
            fault = state.signer.fault(name, _signed(state, k, words), signature)
            fault = f"are not signed by it: {fault}" if fault else ""
        if fault:
            raise JobError(f"{begin} {fault}; {ENDS}")
        if len(words) != len(state.words):
            raise RemoteFault(f"server: AllCounts of client {name!r}: {len(words)} bytes, needs {len(state.words)}")
        parts.append(words)
    return parts


def _signed(state: Client, k: int, words: bytes) -> bytes:
    """Returns the bytes that client k signs with these words."""
    about = hashlib.blake2b(SUM.masked.kind.to_bytes(4, "little") + state.about + words, digest_size=32, person=b"fedkern counts")
    return sum_keys.signed(state.known, k, b"counts ", about.digest())


def _added(state: Client, parts: list[bytes]) -> Client:
    """Returns the state with the numbers of all clients, and of all but this one."""
    total = _summed(parts)
    others = total.copy()
    compiled.add(others, to_words(state.numbers, ONCE, len(state.known.names)), 1)  # taken away, without loss of a digit
    return evolve(state, total=from_words(total, ONCE), others=from_words(others, ONCE))


def _summed(parts: list[bytes]) -> NDArray[np.uint64]:
    """Returns the words of the sum."""
    words = total([np.frombuffer(part, "<u8").reshape(ONCE.limbs, -1) for part in parts])
    if words[:, -masked.CHECKED :].any():
        raise RemoteFault(masked.ENDED)
    return np.ascontiguousarray(words[:, : -masked.CHECKED])


PROTOCOL: Protocol[Server, Client] = once.protocol(
    "counts", (AskCounts, AllCounts), (SignedCounts,), server_receive, client_receive, finished
)
