"""Models one client of a Cox model: its partial log-likelihood, and its own baseline hazards, which only it may know.

Strata of clients are never at risk together, so that the partial likelihood of all is the product of the clients'. With a normal
prior of the coefficients it makes a posterior: the limit of that of a gamma process of the baseline hazard whose prior loses all
weight (Kalbfleisch 1978; Sinha, Ibrahim and Chen 2003). There the hazard's increments at the times of events, given the
coefficients, are gamma variables: of one row that has its event Gamma(1, sum over who is at risk).

Source: docs/spec/likelihood.md, section 9.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.special import gammaincinv

from ..arrays import Indices, Vector
from ..kernels import survival as kernels
from .expfam import unpacked
from .mixed.layout import Layout

BLOCK = 4_000_000  # numbers of rows and draws at once


@dataclass(frozen=True)
class Rows:
    """Holds a client's rows in the order of `kernels.arranged`; it is the field of no message.

    Attributes
    ----------
    layout : of the points, which are coefficients alone
    X : (n, p) columns of the coefficients, less their means
    time, event : (n,) when each row ends, and whether that is by its event
    strata : (n,) numbers of the client's own strata
    sets : the times of events, and who is at risk at each, as kernels take them
    weights, offset : (n,) or None
    n_threads : of the kernels
    centre : (p,) these means
    """

    layout: Layout
    X: Vector
    time: Vector
    event: NDArray[np.bool_]
    strata: Indices
    sets: kernels.Arranged
    weights: Vector | None = None
    offset: Vector | None = None
    n_threads: int = 1
    centre: Vector = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def of(
        cls,
        layout: Layout,
        X: Vector,
        time: Vector,
        event: NDArray[np.bool_],
        entry: Vector | None = None,
        strata: Indices | None = None,
        weights: Vector | None = None,
        offset: Vector | None = None,
        n_threads: int = 1,
    ) -> Rows:
        """Makes rows of any order; one that weighs nothing is left out."""
        if weights is not None and (weights == 0).any():
            weighed = weights != 0
            entry, strata, weights, offset = (
                None if values is None else values[weighed] for values in (entry, strata, weights, offset)
            )
            X, time, event = X[weighed], time[weighed], event[weighed]
        sets = kernels.arranged(time, event, entry, strata)
        order = sets.order
        strata = np.zeros(len(time), np.int64) if strata is None else strata
        if weights is not None and (weights == 1).all():
            weights = None
        weights, offset = (None if values is None else np.ascontiguousarray(values[order]) for values in (weights, offset))
        # A constant that all rows share changes nothing; a large one takes digits from the curvature.
        centre = X.mean(axis=0) if len(X) else np.zeros(X.shape[1])
        X = np.ascontiguousarray(X[order] - centre, np.float64)
        return cls(layout, X, time[order], event[order], strata[order], sets, weights, offset, n_threads, centre)

    def __len__(self) -> int:
        return len(self.X)

    @property
    def size(self) -> int:
        """P, the length of a point."""
        return self.layout.size

    @property
    def events(self) -> int:
        """The number of rows that have their event."""
        return int(self.sets.deaths.sum())

    together = True

    @property
    def units(self) -> Indices:
        """(2,) the client's rows, which are one: who is at risk with whom is no sum over rows."""
        return np.array([0, len(self)])

    def of_units(self, part: slice) -> Rows:
        """Returns all rows."""
        return self

    def values(self, points: Vector, nodes: int) -> Vector:
        """Returns (S,) partial log-likelihoods of the points (S, P); nothing is integrated out: `nodes` are not looked at."""
        return kernels.cox_values(points, *self._rows, n_threads=self.n_threads)

    def curvature(self, points: Vector, nodes: int) -> tuple[Vector, Vector, Vector]:
        """Returns (c,) partial log-likelihoods at points (c, P), gradients (c, P) and minus Hessians (c, P, P)."""
        value, gradient, lower = kernels.cox_curvature(points, *self._rows, n_threads=self.n_threads)
        return value, gradient, unpacked(lower, self.size)

    def rule(self, points: Vector, nodes: int) -> Vector:
        """Returns (S,) zeros: there is no quadrature."""
        return np.zeros(len(points))

    @property
    def _rows(self) -> tuple[Vector, Vector | None, Vector | None, Indices, Indices, Indices, Indices | None]:
        sets = self.sets
        return self.X, self.weights, self.offset, sets.first, sets.ends, sets.deaths, sets.until

    def predictor(self, points: Vector) -> Vector:
        """Returns (S, n) predictors at points (S, P)."""
        eta: Vector = points @ self.X.T
        return eta if self.offset is None else eta + self.offset

    def weighed(self, point: Vector) -> Vector:
        """Returns (1, n) how many events are expected of each row, by its hazard at the times at which it is at risk."""
        sets = self.sets
        weights = np.ones(len(self)) if self.weights is None else self.weights
        if not len(sets.ends):
            return np.zeros((1, len(self)))
        each = weights * np.exp(self.predictor(point[np.newaxis])[0])
        hazard = np.concatenate([[0.0], np.cumsum(of_deaths(self, weights) / at_risk(self, each))])
        row = np.arange(len(self))
        first, last = np.searchsorted(sets.ends, row, side="right"), np.searchsorted(sets.first, row, side="right")
        last = last if sets.until is None else np.minimum(last, sets.until)
        return np.asarray(each * np.maximum(hazard[last] - hazard[first], 0.0))[np.newaxis]

    @property
    def mean_row(self) -> tuple[Vector, float]:
        """(p,) the client's average covariates, and the average of its offset."""
        w = np.ones(len(self)) if self.weights is None else self.weights
        mean = np.asarray(w @ self.X / w.sum())
        offset = 0.0 if self.offset is None else float(w @ self.offset / w.sum())
        return mean, offset


@dataclass(frozen=True)
class Causes:
    """Holds a client's rows for each cause of events: where one has its event, rows that end by another are censored.

    So the partial likelihood is a product of one of each cause's own coefficients. It is the field of no message.

    Attributes
    ----------
    layout : of the points: a block of coefficients of each cause
    parts : of each cause
    """

    layout: Layout
    parts: tuple[Rows, ...]

    together = True

    def __len__(self) -> int:
        return len(self.parts[0])

    @property
    def size(self) -> int:
        """P, the length of a point."""
        return self.layout.size

    @property
    def units(self) -> Indices:
        """(2,) the client's rows, which are one."""
        return self.parts[0].units

    def of_units(self, part: slice) -> Causes:
        """Returns all rows."""
        return self

    @property
    def X(self) -> Vector:
        """(n, p) columns of each cause's coefficients."""
        return self.parts[0].X

    def blocks(self, points: Vector) -> list[Vector]:
        """Returns each cause's coefficients (.., p), of points (.., P)."""
        return np.split(points, len(self.parts), axis=-1)

    def values(self, points: Vector, nodes: int) -> Vector:
        """Returns (S,) partial log-likelihoods of the points (S, P)."""
        each = [rows.values(np.ascontiguousarray(block), nodes) for rows, block in zip(self.parts, self.blocks(points))]
        return np.asarray(np.sum(each, axis=0))

    def curvature(self, points: Vector, nodes: int) -> tuple[Vector, Vector, Vector]:
        """Returns (c,) partial log-likelihoods at points (c, P), gradients (c, P) and minus Hessians (c, P, P)."""
        each = [rows.curvature(np.ascontiguousarray(block), nodes) for rows, block in zip(self.parts, self.blocks(points))]
        value, gradient, hessians = zip(*each)
        whole = np.array([block_diag(*blocks) for blocks in zip(*hessians)]).reshape(-1, self.size, self.size)
        return np.asarray(np.sum(value, axis=0)), np.concatenate(gradient, axis=1), whole

    def rule(self, points: Vector, nodes: int) -> Vector:
        """Returns (S,) zeros: there is no quadrature."""
        return np.zeros(len(points))

    def weighed(self, point: Vector) -> Vector:
        """Returns (K, n) how many events of each cause are expected of each row, in the order of `X`."""
        found = np.empty((len(self.parts), len(self)))
        for weights, rows, block in zip(found, self.parts, self.blocks(point)):
            weights[rows.sets.order] = rows.weighed(block)[0]
        return found[:, self.parts[0].sets.order]

    def uniforms(self, draw: Callable[[int], Vector], n: int) -> list[Vector]:
        """Returns (n, k) numbers of each cause's times of events; `draw`: a number of numbers -> these."""
        *ends, k = np.cumsum([len(rows.sets.ends) for rows in self.parts]).tolist()
        return np.split(draw(n * k).reshape(n, k), ends, axis=1)


def of_deaths(rows: Rows, values: Vector) -> Vector:
    """Returns (.., k) sums of values (.., n) over the rows that have the event, at each set."""
    ends, deaths = rows.sets.ends, rows.sets.deaths
    places = np.stack([ends - deaths, ends], axis=1).ravel()  # sums from each place to the next, of which every other counts
    padded = np.concatenate([values, np.zeros_like(values[..., :1])], axis=-1)
    return np.asarray(np.add.reduceat(padded, places, axis=-1)[..., ::2])


def at_risk(rows: Rows, values: Vector) -> Vector:
    """Returns (.., k) sums of values (.., n), which are above 0, over the rows at risk, at each set."""
    first, ends, until = rows.sets.first, rows.sets.ends, rows.sets.until
    sums = np.empty((*values.shape[:-1], len(ends)))
    for begin in np.unique(first):
        sets = np.flatnonzero(first == begin)
        part = slice(int(begin), int(ends[sets[-1]]))
        joined = np.cumsum(values[..., part], axis=-1)
        sums[..., sets] = joined[..., ends[sets] - 1 - part.start]
        if until is not None:
            order = np.argsort(until[part], kind="stable")
            left = np.concatenate([np.zeros_like(joined[..., :1]), np.cumsum(values[..., part][..., order], axis=-1)], axis=-1)
            sums[..., sets] -= left[..., np.searchsorted(until[part][order], sets, side="right")]
    return sums


class Baseline(NamedTuple):
    """Holds the baseline hazards at each time of an event, of a row with the client's average covariates."""

    # stratum, events, at_risk: (k,) the time's stratum, and its numbers of events and of rows at risk
    stratum: Indices
    time: Vector  # (k,) rising within a stratum
    events: Indices
    at_risk: Indices
    # hazard, survival: (3, k) of the cumulative hazard, and of the probability to be without event for longer: mean, 2.5 % and
    # 97.5 % over the posterior
    hazard: Vector
    survival: Vector


def baseline(rows: Rows, draws: Vector, uniform: Vector) -> Baseline:
    """Returns the client's own baseline hazards, given draws (S, P) of the posterior.

    At each draw the increments of all events of a time are Gamma(mean weight, the sum over who is at risk) variables, ties by
    Efron's rule, whose means are Breslow's. `uniform` (S, k): what they are drawn by.
    """
    sets = rows.sets
    order, stratum, time, hazard = _hazards(rows, draws, uniform)
    numbers = at_risk(rows, np.ones(len(rows)))[order].astype(np.int64)
    return Baseline(stratum, time, sets.deaths[order], numbers, _summary(hazard), _summary(np.exp(-hazard)))


def cumulative(rows: Rows, draws: Vector, uniform: Vector, times: Vector) -> Vector:
    """Returns (S, T) cumulative hazards at times (T,), of a row whose columns are 0 and whose offset is the mean.

    With several strata it is their mean, each by the number of its rows. Parameters are those of `baseline`.
    """
    _, stratum, time, hazard = _hazards(rows, draws, uniform)
    total, (mean, _) = np.zeros((len(draws), len(times))), rows.mean_row
    for number in np.unique(rows.strata):
        inside, share = stratum == number, float((rows.strata == number).mean())
        steps = np.hstack([np.zeros((len(draws), 1)), hazard[:, inside]])
        total += share * steps[:, np.searchsorted(time[inside], times, side="right")]
    with np.errstate(over="ignore"):
        return np.asarray(total * np.exp(-draws @ (rows.centre + mean))[:, np.newaxis])


def restricted_means(rows: Rows, draws: Vector, uniform: Vector, tau: float) -> dict[int, Vector]:
    """Returns stratum -> (3,) the restricted mean of a row with the client's average covariates: mean, 2.5 % and 97.5 %.

    It is the mean time until the event or tau; the three are over the posterior. Behind the last event of a stratum the
    probability to be without event stays as it was. Parameters are those of `baseline`.
    """
    _, stratum, time, hazard = _hazards(rows, draws, uniform)
    means = {}
    for number in np.unique(rows.strata).tolist():
        before = (stratum == number) & (time < tau)
        lengths = np.diff(np.concatenate([[0.0], time[before], [tau]]))
        survive = np.hstack([np.ones((len(draws), 1)), np.exp(-hazard[:, before])])
        means[number] = _summary((survive @ lengths)[:, np.newaxis])[:, 0]
    return means


def _hazards(rows: Rows, draws: Vector, uniform: Vector) -> tuple[Indices, Indices, Vector, Vector]:
    """The order of sets by stratum and time; their strata and times (k,), and cumulative hazards (S, k)."""
    sets, (mean, offset) = rows.sets, rows.mean_row
    k = len(sets.ends)
    weight = np.ones(len(rows)) if rows.weights is None else rows.weights
    increments = np.empty((len(draws), k))
    for part in _pieces(len(draws), BLOCK // max(len(rows), 1)):
        eta = rows.predictor(draws[part]) - (draws[part] @ mean + offset)[:, np.newaxis]
        e = weight * np.exp(eta)
        total, weights_here = at_risk(rows, e), of_deaths(rows, e)
        for place, (d, each) in enumerate(zip(sets.deaths.tolist(), (of_deaths(rows, weight) / sets.deaths).tolist())):
            rates = total[:, place, np.newaxis] - np.arange(d) / d * weights_here[:, place, np.newaxis]
            means, shape = each * (1 / rates).sum(axis=1), each * d
            increments[part, place] = means / shape * gammaincinv(shape, uniform[part, place])
    order = np.lexsort((rows.time[sets.ends - 1], rows.strata[sets.ends - 1]))
    stratum, time = rows.strata[sets.ends - 1][order], rows.time[sets.ends - 1][order]
    hazard = increments[:, order]
    for number in np.unique(stratum):
        hazard[:, stratum == number] = np.cumsum(hazard[:, stratum == number], axis=1)
    return order, stratum, time, hazard


def incidences(causes: Causes, draws: Vector, uniforms: Sequence[Vector], row: Vector | None = None) -> dict[int, Incidence]:
    """Returns stratum -> the chances to have had an event of each cause, at the times of events of any.

    Within one time all causes' hazards rise in proportion, so that the chances of all and of no event add up to 1.

    Parameters
    ----------
    draws : (S, P) of the posterior
    uniforms : of `Causes.uniforms`
    row : (p,) columns of who has these chances, whose offset is the mean; None: the client's average covariates
    """
    found = list[tuple[Indices, Vector, Vector]]()
    for rows, block, uniform in zip(causes.parts, causes.blocks(draws), uniforms):
        _, stratum, time, hazard = _hazards(rows, block, uniform)
        moved = np.zeros(len(block)) if row is None else block @ (row - rows.centre - rows.mean_row[0])
        found.append((stratum, time, hazard * np.exp(moved)[:, np.newaxis]))
    chances = {}
    for number in np.unique(causes.parts[0].strata).tolist():
        times = np.unique(np.concatenate([time[stratum == number] for stratum, time, _ in found]))
        steps = np.zeros((len(found), len(draws), 1 + len(times)))
        for whole, (stratum, time, hazard) in zip(steps, found):
            known = np.hstack([np.zeros((len(draws), 1)), hazard[:, stratum == number]])
            whole[:, 1:] = known[:, np.searchsorted(time[stratum == number], times, side="right")]
        rises, free = np.diff(steps, axis=2), np.exp(-steps.sum(axis=0))
        lost, total = -np.diff(free, axis=1), rises.sum(axis=0)
        chances[number] = Incidence(times, np.cumsum(rises * (lost / np.where(total > 0, total, 1.0)), axis=2))
    return chances


class Incidence(NamedTuple):
    """Holds the cumulative incidence of each cause in a stratum: times (m,) of events, and chances (K, S, m) at draws."""

    times: Vector
    chances: Vector

    @property
    def summaries(self) -> list[Vector]:
        """(3, m) of each cause: mean, 2.5 % and 97.5 % over the posterior."""
        return [_summary(chances) for chances in self.chances]

    def chances_by(self, times: Vector) -> Vector:
        """Returns (K, S, T) the chances at other times (T,)."""
        padded = np.concatenate([np.zeros((*self.chances.shape[:2], 1)), self.chances], axis=2)
        return np.asarray(padded[:, :, np.searchsorted(self.times, times, side="right")])


def schoenfeld(rows: Rows, beta: Vector) -> tuple[Vector, Vector]:
    """Returns (p,) efficient scores of each coefficient's slope in time, and (p,) their information.

    The scores' sum over clients, over the root of the information's, is a standard normal number where hazards are proportional.
    Time is the rank of the event's time among the client's, in -1/2 .. 1/2. All coefficients of the client are free: a client
    whose coefficients are others, alike at all times, is no evidence.
    """
    sets, X = rows.sets, rows.X
    if not len(sets.ends):
        return np.zeros(X.shape[1]), np.zeros(X.shape[1])
    weight = np.ones(len(rows)) if rows.weights is None else rows.weights
    eta = rows.predictor(beta[np.newaxis])[0]
    of_row, of_set = rows.strata, rows.strata[sets.ends - 1]
    top = np.full(of_row.max() + 1, -np.inf)
    np.maximum.at(top, of_row, eta)
    e = weight * np.exp(eta - top[of_row])
    distinct, place = np.unique(rows.time[sets.ends - 1], return_inverse=True)
    g = place / max(len(distinct) - 1, 1) - 0.5
    # One term for each event: Efron's rule takes a share of the dying from the sums over the rows at risk.
    k = np.repeat(np.arange(len(sets.ends)), sets.deaths)
    share = (np.arange(len(k)) - np.repeat(np.cumsum(sets.deaths) - sets.deaths, sets.deaths)) / sets.deaths[k]
    each = (of_deaths(rows, weight) / sets.deaths)[k]
    total = at_risk(rows, e)[k] - share * of_deaths(rows, e)[k]
    mean = (at_risk(rows, e * X.T)[:, k] - share * of_deaths(rows, e * X.T)[:, k]) / total
    # sum_k c_k E_k[x x'] is a sum over rows, of e times the sum of c / total over the sets at which the row is at risk
    begin = np.searchsorted(sets.ends, np.arange(len(rows)), side="right")
    end = np.searchsorted(of_set, of_row, side="right")
    last = end if sets.until is None else np.minimum(end, sets.until)
    end = np.maximum(last, begin)
    dies = np.zeros(len(rows), bool)
    dies[np.repeat(sets.ends, sets.deaths) - 1 - (share * sets.deaths[k]).round().astype(np.int64)] = True

    def moment(c: Vector) -> Vector:
        """Returns (p, p) the sum over events of c times the covariance of the columns of the rows at risk."""
        hazard, of_dying = (np.bincount(k, c * each * part / total, len(sets.ends)) for part in (np.ones(len(k)), share))
        joined = np.concatenate([[0.0], np.cumsum(hazard)])
        a = joined[end] - joined[begin]
        a[dies] -= of_dying[begin[dies]]
        return np.asarray((X.T * (e * a)) @ X - (mean * (c * each)) @ mean.T)

    I0, I1, I2 = (moment(g[k] ** power) for power in (0, 1, 2))
    seen = of_deaths(rows, weight * X.T)
    W, U = seen.sum(axis=1) - mean @ each, seen @ g - mean @ (g[k] * each)
    back = I1 @ np.linalg.pinv(I0, hermitian=True)
    return U - back @ W, np.maximum(np.diagonal(I2 - back @ I1.T), 0.0)


def concordance(rows: Rows, beta: Vector) -> tuple[float, float]:
    """Returns the number of pairs of a row that has its event and one that is still at risk after it, and the number of those in
    which the first has the higher risk.

    Equal risks count by half; each row counts once, whatever its weight.
    """
    sets = rows.sets
    eta = rows.predictor(beta[np.newaxis])[0].tolist()
    until = None if sets.until is None else sets.until.tolist()
    leaving: dict[int, list[int]] = {}
    for i, k in enumerate(until or ()):
        leaving.setdefault(k, []).append(i)
    # Sets of a stratum come from its last time to its first: rows at risk join, and leave again before their entry.
    begun, to, sorted_risks = -1, 0, list[float]()
    pairs = right = 0.0
    for k, (first, end, d) in enumerate(zip(sets.first.tolist(), sets.ends.tolist(), sets.deaths.tolist())):
        if first != begun:
            begun, to, sorted_risks = first, first, []
        for i in leaving.get(k, ()):
            if first <= i < to:
                sorted_risks.pop(bisect_left(sorted_risks, eta[i]))
        at_risk_now = [i for i in range(to, end) if until is None or until[i] > k]
        for i in at_risk_now:
            if i < end - d:
                insort(sorted_risks, eta[i])
        for i in range(end - d, end):
            below, equal = bisect_left(sorted_risks, eta[i]), bisect_right(sorted_risks, eta[i])
            pairs, right = pairs + len(sorted_risks), right + below + 0.5 * (equal - below)
        for i in at_risk_now:
            if i >= end - d:
                insort(sorted_risks, eta[i])
        to = end
    return pairs, right


def _summary(values: Vector) -> Vector:
    return np.stack([values.mean(axis=0), *np.quantile(values, (0.025, 0.975), axis=0)])


def _pieces(n: int, most: int) -> Iterator[slice]:
    size = max(1, most)
    return (slice(begin, min(begin + size, n)) for begin in range(0, n, size))
