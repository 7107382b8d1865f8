"""What the server sees while a job runs: a line of metrics for each round, and progress."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..models.expfam import Gaussian
from .progress import Progress

Measure = Callable[[Gaussian], Mapping[str, float]]


class Watch:
    """Follows the server's state.

    Parameters
    ----------
    released : state -> the posterior that would be published now
    measure : posterior -> metrics on the test rows; None without them
    every : rounds between two measurements
    write : takes each line of metrics.jsonl
    timed : whether lines tell the time. Not in a private job: how long clients compute is not covered by epsilon.
    """

    def __init__(
        self,
        released: Callable[[Any], Gaussian],
        measure: Measure | None,
        *,
        every: int,
        write: Callable[[Mapping[str, Any]], None],
        progress: Progress,
        timed: bool,
    ) -> None:
        self.released, self.measure, self.every = released, measure, every
        self.write, self.progress, self.timed = write, progress, timed
        self.round = 0
        self._began = time.monotonic()

    def __call__(self, state: Any) -> None:
        if state.round == self.round:
            return
        self.round = int(state.round)
        line: dict[str, Any] = {"round": self.round, "updates": int(np.sum(state.updates))}
        if self.measure is not None and (self.round % self.every == 0 or state.stop):
            line["metrics"] = dict(self.measure(self.released(state)))
        if self.timed:
            line["seconds"] = round(time.monotonic() - self._began, 3)
        self.write(line)
        self.progress.show(self.round, ", ".join(f"{name} {value:.4g}" for name, value in line.get("metrics", {}).items()))


class MeasuredWatch:
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
