"""Tells whether an optimiser still moves, by mean and sd of every unknown, averaged over two stretches of the rounds at the full
rate.

The stretches are 65 to 75 % and 90 to 100 % of the rounds before the learning rate falls: a falling rate makes everything stand
still. Each is averaged in five batches, whose scatter says how well the averages are known. An unknown has settled where its mean
moved by at most 0.1 of its sd, and its sd by at most 5 %, beyond twice the standard error, and where the standard errors
themselves are no larger than that. And the optimiser must have been able to move ten times as far: small steps would pass for
none. Source: docs/concepts/convergence.md, "Variational fits".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ...arrays import Array, Matrix, Vector
from .messages import evolve

# Averaging --------------------
# Averages the second half of a trajectory whose length is not known beforehand, in bounded memory.
#
# Cumulative sums are kept at multiples of a stride that doubles whenever 256 of them are stored, so the half begins within one
# part in 128 of where it should. Averaging released iterates is post-processing: it costs no privacy. Source: docs/spec/pvi.md,
# section 8.


KEPT = 256


@dataclass(frozen=True)
class Trajectory:
    """Holds cumulative sums of the points of a trajectory."""

    total: Array  # (k,) sum of all points so far
    count: int = 0  # how many
    # stride, kept: kept[i] is the sum of the first i x stride points
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
        points."""
        end = min(round(last * self.count / self.stride), len(self.kept) - 1)
        if end < 1:
            return None
        begin = min(round(first * self.count / self.stride), end - 1)
        return (self.kept[end] - self.kept[begin]) / ((end - begin) * self.stride)

    def released(self, average: str, last: Array) -> Array:
        """Returns the point that a job publishes: with average = "half" the mean of the second half, else the last point."""
        return self.half_mean() if average == "half" and self.count else last


# Stretches of rounds --------------------


STRETCHES = ((0.65, 0.75), (0.9, 1.0))  # of the rounds at the full rate
BATCHES = 5
LEAST = 100  # rounds at the full rate below which nothing is said of them
MEAN, SD = 0.1, 0.05  # sds by which a mean, and parts by which an sd may move
ERRORS = 2.0  # standard errors that are allowed for
SIGHT = 10.0  # times what is allowed that the optimiser must be able to move


def reach(optimiser: str, rate: float, steps: int) -> float:
    """Returns how far an optimiser can move a number between the middles of the stretches.

    Adam's steps are at most about its rate, and Adagrad's fall with the root of their number; for plain gradients the answer is
    infinite, since nothing can be said. `steps`: at the full rate.
    """
    first, last = (sum(stretch) / 2 for stretch in STRETCHES)
    roots = 2 * (np.sqrt(last * steps) - np.sqrt(first * steps))
    return float(rate * {"adam": (last - first) * steps, "adagrad": roots, "sgd": np.inf}[optimiser])


@dataclass(frozen=True)
class Movement:
    """Holds how far each of d unknowns moved between the two stretches."""

    rounds: int  # at the full learning rate
    # mean, sd: (d,) changes of the means, in sds of the last stretch, and of the sds, in parts of the first
    mean: Vector
    sd: Vector
    # mean_error, sd_error: (d,) their standard errors
    mean_error: Vector
    sd_error: Vector
    blind: Vector  # (d,) how far the optimiser should be able to move between the stretches, over how far it is

    @property
    def noise(self) -> Vector:
        """(d,) The larger standard error, over the allowed one."""
        return np.maximum(self.mean_error / MEAN, self.sd_error / SD)

    @property
    def excess(self) -> Vector:
        """(d,) The largest of an unknown's figures, each over its allowed value: at most 1 where the unknown has settled."""
        ratios = [
            (np.abs(self.mean) - ERRORS * self.mean_error) / MEAN,
            (np.abs(self.sd) - ERRORS * self.sd_error) / SD,
            self.noise,
            self.blind,
        ]
        largest: Vector = np.nan_to_num(np.max(ratios, axis=0), nan=np.inf)
        return largest

    @property
    def worst(self) -> int:
        """The unknown that moves most."""
        return int(np.argmax(self.excess))

    @property
    def settled(self) -> bool:
        """Whether no unknown moves, even if there is none."""
        return self.rounds >= LEAST and bool((self.excess <= 1).all())


@lru_cache(maxsize=16)
def _stretches(steady: int) -> tuple[tuple[int, int], ...]:
    """Returns the first round of each stretch, and the one after its last."""
    return tuple((int(first * steady), int(last * steady)) for first, last in STRETCHES)


@dataclass(frozen=True)
class Windows:
    """Holds sums over the batches of the two stretches."""

    steady: int  # rounds at the full rate, from the first on
    reach: float  # how far the optimiser can move a number between the middles of the stretches
    sums: Vector  # (2, 5, 2 d) of mean and sd, by stretch and batch
    counts: Matrix  # (2, 5) rounds in each

    @classmethod
    def of(cls, steady: int, size: int, reach: float = np.inf) -> Windows:
        """Returns empty sums of `size` unknowns, before the first round."""
        return cls(steady, reach, np.zeros((len(STRETCHES), BATCHES, 2 * size)), np.zeros((len(STRETCHES), BATCHES)))

    def place(self, round: int) -> tuple[int, int] | None:
        """Returns stretch and batch of a round, or None outside of both."""
        for k, (begin, end) in enumerate(_stretches(self.steady)):
            if begin <= round < end:
                return k, (round - begin) * BATCHES // (end - begin)
        return None

    def add(self, round: int, mean: Vector, sd: Vector) -> Windows:
        """Returns the sums with the moments after a round; unchanged if the round is in neither stretch."""
        if (stretch := self.place(round)) is None:
            return self
        sums, counts = self.sums.copy(), self.counts.copy()
        sums[stretch] += np.concatenate([mean, sd])
        counts[stretch] += 1
        return evolve(self, sums=sums, counts=counts)

    @property
    def movement(self) -> Movement | None:
        """How far the unknowns have moved by the end of the last stretch; None if a batch has no round."""
        if not self.counts.all():
            return None
        means, sds = np.split(self.sums / self.counts[..., np.newaxis], 2, axis=-1)
        with np.errstate(all="ignore"):  # what is not finite has not settled
            (first, last), (narrow, wide) = means.mean(axis=1), sds.mean(axis=1)
            errors = [np.sqrt(batches.var(axis=1, ddof=1).sum(axis=0) / BATCHES) for batches in (means, sds)]
            blind = SIGHT * np.maximum(MEAN * wide, SD) / self.reach
            return Movement(self.steady, (last - first) / wide, wide / narrow - 1, errors[0] / wide, errors[1] / narrow, blind)


@dataclass(frozen=True)
class LastFifth:
    """Averages the bound over the last fifth of the rounds, in ten batches."""

    rounds: int  # of the whole run
    # sums, counts: (10,)
    sums: Vector
    counts: Vector

    @classmethod
    def of(cls, rounds: int) -> LastFifth:
        """Returns empty sums, before the first round."""
        return cls(rounds, np.zeros(10), np.zeros(10))

    def add(self, round: int, bound: float) -> LastFifth:
        """Returns the sums with the bound of a round, counted from 0."""
        begin = self.rounds - max(1, self.rounds // 5)
        if round < begin:
            return self
        piece = min((round - begin) * len(self.sums) // (self.rounds - begin), len(self.sums) - 1)
        sums, counts = self.sums.copy(), self.counts.copy()
        sums[piece] += bound
        counts[piece] += 1
        return evolve(self, sums=sums, counts=counts)

    @property
    def moments(self) -> tuple[float, float] | None:
        """Mean and standard error, by the scatter of batches (NaN of one alone); None if no round had a bound."""
        if not self.counts.any():
            return None
        batches = self.sums[self.counts > 0] / self.counts[self.counts > 0]
        error = float(batches.std(ddof=1) / np.sqrt(len(batches))) if len(batches) > 1 else float("nan")
        return float(self.sums.sum() / self.counts.sum()), error
