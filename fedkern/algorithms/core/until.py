"""Decides how many rounds an open variational job has if its length is not given beforehand: as many as all unknowns need to
settle.

A job that may have at most n rounds is judged as if it had n / 1.6^k of them, shortest first, at least 1,000: when the rate of a
job of that length would begin to fall, its stretches are over, and if all has settled it falls. Until then the rate is the full
one, so a job that ends after m rounds took the same steps as one that was told to take m. The stretches of a length begin when
those of the one before have ended, so one set of sums is enough.

The server looks at its unknowns first, which costs nothing; only where these have settled each client answers in one bit whether
its unknowns have. Then all learn the length, the same as before or the next one. Source: docs/concepts/convergence.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol as Shape
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from . import tells
from .messages import Message, RemoteFault

GROWTH = 1.6  # of a length over the one before; at least 1 / 0.65, so that their stretches are apart
FIRST = 1_000  # rounds of the shortest length, at least


@dataclass(frozen=True)
class AskMoving(Message, kind=162):
    """Server to client: have your own unknowns settled? Its own have."""

    round: int


@dataclass(frozen=True)
class Settlement:
    """Holds the fields of a bit that clients tell, and that the server may get as one of all clients together."""

    round: int
    settled: int

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> int:
        """Returns how many numbers are added."""
        return 1

    def numbers(self) -> NDArray[np.float64]:
        """Returns 1 where they have not, else 0."""
        return np.array([float(self.settled != 1)])

    @classmethod
    def of_sum(cls, round: int, numbers: NDArray[np.float64], dims: Mapping[str, int]) -> Self:
        """Returns the answer of all clients together: 1 where those of all have settled."""
        return cls(round, int(numbers[0] == 0))


@dataclass(frozen=True)
class Moving(Settlement, Message, kind=163, tells=tells.Bit()):
    """Client to server: 1 where they have, else 0."""


@dataclass(frozen=True)
class Length(Message, kind=164):
    """Server to client: how many rounds the job has. The same number as before: all has settled, and it stays so."""

    round: int
    rounds: int


DOWN: tuple[type[Message], ...] = (AskMoving, Length)
UP: tuple[type[Message], ...] = (Moving,)


def lengths(most: int) -> tuple[int, ...]:
    """Returns the lengths of a job of at most `most` rounds, shortest first."""
    out = [most]
    while (shorter := int(most / GROWTH ** len(out))) >= FIRST:
        out.insert(0, shorter)
    return tuple(out)


def looks(most: int) -> int:
    """Returns how often a job of at most `most` rounds may ask the clients, at most."""
    return len(lengths(most)) - 1


def words(most: int) -> str:
    """Returns the text by which `check` describes such a job's rounds."""
    shorter = ", ".join(map(str, lengths(most)[:-1])) or "none"
    return f"rounds until all has settled, at most {most} (shorter lengths: {shorter})"


class Timed(Shape):
    """Is a class of settings of a fit whose learning rate falls at the end.

    Attributes
    ----------
    rounds : of the length at hand
    most : the longest length; 0 once it is known that all has settled, and in jobs of a given length
    steady : rounds at the full rate
    """

    @property
    def rounds(self) -> int: ...
    @property
    def most(self) -> int: ...
    @property
    def steady(self) -> int: ...


Settings = TypeVar("Settings", bound=Timed)


def judged(settings: Timed, round: int) -> bool:
    """Tells whether the server asks, after `round` rounds, if all has settled."""
    return settings.rounds < settings.most and round == settings.steady


def following(settings: Settings, *, settled: bool) -> Settings:
    """Returns the settings of the next rounds: of the same length, or of the next."""
    if settled:
        return _with(settings, settings.rounds, 0)
    longer = min(length for length in lengths(settings.most) if length > settings.rounds)
    return _with(settings, longer, settings.most)


def bit(sender: int, answer: Moving) -> bool:
    """Returns a client's answer; raises RemoteFault if it is no bit."""
    if answer.settled not in (0, 1):
        raise RemoteFault(f"Moving.settled is {answer.settled}, wanted 0 or 1", sender)
    return answer.settled == 1


def with_length(settings: Settings, length: Length, round: int) -> Settings:
    """Returns a client's settings after the server has sent a length; raises RemoteFault if this length cannot follow."""
    if not judged(settings, round) or length.round != round:
        raise RemoteFault(f"server: Length of round {length.round} was not expected after {round} rounds")
    out = following(settings, settled=length.rounds == settings.rounds)
    if out.rounds != length.rounds:
        raise RemoteFault(f"server: Length.rounds is {length.rounds}, wanted {settings.rounds} or {out.rounds}")
    return out


def _with(settings: Settings, rounds: int, most: int) -> Settings:
    out: Settings = replace(settings, rounds=rounds, most=most)  # type: ignore[type-var]
    return out
