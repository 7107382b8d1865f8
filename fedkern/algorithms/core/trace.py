"""Kept draws, by name. What takes their place where they are too many has the same three methods (`results.streaming`)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from .messages import Saved, array

Array = NDArray[np.float64]


class Trace:
    """Draws of each kept round: name -> (c, ...), with the chain first. The one thing in a state that grows in place."""

    def __init__(self) -> None:
        self._draws: dict[str, Array] = {}
        self.count = 0

    def add(self, draws: Mapping[str, Array]) -> None:
        """The draws of one round."""
        if not self.count:
            self._draws = {name: np.empty((64, *value.shape)) for name, value in draws.items()}
        for name, value in draws.items():
            held = self._draws[name]
            if self.count == len(held):
                self._draws[name] = held = np.concatenate([held, np.empty_like(held)])
            held[self.count] = value
        self.count += 1

    def clear(self) -> None:
        """Forgets everything: the posterior has become another one."""
        self._draws, self.count = {}, 0

    def __getitem__(self, name: str) -> Array:
        """(c, t, ...) Draws of one quantity."""
        return np.swapaxes(self._draws[name][: self.count], 0, 1)

    def names(self) -> tuple[str, ...]:
        """What is kept."""
        return tuple(self._draws)

    def save(self, prefix: str = "trace.") -> Saved:
        """As named arrays (t, c, ...)."""
        return {prefix + name: held[: self.count] for name, held in self._draws.items()}

    @classmethod
    def load(cls, saved: Saved, prefix: str = "trace.") -> Trace:
        """Inverse of `save`."""
        trace = cls()
        trace._draws = {name.removeprefix(prefix): array(saved, name) for name in saved if name.startswith(prefix)}
        trace.count = len(next(iter(trace._draws.values()))) if trace._draws else 0
        return trace
