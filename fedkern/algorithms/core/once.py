"""One question to each client, and one answer from each: a small machine, or one leg of it, as those in `exchanges`.

Nothing of it lasts: after a crash the questions are asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar
from typing import Protocol as Shape

from .messages import ClientEffects, Event, Message, Protocol, Saved, ServerEffects, evolve
from .persistent import PersistentMap
from .rounds import to_each

Reply = TypeVar("Reply")
State = TypeVar("State")
S = TypeVar("S")
C = TypeVar("C")


class Asked(Shape):
    """The server's state: client -> its answer."""

    @property
    def replies(self) -> PersistentMap[int, Any]: ...


Waiting = TypeVar("Waiting", bound=Asked)


def ask(n_clients: int, question: Message) -> ServerEffects:
    """The question to each client."""
    return to_each(range(n_clients), question)


def with_reply(state: Waiting, sender: int, reply: Reply) -> Waiting:
    """The state with one client's reply."""
    return evolve(state, replies=state.replies.plus(sender, reply))


def heard_of_all(replies: Collection[int], lost: Collection[int], n_clients: int, dropped: Collection[int] = ()) -> bool:
    """Whether each client has answered or is gone; `dropped`: those whose answer cannot be, and is not among the replies."""
    return len({*replies, *lost, *dropped}) == n_clients


def save(state: State) -> Saved:
    """Nothing: after a crash the question is asked again."""
    return {}


def load(fresh: State, saved: Saved) -> State:
    """`fresh`."""
    return fresh


def protocol(
    name: str,
    to_client: tuple[type[Message], ...],
    to_server: tuple[type[Message], ...],
    server_receive: Callable[[S, int, Event], tuple[S, ServerEffects]],
    client_receive: Callable[[C, Event], tuple[C, ClientEffects]],
    finished: Callable[[S], bool],
) -> Protocol[S, C]:
    """A protocol of which nothing is kept."""
    return Protocol(name, to_client, to_server, server_receive, client_receive, finished, save, load)
