"""Keeps draws by name.

Where they would be too many, a class with the same three methods takes its place (`results.mixing.Stream`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...arrays import Array
from .messages import Saved, array

Draws = Mapping[str, Array]
Kept = Callable[[Draws], Draws]  # draws of several rounds (t, ...) -> what is kept of them, (t, c, ...)
WAITING, BYTES = 64, 1 << 18  # rounds, and bytes of draws, that wait at most


class Grown(np.ndarray[Any, np.dtype[np.float64]]):  # NDArray is no class: since NumPy 2.5 not even one that can be inherited
    """Is an array whose first rows never change: of two with one epoch the longer one begins with the shorter."""

    epoch: int


class Trace:
    """Keeps the draws of each kept round: name -> (c, ...), with the chain first.

    It is the one part of a state that grows in place.

    If a computation has to be done on a round's draws before they are kept, they wait for other rounds: at once for all it takes
    a fraction of the time.
    """

    def __init__(self) -> None:
        self._draws: dict[str, Array] = {}
        self.count, self._held, self._room, self._epoch = 0, 0, 0, 0
        self._block: dict[str, Array] = {}  # (t, c, ...) of rounds that wait; made anew after `clear`
        self._waiting, self._most = 0, 0  # how many wait, and at most, by their size
        self._kept: Kept | None = None

    def add(self, draws: Draws, kept: Kept | None = None) -> None:
        """Adds the draws of one round.

        Parameters
        ----------
        draws
            Name -> (c, ...), copied. With `kept` all rounds have the same names and shapes until `clear`.
        kept
            Computes the kept numbers from the draws of several rounds at once, and is the same for all until `clear`; without it
            the draws themselves are kept.
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
        """Computes and stores the numbers of all rounds that wait."""
        if not self._waiting or self._kept is None:
            return
        n, self._waiting = self._waiting, 0
        self._hold(self._kept({name: block[:n] for name, block in self._block.items()}))

    def _hold(self, several: Draws) -> None:
        """Appends draws (t, c, ...) of several rounds."""
        n = len(next(iter(several.values())))
        if not self._held:
            self._room = max(WAITING, n)
            self._draws = {name: np.empty((self._room, *value.shape[1:])) for name, value in several.items()}
        # Room doubles, so that a long run copies each draw a few times at most.
        while self._held + n > self._room:
            self._draws = {name: np.concatenate([held, np.empty_like(held)]) for name, held in self._draws.items()}
            self._room *= 2
        for name, values in several.items():
            self._draws[name][self._held : self._held + n] = values
        self._held += n

    def clear(self) -> None:
        """Forgets everything, since the posterior has become another one."""
        self._draws, self._block, self._epoch = {}, {}, self._epoch + 1
        self.count = self._held = self._waiting = 0

    def __getitem__(self, name: str) -> Array:
        """Returns the draws (c, t, ...) of one quantity."""
        self._settle()
        return np.swapaxes(self._draws[name][: self.count], 0, 1)

    def names(self) -> tuple[str, ...]:
        """Returns the names of the kept quantities."""
        self._settle()
        return tuple(self._draws)

    def save(self, prefix: str = "trace.") -> Saved:
        """Returns the draws as named arrays (t, c, ...), which only grow until all is forgotten."""
        self._settle()
        saved: Saved = {}
        for name, held in self._draws.items():
            saved[prefix + name] = grown = held[: self.count].view(Grown)
            grown.epoch = self._epoch
        return saved

    @classmethod
    def load(cls, saved: Saved, prefix: str = "trace.") -> Trace:
        """Returns the trace that `save` has saved."""
        trace = cls()
        arrays = {name: np.asarray(array(saved, name)) for name in saved if name.startswith(prefix)}
        trace._draws = {name.removeprefix(prefix): held for name, held in arrays.items()}
        trace.count = trace._held = trace._room = len(next(iter(trace._draws.values()))) if trace._draws else 0
        return trace
