"""What a server computes of each area's count from the messages of a nested Laplace approximation.

A client answers with its log-likelihood, gradient and curvature where the server asks (`Curvatures`), and with its
log-likelihood at draws (`Marginals`): known functions of the map, the exposures and the counts. So counts are sought that explain
the first answers, and then the client's own machines are run with them: where each message comes out with the same bits, the
counts are those that the client computed with, and it has sent nothing else of its rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedkern.algorithms.exchanges import level
from fedkern.algorithms.exchanges.level import AskLevel, LevelSums
from fedkern.algorithms.nested.machine import AskCurvatures, AskMarginals, Curvatures, Marginals, client, client_receive
from fedkern.arrays import Array
from fedkern.methods.sigma.budget import plan
from fedkern.models.likelihood import Noisy
from fedkern.models.spatial.site import Rows
from fedkern.privacy.noise import GRID
from support import curious
from support.curious_jobs import MapJob

Bits = NDArray[np.bool_]

STEPS = 40  # of the search for counts
STARTS = 12  # of that for counts with noise
MOST_INTERVALS = 12  # of a client that are looked through: 4,096 sets of them


@dataclass(frozen=True)
class Told:
    """What one client answered: xi (m, P) of places, and of each place F_j, its gradient and its curvature in one row (m, k)."""

    xi: Array
    answers: Array

    @classmethod
    def of(cls, job: MapJob, k: int, questions: int = 1) -> Told:
        """Of the first questions."""
        asked = [m for m in job.tape.of(k, AskCurvatures) if isinstance(m, AskCurvatures)][:questions]
        told = [m for m in job.tape.of(k, Curvatures) if isinstance(m, Curvatures)][:questions]
        numbers = [np.column_stack([m.value, m.gradient, m.hessian])[: q.count] for q, m in zip(asked, told, strict=True)]
        return cls(np.concatenate([q.points[: q.count] for q in asked]), np.concatenate(numbers))

    @classmethod
    def summed(cls, several: list[Told]) -> Told:
        """All that a server sees of a secure sum."""
        return cls(several[0].xi, np.sum([one.answers for one in several], axis=0))


@dataclass(frozen=True)
class Found:
    """Counts (d,), where an interval stands in the place of one (d,), and what is left at most of a number, as a share of it."""

    y: Array
    interval: Bits
    left: float


def noise(job: MapJob) -> Noisy:
    """The law of a private job's noise, which follows from the job file."""
    assert job.map.model.privacy is not None
    return Noisy(plan(job.map.model.privacy).mechanism.decay * GRID)


def predicted(job: MapJob, k: int, xi: Array, y: Array, last: Array | Noisy | None) -> Array:
    """(m, k) what the client would have answered with these counts."""
    value, gradient, hessian = job.map.site(k, y, last).curvatures(xi)
    at = np.tril_indices(gradient.shape[1])
    return np.column_stack([value, gradient, hessian[:, *at]])


def counts(job: MapJob, clients: list[int], told: Told, random: np.random.Generator) -> Found:
    """Whole numbers that explain what these clients told (in one sum, where they are several)."""
    size = 1 + np.abs(told.answers)

    def of(k: int) -> curious.Predicted:
        return lambda y: (predicted(job, k, told.xi, y, None) / size).ravel()

    start = [np.exp(job.map.offsets[k] + job.map.model.units.level) for k in clients]
    y, left = curious.counts([of(k) for k in clients], (told.answers / size).ravel(), start, random=random)
    return Found(y, np.zeros(len(y), bool), left)


def noisy(job: MapJob, k: int, told: Told, random: np.random.Generator) -> Found:
    """The same of a client whose counts have noise, and may be below 0; from several starts."""
    begin, law = np.exp(job.map.offsets[k] + job.map.model.units.level), noise(job)
    best = Found(np.zeros(len(begin)), np.zeros(len(begin), bool), np.inf)
    for attempt in range(STARTS):
        start = np.round(begin * np.exp(0.4 * random.standard_normal(len(begin)) * (attempt > 0)))
        y, left = whole(lambda y: predicted(job, k, told.xi, y, law) - told.answers, start, told, -np.inf)
        best = min(best, Found(y, best.interval, left), key=lambda one: one.left)
        if best.left < curious.SAME:
            break
    return best


def whole(of: Callable[[Array], Array], y: Array, told: Told, least: float) -> tuple[Array, float]:
    """Gauss-Newton among whole numbers of at least `least`: slopes are differences to the counts beside. What it leaves of the
    answers, as a share of them."""
    size = 1 + np.abs(told.answers)
    seen: dict[bytes, float] = {}

    def off(y: Array) -> tuple[Array, float]:
        r = (of(y) / size).ravel()
        seen[y.tobytes()] = worst = float(np.abs(r).max())
        return r, worst

    r, left = off(y)
    for _ in range(STEPS):
        if left < curious.SAME:
            break
        columns = []
        for e in np.eye(len(y)):
            low = np.maximum(y - e, least)
            columns.append(((of(y + e) - of(low)) / size).ravel() / (y + e - low).max())
        step = np.linalg.lstsq(np.stack(columns, axis=1), r, rcond=1e-12)[0]
        tries = [np.maximum(np.round(y - share * step), least) for share in (1.0, 0.5, 0.25, 0.1)]
        tries += [np.maximum(y + change, least) for e in np.eye(len(y)) for change in (e, -e)] if left < 1 else []
        new = [(off(one), one) for one in tries if one.tobytes() not in seen]
        if not new:
            break
        (r_new, left_new), y_new = min(new, key=lambda one: one[0][1])
        if left_new >= left:
            break
        r, left, y = r_new, left_new, y_new
    return y, left


def suppressed(job: MapJob, k: int, told: Told, most: int) -> Found:
    """Counts of a client of whose cells some may be intervals, 0 to `most`, and which those are: every set of the areas whose
    count could be as small is tried, the others' counts sought for it."""
    d = len(job.map.offsets[k])
    start = np.round(np.exp(job.map.offsets[k] + job.map.model.units.level))
    best = first = _others(job, k, told, np.zeros(d, bool), most, start)
    small = [i for i in range(d) if first.y[i] <= 3 * most][:MOST_INTERVALS]
    for n in range(1, len(small) + 1):
        for those in itertools.combinations(small, n):
            interval = np.isin(np.arange(d), those)
            if best.left < curious.SAME:
                return best
            found = _others(job, k, told, interval, most, first.y)
            best = min(best, found, key=lambda one: one.left)
    return best


def _others(job: MapJob, k: int, told: Told, interval: Bits, most: int, start: Array) -> Found:
    def of(free: Array) -> Array:
        y, last = np.zeros(len(interval)), np.full(len(interval), float(most))
        y[~interval] = last[~interval] = free
        return predicted(job, k, told.xi, y, last if interval.any() else None) - told.answers

    free, left = whole(of, start[~interval], told, 0.0)
    y = np.zeros(len(interval))
    y[~interval] = free
    return Found(y, interval, left)


def replayed(job: MapJob, k: int, y: Array, last: Array | Noisy | None = None) -> int:
    """How many messages the client's own machines send with these counts: all that it sent of its rows, bit for bit.

    AssertionError where one differs.
    """
    model, site = job.map.model, job.map.site(k, y, last)
    state = client(model.names[k], k, model.nested, site, model.standard.n_linear)
    rows = Rows(y, np.arange(len(y)), job.map.X[k], job.map.offsets[k], last=last)
    summed = level.Client(model.names[k], model.level, rows)
    asked = job.tape.of(k, AskLevel, AskCurvatures, AskMarginals)
    sent = job.tape.of(k, LevelSums, Curvatures, Marginals)
    for question, answer in zip(asked, sent, strict=True):
        if isinstance(question, AskLevel):
            (again,) = level.client_receive(summed, question)[1]
        else:
            state, (again,) = client_receive(state, question)
        assert type(again) is type(answer)
        for name, value in vars(answer).items():
            np.testing.assert_array_equal(getattr(again, name), value, err_msg=f"{type(answer).__name__}.{name}")
    return len(sent)
