"""What the server of a job with a trained prior sees while it runs: lines of metrics.jsonl, and progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from ..progress import Progress


class SigmaWatch:
    """Every `every` rounds a line with what is `measured` of the server's state, and the seconds."""

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

    def __call__(self, state: Any) -> None:
        if state.round == self.round:
            return
        self.round = int(state.round)
        if self.round % self.every and state.stop is None:
            return
        metrics = {name: round(float(value), 5) for name, value in self.measured(state).items()}
        self.write({"round": self.round, "metrics": metrics, "seconds": round(time.monotonic() - self._began, 3)})
        self.progress.show(self.round, ", ".join(f"{name} {value:.3f}" for name, value in metrics.items()))
