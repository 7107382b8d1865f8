"""One client of a survival model whose baseline hazard all clients share: its log-likelihood, effects of groups integrated out.

| family | hazard of a row with predictor eta, at t | numbers beside the coefficients |
|---|---|---|
| "weibull" | k t^(k-1) exp(eta) | log k |
| "exponential" | exp(eta) | |
| "lognormal-aft", "loglogistic-aft" | that of log t = eta + sd e, e standard normal or logistic | log sd |
| "piecewise" | exp(eta + b_j) between the cuts c_j and c_(j+1), b_0 = 0 | b_1 .. b_m, and log s of their prior alone |

A row has its event at `time`, or in (time, upper], or was seen without it until `time`. A row that is seen from `entry` on is in
the data because it was without event until then. Where rows came one by one, whatever became of others of their group, that
is so for each value of the group's effect: the integral is of the rows' densities, each over its probability to be without event
until its entry, so that hazards count from the entry on. Where groups are there because all of their rows were without event
(`together`), it is so for the group as a whole: log integral of the rows less log integral of the same rows, censored at their
entries. A ratio of integrals is no integral of ratios; without effects both are the same.

Source: docs/spec/likelihood.md, section 9.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np

from ..arrays import Indices, Vector
from ..kernels import _declared as by_jets
from ..kernels import mixed as kernels
from ..kernels._jets import variables
from ..kernels.families import ACCELERATED
from .expfam import unpacked
from .mixed import Rows
from .mixed.joint import OfAll
from .mixed.layout import SHAPES, START_OF_LEARNT, Elsewhere, Layout, Named, Shape
from .mixed.learnt import Learnt
from .mixed.quadrature import even

WALK = Shape("log walk sd", "walk sd", np.exp, Named.of("half-normal"), start=START_OF_LEARNT, of_prior=True)


def shapes_of(family: str, cuts: tuple[float, ...]) -> tuple[Shape, ...]:
    """The numbers of a family beside its coefficients; `cuts` are those of "piecewise"."""
    if family in SHAPES:
        return SHAPES[family]
    steps = (Shape(f"log hazard from {cut:g}", f"log hazard from {cut:g}", np.asarray, Elsewhere(), reach=50.0) for cut in cuts)
    return (*steps, WALK) if family == "piecewise" else ()


@dataclass(frozen=True)
class Baseline:
    """Hazards of rows by their predictors, at points of xi: those of predictor 0 times exp(eta)."""

    family: str  # see above
    own: Vector  # (S, k) the family's numbers at each point, without those that are of a prior alone
    cuts: Vector = field(default_factory=lambda: np.zeros(0))  # (m,) of "piecewise"

    @classmethod
    def of(cls, layout: Layout, points: Vector, cuts: Vector) -> Baseline:
        """At points whose last numbers are those of the layout's family, with or without T_c."""
        shape_numbers = points[:, points.shape[1] - len(layout.shapes) :]
        numbers = shape_numbers[:, [k for k, shape in enumerate(layout.shapes) if not shape.of_prior]]
        return cls.of_family(layout.family, numbers, cuts)

    @staticmethod
    def of_family(family: str, own: Vector, cuts: Vector) -> Baseline:
        """As its fields are."""
        kind = Accelerated if family in ACCELERATED else Baseline
        return kind(family, own, cuts)

    def between(self, since: Vector, time: Vector, eta: Vector) -> Vector:
        """(S, n) the cumulative hazards of predictors (S, n) from times to others, 0 <= since <= time."""
        return self._between(since, time) * np.exp(eta)

    def _between(self, since: Vector, time: Vector) -> Vector:
        """(S, n) the same of predictor 0, of which nothing cancels where both are near."""
        S, n = len(self.own), len(time)
        if self.family == "weibull":
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                k, grown = np.exp(self.own), (time - since) / since
                ratio = np.where(grown < 1, np.log1p(grown), np.log(time) - np.log(since))  # log(time / since)
                exposure = np.exp(k * np.log(time)) * -np.expm1(-k * np.where(since > 0, ratio, np.inf))
            return np.asarray(np.where(time > since, exposure, 0.0))
        if self.family == "exponential":
            return np.broadcast_to(time - since, (S, n))
        b, begins = np.hstack([np.zeros((S, 1)), self.own]), np.concatenate([[0.0], self.cuts])
        ends = np.append(self.cuts, np.inf)
        spent = np.minimum(time[:, np.newaxis], ends) - np.maximum(since[:, np.newaxis], begins)
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(b) @ np.maximum(spent, 0.0).T)

    def at(self, time: Vector) -> tuple[Vector, Vector]:
        """(S, n) logarithms of the hazard, and the cumulative hazard, at times (n,), each 0 or above."""
        n, S = len(time), len(self.own)
        if self.family == "weibull":
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                log_t, k = np.log(time), np.exp(self.own)
                hazard, cumulative = self.own + (k - 1) * log_t, np.exp(k * log_t)
            return np.broadcast_to(hazard, (S, n)), np.broadcast_to(cumulative, (S, n))
        if self.family == "exponential":
            return np.zeros((S, n)), np.broadcast_to(time, (S, n))
        b = np.hstack([np.zeros((S, 1)), self.own])
        begins = np.concatenate([[0.0], self.cuts])
        with np.errstate(over="ignore"):
            spent = np.clip(time[:, np.newaxis] - begins, 0.0, np.append(np.diff(begins), np.inf))
            # An event at a cut is of the piece that ends there, as its row was seen in no other.
            return b[:, np.searchsorted(self.cuts, time, side="left")], np.exp(b) @ spent.T

    def when(self, cumulative: Vector, eta: Vector) -> Vector:
        """(S, n) the times at which cumulative hazards (S, n) of predictors (S, n) are reached."""
        cumulative = cumulative * np.exp(-eta)
        if self.family == "exponential":
            return cumulative
        with np.errstate(divide="ignore", over="ignore"):
            if self.family == "weibull":
                return np.asarray(np.exp(np.log(cumulative) / np.exp(self.own)))
            hazard, begins = np.exp(np.hstack([np.zeros((len(self.own), 1)), self.own])), np.concatenate([[0.0], self.cuts])
            reached = np.hstack([np.zeros((len(hazard), 1)), np.cumsum(hazard[:, :-1] * np.diff(begins), axis=1)])
            piece = (cumulative[:, :, np.newaxis] > reached[:, np.newaxis, 1:]).sum(axis=2)
            at = np.take_along_axis(reached, piece, axis=1), np.take_along_axis(hazard, piece, axis=1)
            return np.asarray(begins[piece] + (cumulative - at[0]) / at[1])

    def log_cumulative(self, time: Vector) -> Callable[[Vector], Vector]:
        """The function of eta (S, 1, n) that has logarithms of the cumulative hazard at times (T, n) or (T, 1)."""
        with np.errstate(divide="ignore"):
            log_t = np.log(time.ravel())
            of_zero = np.exp(self.own) * log_t if self.family == "weibull" else np.log(self.at(time.ravel())[1])
        of_zero = of_zero.reshape(len(of_zero), *time.shape)
        return lambda eta: of_zero + eta

    @property
    def width(self) -> float:
        """Within which length of eta survival bends, at least."""
        return 0.5  # exp(-exp(x))


@dataclass(frozen=True)
class Accelerated(Baseline):
    """Hazards of times whose logarithms are eta + sd e; own: (S, 1) log sd."""

    def between(self, since: Vector, time: Vector, eta: Vector) -> Vector:
        return np.asarray(self._gone(time, eta) - self._gone(since, eta))

    def _gone(self, time: Vector, eta: Vector, own: Vector | None = None) -> Vector:
        """The cumulative hazard."""
        z = (np.log(np.where(time > 0, time, 1.0)) - eta) / np.exp(self.own if own is None else own)
        return np.asarray(np.where(time > 0, -ACCELERATED[self.family].survival(z), 0.0))

    def when(self, cumulative: Vector, eta: Vector) -> Vector:
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(eta + np.exp(self.own) * ACCELERATED[self.family].quantile(-cumulative)))

    def log_cumulative(self, time: Vector) -> Callable[[Vector], Vector]:
        def of_eta(eta: Vector) -> Vector:
            with np.errstate(divide="ignore"):
                return np.asarray(np.log(self._gone(time, eta, self.own[:, :, np.newaxis])))

        return of_eta

    @property
    def width(self) -> float:
        return float(np.exp(self.own.min()))


@dataclass(frozen=True)
class Timed(Rows):
    """Rows with times `y`, in groups."""

    # (n,) `y` where the event is at it; infinite where it had not happened by then; else the event is in (y, upper]
    upper: Vector = field(default_factory=lambda: np.zeros(0))
    cuts: Vector = field(default_factory=lambda: np.zeros(0))  # (m,) of "piecewise"
    entry: Vector | None = None  # (n,) from when on each was seen, which its density is given; None: from 0 on

    def take(self, index: Indices, starts: Indices) -> Self:
        offset, entry = (None if values is None else values[index] for values in (self.offset, self.entry))
        X, y, upper, codes = self.X[index], self.y[index], self.upper[index], tuple(values[index] for values in self.codes)
        return replace(self, X=X, y=y, upper=upper, starts=starts, offset=offset, entry=entry, codes=codes)

    def inner_values(self, points: Vector, nodes: int) -> Vector:
        arrays, family = (self._points(points), *self._arrays), self.layout.family
        return kernels.values(*arrays, family=family, nodes=self._group_nodes(nodes), n_threads=self.n_threads)

    def inner_curvature(self, points: Vector, nodes: int) -> tuple[Vector, Vector, Vector]:
        sent, places = self._points(points), self._own_at
        value, gradient, lower = kernels.curvature(
            sent, *self._arrays, family=self.layout.family, nodes=self._group_nodes(nodes), n_threads=self.n_threads
        )
        curved = unpacked(lower, sent.shape[1])
        return self._of_all(points, value, gradient[:, places], curved[:, places[:, np.newaxis], places])

    @property
    def _arrays(self) -> tuple[Any, ...]:
        """What the kernels take beside points."""
        cuts = self.cuts if self.layout.family == "piecewise" else None
        return self.X, self.Z, self.y, None, self.offset, self.starts, self.upper, cuts, self.entry

    @property
    def _first(self) -> int:
        """Where the family's numbers begin in a point of the kernels."""
        return int(self.layout.client_at.start) + len(self._independent)

    def _points(self, points: Vector) -> Vector:
        """As the kernels take them: of "piecewise" also a number of the first piece, whose place the intercept has here."""
        points = self._with_all(points)
        return np.insert(points, self._first, 0.0, axis=1) if self.layout.family == "piecewise" else points

    @property
    def _own_at(self) -> Indices:
        """The coordinates of the kernels' points that are numbers here."""
        numbers = np.arange(self._first + len(self.layout.shapes) + (self.layout.family == "piecewise"))
        return np.delete(numbers, self._first) if self.layout.family == "piecewise" else numbers

    # Rows one by one, for what a client says of its own groups and rows --------------------

    def baseline(self, points: Vector) -> Baseline:
        """At points as the groups see them."""
        return Baseline.of(self.layout, points, self.cuts)

    def density(self, eta: Vector, points: Vector) -> Vector:
        """(S, n) of predictors (S, n): logarithms of densities of events, and of probabilities of all else, given the entry."""
        if self.layout.family in ACCELERATED:
            return np.asarray(self._accelerated(eta, points) - np.log(np.where(self.upper == self.y, self.y, 1.0)))
        begin, log_hazard, between = self._hazards(eta, points)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            of_end = np.where(self.upper == self.y, log_hazard, np.log(-np.expm1(-between)))
        return np.asarray(np.where(np.isinf(self.upper), 0.0, of_end) - begin)

    def slopes(self, eta: Vector, points: Vector) -> tuple[Vector, Vector]:
        """(S, n) the derivative of `density` in eta, and minus the second one."""
        if self.layout.family in ACCELERATED:
            (number,) = variables(eta)
            jet = self._accelerated(number, points)
            return jet.first[0], -jet.second[0, 0]
        begin, _, d = self._hazards(eta, points)
        exact, inside = self.upper == self.y, np.isfinite(self.upper) & (self.upper != self.y)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            share = np.where(d > 1e-8, d / np.expm1(np.minimum(d, 700.0)), 1 - d / 2)  # d / (e^d - 1)
            bent = share * (d / -np.expm1(-d) - 1)  # minus its derivative in eta
        slope = np.where(exact, 1.0, np.where(inside, share, 0.0)) - begin
        return slope, begin + np.where(inside, np.where(d > 1e-8, bent, d / 2), 0.0)

    def weighed(self, point: Vector) -> Vector:
        return np.abs(self.slopes(self.fixed(point), point[np.newaxis])[1])

    def _accelerated(self, eta: Any, points: Vector) -> Any:
        entry, scale = np.zeros(len(self.y)) if self.entry is None else self.entry, np.exp(self.baseline(points).own)
        return by_jets.accelerated(ACCELERATED[self.layout.family], self.y, self.upper, entry, eta, scale)

    def _hazards(self, eta: Vector, points: Vector) -> tuple[Vector, Vector, Vector]:
        """(S, n) cumulative hazards from the entry to y, logarithms of hazards there, and the cumulative hazard from y to
        `upper`."""
        base, scale = self.baseline(points), np.exp(eta)
        log_hazard, begin = base.at(self.y)
        end = base.at(np.where(np.isinf(self.upper), self.y, self.upper))[1]
        seen = scale * begin if self.entry is None else base.between(self.entry, self.y, eta)
        return seen, log_hazard + eta, scale * (end - begin)


class TimedOfAll(OfAll, Timed):
    """The same, of groups whose effects are integrated together."""


@dataclass(frozen=True)
class Lifetimes:
    """What a client holds; it is the field of no message."""

    layout: Layout  # of the points, with what is of a prior alone
    rows: Timed  # whose points have no such number
    # where groups entered together: the same rows until they were seen, if some were not from the beginning
    before: Timed | None = None
    log_unit: float = 0.0  # the logarithm of a unit of the data's time, in those of the model, for each density

    @classmethod
    def of(
        cls,
        layout: Layout,
        X: Vector,
        time: Vector,
        upper: Vector,
        starts: Indices,
        entry: Vector | None = None,
        offset: Vector | None = None,
        cuts: Vector | None = None,
        n_threads: int = 1,
        unit: float = 1.0,
        *,
        together: bool = False,
        codes: tuple[Indices, ...] = (),
        key: int = 0,
    ) -> Lifetimes:
        """Rows that are sorted by group; `unit`: the model's unit of time, in the data's; the others: see above."""
        shape_numbers = layout.of_rows
        cuts = np.zeros(0) if cuts is None else np.asarray(cuts, np.float64) / unit
        kind = TimedOfAll if layout.joint else Timed
        rows = kind(shape_numbers, X, time / unit, starts, None, offset, n_threads, upper / unit, cuts, codes=codes, key=key)
        before = None
        if entry is None or not (late := np.flatnonzero(entry > 0)).size:
            pass
        elif not together:
            rows = replace(rows, entry=np.maximum(entry, 0.0) / unit)
        else:
            some = rows.take(late, np.searchsorted(late, starts).astype(np.int64))
            before = replace(some, y=entry[late] / unit, upper=np.full(len(late), np.inf))
        log_unit = -float(np.log(unit)) if unit != 1.0 else 0.0
        return cls(layout, rows, before, log_unit)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def size(self) -> int:
        """P, the length of a point."""
        return self.layout.size

    @property
    def X(self) -> Vector:
        """(n, p) the columns of the coefficients."""
        return self.rows.X

    def weighed(self, point: Vector) -> Vector:
        """(1, n) as `rows` has them."""
        return self.rows.weighed(self.inner(point[np.newaxis])[0])

    @property
    def together(self) -> bool:
        """Whether all rows of the client have an effect in common."""
        return self.rows.together

    @property
    def units(self) -> Indices:
        """(u + 1,) where each row or group begins."""
        return self.rows.units

    def of_units(self, part: slice) -> Lifetimes:
        """Returns some rows or groups that follow each other."""
        before = None if self.before is None else self.before.of_units(part)
        return replace(self, rows=self.rows.of_units(part), before=before)

    def of_rows(self, index: Indices, *, whole: bool) -> Lifetimes:
        """Returns some rows without groups; `whole` is of rows of which fewer may be looked for."""
        return replace(self, rows=self.rows.of_rows(index, whole=whole))

    @property
    def exact(self) -> int:
        """How many events have a time."""
        return int((self.rows.upper == self.rows.y).sum())

    @property
    def events(self) -> int:
        """How many rows have their event."""
        return int(np.isfinite(self.rows.upper).sum())

    def values(self, points: Vector, nodes: int) -> Vector:
        """(S,) log-likelihoods of the points (S, P), of densities in the data's unit of time."""
        points = self.inner(points)
        value = self.rows.values(points, nodes) + self.exact * self.log_unit
        return value if self.before is None else value - self.before.values(points, nodes)

    def curvature(self, points: Vector, nodes: int) -> tuple[Vector, Vector, Vector]:
        """(c,) the same, gradients (c, P) and minus Hessians (c, P, P): 0 of what is of a prior alone."""
        inner = self.inner(points)
        parts = self.rows.curvature(inner, nodes)
        if self.before is not None:
            value, slope, bent = self.before.curvature(inner, nodes)
            parts = (parts[0] - value, parts[1] - slope, parts[2] - bent)
        (c, P), p = points.shape, inner.shape[1]
        gradient, curved = np.zeros((c, P)), np.zeros((c, P, P))
        gradient[:, :p], curved[:, :p, :p] = parts[1], parts[2]
        return parts[0] + self.exact * self.log_unit, gradient, curved

    def rule(self, points: Vector, nodes: int) -> Vector:
        """(S,) by how much six more nodes a dimension change the values."""
        points = self.inner(points)
        rule = self.rows.rule(points, nodes)
        return rule if self.before is None else rule - self.before.rule(points, nodes)

    def inner(self, points: Vector) -> Vector:
        """Points without what is of a prior alone."""
        return points[:, : self.rows.layout.size]

    @property
    def alone(self) -> Lifetimes:
        """The same rows without an effect of the client: what it differs by is then in its coefficients."""
        layout = replace(self.layout, client=())
        rows, before = (
            None if rows_of is None else replace(rows_of, layout=layout.of_rows) for rows_of in (self.rows, self.before)
        )
        assert rows is not None
        return replace(self, layout=layout, rows=rows, before=before)


class Walk(Learnt):
    """Is the prior of a "piecewise" layout: of its numbers a random walk from 0 whose steps are N(0, s^2)."""

    @property
    def numbers_at(self) -> slice:
        """The place of the hazards' logarithms."""
        return slice(self.layout.shapes_at.start, self.layout.size - 1)

    @property
    def root(self) -> Vector:
        """(m, m) from these to their steps."""
        m = self.numbers_at.stop - self.numbers_at.start
        return np.eye(m) - np.eye(m, k=-1)


# --------------------
# Computes curves of survival models whose baseline hazard all share: the probability to survive, and restricted means.
#
# A row with predictor eta and effects of a new group and a new client, which are one normal number of the variance v, is without
# event at t with the probability S(t) = E exp(-H(t) exp(eta + sqrt(v) z)), z ~ N(0, 1). Its restricted mean is the integral of S
# from 0 to tau: the mean of the time until the event or tau, whichever comes first.
#
# Source: docs/spec/likelihood.md, section 9.


STEPS = 24  # of an integral over time, a piece


def survival(base: Baseline, eta: Vector, variance: Vector, time: Vector) -> Vector:
    """Returns (S, T, n) probabilities to be without event at times (T,), or at one time a row (S, 1, n) where `time` is (1, n).
    `eta`, `variance`: (S, n) predictors of rows, and variances of their effects."""
    log_H = base.log_cumulative(time if time.ndim == 2 else time[:, np.newaxis])
    with np.errstate(over="ignore"):
        if not variance.any():
            return np.asarray(np.exp(-np.exp(log_H(eta[:, np.newaxis]))))
        total, sd = np.zeros((len(eta), len(time), eta.shape[1])), np.sqrt(variance)
        for node, share in zip(*even(float(sd.max()) / base.width), strict=True):
            total += share * np.exp(-np.exp(log_H((eta + node * sd)[:, np.newaxis])))
    return total


def restricted_mean(base: Baseline, eta: Vector, variance: Vector, tau: float) -> Vector:
    """Returns (S, n) the integral of `survival` from 0 to tau."""
    t, w = np.polynomial.legendre.leggauss(STEPS)
    ends = np.array([0.0, *(cut for cut in base.cuts if cut < tau), tau])
    total = np.zeros(eta.shape)
    for low, high in pairwise(ends.tolist()):
        u, share = (t + 1) / 2, w / 2
        # From 0 by squares: a hazard t^(k - 1) is no polynomial there.
        places, weight = (high * u**2, 2 * u * high * share) if low == 0 else (low + (high - low) * u, (high - low) * share)
        total += np.einsum("t,stn->sn", weight, survival(base, eta, variance, places))
    return total
