"""Averages the second half of a trajectory whose length is not known beforehand, in bounded memory.

Cumulative sums are kept at multiples of a stride that doubles whenever 256 of them are stored, so the half begins within one part
in 128 of where it should. Averaging released iterates is post-processing: it costs no privacy. Source: docs/spec/pvi.md,
section 8.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .messages import evolve

Array = NDArray[np.float64]
KEPT = 256


@dataclass(frozen=True)
class Trajectory:
    """Holds cumulative sums of the points of a trajectory.

    Attributes
    ----------
    total : (k,) sum of all points so far
    count : how many
    stride, kept : kept[i] is the sum of the first i x stride points
    """

    total: Array
    count: int = 0
    stride: int = 1
    kept: tuple[Array, ...] = ()

    def add(self, point: Array) -> Trajectory:
        """Returns the trajectory with one more point."""
        total, count = self.total + point, self.count + 1
        if count % self.stride:
            return evolve(self, total=total, count=count)
        sums, stride = (*(self.kept or (np.zeros_like(self.total),)), total), self.stride
        # Memory stays bounded: every second sum goes, and the stride doubles.
        if len(sums) > KEPT:
            sums, stride = sums[::2], 2 * stride
        return evolve(self, total=total, count=count, stride=stride, kept=sums)

    def half_mean(self) -> Array:
        """Returns the mean of the second half, or the one point if it is the only one."""
        first = min(round(self.count / 2 / self.stride), len(self.kept) - 1)
        return (self.total - self.kept[first]) / (self.count - first * self.stride)

    def between(self, first: float, last: float) -> Array | None:
        """Returns the mean of the points between two parts of the way (0 to 1), at least one stride long; None if it has no
        points.
        """
        end = min(round(last * self.count / self.stride), len(self.kept) - 1)
        if end < 1:
            return None
        begin = min(round(first * self.count / self.stride), end - 1)
        return (self.kept[end] - self.kept[begin]) / ((end - begin) * self.stride)

    def released(self, average: str, last: Array) -> Array:
        """Returns the point that a job publishes: with average = "half" the mean of the second half, else the last point."""
        return self.half_mean() if average == "half" and self.count else last
