"""One question to each client, and one answer from each: a small machine, or one leg of it, as those in `exchanges`.

Nothing of it lasts: after a crash the questions are asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol as Shape
from typing import TypeVar

from .messages import ClientEffects, Event, Message, Protocol, Saved, ServerEffects, evolve
from .rounds import to_each

Reply = TypeVar("Reply")
Reply_co = TypeVar("Reply_co", covariant=True)
State = TypeVar("State")
S = TypeVar("S")
C = TypeVar("C")


class Asked(Shape[Reply_co]):
    """The server's state: client -> its answer."""

    @property
    def replies(self) -> Mapping[int, Reply_co]: ...


Waiting = TypeVar("Waiting", bound=Asked[object])


def ask(n_clients: int, question: Message) -> ServerEffects:
    """The question to each client."""
    return to_each(range(n_clients), question)


def with_reply(state: Waiting, sender: int, reply: Reply) -> Waiting:
    """The state with one client's reply."""
    return evolve(state, replies={**state.replies, sender: reply})


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
