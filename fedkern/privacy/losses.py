"""Bounds epsilon from the definition of the mechanism alone: a second accountant, which shares nothing with the first.

The sums of two neighbours, in clips, are mixtures of a few integers; the noise is the discrete Gaussian on multiples of 2^-20
clips that the sampler draws. Its privacy loss is tabulated and composed by FFT, once rounded so that epsilon can only fall, and
once so that it can only grow. A claim below the lower bound is false, whatever the neighbours. The upper bound is of the
neighbours that are taken: for Poisson and full sampling, shards and aligned rows these are the worst; where one row of a random
batch is replaced nobody has proved which are over several steps, and the worst that are known are taken. Nothing here is
dp-accounting's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache

import numpy as np
from scipy import special, stats

from ..arrays import Vector
from .accountant import Mechanism, Parts, gather, largest_cases
from .noise import GRID

Law = dict[int, float]  # a sum of rows, in clips -> its probability
Pair = tuple[Law, Law]  # of two neighbours

UNITS = round(1 / GRID)  # of the integers, in a clip
REACH = 12  # standard deviations of the noise that are tabulated; beyond them are 1e-32
POINTS, CELLS = 1 << 22, 6000  # of the composed losses, and of a standard deviation of one step's noise
ROUNDED = 1e-9  # of an epsilon that follows from few losses
ETA = 1e-13  # what windows and rounding may leave out, of delta


@lru_cache(maxsize=256)
def epsilon_bounds(parts: Parts, delta: float, points: int = 1 << 20, n_cells: int = 3000) -> tuple[float, float]:
    """Returns a lower and an upper bound of the epsilon at `delta` of all that was done to one data set. Noise counts as secure.

    Examples
    --------
    >>> from fedkern.privacy import losses
    >>> from fedkern.privacy.accountant import Mechanism
    >>> mechanism = Mechanism(sampling="full", clip=1.0, dimension=1, noise_multiplier=2.0)
    >>> low, high = losses.epsilon_bounds(((mechanism, 1),), delta=1e-5)
    >>> low <= mechanism.epsilon(1, 1e-5) <= high + 1e-3
    True
    """
    done = dict(gather(parts))
    if done and all(m.sampling == "counts" for m in done):
        cases = largest_cases(done)  # of one person, who has them in every table
        spent = of_counts([(m.decay * GRID, cases, steps) for m, steps in done.items()], delta)
        return spent * (1 - ROUNDED), spent * (1 + ROUNDED)
    intervals = [
        bounds([(pair, m.sigma, steps) for pair, (m, steps) in zip(choice, done.items())], delta, points, n_cells)
        for choice in neighbours(list(done))
    ]
    return float(max((low for low, _ in intervals), default=0.0)), float(max((high for _, high in intervals), default=0.0))


def neighbours(mechanisms: Sequence[Mechanism]) -> list[list[Pair]]:
    """Returns the pair of each mechanism, for each change of one row (or client) that all of them account for."""
    choices: list[list[Pair]] = []
    if all(m.sampling in ("poisson", "full", "shards") for m in mechanisms):  # it is added or removed
        pairs = [answered() if m.sampling == "shards" else added(m) for m in mechanisms]
        choices += [pairs, [swapped(pair) for pair in pairs]]
    if any(m.relation == "REPLACE_ONE" for m in mechanisms):  # its values are replaced
        choices += [list(choice) for choice in itertools.product(*map(replaced, mechanisms))]
    return [choice for n, choice in enumerate(choices) if choice not in choices[:n]]


# --- the pairs of neighbours


def swapped(pair: Pair) -> Pair:
    """Returns the pair with its neighbours exchanged."""
    return pair[1], pair[0]


def both_ways(pair: Pair) -> list[Pair]:
    """Returns the pair and its exchange, once where they are the same."""
    return [pair] if pair[0] == pair[1] else [pair, swapped(pair)]


def added(m: Mechanism, rows: int = 1) -> Pair:
    """Returns the pair of `rows` rows at the clip, all alike, or none, among rows that are zero."""
    chances = stats.binom.pmf(np.arange(rows + 1), rows, m.rate)
    return {j: float(p) for j, p in enumerate(chances) if p}, {0: 1.0}


def replaced(m: Mechanism) -> list[Pair]:
    """Returns the pairs of one row at the clip, or at its opposite. The other rows are zero, or like the first."""
    if m.sampling == "poisson":
        return [({0: 1 - m.rate, 1: m.rate}, {0: 1 - m.rate, -1: m.rate})]
    if m.sampling == "without-replacement":  # of b equal rows one has been turned round
        return both_ways(({0: 1.0}, {0: 1 - m.rate, -2: m.rate} if m.rate < 1 else {-2: 1.0}))
    if m.sampling != "poisson-truncated":
        return [({1: 1.0}, {-1: 1.0})]
    assert m.dataset_size is not None
    assert m.max_batch is not None
    size = np.arange(m.max_batch + 1)
    chance = stats.binom.pmf(size, m.dataset_size, m.rate)
    chance[-1] = stats.binom.sf(m.max_batch - 1, m.dataset_size, m.rate)
    taken = float(chance @ size) / m.dataset_size
    alike: Law = {int(k): float(p) for k, p in zip(size, chance) if p > 1e-40}
    one_turned: Law = {}
    for k, p in alike.items():
        one_turned[k] = one_turned.get(k, 0.0) + p * (1 - k / m.dataset_size)
        if k:
            one_turned[k - 2] = one_turned.get(k - 2, 0.0) + p * k / m.dataset_size
    among_zeros = ({0: 1 - taken, 1: taken}, {0: 1 - taken, -1: taken})
    return [among_zeros, *both_ways((alike, one_turned))]


def answered() -> Pair:
    """Returns the pair of a shard, or of a row's own number, at the clip or at its opposite."""
    return {1: 1.0}, {-1: 1.0}


# --- counts with two-sided geometric noise


def of_counts(parts: Sequence[tuple[float, int, int]], delta: float) -> float:
    """Returns the epsilon at delta of tables of (decay, cases by which neighbours differ, number of tables), from their few
    losses.

    Where a count is larger by m the loss at k is decay (|k - m| - |k|): decay (m - 2 j), j = 0 to m. Its law is the same where
    the count is smaller by m.
    """
    law = {0.0: 1.0}
    for decay, m, steps in parts:
        a = math.exp(-decay)
        of_table = {decay * (m - 2 * j): a**j * ((1 - a) if 0 < j < m else 1.0) / (1 + a) for j in range(m + 1)}
        for _ in range(steps):
            together: dict[float, float] = {}
            for (loss, p), (more, q) in itertools.product(law.items(), of_table.items()):
                total = round(loss + more, 12)
                together[total] = together.get(total, 0.0) + p * q
            law = together
    losses = sorted(law, reverse=True)
    beyond = weighted = 0.0
    for loss, lower in itertools.pairwise([*losses, 0.0]):
        beyond, weighted = beyond + law[loss], weighted + law[loss] * math.exp(-loss)
        if loss <= 0:
            break
        if beyond - math.exp(max(lower, 0.0)) * weighted > delta:  # the answer is between the two
            return max(0.0, math.log((beyond - delta) / weighted))
    return 0.0


# --- privacy loss


@dataclass(frozen=True)
class Table:
    """Holds log(P / Q) of the noisy sum under P, cell by cell of the numbers that it can be.

    Attributes
    ----------
    p, loss : probability of a cell under P, and log(P / Q) of the whole cell, which tells less than the number in it
    low, high, at_high : the least and the largest log(P / Q) of a number in the cell, and the part of p that belongs at the
        largest so that P and Q of the cell stay the same, which tells at least as much as the number

    Examples
    --------
    >>> from fedkern.privacy import losses
    >>> table = losses.tabulate(({1: 1.0}, {0: 1.0}), sigma=1.0, n_cells=100)  # one row at the clip, or none
    >>> isinstance(table, losses.Table), round(float(table.p @ table.loss), 2)  # the mean is 1 / (2 sigma^2)
    (True, 0.5)
    """

    p: Vector
    loss: Vector
    low: Vector
    high: Vector
    at_high: Vector


def tabulate(pair: Pair, sigma: float, n_cells: int) -> Table:
    """Returns the losses of one step."""
    s = math.ceil(sigma / GRID)
    shifts = [shift * UNITS for law in pair for shift in law]
    first, last = min(shifts) - REACH * s, max(shifts) + REACH * s
    edges = np.unique(np.rint(np.linspace(first, last, n_cells * (last - first) // s))) + 0.5  # between integers
    p, q = (np.sum([weight * cells(edges - shift * UNITS, s) for shift, weight in law.items()], axis=0) for law in pair)
    used = (p > 1e-300) & (q > 1e-300)
    ends = [at_points(pair, points, s)[used] for points in (edges[:-1] + 0.5, edges[1:] - 0.5)]
    p, q = p[used], q[used]
    low, high = np.minimum(*ends), np.maximum(*ends)
    width = np.maximum(high - low, 1e-300)
    at_high = np.where(high > low, np.clip((p - q * np.exp(low)) / -np.expm1(-width), 0, p), p)
    return Table(p, np.log(p / q), low, high, at_high)


def cells(edges: Vector, s: int) -> Vector:
    """Returns probabilities of the discrete Gaussian of parameter s between edges (half-integers), by Euler and Maclaurin's sum.

    The next term of the sum, and the sum of all integers against the integral, are below 1e-25 for s beyond 1000.
    """
    x = edges / s
    upper = x[1:] > 0
    before, after = (special.ndtr(np.where(upper, -end, end)) for end in (x[:-1], x[1:]))  # of the nearer tail
    slope = -x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    between: Vector = np.abs(after - before) - np.diff(slope) / (24.0 * s * s)
    return between


def at_points(pair: Pair, points: Vector, s: int) -> Vector:
    """Returns log(P / Q) at integers."""

    def log_density(law: Law) -> Vector:
        terms = [math.log(w) - ((points - shift * UNITS) / s) ** 2 / 2 for shift, w in law.items()]
        total: Vector = special.logsumexp(terms, axis=0)
        return total

    return log_density(pair[0]) - log_density(pair[1])


@dataclass(frozen=True)
class Composed:
    """Holds the losses start, start + h, .. of all steps together, with their probabilities; `missing` probability has no loss
    here.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.privacy.losses import Composed
    >>> two_losses = Composed(start=0.0, h=1.0, p=np.array([0.9, 0.1]))  # 0, or 1 with probability 0.1
    >>> round(two_losses.epsilon(delta=0.02), 3)
    0.777
    """

    start: float
    h: float
    p: Vector
    missing: float = 0.0

    def epsilon(self, delta: float) -> float:
        """Returns the smallest epsilon with sum p (1 - exp(epsilon - loss))+ + missing <= delta."""
        left = delta - self.missing
        if left <= 0:
            return math.inf
        loss = self.start + self.h * np.arange(len(self.p))
        p = np.maximum(self.p, 0)
        beyond, weighted = (np.cumsum(v[::-1])[::-1] for v in (p, p * np.exp(-loss)))
        fits = beyond - np.exp(loss) * weighted <= left  # delta at each loss
        k = int(np.argmax(fits))
        if k == 0:
            return max(0.0, float(loss[0]))
        return max(0.0, math.log((beyond[k] - left) / weighted[k])) if beyond[k] > left else max(0.0, float(loss[k - 1]))


def bounds(
    parts: Sequence[tuple[Pair, float, int]], delta: float, points: int = POINTS, n_cells: int = CELLS
) -> tuple[float, float]:
    """Returns a lower and an upper bound of the epsilon at delta of steps of (pair, noise multiplier, number)."""
    tables = [(tabulate(pair, sigma, n_cells), steps) for pair, sigma, steps in parts]
    start, h = window(tables, points)
    lower, rest = [], 0.0
    upper = []
    for table, steps in tables:
        k = np.floor(table.loss / h)
        rest += steps * float(table.p @ (table.loss - k * h))
        lower.append((place_masses(k, table.p, points), steps))
        mass = np.concatenate([table.p - table.at_high, table.at_high])
        loss = np.concatenate([table.low, table.high])
        k = np.floor(loss / h)
        share = np.clip(np.expm1(k * h - loss) / math.expm1(-h), 0, 1)  # so that P and Q both stay
        upper.append((place_masses(k, mass * (1 - share), points) + place_masses(k + 1, mass * share, points), steps))
    # What rounding down takes from n losses is at least its mean less h sqrt(n log(1 / eta) / 2), but with probability eta.
    rest -= h * math.sqrt(sum(steps for _, steps in tables) * -math.log(ETA) / 2)
    below, above = (convolve(tables_of_bound, start, h, points) for tables_of_bound in (lower, upper))
    lost = sum(steps * max(0.0, 1 - float(table.p.sum())) for table, steps in tables)
    return (max(0.0, below.epsilon(delta + 3 * ETA) + rest), replace(above, missing=2 * ETA + lost).epsilon(delta))


def window(tables: Sequence[tuple[Table, int]], points: int) -> tuple[float, float]:
    """Returns start and spacing of the losses, so that the sum lies outside with a probability of at most 2 ETA (Chernoff's
    bound)."""
    powers = np.geomspace(1e-2, 1e3, 60)

    def end(sign: int) -> float:
        @cache
        def bound(k: int) -> float:
            rate = sum(steps * log_mean_exp(powers[k] * sign * t.loss, t.p) for t, steps in tables)
            return float((rate - math.log(ETA)) / powers[k])

        # The rate is convex in the power and 0 at 0, so that the bound falls up to its least value and rises from there.
        low, high = 0, len(powers) - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if bound(middle) <= bound(middle + 1) else (middle + 1, high)
        return sign * bound(low)

    high, low = end(1), end(-1)
    return low, 1.02 * (high - low) / points


def log_mean_exp(x: Vector, p: Vector) -> float:
    """Returns log sum p exp(x)."""
    most = float(x.max(where=p > 0, initial=-math.inf))  # a larger one without a weight would leave zeros of all others
    return most + math.log(float(p @ np.exp(np.minimum(x - most, 0.0))))


def place_masses(k: Vector, mass: Vector, points: int) -> Vector:
    """Returns the masses at whole multiples of the spacing, round a circle."""
    return np.bincount(k.astype(np.int64) % points, weights=mass, minlength=points).astype(np.float64, copy=False)


def convolve(parts: Sequence[tuple[Vector, int]], start: float, h: float, points: int) -> Composed:
    """Returns the convolution of all steps."""
    spectrum = np.ones(points // 2 + 1, complex)
    for p, steps in parts:
        spectrum *= np.fft.rfft(p) ** steps
    first = math.floor(start / h)
    return Composed(first * h, h, np.roll(np.fft.irfft(spectrum, points), -first))
