"""Follows a job at the server while it runs: lines of metrics, and progress."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from ..results.plain import Record
from .progress import Progress

LOG = logging.getLogger(__name__)

State = TypeVar("State")


class Line(NamedTuple):
    """Holds a line of metrics.jsonl."""

    content: Record  # beside the round and the seconds
    words: str  # the part that the terminal shows


# The server's state after a new round, and whether a measurement is due -> a line, if there is something to say.
Lines = Callable[[State, bool], Line | None]


@dataclass
class Watch(Generic[State]):
    """Follows the server's state."""

    line: Lines[State]  # makes the method's line for a state
    every: int  # rounds between two measurements; the last round has one too
    write: Callable[[Record], None]  # takes each line of metrics.jsonl
    progress: Progress
    timed: bool  # whether lines tell the seconds. Not in a private job: how long clients compute is not covered by epsilon.
    turns: int = 0  # of the last state that was seen: its rounds, or `turns` of one whose rounds wait for the slowest
    _began: float = field(default_factory=time.monotonic)

    def __call__(self, state: Any) -> None:
        self.progress.heard()
        if (turns := turns_of(state)) == self.turns:
            return
        self.turns, number = turns, int(state.round)
        line = self.line(state, turns % self.every == 0 or state.stop is not None)
        if line is None:
            return
        seconds = {"seconds": round(time.monotonic() - self._began, 3)} if self.timed else {}
        since = int(getattr(state, "since", 0))  # of a sampler that has begun anew, without a client that was lost
        self.write({"round": number, **({"since": since} if since else {}), **line.content, **seconds})
        self.progress.show(number, line.words, since)
        LOG.debug("round %d%s", number, f": {line.words}" if line.words else "")


def turns_of(state: Any) -> int:
    """Returns the number of a state that grows by one between two lines."""
    return int(getattr(state, "turns", state.round))


def measuring(measured: Callable[[State], Mapping[str, float]]) -> Lines[State]:
    """Returns lines of the `measured` numbers, when they are due.

    Each has the mean of the bounds since the line before, where they are known.
    """
    bounds: list[float] = []

    def line(state: State, due: bool) -> Line | None:
        if math.isfinite(bound := getattr(state, "bound", math.nan)):
            bounds.append(bound)
        if not due:
            return None
        metrics = {"elbo": round(sum(bounds) / len(bounds), 4)} if bounds else {}
        bounds.clear()
        metrics |= measured(state)
        return Line({"metrics": metrics}, ", ".join(f"{name} {value:.3f}" for name, value in metrics.items()))

    return line
