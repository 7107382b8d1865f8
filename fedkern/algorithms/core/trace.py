"""Kept draws, by name. What takes their place where they are too many has the same three methods (`results.streaming`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .messages import Saved, array

Array = NDArray[np.float64]
Draws = Mapping[str, Array]
Kept = Callable[[Draws], Draws]  # draws of several rounds (t, ...) -> what is kept of them, (t, c, ...)
WAITING, BYTES = 64, 1 << 18  # rounds, and bytes of draws, that wait at most


class Grown(np.ndarray[Any, np.dtype[np.float64]]):  # NDArray is no class: since NumPy 2.5 not even one that can be inherited
    """An array that has its first rows for good: of two with one epoch the longer one begins with the shorter."""

    epoch: int


class Trace:
    """Draws of each kept round: name -> (c, ...), with the chain first. The one thing in a state that grows in place.

    What has to be computed of a round's draws before they are kept waits for other rounds: of all at once it takes a fraction of
    the time.
    """

    def __init__(self) -> None:
        self._draws: dict[str, Array] = {}
        self.count, self._held, self._room, self._epoch = 0, 0, 0, 0
        self._block: dict[str, Array] = {}  # (t, c, ...) of rounds that wait; made anew after `clear`
        self._waiting, self._most = 0, 0  # how many wait, and at most, by their size
        self._kept: Kept | None = None

    def add(self, draws: Draws, kept: Kept | None = None) -> None:
        """The draws of one round.

        Parameters
        ----------
        draws
            Name -> (c, ...), copied. With `kept` all rounds have the same names and shapes until `clear`.
        kept
            What is kept of them, of several rounds at once, and the same for all until `clear`; without it the draws themselves.
        """
        self.count += 1
        if kept is None:
            self._hold({name: value[np.newaxis] for name, value in draws.items()})
            return
        if not self._block:
            self._most = max(1, min(WAITING, BYTES // max(1, sum(value.nbytes for value in draws.values()))))
            self._block = {name: np.empty((self._most, *value.shape)) for name, value in draws.items()}
        self._kept, waiting = kept, self._waiting
        for name, block in self._block.items():
            block[waiting] = draws[name]
        self._waiting = waiting + 1
        if self._waiting == self._most:
            self._settle()

    def _settle(self) -> None:
        """Nothing waits any more."""
        if not self._waiting or self._kept is None:
            return
        n, self._waiting = self._waiting, 0
        self._hold(self._kept({name: block[:n] for name, block in self._block.items()}))

    def _hold(self, several: Draws) -> None:
        """Draws (t, c, ...) of several rounds."""
        n = len(next(iter(several.values())))
        if not self._held:
            self._room = max(WAITING, n)
            self._draws = {name: np.empty((self._room, *value.shape[1:])) for name, value in several.items()}
        while self._held + n > self._room:
            self._draws = {name: np.concatenate([held, np.empty_like(held)]) for name, held in self._draws.items()}
            self._room *= 2
        for name, values in several.items():
            self._draws[name][self._held : self._held + n] = values
        self._held += n

    def clear(self) -> None:
        """Forgets everything: the posterior has become another one."""
        self._draws, self._block, self._epoch = {}, {}, self._epoch + 1
        self.count = self._held = self._waiting = 0

    def __getitem__(self, name: str) -> Array:
        """(c, t, ...) Draws of one quantity."""
        self._settle()
        return np.swapaxes(self._draws[name][: self.count], 0, 1)

    def names(self) -> tuple[str, ...]:
        """What is kept."""
        self._settle()
        return tuple(self._draws)

    def save(self, prefix: str = "trace.") -> Saved:
        """As named arrays (t, c, ...), which only grow until all is forgotten."""
        self._settle()
        saved: Saved = {}
        for name, held in self._draws.items():
            saved[prefix + name] = grown = held[: self.count].view(Grown)
            grown.epoch = self._epoch
        return saved

    @classmethod
    def load(cls, saved: Saved, prefix: str = "trace.") -> Trace:
        """Inverse of `save`."""
        trace = cls()
        arrays = {name: np.asarray(array(saved, name)) for name in saved if name.startswith(prefix)}
        trace._draws = {name.removeprefix(prefix): held for name, held in arrays.items()}
        trace.count = trace._held = trace._room = len(next(iter(trace._draws.values()))) if trace._draws else 0
        return trace
