"""Summaries of draws that are too many to keep: memory does not grow with their number (docs/methods/sparse.md, section 8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

BATCHES = 32  # of each chain at most; when there are so many, neighbours are merged
KEPT = 200  # thinned draws of all chains together


@dataclass
class Stream:
    """Moments, batch-means ESS, split R-hat and thinned draws of P quantities in c chains.

    The number of draws need not be known: batches and the thinning double when they fill up. Memory: (35 c + 200) P numbers.

    Attributes
    ----------
    chains, size : c and P
    keep : whether thinned draws are kept
    n : draws of each chain so far
    """

    chains: int
    size: int
    keep: bool = True
    n: int = 0
    length: int = 1  # draws of a batch
    every: int = 1  # between two kept draws
    centre: Array = field(default_factory=lambda: np.empty(0))  # (c, P) running means
    square: Array = field(default_factory=lambda: np.empty(0))  # (c, P) sums of squares about them
    current: Array = field(default_factory=lambda: np.empty(0))  # (c, P) sum over the batch that is being filled
    means: Array = field(default_factory=lambda: np.empty(0))  # (BATCHES, c, P) of full batches
    full: int = 0  # batches
    thinned: list[Array] = field(default_factory=list)  # (c, P) each

    def __post_init__(self) -> None:
        shape = (self.chains, self.size)
        self.centre, self.square, self.current = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self.means = np.zeros((BATCHES, *shape))

    def add(self, draw: Array) -> None:
        """One draw (c, P) of every chain."""
        if draw.shape != self.centre.shape:
            raise ValueError(f"streaming: a draw needs shape {self.centre.shape}, got {draw.shape}")
        if self.keep and self.n % self.every == 0:
            self.thinned.append(draw.copy())
            if len(self.thinned) > KEPT // self.chains:
                self.thinned, self.every = self.thinned[::2], 2 * self.every
        self.n += 1
        step = draw - self.centre
        self.centre += step / self.n
        self.square += step * (draw - self.centre)
        self.current += draw
        if self.n % self.length == 0:
            self.means[self.full] = self.current / self.length
            self.current[:] = 0
            self.full += 1
            if self.full == BATCHES:
                self.means[: BATCHES // 2] = (self.means[::2] + self.means[1::2]) / 2
                self.full, self.length = BATCHES // 2, 2 * self.length

    @property
    def mean(self) -> Array:
        """(P,) over all chains."""
        mean: Array = self.centre.mean(axis=0)
        return mean

    @property
    def sd(self) -> Array:
        """(P,) standard deviation of all draws."""
        between = self.n * np.sum((self.centre - self.mean) ** 2, axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            deviation: Array = np.sqrt((self.square.sum(axis=0) + between) / (self.chains * self.n - 1))
        return deviation

    @property
    def draws(self) -> Array:
        """(c, t, P) the thinned draws."""
        if not self.thinned:
            return np.empty((self.chains, 0, self.size))
        return np.stack(self.thinned, axis=1)

    @property
    def ess(self) -> Array:
        """(P,) all draws over the ratio of the batch means' variance, times the batch length, to the variance of a draw.

        Batch means of all chains are taken about the one overall mean, so that chains which disagree lower it. NaN for constants,
        and with fewer than 4 batches.
        """
        if self.full < 4:
            return np.full(self.size, np.nan)
        means = self.means[: self.full]
        between = np.sum((means - means.mean(axis=(0, 1))) ** 2, axis=(0, 1)) / (self.full * self.chains - 1)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = self.sd**2 / (self.length * between)
        effective: Array = np.where(np.isfinite(ratio), ratio * self.n * self.chains, np.nan)
        return effective

    @property
    def rhat(self) -> Array:
        """(P,) split R-hat, not rank-normalised: each chain's two halves, split between two batches. NaN as for `ess`."""
        if self.full < 4:
            return np.full(self.size, np.nan)
        at = self.full // 2
        first = self.means[:at].mean(axis=0)
        n_first, n_second = at * self.length, self.n - at * self.length
        second = (self.n * self.centre - n_first * first) / n_second
        within = self.square - n_first * (first - self.centre) ** 2 - n_second * (second - self.centre) ** 2
        within = within.sum(axis=0) / (self.chains * (self.n - 2))
        between = np.var(np.concatenate([first, second]), axis=0, ddof=1)
        half = self.n / 2
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio: Array = np.sqrt((half - 1) / half + between / within)
        return np.where(within > 0, ratio, np.nan)

    def of(self, chains: Sequence[int]) -> Stream:
        """The same of these chains alone."""
        at, saved = list(chains), self.save()
        saved |= {name: saved[name][at] for name in ("centre", "square", "current", "thinned")}
        return Stream(len(at), self.size, self.keep).load(saved | {"means": saved["means"][:, at]})

    def save(self) -> dict[str, Any]:
        """All of the state, as arrays and whole numbers, for a checkpoint."""
        numbers = {name: getattr(self, name) for name in ("n", "length", "every", "full")}
        arrays = {name: getattr(self, name) for name in ("centre", "square", "current")}
        return numbers | arrays | {"means": self.means[: self.full], "thinned": self.draws}

    def load(self, saved: dict[str, Any]) -> Stream:
        """What `save` gave, put into a fresh stream of the same chains and size."""
        for name in ("n", "length", "every", "full"):
            setattr(self, name, int(saved[name]))
        for name in ("centre", "square", "current"):
            getattr(self, name)[:] = saved[name]
        self.means[: self.full] = saved["means"]
        self.thinned = [np.array(draw) for draw in np.swapaxes(saved["thinned"], 0, 1)]
        return self
