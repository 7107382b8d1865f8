"""What the server of a vertical job sees while it runs: lines of metrics.jsonl, and progress."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..progress import Progress


class VerticalWatch:
    """Follows the server's state: every `every` rounds a line with what is `measured`, the ELBO if known, and the seconds."""

    def __init__(
        self,
        measured: Callable[[Any], Mapping[str, float]],
        *,
        every: int,
        write: Callable[[Mapping[str, Any]], None],
        progress: Progress,
    ) -> None:
        self.measured = measured
        self.every, self.write, self.progress = every, write, progress
        self.round = 0
        self._began = time.monotonic()
        self._bounds: list[float] = []

    def __call__(self, state: Any) -> None:
        if state.round == self.round:
            return
        self.round = int(state.round)
        if math.isfinite(getattr(state, "bound", math.nan)):
            self._bounds.append(state.bound)
        if self.round % self.every and state.stop is None:
            return
        metrics: dict[str, float] = {}
        if self._bounds:
            metrics["elbo"] = round(sum(self._bounds) / len(self._bounds), 4)  # the mean of these rounds' draws
            self._bounds.clear()
        metrics |= self.measured(state)
        self.write({"round": self.round, "metrics": metrics, "seconds": round(time.monotonic() - self._began, 3)})
        self.progress.show(self.round, ", ".join(f"{name} {value:.3f}" for name, value in metrics.items()))
