"""Defines messages: frozen dataclasses whose annotations are their schema.

A field is an int, a float, a float64 array (`Annotated[NDArray[np.float64], "d"]` has shape (d,), where the job gives d),
or bytes (`Annotated[bytes, "schema"]` has at most as many as the job says "schema" is).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar, cast, get_type_hints, overload
from typing import Protocol as Shape

import numpy as np
from numpy.typing import NDArray

from ...errors import LostPeer
from .tells import Public, Tells

SERVER = 2**32 - 1
KINDS: dict[int, type[Message]] = {}

Value = NDArray[np.float64] | int | float | bytes
Saved = dict[str, Value]  # a state, as a checkpoint holds it


@dataclass(frozen=True)
class Message:
    """Is the base of all messages.

    `kind` is a number that never changes its meaning; `tells` says what a client's message tells of its rows, and is None where
    the server sends it. A class without a number is a base of others.
    """

    kind: ClassVar[int]
    tells: ClassVar[Tells | None]

    def __init_subclass__(cls, *, kind: int | None = None, tells: Tells | None = None) -> None:
        if kind is None:
            return
        if kind in KINDS:
            raise TypeError(f"message kind {kind} is taken by {KINDS[kind].__name__}")
        cls.kind, KINDS[kind] = kind, cls
        cls.tells = tells


@dataclass(frozen=True)
class Field:
    """Describes one field: `type` int, float, bytes or np.ndarray; `shape` the symbols of an array, or the one that bounds
    bytes."""

    type: type
    shape: tuple[str, ...] = ()


def schema(kind: type[Message]) -> Mapping[str, Field]:
    """Returns the type and shape of each field of a message kind."""
    return _schema(cast(Any, kind))  # mypy takes the hash of an instance for that of its type


@cache  # annotations are texts, evaluated anew each time; nobody changes what it gives
def _schema(kind: Any) -> Mapping[str, Field]:
    hints = get_type_hints(kind, include_extras=True)
    out = {}
    for field in fields(kind):
        hint = hints[field.name]
        if hasattr(hint, "__metadata__"):
            kind_held = bytes if hint.__origin__ is bytes else np.ndarray
            out[field.name] = Field(kind_held, tuple(hint.__metadata__[0].split()))
        else:
            out[field.name] = Field(hint)
    return MappingProxyType(out)


@dataclass(frozen=True)
class ClientLost:
    """Is an event, no message: the driver tells the server that a client has died or missed its deadline."""

    client: int


@dataclass(frozen=True)
class ClientBack:
    """Is an event, no message: a client that was lost has answered all that it was asked before, and takes part again."""

    client: int


@dataclass(frozen=True)
class Charge:
    """Is an effect, no message: a machine asks its driver before it reads rows. The holder's budget answers."""

    steps: int
    round: int


@dataclass(frozen=True)
class Charged:
    """Is the answer that the charge is on disk: the steps may be run."""

    steps: int


@dataclass(frozen=True)
class ChargeFailed:
    """Is the answer that the charge would exceed the budget (in steps of this job): no row may be read."""

    steps: int
    spent: int
    allowed: int


@dataclass(frozen=True)
class Refused(Message, kind=13, tells=Public(private="that its budget is spent, from public numbers")):
    """Client to server: the question would exceed my budget. Final. `spent`: steps of this job.

    The message does not say how many more the holder would allow, for that tells of the budget spent in other jobs.
    """

    round: int
    spent: int


@dataclass(frozen=True)
class Release:
    """Is an effect, no message: the server's machine asks its driver before any part of a round's noisy sum leaves.

    The sum must be on disk, so that it is never drawn again.
    """

    round: int
    content: Saved


@dataclass(frozen=True)
class Released:
    """Is the answer with the noisy sum of a round that may leave: the sum of `Release`, or an earlier one that a crash
    interrupted."""

    round: int
    content: Saved


S = TypeVar("S")  # the server's state
C = TypeVar("C")  # a client's state

Event = Message | ClientLost | ClientBack | Charged | ChargeFailed | Released  # what a machine is told
Effect = Message | Charge
ServerEffects = list[tuple[int, Effect | Release]]  # (client, message), or (SERVER, charge or release)
ClientEffects = list[Effect]
Start = tuple[S, ServerEffects]  # the server's first state, and its first questions


class Load(Shape[S, C]):
    """Loads saved values into a state that was just made, a server's or a client's."""

    @overload
    def __call__(self, fresh: S, saved: Saved, /) -> S: ...
    @overload
    def __call__(self, fresh: C, saved: Saved, /) -> C: ...


@dataclass(frozen=True)
class Protocol(Generic[S, C]):
    """Holds all that a transport knows of an algorithm: which messages travel which way, its transitions, how its states are
    kept.

    A state is linear: it is given to one transition, and from then on only the state that came back may be read. A machine may so
    change large arrays where they are, and some do. `save` and `load` serve server and client states alike; rows are never saved.
    `once`: whether each client is asked at most one question, so that its part is over when it has answered. `readmits`: the
    message by which a lost client learns that it takes part again, where one does.
    """

    name: str
    to_client: tuple[type[Message], ...]
    to_server: tuple[type[Message], ...]
    server_receive: Callable[[S, int, Event], tuple[S, ServerEffects]]
    client_receive: Callable[[C, Event], tuple[C, ClientEffects]]
    finished: Callable[[S], bool]
    save: Callable[[S | C], Saved]
    load: Load[S, C]
    once: bool = False
    readmits: type[Message] | None = None

    def __post_init__(self) -> None:
        for kind in self.to_server:
            # What is no message is never sent: masked words travel in its place.
            if issubclass(kind, Message) and not isinstance(kind.tells, Tells):
                raise TypeError(
                    f"{kind.__name__} comes from a client, and its class does not say what it tells: give it a class of "
                    "fedkern.algorithms.core.tells, such as tells = Sums()"
                )


def array(saved: Mapping[str, Value], name: str) -> NDArray[np.float64]:
    """Returns a saved array; raises ValueError for a value of another type."""
    value = saved[name]
    if not isinstance(value, np.ndarray):
        raise ValueError(f"saved {name!r}: {type(value).__name__}, needs an array")
    return value


def number(saved: Mapping[str, Value], name: str) -> int:
    """Returns a saved whole number; raises ValueError for a value of another type."""
    value = saved[name]
    if not isinstance(value, int | np.integer):
        raise ValueError(f"saved {name!r}: {type(value).__name__}, needs a whole number")
    return int(value)


def text(saved: Mapping[str, Value], name: str) -> bytes:
    """Returns a saved text; raises ValueError for a value of another type."""
    value = saved[name]
    if not isinstance(value, bytes):
        raise ValueError(f"saved {name!r}: {type(value).__name__}, needs a text")
    return value


NO_MODEL = "the model needs all its clients"
NO_PREDICTOR = "without its part there is no linear predictor"


def lost(name: str, round: int, why: str = NO_MODEL) -> LostPeer:
    """Returns the error for a client that is gone, with the reason why the job cannot go on without it."""
    return LostPeer(
        f"client {name!r} is gone in round {round}, and {why}; --resume goes on from the last checkpoint when it is back"
    )


State = TypeVar("State")


def evolve(state: State, /, **changes: object) -> State:
    """Returns a changed copy, like `dataclasses.replace` without `__init__`.

    It is several times as fast, for states that change with every message.
    """
    new: State = object.__new__(type(state))
    object.__setattr__(new, "__dict__", state.__dict__ | changes)
    return new


class RemoteFault(Exception):
    """Tells that a peer sent a message that it should not have sent. (A fault of the caller is a ValueError.)

    Attributes
    ----------
    text : what is wrong
    client : whose message it was, where that is a client: its number, or its name where that is known; None else
    where : at which rank or site, where more is known of it
    """

    def __init__(self, text: str, client: int | str | None = None) -> None:
        super().__init__(text)
        self.text, self.client, self.where = text, client, ""

    def __str__(self) -> str:
        client = "" if self.client is None else f"client {self.client!r}: "
        return f"{self.where}{client}{self.text}"


@contextmanager
def of_client(client: int | str) -> Iterator[None]:
    """Says of a fault that is raised inside the block whose message it is of."""
    try:
        yield
    except RemoteFault as fault:
        fault.client = client
        raise


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Reports bytes of a peer that are not what they should be as a RemoteFault; `what` they are begins its text."""
    try:
        yield
    except (struct.error, LookupError, TypeError, ValueError, OverflowError, RecursionError) as fault:
        raise RemoteFault(f"{what} cannot be read ({type(fault).__name__})") from None
