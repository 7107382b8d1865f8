"""True against claimed epsilon, for every sampler, unit and release.

    python benchmarks/privacy_claims.py

Claimed: what `fedkern check` plans and the certificate says. True: of the two neighbours that differ most, from the definition of
the mechanism alone, by nothing that the package or dp-accounting computes. Their sums, in clips, are mixtures of a few integers;
the noise is the discrete Gaussian on multiples of 2^-20 clips that the sampler draws. Its privacy loss is tabulated and composed
by FFT, once rounded so that epsilon can only fall, and once so that it can only grow: both bounds are printed. (Without sampling
the claim is the closed form; there the upper bound may exceed it by its own rounding, 1e-8.) Where one row of a random batch is
replaced nobody has proved which neighbours differ most over several steps; the worst that are known are taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from fedkern.algorithms.split import private as vertical_private
from fedkern.methods import parse
from fedkern.methods.pvi import budget as terms
from fedkern.methods.pvi.keys import Config
from fedkern.privacy.accountant import GRID, Mechanism, Parts, epsilon
from fedkern.privacy.certificate import of_group

Vector = NDArray[np.float64]
Law = dict[int, float]  # a sum of rows, in clips -> its probability
Pair = tuple[Law, Law]  # of two neighbours

UNITS = round(1 / GRID)  # of the integers, in a clip
REACH = 12  # standard deviations of the noise that are tabulated; beyond them are 1e-32
POINTS, CELLS = 1 << 22, 6000  # of the composed losses, and of a standard deviation of one step's noise
ETA = 1e-13  # what windows and rounding may leave out, of delta


# --- the pairs of neighbours


def swapped(pair: Pair) -> Pair:
    return pair[1], pair[0]


def both_ways(pair: Pair) -> list[Pair]:
    return [pair] if pair[0] == pair[1] else [pair, swapped(pair)]


def added(m: Mechanism, rows: int = 1) -> Pair:
    """`rows` rows at the clip, all alike, or none, among rows that are zero."""
    chances = stats.binom.pmf(np.arange(rows + 1), rows, m.rate)
    return {j: float(p) for j, p in enumerate(chances) if p}, {0: 1.0}


def replaced(m: Mechanism) -> list[Pair]:
    """One row at the clip, or at its opposite, among rows that are zero, and among rows that are like the first."""
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
    """A shard, or a row's own number, at the clip or at its opposite."""
    return {1: 1.0}, {-1: 1.0}


# --- privacy loss


@dataclass(frozen=True)
class Table:
    """log(P / Q) of the noisy sum under P, cell by cell of the numbers that it can be.

    Attributes
    ----------
    p, loss : probability of a cell under P, and log(P / Q) of the whole cell, which tells less than the number in it
    low, high, at_high : the least and the largest log(P / Q) of a number in the cell, and the part of p that belongs at the
        largest so that P and Q of the cell stay what they are, which tells at least as much as the number
    """

    p: Vector
    loss: Vector
    low: Vector
    high: Vector
    at_high: Vector


def tabulated(pair: Pair, sigma: float, n_cells: int) -> Table:
    """The loss of one step."""
    s = math.ceil(sigma / GRID)
    shifts = [shift * UNITS for law in pair for shift in law]
    first, last = min(shifts) - REACH * s, max(shifts) + REACH * s
    edges = np.unique(np.rint(np.linspace(first, last, n_cells * (last - first) // s))) + 0.5  # between integers
    p, q = (sum(weight * cells(edges - shift * UNITS, s) for shift, weight in law.items()) for law in pair)
    used = (p > 1e-300) & (q > 1e-300)
    ends = [at_points(pair, points, s)[used] for points in (edges[:-1] + 0.5, edges[1:] - 0.5)]
    p, q = p[used], q[used]
    low, high = np.minimum(*ends), np.maximum(*ends)
    width = np.maximum(high - low, 1e-300)
    at_high = np.where(high > low, np.clip((p - q * np.exp(low)) / -np.expm1(-width), 0, p), p)
    return Table(p, np.log(p / q), low, high, at_high)


def cells(edges: Vector, s: int) -> Vector:
    """Probabilities of the discrete Gaussian of parameter s between edges (half-integers), by Euler and Maclaurin's sum.

    The next term of the sum, and the sum of all integers against the integral, are below 1e-25 for s beyond 1000.
    """
    x = edges / s
    upper = x[1:] > 0
    before, after = (special.ndtr(np.where(upper, -end, end)) for end in (x[:-1], x[1:]))  # of the nearer tail
    slope = -x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return np.abs(after - before) - np.diff(slope) / (24.0 * s * s)


def at_points(pair: Pair, points: Vector, s: int) -> Vector:
    """log(P / Q) at integers."""

    def log_density(law: Law) -> Vector:
        terms = [math.log(w) - ((points - shift * UNITS) / s) ** 2 / 2 for shift, w in law.items()]
        total: Vector = special.logsumexp(terms, axis=0)
        return total

    return log_density(pair[0]) - log_density(pair[1])


@dataclass(frozen=True)
class Composed:
    """Losses start, start + h, .. of all steps together, with their probabilities; `missing` probability has no loss here."""

    start: float
    h: float
    p: Vector
    missing: float = 0.0

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon with sum p (1 - exp(epsilon - loss))+ + missing <= delta."""
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
    """Epsilon at delta of steps of (pair, noise multiplier, number): from below and from above."""
    tables = [(tabulated(pair, sigma, n_cells), steps) for pair, sigma, steps in parts]
    start, h = window(tables, points)
    lower, rest = [], 0.0
    upper = []
    for table, steps in tables:
        k = np.floor(table.loss / h)
        rest += steps * float(table.p @ (table.loss - k * h))
        lower.append((placed(k, table.p, points), steps))
        mass = np.concatenate([table.p - table.at_high, table.at_high])
        loss = np.concatenate([table.low, table.high])
        k = np.floor(loss / h)
        share = np.clip(np.expm1(k * h - loss) / math.expm1(-h), 0, 1)  # so that P and Q both stay
        upper.append((placed(k, mass * (1 - share), points) + placed(k + 1, mass * share, points), steps))
    # What rounding down takes from n losses is at least its mean less h sqrt(n log(1 / eta) / 2), but with probability eta.
    rest -= h * math.sqrt(sum(steps for _, steps in tables) * -math.log(ETA) / 2)
    below, above = (folded(one, start, h, points) for one in (lower, upper))
    lost = sum(steps * max(0.0, 1 - float(table.p.sum())) for table, steps in tables)
    return (
        max(0.0, below.epsilon(delta + 3 * ETA) + rest),
        replace(above, missing=2 * ETA + lost).epsilon(delta),
    )


def window(tables: Sequence[tuple[Table, int]], points: int) -> tuple[float, float]:
    """Start and spacing of the losses, so that the sum lies outside with a probability of at most 2 ETA (Chernoff's bound)."""
    ends = []
    for sign in (1, -1):
        best = math.inf
        for power in np.geomspace(1e-2, 1e3, 60):
            rate = sum(steps * special.logsumexp(power * sign * t.loss, b=t.p) for t, steps in tables)
            best = min(best, (rate - math.log(ETA)) / power)
        ends.append(sign * best)
    high, low = ends
    return low, 1.02 * (high - low) / points


def placed(k: Vector, mass: Vector, points: int) -> Vector:
    """Masses at whole multiples of the spacing, round a circle."""
    return np.bincount(k.astype(np.int64) % points, weights=mass, minlength=points)


def folded(parts: Sequence[tuple[Vector, int]], start: float, h: float, points: int) -> Composed:
    """The convolution of all steps."""
    spectrum = np.ones(points // 2 + 1, complex)
    for p, steps in parts:
        spectrum *= np.fft.rfft(p) ** steps
    first = math.floor(start / h)
    return Composed(first * h, h, np.roll(np.fft.irfft(spectrum, points), -first))


# --- the cases


@dataclass(frozen=True)
class Case:
    """A claim, and all pairs of neighbours that it is about.

    Attributes
    ----------
    name : of the sampler, the unit and the release
    parts : of the claim; the first one's steps are `steps`
    delta : of the claim
    pairs : for each choice of neighbours, the pair of each part
    tight : whether at least .97 of the claim is wanted
    people : rows of one person
    """

    name: str
    parts: Parts
    delta: float
    pairs: Sequence[Sequence[Pair]]
    tight: bool = False
    people: int = 1

    @property
    def claimed(self) -> tuple[float, float]:
        """(epsilon, delta) of the certificate."""
        claim = epsilon(self.parts, self.delta)
        return of_group(claim, self.delta, self.people) if self.people > 1 else (claim, self.delta)

    def true(self, points: int = POINTS, n_cells: int = CELLS) -> tuple[float, float]:
        """The largest epsilon over the pairs: from below and from above."""
        delta = self.claimed[1]
        ends = [
            bounds([(pair, m.sigma, steps) for pair, (m, steps) in zip(choice, self.parts)], delta, points, n_cells)
            for choice in self.pairs
        ]
        return max(low for low, _ in ends), max(high for _, high in ends)


def planned(rounds: int, variant: str = "pvi", local_steps: int = 1, **privacy: Any) -> tuple[Mechanism, int]:
    """The mechanism and the number of steps that a job's plan has, for 5 coefficients and 200 clients."""
    shards = {"shards": 50} if variant in ("local-averaging", "virtual-clients") else {}
    config = parse(
        {
            "job": {"rounds": rounds},
            "data": {"clients": ["*.csv"], "response": "y", "row_id": "id"},
            "algorithm": {"variant": variant, "local_steps": local_steps, "schedule": "sequential", **shards},
            "privacy": {"epsilon": math.inf, "delta": 1e-5, "clip": 1.5, **privacy},
        }
    )
    assert isinstance(config, Config)
    plan = terms.plan(config, "a", terms.Sizes(5, 200))
    return plan.mechanism, plan.steps


def single(name: str, part: tuple[Mechanism, int], delta: float = 1e-5, people: int = 1) -> Case:
    """One mechanism, its neighbours those of the certificate."""
    m, _ = part
    if m.relation == "ADD_OR_REMOVE_ONE":
        pairs = both_ways(added(m, people))
    elif people > 1:
        pairs = [({people: 1.0}, {-people: 1.0})]
    else:
        pairs = replaced(m)
    tight = m.accountant == "pld" and m.relation == "ADD_OR_REMOVE_ONE" and people == 1
    return Case(name, (part,), delta, [[pair] for pair in pairs], tight, people)


FIXED: dict[str, Any] = {"sampling": "without-replacement", "dataset_size": 1000, "noise_multiplier": 4.0}
CUT: dict[str, Any] = {"sampling": "poisson-truncated", "dataset_size": 1000, "noise_multiplier": 4.0}
CLIENTS: dict[str, Any] = {"unit": "client", "delta": 1e-4}


def small() -> Iterator[Case]:
    """At least one case of every sampler, unit and release, none of them with many steps."""
    yield single("rows, poisson", planned(40, local_steps=5, sampling_rate=0.02, noise_multiplier=2.0))
    yield single("rows, poisson at rate 1", planned(5, sampling_rate=1.0, noise_multiplier=5.0))
    yield single("rows, poisson, much of the data", planned(20, sampling_rate=0.4, noise_multiplier=3.0))
    yield single("rows, poisson, little noise", planned(3, sampling_rate=0.01, noise_multiplier=0.6))
    yield single("rows, poisson, rdp", planned(40, local_steps=5, sampling_rate=0.02, noise_multiplier=2.0, accountant="rdp"))
    yield single("rows, global VI", planned(100, "global-vi", 7, sampling_rate=0.05, noise_multiplier=2.0))
    yield single("rows, full", planned(10, sampling="full", noise_multiplier=10.0))
    yield single("rows, full, rdp", planned(10, sampling="full", noise_multiplier=10.0, accountant="rdp"))
    yield single("rows, without replacement", planned(100, batch_size=20, **FIXED))
    yield single("rows, poisson, cut often", planned(100, sampling_rate=0.02, max_batch=20, **CUT))
    yield single("rows, poisson, cut almost always", planned(20, sampling_rate=0.2, max_batch=50, **CUT))
    yield single("rows, poisson, cut hardly ever", planned(100, sampling_rate=0.02, max_batch=60, **CUT))
    yield single("shards, local averaging", planned(10, "local-averaging", 25, noise_multiplier=16.0))
    yield single("shards, virtual clients, rdp", planned(10, "virtual-clients", 25, noise_multiplier=16.0, accountant="rdp"))
    yield single("clients, all", planned(10, noise_multiplier=4.0, **CLIENTS), 1e-4)
    yield single("clients, client_rate 0.1", planned(100, client_rate=0.1, noise_multiplier=1.0, **CLIENTS), 1e-4)
    columns = vertical_private.mechanism(500, 10, 40.0)
    yield single("columns, vertical", (columns, vertical_private.releases(50)))
    yield single("columns, vertical, rdp", (replace(columns, accountant="rdp"), vertical_private.releases(50)))
    yield single("3 rows a person, poisson", planned(20, sampling_rate=0.02, noise_multiplier=2.0), 1e-7, 3)
    yield single("3 rows a person, full", planned(2, sampling="full", noise_multiplier=12.0), 1e-7, 3)
    yield single("3 rows a person, shards", planned(2, "local-averaging", noise_multiplier=24.0), 1e-7, 3)
    yield from together()


def together() -> Iterator[Case]:
    """Two mechanisms on the same rows."""
    poisson = planned(50, sampling_rate=0.02, noise_multiplier=2.0)
    denser = planned(20, sampling_rate=0.1, noise_multiplier=3.0)
    full = planned(4, sampling="full", noise_multiplier=9.0)
    shards = planned(4, "local-averaging", noise_multiplier=16.0)
    fixed = planned(50, batch_size=20, **FIXED)
    cut = planned(50, sampling_rate=0.02, max_batch=20, **CUT)
    for name, one, other in (
        ("poisson + poisson", poisson, denser),
        ("poisson + full", poisson, full),
        ("poisson + shards", poisson, shards),
        ("poisson + without replacement", poisson, fixed),
        ("poisson + cut", poisson, cut),
        ("shards + without replacement", shards, fixed),
    ):
        parts = (one, other)
        sums_of_rows = all(m.relation == "ADD_OR_REMOVE_ONE" for m, _ in parts)
        choices: list[list[Pair]] = []
        if all(m.sampling in ("poisson", "full", "shards") for m, _ in parts):  # a row is added or removed
            pairs = [answered() if m.sampling == "shards" else added(m) for m, _ in parts]
            choices += [pairs, [swapped(pair) for pair in pairs]]
        if not sums_of_rows:  # its values are replaced
            choices += [[a, b] for a in replaced(one[0]) for b in replaced(other[0])]
        tight = sums_of_rows and all(m.accountant == "pld" for m, _ in parts)
        yield Case(f"rows, {name}", parts, 1e-5, choices, tight)


def large() -> Iterator[Case]:
    """Whole jobs."""
    yield single("rows, poisson, Adult", planned(234, local_steps=25, sampling_rate=79 / 3907, noise_multiplier=5.0), 1e-4)
    yield single("rows, poisson, 10,000 steps", planned(400, local_steps=25, sampling_rate=0.001, noise_multiplier=0.8), 1e-6)
    yield single("rows, without replacement, 1,000 steps", planned(40, local_steps=25, batch_size=20, **FIXED))
    yield single("rows, poisson, cut, 1,000 steps", planned(40, local_steps=25, sampling_rate=0.02, max_batch=25, **CUT))
    clients = planned(1000, client_rate=0.01, noise_multiplier=1.0, **CLIENTS)
    yield single("clients, client_rate 0.01, 1,000 rounds", clients, 1e-4)


def main() -> None:
    print(f"{'':42} {'steps':>6} {'delta':>8} {'claimed':>9} {'true, from':>11} {'to':>9}  true / claimed")
    for case in (*small(), *large()):
        claimed, delta = case.claimed
        low, high = case.true()
        steps = "+".join(str(steps) for _, steps in case.parts)
        numbers = f"{case.name:42} {steps:>6} {delta:8.1e} {claimed:9.5f} {low:11.5f} {high:9.5f}"
        print(f"{numbers}  {low / claimed:.4f} to {high / claimed:.4f}")


if __name__ == "__main__":
    main()
