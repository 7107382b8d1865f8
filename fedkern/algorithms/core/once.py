"""One question to each client, and one answer from each: a small machine, or one leg of it, as those in `exchanges`.

Nothing of it lasts: after a crash the questions are asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from .messages import Message, Protocol, Saved, ServerEffects
from .rounds import to_each

State = TypeVar("State", bound=Any)


def ask(n_clients: int, question: Message) -> ServerEffects:
    """The question to each client."""
    return to_each(range(n_clients), question)


def with_reply(state: State, sender: int, reply: Any) -> State:
    """The state with one client's reply."""
    after: State = replace(state, replies={**state.replies, sender: reply})
    return after


def save(state: Any) -> Saved:
    """Nothing: after a crash the question is asked again."""
    return {}


def load(fresh: Any, saved: Mapping[str, Any]) -> Any:
    """`fresh`."""
    return fresh


def protocol(
    name: str,
    to_client: tuple[type[Message], ...],
    to_server: tuple[type[Message], ...],
    server_receive: Callable[[Any, int, Any], Any],
    client_receive: Callable[[Any, Any], Any],
    finished: Callable[[Any], bool],
) -> Protocol:
    """A protocol of which nothing is kept."""
    return Protocol(name, to_client, to_server, server_receive, client_receive, finished, save, load)
