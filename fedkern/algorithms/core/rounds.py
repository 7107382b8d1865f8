"""A round: clients are asked, each answers once, and when all have answered the machine goes on. Who has, is decided here.

The order in which answers come must not change a bit of the result: they are used in client order, `in_order`.

A client that is gone, because it died or because it was silent for too long, is one event, `ClientLost`; transports decide when.
Where the model needs all its clients it ends the job, here (`needs_all`, `needed`). Machines that can go on without one
say themselves what then becomes of the model: partitioned inference, Gibbs sampling with `on_loss = "drop"`, certificates.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...errors import LostPeer
from .messages import NO_MODEL, ClientLost, Event, Message, RemoteFault, ServerEffects, evolve, lost
from .persistent import PersistentMap, PersistentSet

Answer = TypeVar("Answer")


class Round(Protocol):
    """What a server's state has where all clients answer in every round, with one message each.

    Attributes
    ----------
    names, round : of the clients; rounds finished
    waiting, answers : clients that have yet to answer; client -> its answer
    """

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def round(self) -> int: ...
    @property
    def waiting(self) -> PersistentSet[int]: ...
    @property
    def answers(self) -> PersistentMap[int, Any]: ...


State = TypeVar("State", bound=Round)
M = TypeVar("M", bound=Message)


class HasRounds(Protocol):
    """Settings with a number of rounds."""

    @property
    def rounds(self) -> int: ...


class Counted(Protocol):
    """What `AllRounds` counts by."""

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def round(self) -> int: ...
    @property
    def settings(self) -> HasRounds: ...


class AllRounds:
    """A server that ends after its last round and never before, and of whose clients each takes part in every round."""

    @property
    def n_clients(self: Counted) -> int:
        return len(self.names)

    @property
    def stop(self: Counted) -> str | None:
        """Why no more is asked: "rounds"; None while the job runs."""
        return "rounds" if self.round >= self.settings.rounds else None

    @property
    def updates(self: Counted) -> NDArray[np.int64]:
        """(J,) rounds in which each client took part: all of them."""
        return np.full(len(self.names), self.round)


def ask_all(state: State, question: Message) -> tuple[State, ServerEffects]:
    """Asks every client, and waits for all of them."""
    everyone = range(len(state.names))
    return evolve(state, waiting=PersistentSet(everyone), answers=PersistentMap()), to_each(everyone, question)


def tell_all(state: State, message: Message) -> tuple[State, ServerEffects]:
    """Tells every client what needs no answer."""
    return evolve(state, waiting=PersistentSet(), answers=PersistentMap()), to_each(range(len(state.names)), message)


def with_answer(state: State, sender: int, event: Event, expected: type[Message], why: str = NO_MODEL) -> State:
    """The state with one answer more. `why` the model cannot go on without a client.

    Raises
    ------
    LostPeer
        The client is gone.
    RemoteFault
        Not the message that was asked for, of another round, or of a client that has answered.
    """
    needs_all(event, state.names, state.round, why)
    late = getattr(event, "round", state.round) != state.round
    if not isinstance(event, expected) or late or sender not in state.waiting:
        raise RemoteFault(f"client {sender}: {type(event).__name__} is no answer to round {state.round}")
    return evolve(state, answers=state.answers.plus(sender, event), waiting=state.waiting.minus(sender))


def needs_all(event: Event, names: tuple[str, ...], round: int, why: str = NO_MODEL) -> None:
    """LostPeer if the event is the loss of a client during the rounds."""
    if isinstance(event, ClientLost):
        raise lost(names[event.client], round, why)


def needed(event: Event, text: str, names: tuple[str, ...] = ()) -> None:
    """LostPeer with this text if the event is the loss of a client; `{client}` in it is its name."""
    if isinstance(event, ClientLost):
        raise LostPeer(text.format(client=repr(names[event.client])) if names else text)


def to_each(clients: Iterable[int], message: Message) -> ServerEffects:
    """The same message to each of these."""
    return [(k, message) for k in clients]


def active(n_clients: int, *out: Collection[int]) -> list[int]:
    """Clients that are in none of these sets."""
    if not any(out):
        return list(range(n_clients))
    return [k for k in range(n_clients) if not any(k in members for members in out)]


def in_order(answers: Mapping[int, Answer]) -> list[Answer]:
    """All answers, in client order."""
    return [answers[k] for k in sorted(answers)]


def all_of(answers: Mapping[int, Message], kind: type[M]) -> list[M]:
    """All answers, in client order; the round asked for this kind."""
    return [answer for answer in in_order(answers) if isinstance(answer, kind)]


def summed(arrays: Iterable[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The sum of at least one array, added in this order."""
    first, *others = arrays
    total = first.copy()
    for array in others:
        total += array
    return total


def flags(n_clients: int, *sets: Collection[int]) -> NDArray[np.float64]:
    """(sets, n_clients) 1 where a client is in a set, for a checkpoint."""
    return np.array([[k in members for k in range(n_clients)] for members in sets], float)


def members(saved: Iterable[NDArray[np.float64]]) -> list[frozenset[int]]:
    """Inverse of `flags`."""
    return [frozenset(np.flatnonzero(row).tolist()) for row in saved]
