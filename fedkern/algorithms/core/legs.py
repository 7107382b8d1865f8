"""Declares agreements: in each leg every client tells one thing, the server combines what all have told, and all get the outcome.

The class of the server's state is the declaration: its keywords name the answers, and its method `combined` says what the
answers of a leg lead to. From these come all checks of what arrives, pieces of long texts among it, and the protocol. Answers are
combined in client order, so that the order of arrival can't change a bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from . import once, pieces
from .kept import GIVEN, PersistentMap, load, save
from .messages import ClientEffects, Event, Message, Protocol, RemoteFault, ServerEffects, of_client
from .rounds import in_order, needed

A = TypeVar("A")  # what is kept of an answer
S = TypeVar("S", bound="Leg[Any]")
C = TypeVar("C")
M = TypeVar("M", bound="Told")

Conditions = Iterator[tuple[bool | np.bool, str]]

GONE = "client {client} is gone before the first round; start again when it is back"


def not_agreed(what: str) -> str:
    """Returns the error for a lost client, without which there is nothing that could go on."""
    return f"{what} not agreed yet; see why it ended, and start the job again"


@dataclass(frozen=True)
class Leg(Generic[A]):
    """Is the base of the server's states.

    Its keywords are `answers`, the kinds that clients send, leg by leg (the last one from then on), and `needs`, the error where
    a client is lost.
    """

    kinds: ClassVar[tuple[type[Any], ...]]
    needs: ClassVar[str]

    clients: tuple[str, ...] = field(metadata=GIVEN)  # their names
    leg: int = field(default=0, kw_only=True)  # of the open question
    # client -> what is kept of its answer of this leg
    replies: PersistentMap[int, A] = field(default_factory=PersistentMap, kw_only=True, metadata=GIVEN)
    # client -> the pieces of an unfinished answer
    pieces: PersistentMap[int, tuple[bytes, ...]] = field(default_factory=PersistentMap, kw_only=True, metadata=GIVEN)

    def __init_subclass__(cls, *, answers: tuple[type[Any], ...] = (), needs: str = GONE) -> None:
        if answers:
            cls.kinds, cls.needs = answers, needs

    @property
    def round(self) -> int:
        """The leg, under the name by which the driver asks for it."""
        return self.leg

    @property
    def expected(self) -> type[Any]:
        """The kind of answer that this leg has."""
        return self.kinds[min(self.leg, len(self.kinds) - 1)]

    @property
    def complete(self) -> bool:
        """Whether everybody has answered in this leg."""
        return len(self.replies) == len(self.clients)

    @property
    def done(self) -> bool:
        """Whether nothing more is asked."""
        return self.complete

    def checked(self, sender: int, content: Any) -> A:
        """Returns what is kept of an answer, or of the content of one in pieces; RemoteFault if it is none that can be."""
        kept: A = content
        return kept

    def combined(self, answers: list[A]) -> tuple[Self, ServerEffects]:
        """Returns the state and the messages that follow from the answers of all clients, in their order."""
        return self, []

    def ask(self, question: Message, **changes: Any) -> tuple[Self, ServerEffects]:
        """Returns the state of the next leg, with changes, and the same message to each client."""
        state = replace(self, replies=PersistentMap(), **{"leg": self.leg + 1, **changes})
        return state, once.ask(len(self.clients), question)

    def receive(self, sender: int, event: Event) -> tuple[Self, ServerEffects]:
        """Takes one answer, or a piece of one; the last one of a leg ends it. Raises LostPeer: a client is gone. Raises
        RemoteFault: not the answer that was asked for, a second one, or one that cannot be."""
        needed(event, self.needs, self.clients)
        late = getattr(event, "round", self.leg) != self.leg
        if self.done or late or sender in self.replies or not isinstance(event, self.expected):
            raise RemoteFault(f"{type(event).__name__} was not expected", sender)
        content: Any = event
        with of_client(sender):
            if isinstance(event, pieces.Piece):
                have, content = pieces.add(type(event).__name__, self.pieces.get(sender, ()), event)
                if content is None:
                    return replace(self, pieces=self.pieces.plus(sender, have)), []
            answer = self.checked(sender, content)
        state = replace(self, replies=self.replies.plus(sender, answer), pieces=self.pieces.minus(sender))
        # Nothing is combined before all have answered: in client order it has the same bits on every run.
        return state.combined(in_order(state.replies)) if state.complete else (state, [])


def protocol(
    name: str,
    server: type[S],
    to_client: tuple[type[Message], ...],
    to_server: tuple[type[Any], ...],
    client_receive: Callable[[C, Event], tuple[C, ClientEffects]],
    *,
    keeps: bool = False,
) -> Protocol[S, C]:
    """Returns the protocol of an agreement; `keeps`: its outcome, which clients of an earlier start are not asked for again."""

    def server_receive(state: S, sender: int, event: Event) -> tuple[S, ServerEffects]:
        return state.receive(sender, event)

    def finished(state: S) -> bool:
        return state.done

    made = once.protocol(name, to_client, to_server, server_receive, client_receive, finished)
    return replace(made, save=save, load=load) if keeps else made


class Told(Message):
    """Is the base of what the server tells each client once, and nobody answers; `name` of the exchange."""

    protocol: ClassVar[Protocol[Any, Any]]

    def __init_subclass__(cls, *, kind: int | None = None, name: str = "") -> None:
        super().__init_subclass__(kind=kind)

        def client_receive(state: Heard[Any], event: Event) -> tuple[Heard[Any], ClientEffects]:
            if not isinstance(event, cls) or state.told is not None:
                raise RemoteFault(f"server: {type(event).__name__} was not expected")
            for good, why in event.honest():
                if not good:
                    raise RemoteFault(f"server: {why}")
            return Heard(event), []

        def server_receive(state: Telling, sender: int, event: Event) -> tuple[Telling, ServerEffects]:
            raise RemoteFault(f"{type(event).__name__} was not expected", sender)

        cls.protocol = once.protocol(name, (cls,), (), server_receive, client_receive, lambda state: True)

    def honest(self) -> Conditions:
        """Yields what honest servers tell, each with the sentence on another one."""
        yield from ()

    @classmethod
    def start(cls, messages: Sequence[Self]) -> tuple[Telling, ServerEffects]:
        """Tells each client its message."""
        return Telling(), list(enumerate(messages))


@dataclass(frozen=True)
class Telling:
    """Is the state of a server that has told all, and has nothing left to do."""

    round: int = 0


@dataclass(frozen=True)
class Heard(Generic[M]):
    """Is the state of a client that is told once."""

    told: M | None = None
