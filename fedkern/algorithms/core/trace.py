"""Kept draws, by name. What takes their place where they are too many has the same three methods (`results.streaming`)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from .messages import Saved, array

Array = NDArray[np.float64]


class Grown(NDArray[np.float64]):
    """An array that has its first rows for good: of two with one epoch the longer one begins with the shorter."""

    epoch: int


class Trace:
    """Draws of each kept round: name -> (c, ...), with the chain first. The one thing in a state that grows in place."""

    def __init__(self) -> None:
        self._draws: dict[str, Array] = {}
        self.count, self._room, self._epoch = 0, 0, 0

    def add(self, draws: Mapping[str, Array]) -> None:
        """The draws of one round."""
        if not self.count:
            self._draws, self._room = {name: np.empty((64, *value.shape)) for name, value in draws.items()}, 64
        if self.count == self._room:
            self._draws = {name: np.concatenate([held, np.empty_like(held)]) for name, held in self._draws.items()}
            self._room *= 2
        for name, value in draws.items():
            self._draws[name][self.count] = value
        self.count += 1

    def clear(self) -> None:
        """Forgets everything: the posterior has become another one."""
        self._draws, self.count, self._epoch = {}, 0, self._epoch + 1

    def __getitem__(self, name: str) -> Array:
        """(c, t, ...) Draws of one quantity."""
        return np.swapaxes(self._draws[name][: self.count], 0, 1)

    def names(self) -> tuple[str, ...]:
        """What is kept."""
        return tuple(self._draws)

    def save(self, prefix: str = "trace.") -> Saved:
        """As named arrays (t, c, ...), which only grow until all is forgotten."""
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
        trace.count = trace._room = len(next(iter(trace._draws.values()))) if trace._draws else 0
        return trace
