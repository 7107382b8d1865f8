"""Runs a protocol whose server only adds: clients mask their answers, and the server's machine gets the sum of all.

It wraps a protocol and its states. A client's answer is masked right after its machine has made it (`privacy.masks`). The server
holds masked answers back until all clients have given theirs, adds them, and gives its machine one answer: the sum, in the place
of a client's. So the machine is one of a single client, "all clients together", and whatever it asks that client is asked of
all. Nothing that is kept holds a mask: a question that was open at a crash is asked of all again, by then under new keys.

It hides whose number it was, not what the sum says.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Annotated, Any, Generic, NamedTuple, TypeVar
from typing import Protocol as Shape

import numpy as np

from ...arrays import Array
from ...errors import JobError
from ...finding import Finding
from ...privacy.masks import ROUND, Form, Pairs, from_words, holds, to_words, total
from . import tells, until
from .kept import GIVEN, PersistentMap
from .messages import (
    SERVER,
    ClientEffects,
    Event,
    Message,
    Protocol,
    RemoteFault,
    Saved,
    ServerEffects,
    Start,
    evolve,
    schema,
    text,
)
from .rounds import needed

S = TypeVar("S")
C = TypeVar("C")

ALL = "all clients together"  # the name of the one client that the server's machine has
ENDED = (
    f"client {ALL!r}: masks do not cancel: clients were told different things, or have other keys, or a number of one of them "
    "was none, or of a row beyond what one may add (then its own folder says so); start the job again"
)
HEARD = "masked.heard"  # in a client's checkpoint, beside its machine's state
TOO_MUCH = (
    "are too large, or too small, for secure sums, which add numbers of 1e-60 to 1e31 without loss of a digit: give them in "
    "another unit"
)
CHECKED = 1  # words that are 0 for every client: their sum is not where masks do not cancel
NEEDED = "the sum of all less that of the others would be its number; --resume goes on from the last checkpoint when it is back"


def describe_few(fewer: str, where: str) -> Finding:
    """Returns the note on clients that have told zeros, of which a sum does not say which they are, or whether there are any."""
    return Finding.of("few-hidden-in-sums", fewer=fewer, where=where)


@dataclass(frozen=True)
class Masked:
    """Holds the fields of masked messages: words, the lowest limbs of all first, uniformly distributed for who lacks the masks.

    Each kind that is masked has a message of its own of these, which says how long it is, and tells what `Tells.masked` says.
    """

    round: int
    words: bytes


@dataclass(frozen=True)
class MaskedGradient(Masked, Message, kind=243, tells=tells.AreaSums().masked):
    """Client to server: a gradient in what all share, of a client with unknowns of its own, masked."""

    words: Annotated[bytes, "masked_gradient"]


@dataclass(frozen=True)
class MaskedGradientMore(Masked, Message, kind=248, tells=tells.AreaSums().masked):
    """Client to server: the same, with its term of the bound, or the change of its log-density."""

    words: Annotated[bytes, "masked_more"]


@dataclass(frozen=True)
class MaskedMoving(Masked, Message, kind=249, tells=tells.Bit().masked):
    """Client to server: masked, 1 where its own unknowns have not settled, else 0."""

    words: Annotated[bytes, "masked_moving"]


class Summed(Shape):
    """Is a message whose numbers the server adds. It may have a `round`, which is not masked."""

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> int:
        """Returns how many numbers the message has."""

    def numbers(self) -> Array:
        """Returns its numbers (n,); NaN where the client has none, which ends the job at the next barrier."""

    @classmethod
    def of_sum(cls, round: int, numbers: Array, dims: Mapping[str, int]) -> Message:
        """Returns the message of all clients together."""


class Sum(NamedTuple):
    """Says how one kind of message is masked.

    Attributes
    ----------
    kind : of the messages that are added
    masked : of the messages that travel in their place
    form : of its words
    what : its numbers, in words, if they are exact
    exact : whether a word has to hold all digits of a number, or it is a fault of the client; others are clipped
    """

    kind: type[Any]  # a Message that is Summed: no type is both a class of the one and a shape of the other
    masked: type[Any]  # a Message that is Masked
    form: Form = ROUND
    what: str = ""
    exact: bool = False

    @property
    def symbol(self) -> str:
        """The symbol that stands for the bytes of the masked words."""
        return schema(self.masked)["words"].shape[0]

    def n_bytes(self, dims: Mapping[str, int]) -> int:
        """Returns the bytes of the masked words."""
        return int(8 * self.form.limbs * (self.kind.count(dims) + CHECKED))


MOVING = Sum(until.Moving, MaskedMoving)


class Book(Shape):
    """Is where a client counts the questions of a job over all its starts."""

    def ask(self, kind: str, question: bytes, most: int) -> None:
        """Counts a question of a kind before it is answered, of which one run has `most`; JobError where it is one too many."""

    def end(self) -> None:
        """Notes that this start will end because a number of the client is none."""


class Hider:
    """Masks what one client says, for one start of a run. It counts its messages, so that no mask is used twice.

    The count is kept here, and not in a machine's state, since a state may be put back, and a count must not. It is of all
    exchanges of the start: two of them may ask the same.

    Numbers beyond what has a sum are clipped. A client one of whose answers is none (a machine's state says so: `failed`) shows
    that at the next barrier, by masks that no other client has. A number that is none has no place in a sum at all, and such
    masks at once.

    Parameters
    ----------
    pairs : the secrets
    name : of the client, for the texts of errors
    book : counts the questions to the client; None: nobody does
    secret : of the client for this job, the same at all starts

    Attributes
    ----------
    failed : whether a number of the client was none
    spoils : whether all its words are random, so that no sum of this start tells anything any more
    waits : whether no exchange of sums over rows may begin: rules on them are not judged yet
    small : whether rules were judged on all clients' rows together, for some client has too few by itself
    """

    def __init__(
        self, pairs: Pairs, name: str = "", book: Book | None = None, *, secret: bytes = b"", spoils: bool = False
    ) -> None:
        self.pairs, self.name, self.used, self.known, self._secret = pairs, name, 0, b"", secret
        self.book, self.failed, self.spoils, self.exchange, self.waits, self.small = book, False, spoils, "", False, False

    def begin(self, exchange: str, *, of_rows: bool = True) -> None:
        """Begins an exchange of this name: a barrier, which shows whether a client has failed before, and not which."""
        if self.waits and of_rows:
            raise RuntimeError(f"{exchange}: rules on sums are not judged yet, and no sum may leave")
        self.exchange, self.spoils = exchange, self.spoils or self.failed

    def asked(self, kind: str, question: bytes, most: int) -> None:
        """Counts a question before it is answered."""
        if self.book is not None:
            self.book.ask(kind, _chained(question, self.exchange.encode()), most)

    def fail(self) -> None:
        """Has this start end at the next barrier, because an answer of the client is none that counts."""
        if not self.failed and self.book is not None:
            self.book.end()
        self.failed = True

    def key(self, exchange: str) -> int:
        """Returns the 64-bit seed of the client's own random numbers in an exchange.

        Nobody else has it. It is the same at each start of the job, so that the same question gets the same answer.
        """
        about = exchange.encode() + self.known
        return int.from_bytes(hashlib.blake2b(about, key=self._secret, digest_size=8, person=b"fedkern draws").digest(), "little")

    def know(self, known: bytes) -> None:
        """Takes what all clients must know alike from here on, too: masks of those that know something else do not cancel."""
        self.known = hashlib.blake2b(self.known + known, digest_size=32, person=b"fedkern known").digest()

    def hide(self, numbers: Array, added: Sum, question: bytes) -> bytes:
        """Returns masked words of numbers, each clipped to what has a sum, and of a zero.

        Raises
        ------
        JobError
            A word does not hold all digits of a number that has to be exact.
        """
        values = np.concatenate([numbers, np.zeros(CHECKED)])
        if added.exact and not holds(values, added.form, self.n_clients).all():
            raise JobError(f"client {self.name!r}: {added.what} {TOO_MUCH}")
        if np.isnan(values).any():  # a 0 in its place would tell the client's number, by how much the sum lacks
            self.fail()
            self.spoils = True
        words = to_words(saturated(values, added.form.each(self.n_clients)), added.form, self.n_clients)
        counter, self.used = self.used, self.used + 1
        if self.spoils:  # by masks that no other client has
            question = _chained(question, struct.pack("<I", self.pairs.client))
        self.pairs.hide(words, counter, added.masked.kind, question)
        return words.astype("<u8", copy=False).tobytes()

    @property
    def n_clients(self) -> int:
        """The number of clients whose sum it is."""
        return self.pairs.n_clients


@dataclass(frozen=True)
class Server(Generic[S]):
    """Is the server's state.

    Attributes
    ----------
    inner : of its machine, whose only client is all of them
    names : of the clients
    answers : client -> its masked answers to the open questions, of which not all have answered the first
    """

    inner: S
    names: tuple[str, ...] = field(metadata=GIVEN)
    answers: PersistentMap[int, tuple[Masked, ...]] = field(default_factory=PersistentMap, metadata=GIVEN)

    @property
    def round(self) -> int:
        """The rounds that the machine has finished."""
        return int(getattr(self.inner, "round", 0))

    @property
    def stop(self) -> str | None:
        """The reason why no more is asked; None while the job runs."""
        reason: str | None = getattr(self.inner, "stop", None)
        return reason


@dataclass(frozen=True)
class Client(Generic[C]):
    """Is a client's state: that of its machine, and what masks its answers.

    `heard` is the digest of all that the server has told it in this exchange, also at earlier starts: its answers depend
    on all of that. Told different things, the other clients could give answers by which their sum tells one client's.
    """

    inner: C
    hider: Hider = field(metadata=GIVEN)
    heard: bytes = bytes(32)


@dataclass(frozen=True)
class Sums:
    """Masks the answers of a protocol, whose server only adds them.

    Attributes
    ----------
    protocol : of the machines, the server's with one client
    sums : how the kinds of its answers are masked; all other answers of clients are refused
    dims : sizes of its messages
    most : kind of a question -> how often it comes in one run
    of_rows : whether it adds up numbers of rows, of which there are rules on sums
    """

    protocol: Protocol[Any, Any]
    sums: tuple[Sum, ...]
    dims: Mapping[str, int]
    most: Mapping[type[Message], int] = field(default_factory=dict)
    of_rows: bool = True

    @property
    def masked_dims(self) -> dict[str, int]:
        """The sizes of the messages that travel."""
        return {**self.dims, **{added.symbol: added.n_bytes(self.dims) for added in self.used}}

    @cached_property
    def used(self) -> tuple[Sum, ...]:
        """The kinds that this protocol can send."""
        return tuple(added for added in self.sums if added.kind in self.protocol.to_server)

    @property
    def masked(self) -> Protocol[Any, Any]:
        """The protocol as it travels."""
        bare = [kind.__name__ for kind in self.protocol.to_server if all(kind is not added.kind for added in self.used)]
        if bare:
            raise ValueError(f"{self.protocol.name}: {', '.join(bare)} cannot be masked")
        inner = self.protocol

        def save(state: Any) -> Saved:
            heard: Saved = {HEARD: state.heard} if isinstance(state, Client) else {}
            return inner.save(state.inner) | heard

        def load(fresh: Any, saved: Saved) -> Any:
            rest = {name: value for name, value in saved.items() if name != HEARD}
            state = evolve(fresh, inner=inner.load(fresh.inner, rest))
            return evolve(state, heard=text(saved, HEARD)) if isinstance(state, Client) else state

        def finished(state: Server[Any]) -> bool:
            return inner.finished(state.inner)

        up = tuple(added.masked for added in self.used)
        return Protocol(inner.name, inner.to_client, up, self._server_receive, self._client_receive, finished, save, load)

    def start(self, start: Start[S], names: tuple[str, ...]) -> Start[Server[S]]:
        """Returns the server's first state and questions, from those of its machine."""
        state, effects = start
        return Server(state, names), _to_all(effects, len(names))

    def _client_receive(self, state: Client[C], event: Event) -> tuple[Client[C], ClientEffects]:
        """Answers a question, and masks the answer."""
        heard = _chained(state.heard, digest(event)) if isinstance(event, Message) else state.heard
        question = _chained(state.hider.known, heard)
        if isinstance(event, Message):
            kind = f"{self.protocol.name}-{type(event).__name__}"
            state.hider.asked(kind, question, self.most.get(type(event), 1))
        inner, effects = self.protocol.client_receive(state.inner, event)
        if getattr(inner, "failed", False):
            state.hider.fail()
        out: ClientEffects = []
        for effect in effects:
            added = next((kind for kind in self.used if type(effect) is kind.kind), None)
            if added is None:
                raise ValueError(f"{self.protocol.name}: {type(effect).__name__} cannot be masked")
            hidden = state.hider.hide(self._numbers(effect, added), added, question)
            out.append(added.masked(getattr(effect, "round", 0), hidden))
        return evolve(state, inner=inner, heard=heard), out

    def _numbers(self, message: Any, added: Sum) -> Array:
        """Returns a message's numbers, after a look at their count."""
        wanted = added.kind.count(self.dims)
        numbers: Array = message.numbers()
        if len(numbers) != wanted:
            raise ValueError(f"{added.kind.__name__} has {len(numbers)} numbers, and {wanted} were agreed")
        return numbers

    def _server_receive(self, state: Server[S], sender: int, event: Event) -> tuple[Server[S], ServerEffects]:
        """Takes one masked answer; the last one makes the sum, which the machine gets.

        Raises
        ------
        LostPeer
            A client is gone: of all others no sum can be made.
        RemoteFault
            An answer is of another length, kind or round than the others, or came twice.
        """
        needed(event, f"client {{client}} is gone in round {state.round}, and {NEEDED}", state.names)
        if not isinstance(event, Masked):
            inner, effects = self._inner_receive(state, sender, event)
            return evolve(state, inner=inner), _to_all(effects, len(state.names))
        added = next(added for added in self.used if added.masked is type(event))
        name = type(event).__name__
        before = state.answers.get(sender, ())
        if before and event.round <= before[-1].round:
            raise RemoteFault(f"{name} came twice", sender)
        if len(event.words) != added.n_bytes(self.dims):
            raise RemoteFault(f"{name}.words of {len(event.words)} bytes, needs {added.n_bytes(self.dims)}", sender)
        # Where several questions are asked at once, each client answers them in their order.
        for other in (others[len(before)] for others in state.answers.values() if len(others) > len(before)):
            if type(other) is not type(event) or other.round != event.round:
                raise RemoteFault(
                    f"{name} of round {event.round}, others sent {type(other).__name__} of round {other.round}", sender
                )
        answers = state.answers.plus(sender, (*before, event))
        if before or len(answers) < len(state.names):
            return evolve(state, answers=answers), []
        first, rest = {k: words[0] for k, words in answers.items()}, {k: words[1:] for k, words in answers.items() if words[1:]}
        inner, effects = self._inner_receive(state, 0, self._total(first, added, event.round))
        return evolve(state, inner=inner, answers=PersistentMap(rest)), _to_all(effects, len(state.names))

    def _inner_receive(self, state: Server[S], sender: int, event: Event) -> tuple[S, ServerEffects]:
        """Gives the machine an event; a fault of its one client is one of all clients together."""
        try:
            inner: tuple[S, ServerEffects] = self.protocol.server_receive(state.inner, sender, event)
        except RemoteFault as fault:
            fault.client = None if fault.client is None else ALL
            raise
        return inner

    def _total(self, answers: Mapping[int, Masked], added: Sum, round: int) -> Message:
        """Returns the message of all clients together."""
        sums = total([np.frombuffer(answers[k].words, "<u8").reshape(added.form.limbs, -1) for k in sorted(answers)])
        # Of masks that do not cancel the last word is 0 by chance once in 2^128.
        if sums[:, -CHECKED:].any():
            raise RemoteFault(ENDED)
        message: Message = added.kind.of_sum(round, from_words(sums, added.form)[:-CHECKED], self.dims)
        return message


def saturated(numbers: Array, limit: float) -> Array:
    """Returns numbers clipped to less than `limit` in size; 0 where one is none.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.algorithms.core.masked import saturated
    >>> saturated(np.array([1.5, -np.inf, np.nan]), 1024.0)
    array([    1.5, -1024. ,     0. ])
    """
    most = math.nextafter(limit, 0.0)
    return np.where(np.isnan(numbers), 0.0, np.clip(numbers, -most, most))


def digest(message: Message) -> bytes:
    """Returns the digest of a message: of its kind, and of the types, shapes and bits of its fields."""
    state = hashlib.blake2b(digest_size=32, person=b"fedkern question")
    state.update(struct.pack("<I", message.kind))
    for part in fields(message):
        value = getattr(message, part.name)
        if isinstance(value, np.ndarray):
            array = np.ascontiguousarray(value, "<f8")
            body = struct.pack(f"<{array.ndim}Q", *array.shape) + array.tobytes()
        elif isinstance(value, bytes):
            body = value
        elif isinstance(value, float):
            body = struct.pack("<d", value)
        else:
            body = struct.pack("<q", value)
        state.update(struct.pack("<Q", len(body)) + body)
    return state.digest()


def _chained(before: bytes, digest: bytes) -> bytes:
    """Returns the digest of what was before and of what came after it."""
    return hashlib.blake2b(before + digest, digest_size=32, person=b"fedkern heard").digest()


def _to_all(effects: ServerEffects, n_clients: int) -> ServerEffects:
    """Returns effects in which all clients are asked what the machine asks of its one."""
    out: ServerEffects = []
    for target, effect in effects:
        out += [(SERVER, effect)] if target == SERVER else [(k, effect) for k in range(n_clients)]
    return out
