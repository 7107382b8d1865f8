"""What the server of a sampler sees while it runs: lines of metrics.jsonl, and progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...jobs.progress import Progress


class SamplerWatch:
    """Follows the server's state: every `every` rounds a line with the size of the model and the seconds."""

    def __init__(self, *, every: int, write: Callable[[Mapping[str, Any]], None], progress: Progress) -> None:
        self.every, self.write, self.progress = every, write, progress
        self.round = 0
        self._began = time.monotonic()

    def __call__(self, state: Any) -> None:
        if state.round == self.round or not hasattr(state, "values"):
            return
        self.round = int(state.round)
        if self.round % self.every and state.stop is None:
            return
        included = float(np.mean(state.values.inclusion.sum(axis=(1, 2))))
        metrics = {"included": round(included, 3), "eta": float(np.median(state.values.eta))}
        self.write(
            {
                "round": self.round,
                "kept": state.trace.count,
                "metrics": metrics,
                "seconds": round(time.monotonic() - self._began, 3),
            }
        )
        self.progress.show(self.round, f"about {included:.1f} included")
