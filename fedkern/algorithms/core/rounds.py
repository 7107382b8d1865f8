"""Runs rounds: clients are asked, each answers once, and the machine goes on when all have answered.

The order in which answers come must not change a bit of the result: they are used in client order, `in_order`.

A client that is gone, because it died or because it was silent for too long, is one event, `ClientLost`; transports decide when.
A model that needs all its clients ends the job, here (`needs_all`, `needed`). Machines that can go on without one decide
themselves how the model goes on: partitioned inference, Gibbs sampling with `on_loss = "drop"`, certificates.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...errors import LostPeer
from .kept import PersistentMap, PersistentSet
from .messages import NO_MODEL, ClientLost, Event, Message, RemoteFault, ServerEffects, evolve, lost

Answer = TypeVar("Answer")


class Round(Protocol):
    """Is a server's state where all clients answer in every round, with one message each.

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
    """Is a class of settings with a number of rounds."""

    @property
    def rounds(self) -> int: ...


class Counted(Protocol):
    """Is a state by whose rounds `AllRounds` counts."""

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def round(self) -> int: ...
    @property
    def settings(self) -> HasRounds: ...


class AllRounds:
    """Adds the counts of a server that ends after its last round and never before, and whose clients each take part in every
    round."""

    @property
    def n_clients(self: Counted) -> int:
        """The number of clients."""
        return len(self.names)

    @property
    def stop(self: Counted) -> str | None:
        """The reason why no more is asked: "rounds"; None while the job runs."""
        return "rounds" if self.round >= self.settings.rounds else None

    @property
    def updates(self: Counted) -> NDArray[np.int64]:
        """(J,) The number of rounds in which each client took part: all of them."""
        return np.full(len(self.names), self.round)


def ask_all(state: State, question: Message) -> tuple[State, ServerEffects]:
    """Asks every client, and waits for all of them."""
    everyone = range(len(state.names))
    return evolve(state, waiting=PersistentSet(everyone), answers=PersistentMap()), to_each(everyone, question)


def tell_all(state: State, message: Message) -> tuple[State, ServerEffects]:
    """Sends every client a message that needs no answer."""
    return evolve(state, waiting=PersistentSet(), answers=PersistentMap()), to_each(range(len(state.names)), message)


def with_answer(state: State, sender: int, event: Event, expected: type[Message], why: str = NO_MODEL) -> State:
    """Returns the state with one more answer. `why` completes the error for a lost client: the reason why the model needs it.
    Raises LostPeer: the client is gone. Raises RemoteFault: not the message that was asked for, of another round, or of a client
    that has answered."""
    needs_all(event, state.names, state.round, why)
    late = getattr(event, "round", state.round) != state.round
    if not isinstance(event, expected) or late or sender not in state.waiting:
        raise RemoteFault(f"{type(event).__name__} is no answer to round {state.round}", sender)
    return evolve(state, answers=state.answers.plus(sender, event), waiting=state.waiting.minus(sender))


def needs_all(event: Event, names: tuple[str, ...], round: int, why: str = NO_MODEL) -> None:
    """Raises LostPeer if the event is the loss of a client during the rounds."""
    if isinstance(event, ClientLost):
        raise lost(names[event.client], round, why)


def needed(event: Event, text: str, names: tuple[str, ...] = ()) -> None:
    """Raises LostPeer with this text if the event is the loss of a client; `{client}` in the text becomes its name."""
    if isinstance(event, ClientLost):
        words = text.format(client=repr(names[event.client])) if names else text
        raise LostPeer(words)


def to_each(clients: Iterable[int], message: Message) -> ServerEffects:
    """Returns the same message to each of these clients."""
    return [(k, message) for k in clients]


def active(n_clients: int, *out: Collection[int]) -> list[int]:
    """Returns the clients that are in none of these sets."""
    if not any(out):
        return list(range(n_clients))
    return [k for k in range(n_clients) if not any(k in members for members in out)]


def in_order(answers: Mapping[int, Answer]) -> list[Answer]:
    """Returns all answers, in client order."""
    return [answers[k] for k in sorted(answers)]


def all_of(answers: Mapping[int, Message], kind: type[M]) -> list[M]:
    """Returns all answers of this kind, for which the round asked, in client order."""
    return [answer for answer in in_order(answers) if isinstance(answer, kind)]


def summed(arrays: Iterable[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Returns the sum of at least one array, added in this order."""
    first, *others = arrays
    total = first.copy()
    for array in others:
        total += array
    return total


def flags(n_clients: int, *sets: Collection[int]) -> NDArray[np.float64]:
    """Returns an array (sets, n_clients) for a checkpoint: 1 where a client is in a set."""
    return np.array([[k in members for k in range(n_clients)] for members in sets], float)


def members(saved: Iterable[NDArray[np.float64]]) -> list[frozenset[int]]:
    """Returns the sets of clients; inverse of `flags`."""
    return [frozenset(np.flatnonzero(row).tolist()) for row in saved]
