"""Measures how well draws have mixed: kept ones by R-hat and ESS as ArviZ has them, too many to keep by streaming summaries.

Where the former are NaN a stream decides. Source: docs/spec/sparse.md, section 8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..arrays import Array
from . import diagnostics, guard
from .diagnostics import MARKED, normal_scores

BATCHES = 32  # of each chain at most; when all are full, neighbours are merged
FEWEST = 8  # batches of a chain that its longest ones leave
BLOCK = 2048  # quantities that are judged at once: this takes little memory beside the stream
CHANCE = 0.999  # quantile of R-hat in chains that agree, beyond which it counts
KEPT = 200  # thinned draws of all chains together
Both = tuple[Array, Array]  # R-hat and ESS


@dataclass
class Stream:
    """Holds moments, ESS of batch means, split R-hat and thinned draws of P quantities in c chains.

    The number of draws need not be known: batches and the thinning double when they fill up. Memory: (35 c + 200) P numbers.
    """

    # chains, size: c and P
    chains: int
    size: int
    keep: bool = True  # whether thinned draws are kept
    n: int = 0  # draws of each chain so far
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
        """Adds one draw (c, P) of every chain."""
        if draw.shape != self.centre.shape:
            raise ValueError(f"streaming: a draw needs shape {self.centre.shape}, got {draw.shape}")
        # Keep every so many draws; when these are too many, half of them are dropped and the distance doubles.
        if self.keep and self.n % self.every == 0:
            self.thinned.append(draw.copy())
            if len(self.thinned) > KEPT // self.chains:
                self.thinned, self.every = self.thinned[::2], 2 * self.every
        self.n += 1
        step = draw - self.centre
        self.centre += step / self.n
        self.square += step * (draw - self.centre)
        # A full batch adds its mean; when all batches are full, neighbours are merged and new ones are twice as long.
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
        """The (P,) means over all chains."""
        mean: Array = self.centre.mean(axis=0)
        return mean

    @property
    def sd(self) -> Array:
        """The (P,) standard deviations of all draws."""
        deviation: Array = np.sqrt(self._variance(slice(None)))
        return deviation

    def _variance(self, some: slice) -> Array:
        """Returns the variance of all draws of some quantities."""
        centre = self.centre[:, some]
        between = self.n * np.sum((centre - centre.mean(axis=0)) ** 2, axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            variance: Array = (self.square[:, some].sum(axis=0) + between) / (self.chains * self.n - 1)
        return variance

    @property
    def draws(self) -> Array:
        """The (c, t, P) thinned draws."""
        if not self.thinned:
            return np.empty((self.chains, 0, self.size))
        return np.stack(self.thinned, axis=1)

    @property
    def rhat(self) -> Array:
        """The (P,) first of `rhat_ess`."""
        return self.rhat_ess()[0]

    @property
    def ess(self) -> Array:
        """The (P,) second of `rhat_ess`."""
        return self.rhat_ess()[1]

    @property
    def mean_error(self) -> Array:
        """The (P,) Monte-Carlo standard errors of the means; 0 for constants, NaN where ESS is."""
        with np.errstate(invalid="ignore"):
            error: Array = self.sd / np.sqrt(self.ess)
        return np.where(self.sd == 0, 0.0, error)

    def rhat_ess(self) -> tuple[Array, Array]:
        """Computes split R-hat and effective sample size (docs/spec/sparse.md, section 8).

        Returns
        -------
        rhat : (P,) the larger of two: of the draws' moments, which sees the smallest shift, and of the ranks of the batch means,
            which no single wild draw hides. Infinite where halves of chains are constant and differ
        ess : (P,) by batch means of two lengths, of which the smaller result counts; and chains / (rhat^2 - 1) where R-hat is
            above 1.05 or beyond the chance of chains that agree. At least 1

        Both are NaN for constants, and with fewer than 4 batches.
        """
        rhat, ess = np.full(self.size, np.nan), np.full(self.size, np.nan)
        size = self.size if self.full >= 4 else 0
        for start in range(0, size, BLOCK):
            some = slice(start, start + BLOCK)
            rhat[some], ess[some] = self._rhat_ess(some)
        return rhat, ess

    def _rhat_ess(self, some: slice) -> tuple[Array, Array]:
        """Computes both for some quantities."""
        within, moments = self._halves(some)
        between = np.maximum(moments, self._between_ranks(some, within))
        longest = max(1, self.full // FEWEST)
        ess = np.minimum(self._batch_ess(some, 1), self._batch_ess(some, longest))
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = between / within
            rhat = np.sqrt(1 - 2 / self.n + ratio)
            apart = (rhat > MARKED) | (ratio > self._by_chance(ess, self.full // longest))
            ess = np.maximum(np.where(apart, np.fmin(ess, self.chains / np.maximum(rhat**2 - 1, 0.0)), ess), 1.0)
        varies = (within > 0) | (between > 0)
        return np.where(varies, rhat, np.nan), np.where(varies, ess, np.nan)

    def _halves(self, some: slice) -> tuple[Array, Array]:
        """Returns the variance of a draw within each chain's halves, which meet between two batches, and that of the halves'
        means."""
        half, centre = self.full // 2, self.centre[:, some]
        first = self.means[:half, :, some].mean(axis=0)
        n_first, n_second = half * self.length, self.n - half * self.length
        second = (self.n * centre - n_first * first) / n_second
        within = self.square[:, some] - n_first * (first - centre) ** 2 - n_second * (second - centre) ** 2
        within = within.sum(axis=0) / (self.chains * (self.n - 2))
        between = np.var(np.concatenate([first, second]), axis=0, ddof=1)
        rounding = (1e-12 * np.abs(centre).max(axis=0)) ** 2
        return np.where(within > rounding, within, 0.0), np.where(between > rounding, between, 0.0)

    def _between_ranks(self, some: slice, within: Array) -> Array:
        """Returns the variance of the halves' means by the ranks of their batch means, brought to the scale of `within`.

        A wild draw enlarges the variances of draws and of batch means alike, whose ratio it brings towards that of independent
        draws, and no further; while batches are single draws, the ratio is 1, and R-hat the rank-normalised one.
        """
        half = self.full // 2
        ends = [self.means[:half, :, some], self.means[self.full - half : self.full, :, some]]
        means = np.concatenate(ends, axis=1)
        scores = normal_scores(means.reshape(-1, means.shape[2])).reshape(means.shape)
        spread = scores.var(axis=0, ddof=1).mean(axis=0)
        of_batches = means.var(axis=0, ddof=1).mean(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            between: Array = scores.mean(axis=0).var(axis=0, ddof=1) / spread * of_batches
        return np.where((within > 0) & (spread > 0), between, 0.0)

    def _batch_ess(self, some: slice, merged: int) -> Array:
        """Returns all draws over the ratio of the batch means' variance, times the batch length, to the variance of a draw.

        Batch means of all chains are taken about their common mean, so that chains which disagree lower it; `merged` neighbours
        make a batch.
        """
        count = self.full // merged
        means = self.means[: count * merged, :, some]
        means = means.reshape(count, merged, self.chains, means.shape[2]).mean(axis=1)
        between = np.sum((means - means.mean(axis=(0, 1))) ** 2, axis=(0, 1)) / (count * self.chains - 1)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio: Array = self._variance(some) / (merged * self.length * between)
        return np.where(np.isfinite(ratio), ratio * self.n * self.chains, np.nan)

    def _by_chance(self, ess: Array, batches: int) -> Array:
        """Returns a limit for the variance of halves' means over that of a draw, exceeded once in 1,000 where chains agree."""
        from scipy.special import fdtri

        halves = 2 * self.chains
        allowed: Array = halves / ess * fdtri(halves - 1, batches * self.chains - 1, CHANCE)
        return allowed

    def of(self, chains: Sequence[int]) -> Stream:
        """Returns the stream of these chains alone."""
        kept, saved = list(chains), self.save()
        saved |= {name: saved[name][kept] for name in ("centre", "square", "current", "thinned")}
        return Stream(len(kept), self.size, self.keep).load(saved | {"means": saved["means"][:, kept]})

    def save(self) -> dict[str, Any]:
        """Returns all of the state, as arrays and whole numbers, for a checkpoint."""
        numbers = {name: getattr(self, name) for name in ("n", "length", "every", "full")}
        arrays = {name: getattr(self, name) for name in ("centre", "square", "current")}
        return numbers | arrays | {"means": self.means[: self.full], "thinned": self.draws}

    def load(self, saved: dict[str, Any]) -> Stream:
        """Puts the result of `save` into a fresh stream of the same chains and size."""
        for name in ("n", "length", "every", "full"):
            setattr(self, name, int(saved[name]))
        for name in ("centre", "square", "current"):
            getattr(self, name)[:] = saved[name]
        self.means[: self.full] = saved["means"]
        self.thinned = [np.array(draw) for draw in np.swapaxes(saved["thinned"], 0, 1)]
        return self


def slowest(mixed: Mapping[str, Both], label: Callable[[int, int], str] = lambda j, n: "") -> tuple[float, float, str] | None:
    """Returns the largest R-hat, the least ESS, and whose it is: name and label(j, n) of number j of n; None without an ESS."""
    judged = {name: both for name, both in mixed.items() if np.isfinite(both[1]).any()}
    if not judged:
        return None
    name = min(judged, key=lambda name: float(np.nanmin(judged[name][1])))
    ess = judged[name][1]
    what, separator, site = name.partition("@")
    which = f"{what}{label(int(np.nanargmin(ess)), len(ess))}{separator}{site}"
    return max(float(np.nanmax(rhats)) for rhats, _ in judged.values()), float(np.nanmin(ess)), which


def _unknown(draws: Array) -> tuple[Array, Array]:
    """Returns numbers that are not known."""
    return np.full(draws.shape[2:], np.nan), np.full(draws.shape[2:], np.nan)


@guard.check("R-hat and ESS", _unknown)
def published_rhat_ess(draws: Array) -> tuple[Array, Array]:
    """Computes R-hat and ESS of (c, t, P) draws, (P,) each, for a result that is published, whatever happens.

    Also where a chain is constant and others are not; NaN for constants.
    """
    rhat, ess = diagnostics.rhat_ess(draws)
    lacking = np.flatnonzero(np.isnan(rhat) & np.isfinite(draws).all(axis=(0, 1)) & (np.ptp(draws, axis=(0, 1)) > 0))
    if len(lacking):
        rhat[lacking], ess[lacking] = _stream(draws[..., lacking]).rhat_ess()
    return rhat, ess


@guard.figure("Monte-Carlo errors", lambda draws: _unknown(draws)[0])
def published_mean_error(draws: Array) -> Array:
    """Computes (P,) standard errors of the means of (c, t, P) draws for a result that is published; 0 for constants."""
    error = diagnostics.mean_error(draws)
    lacking = np.flatnonzero(np.isnan(error) & np.isfinite(draws).all(axis=(0, 1)))
    if len(lacking):
        error[lacking] = _stream(draws[..., lacking]).mean_error
    return error


def _stream(draws: Array) -> Stream:
    """Adds draws to a stream, one after the other."""
    stream = Stream(len(draws), draws.shape[2], keep=False)
    for t in range(draws.shape[1]):
        stream.add(draws[:, t])
    return stream
