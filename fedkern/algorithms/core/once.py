"""Asks each client one question and takes one answer from each: a small machine, or one leg of a machine in `exchanges`.

Nothing of it lasts: after a crash the questions are asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from typing import Protocol as Shape

import numpy as np

from ...finding import Finding
from .kept import PersistentMap, PersistentSet
from .messages import ClientEffects, ClientLost, Event, Message, Protocol, RemoteFault, Saved, ServerEffects, evolve, schema
from .rounds import needed, to_each

Reply = TypeVar("Reply")
State = TypeVar("State")
S = TypeVar("S")
C = TypeVar("C")


class Asked(Shape):
    """Is a server's state with the answers so far: client -> its answer."""

    @property
    def replies(self) -> PersistentMap[int, Any]: ...


Waiting = TypeVar("Waiting", bound=Asked)
Q = TypeVar("Q", bound=Message)  # a question
A = TypeVar("A", bound=Message)  # an answer
IMPOSSIBLE = 1e300  # beyond all bounds of answers


@dataclass(frozen=True)
class Client(Generic[Q, A]):
    """Makes the answer to a question by `answer`; `asked` is the question, once it has come."""

    answer: Callable[[Q], A]
    asked: Q | None = None

    def make(self, question: Q) -> A:
        """Makes the answer."""
        return self.answer(question)


@dataclass(frozen=True)
class Server(Generic[A]):
    """Holds the answers of one question.

    `replies`: client -> its answer; `lost`: clients that will send none; `dropped`: client -> the reason why its answer is not
    used; `asks` is False if the server has no question.
    """

    n_clients: int
    asks: bool = True
    replies: PersistentMap[int, A] = field(default_factory=PersistentMap)
    lost: PersistentSet[int] = field(default_factory=PersistentSet)
    dropped: PersistentMap[int, str] = field(default_factory=PersistentMap)

    @property
    def complete(self) -> bool:
        """Whether everybody was asked, and has answered."""
        return self.asks and len(self.replies) == self.n_clients


def not_in(where: str, server: Server[Any], names: Sequence[str]) -> list[str]:
    """Returns notes on the answers that are not used in the sums of `where`."""
    return left_out(where, server.dropped, names)


def left_out(where: str, why: Mapping[int, str], names: Sequence[str]) -> list[str]:
    """Returns notes on clients that are not in the sums of `where`; `why`: client -> the reason."""
    return [Finding.of("not-in-sums", client=names[k], where=where, why=why[k]) for k in sorted(why)]


def ready_client(answer: A) -> Client[Any, A]:
    """Returns a client whose answer is made before the question comes."""
    return Client(lambda question: answer)


def impossible(reply: type[A], dims: Mapping[str, int], *, zeros: bool = False) -> A:
    """Returns an answer with numbers that no client's can be, which a server drops; `zeros`: those of a client without rows."""
    number = 0.0 if zeros else -IMPOSSIBLE
    content = dict[str, Any]()
    for name, field_of in schema(reply).items():
        shape = tuple(dims[symbol] for symbol in field_of.shape)
        array = np.full(shape, number) if field_of.type is np.ndarray else None
        single = {int: int(not zeros and name != "round"), float: number, bytes: b""}.get(field_of.type)
        content[name] = single if array is None else array
    return reply(**content)


def _possible(answer: object) -> str:
    """Returns "": every answer can be."""
    return ""


@dataclass(frozen=True)
class Question(Generic[Q, A]):
    """Defines a question that the server asks every client once, and that each answers once."""

    name: str  # in ledgers and folders
    # ask, reply: the messages
    ask: type[Q]
    reply: type[A]
    wrong: Callable[[A], str] = _possible  # gives the reason why an answer cannot be, "its Reply ..."; "" where it can
    drops: bool = False  # whether the job goes on without an answer that cannot be, for it has done its work
    judges: bool = False  # whether the verdict hangs on the answers: without one that cannot be it is not judged
    needs: str = ""  # the end of the error where a client is lost before it has answered; "": the job goes on without

    def start(self, n_clients: int, question: Q | None) -> tuple[Server[A], ServerEffects]:
        """Asks everybody, or nobody if `question` is None."""
        effects = [] if question is None else ask(n_clients, question)
        return Server(n_clients, question is not None), effects

    def finished(self, state: Server[A]) -> bool:
        """Tells whether everybody who still lives has answered."""
        return not state.asks or heard_of_all(state.replies, state.lost, state.n_clients, state.dropped)

    def client_receive(self, state: Client[Q, A], event: Event) -> tuple[Client[Q, A], ClientEffects]:
        """Answers the question."""
        if not isinstance(event, self.ask):
            raise RemoteFault(f"server: {type(event).__name__} was not expected")
        return evolve(state, asked=event), [state.answer(event)]

    def server_receive(self, state: Server[A], sender: int, event: Event) -> tuple[Server[A], ServerEffects]:
        """Takes one client's answer, or its loss. Raises LostPeer: the client is gone, and the job needs its answer. Raises
        RemoteFault: not the answer, a second one, or one that cannot be, where the job does not go on without it."""
        if isinstance(event, ClientLost) and not self.needs:
            return evolve(state, lost=state.lost.plus(event.client)), []
        needed(event, self.needs)
        if not isinstance(event, self.reply) or sender in state.replies or sender in state.dropped:
            what = "came twice" if isinstance(event, self.reply) else "was not expected"
            raise RemoteFault(f"{type(event).__name__} {what}", sender)
        if why := self.wrong(event):
            if not self.drops:
                raise RemoteFault(f"{why}", sender)
            return evolve(state, dropped=state.dropped.plus(sender, why)), []
        return with_reply(state, sender, event), []

    @property
    def protocol(self) -> Protocol[Server[A], Client[Q, A]]:
        """The protocol of this question, as a transport needs it."""
        receive = self.server_receive, self.client_receive
        return protocol(self.name, (self.ask,), (self.reply,), *receive, self.finished, once=True)


def ask(n_clients: int, question: Message) -> ServerEffects:
    """Returns the question to each client."""
    return to_each(range(n_clients), question)


def with_reply(state: Waiting, sender: int, reply: Reply) -> Waiting:
    """Returns the state with one client's reply."""
    return evolve(state, replies=state.replies.plus(sender, reply))


def heard_of_all(replies: Collection[int], lost: Collection[int], n_clients: int, dropped: Collection[int] = ()) -> bool:
    """Tells whether each client has answered or is gone; `dropped`: those whose answer cannot be, and is not among the
    replies."""
    return len({*replies, *lost, *dropped}) == n_clients


def save(state: State) -> Saved:
    """Returns nothing to keep: after a crash the question is asked again."""
    return {}


def load(fresh: State, saved: Saved) -> State:
    """Returns `fresh`."""
    return fresh


def protocol(
    name: str,
    to_client: tuple[type[Message], ...],
    to_server: tuple[type[Message], ...],
    server_receive: Callable[[S, int, Event], tuple[S, ServerEffects]],
    client_receive: Callable[[C, Event], tuple[C, ClientEffects]],
    finished: Callable[[S], bool],
    *,
    once: bool = False,
) -> Protocol[S, C]:
    """Returns a protocol that keeps no state; `once`: as `Protocol` has it."""
    return Protocol(name, to_client, to_server, server_receive, client_receive, finished, save, load, once)
