"""Climbs to the mode of a log-density by Newton steps in a trust region, from several points side by side.

A step is d = A^-1 g, g the gradient and A minus the Hessian with the absolute values of its eigenvalues, those that are rounding
raised to that (columns that nearly say the same leave small ones that are right), and cut to the radius in the norm
(d'Ad)^1/2: about so many posterior standard deviations. Eigenvalues are those of the coordinates that are scaled to a unit
diagonal, so that units decide nothing. If the gradient vanishes and a curvature is negative, a step along that direction leaves
the saddle; if the curvature vanishes too, the density is flat. A coefficient that separates responses has a gradient that
vanishes without a mode: its curvature falls with every step, so a point is no mode if the last step has changed a curvature by
much. Source: docs/spec/likelihood.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from typing import NamedTuple
from typing import Protocol as Shape

import numpy as np
from numpy.typing import NDArray

from ...arrays import Array
from ..core.messages import evolve

# Eigenvalues of so much of the largest, times the order of the matrix, and curvatures, at which nothing is known of a direction.
# A cube of calendar years leaves about 1e-13, of which all digits that count are known.
FLAT, FLAT_DIAGONAL = 2e-15, 1e-14
CLOSE = 1e-2  # posterior sds that may be left where rounding has made the radius as short as what else may be
SEVERAL = 10.0  # times as much of the way as of one coordinate may be left in all directions together
RELATIVE = 1e-12  # of a value, which is no loss: its sum is rounded there
SETTLED = 0.35  # of the logarithm of a curvature: what the last step may have changed where a mode is
ARRIVING = 0.1  # posterior sds: of a way that one more step ends, as a step's error is about the square of the way before it
LESS = 0.5  # part of an exponential that a step may take from it
APART = 0.1  # posterior sds by which modes differ


class Ends(NamedTuple):
    """Says where a climb may go."""

    # low, high: (P,) the least and the largest of what is bounded
    low: Array
    high: Array
    sums: Callable[[Array], Array]  # makes that of places (.., P), or of steps


class Limits(NamedTuple):
    """Says how well a log-density and its gradient are known."""

    near: float  # posterior sds of a coordinate that may be left of the way
    lower: float  # nats that are no loss
    judged: float  # nats that a step promises, from which on its gain is compared with them


EXACT, ROUNDED = Limits(1e-3, 1e-9, 1e-6), Limits(1e-2, 0.1, 1.0)  # of sums of double numbers; of those that clients round


class Metric(NamedTuple):
    """Describes minus a Hessian: the diagonal's root, and eigenvalues and vectors of the scaled matrix."""

    diagonal: Array
    eigenvalues: Array
    vectors: Array
    known: NDArray[np.bool_]  # whether the diagonal is a curvature at all

    @classmethod
    def of(cls, hessian: Array) -> Metric:
        """Returns the metric of one matrix (P, P)."""
        diagonal = np.abs(np.diag(hessian))
        known = diagonal > FLAT_DIAGONAL
        root = np.sqrt(np.where(known, diagonal, 1.0))
        values, vectors = np.linalg.eigh(hessian / np.outer(root, root))
        return cls(root, values, vectors, known)

    @property
    def positive(self) -> bool:
        """Whether the matrix is positive definite."""
        return bool(self.eigenvalues[0] > self.rounding and self.known.all())

    @property
    def rounding(self) -> float:
        """The size of eigenvalues of which nothing is known."""
        return float(FLAT * len(self.eigenvalues) * max(np.abs(self.eigenvalues).max(), 1.0))

    @property
    def floored(self) -> Array:
        """The sizes of the eigenvalues, those that are rounding raised."""
        return np.asarray(np.maximum(np.abs(self.eigenvalues), self.rounding))

    @property
    def factor(self) -> Array:
        """(P, P) B with B B' = A^-1."""
        factor: Array = self.vectors / np.sqrt(self.floored) / self.diagonal[:, np.newaxis]
        return factor

    @property
    def flattest(self) -> Array:
        """(P,) The direction of the smallest curvature, its largest number 1."""
        if not self.known.all():
            return np.where(self.known, 0.0, 1.0)
        direction = self.vectors[:, 0] / self.diagonal
        return np.asarray(direction / direction[np.argmax(np.abs(direction))])


@dataclass(frozen=True)
class Climb:
    """Holds the places of c climbs."""

    # at, value, gradient, hessian: (c, P), (c,), (c, P), (c, P, P) the best points, the log-density there and minus its Hessian
    at: Array
    value: Array
    gradient: Array
    hessian: Array
    trial: Array  # (c, P) the points that are asked next; of a climb that has ended, its mode
    # length, promised, cut: (c,) the norm of that step, the gain that it promises, and whether it was cut to the radius
    length: Array
    promised: Array
    cut: NDArray[np.bool_]
    radius: Array  # (c,)
    left: Array  # (c, P) the step that would be taken next, in posterior sds
    changed: Array  # (c, P) by how much the last step has changed the logarithms of the curvatures
    done: NDArray[np.bool_]  # (c,) whether the climb is at a mode
    flat: NDArray[np.bool_]  # (c,) whether the density is flat there

    @classmethod
    def begin(cls, starts: Array) -> Climb:
        """Returns climbs at points (c, P) of which nothing is known."""
        c, P = starts.shape
        none, no = np.zeros(c), np.zeros(c, bool)
        radius = np.full(c, max(2.0, np.sqrt(P)))
        wide = np.zeros((c, P))
        value = np.full(c, -np.inf)
        return cls(starts, value, wide, np.zeros((c, P, P)), starts, none, none, no, radius, wide, wide, no, no)

    @property
    def ended(self) -> bool:
        """Whether no climb goes on."""
        return bool((self.done | self.flat).all())

    @property
    def arriving(self) -> Climb | None:
        """The climbs as they are if each that goes on is at its mode with its next step; None if that cannot be expected."""
        on = ~(self.done | self.flat)
        near = (np.abs(self.left).max(axis=1) < ARRIVING) & (self.changed.max(axis=1) < SETTLED) & ~self.cut
        if not (on.any() and near[on].all() and np.isfinite(self.value[on]).all()):
            return None
        return evolve(self, at=np.where(on[:, np.newaxis], self.trial, self.at), done=self.done | on)

    def climbed(
        self,
        value: Array,
        gradient: Array,
        hessian: Array,
        ends: Ends | None = None,
        limits: Limits = EXACT,
        even: Sequence[int] = (),
        exponents: Sequence[int] = (),
    ) -> Climb:
        """Returns the climbs after the answers at the trial points; the next ones are between `ends`, where these are given.

        `even`: coordinates whose negatives are the same model. The curvature of one may vanish at 0, where the density is flat
        to its fourth power and Newton's steps go on for ever; nothing is separated there.

        `exponents`: coordinates in whose exponentials the rows' log-density is concave together with all others (a shape, gaps
        between thresholds): steps and curvatures are of these, in units of what they are.
        """
        new, of = {name: getattr(self, name).copy() for name in self.__dataclass_fields__}, list(exponents)
        hessian = hessian.copy()
        hessian[:, of, of] += gradient[:, of]
        for i in np.flatnonzero(~(self.done | self.flat)):
            self._judged(int(i), new, value[i], gradient[i], hessian[i], limits)
            new["changed"][i][list(even)] = 0.0
            _planned(int(i), new, ends, limits, of)
        return evolve(self, **new)

    def _judged(self, i: int, new: dict[str, Array], value: float, gradient: Array, hessian: Array, limits: Limits) -> None:
        """Takes the trial point or keeps the one before."""
        good = np.isfinite(value) and np.isfinite(gradient).all() and np.isfinite(hessian).all()
        before = self.value[i]
        # At the first point no gain can be judged.
        if not np.isfinite(before):
            if good:
                new["value"][i], new["gradient"][i], new["hessian"][i] = value, gradient, hessian
            return
        gain = value - before if good else -np.inf
        if gain < -(limits.lower + RELATIVE * abs(before)):
            new["radius"][i] = self.length[i] / 4
            return
        rho = gain / self.promised[i] if self.promised[i] > 0 else 1.0
        # Below such a promise only the rounding of the sum would be judged.
        if rho < 0.25 and self.promised[i] > limits.judged:
            new["radius"][i] = self.length[i] / 2
        elif self.cut[i] and rho >= 0.75:
            new["radius"][i] = 2 * self.radius[i]
        with np.errstate(all="ignore"):
            changed = np.abs(np.log(np.abs(np.diag(hessian) / np.diag(self.hessian[i]))))
        new["changed"][i] = np.nan_to_num(changed, nan=0.0, posinf=np.inf)
        new["at"][i], new["value"][i], new["gradient"][i], new["hessian"][i] = self.trial[i], value, gradient, hessian

    def arrived(self) -> Climb:
        """Returns climbs that have ended where one more step ends, which no answer is asked for: it would be rounded anew."""
        factors = [Metric.of(hessian).factor for hessian in self.hessian]
        steps = [B @ (B.T @ gradient) for B, gradient in zip(factors, self.gradient, strict=True)]
        return evolve(self, at=np.where(self.done[:, np.newaxis], self.at + steps, self.at))

    def again(self) -> Climb:
        """Returns climbs at the same points, to be asked anew, since the clients' quadrature has changed."""
        none = np.zeros(len(self.at), bool)
        return evolve(self, value=np.full(len(self.at), -np.inf), trial=self.at, done=none, flat=none)


def _planned(i: int, new: dict[str, Array], ends: Ends | None, limits: Limits, exponents: list[int]) -> None:
    """Plans the next step of a climb, or its end."""
    if not np.isfinite(new["value"][i]):
        return
    g, H, metric = new["gradient"][i], new["hessian"][i], Metric.of(new["hessian"][i])
    B = metric.factor
    d = B @ (B.T @ g)
    new["left"][i] = left = d / np.sqrt((B**2).sum(axis=1))
    limit = CLOSE if new["radius"][i] < limits.near else limits.near
    # Columns that nearly say the same have wide coefficients each: what they say together must be near as well.
    near = np.abs(left).max() < limit and g @ d < (SEVERAL * limit) ** 2
    if near and metric.positive and new["changed"][i].max() < SETTLED:
        new["done"][i], new["trial"][i] = True, new["at"][i]
        return
    if near and not metric.positive:
        if metric.eigenvalues[0] >= -metric.rounding:
            new["flat"][i], new["trial"][i] = True, new["at"][i]
            return
        d = B[:, 0] * (1.0 if g @ B[:, 0] >= 0 else -1.0)  # away from the saddle
        norm = 1.0
    else:
        norm = float(np.sqrt(g @ d))
    shorter = min(1.0, new["radius"][i] / norm, LESS / max(-d[exponents].min(initial=0.0), LESS))
    step = _moved(shorter * d, exponents)
    if ends is not None and (room := _room(new["at"][i], step, ends)) < 1:
        shorter, step = room * shorter, room * step
    d = shorter * d
    curved = float(d @ H @ d)
    if curved <= 0:
        curved = float((shorter * norm) ** 2)
    promised = float(g @ d) - curved / 2
    new["length"][i], new["promised"][i], new["cut"][i], new["trial"][i] = (
        shorter * norm,
        promised,
        shorter < 1,
        new["at"][i] + step,
    )


def _moved(d: Array, exponents: list[int]) -> Array:
    """Returns a step of the coordinates, from one in exponentials, as parts of what these are."""
    step = d.copy()
    step[exponents] = np.log1p(d[exponents])
    return step


def _room(point: Array, step: Array, ends: Ends) -> float:
    """Returns the part of a step that there is room for."""
    point, step = ends.sums(point), ends.sums(step)
    with np.errstate(all="ignore"):
        rooms = (np.where(step > 0, ends.high, ends.low) - point) / step
    return float(np.where(step == 0, np.inf, np.maximum(rooms, 0.0)).min())


def moving(climb: Climb, i: int, limits: Limits = EXACT) -> list[int]:
    """Returns the coordinates of a climb that still move, those first that do most."""
    size = np.maximum(np.abs(climb.left[i]) / limits.near, climb.changed[i] / SETTLED)
    return [int(k) for k in np.argsort(-size, kind="stable") if size[k] >= 1]


def modes(climb: Climb, points: Array) -> NDArray[np.int64]:
    """Returns the numbers of the climbs that are at a mode, each mode once, the highest first.

    `points` (c, P): the climbs' places, the same for mirror images.
    """
    numbers: list[int] = []
    for i in sorted(np.flatnonzero(climb.done), key=lambda i: -climb.value[i]):
        sds = np.sqrt((Metric.of(climb.hessian[i]).factor ** 2).sum(axis=1))
        if all(np.abs((points[i] - points[other]) / sds).max() > APART for other in numbers):
            numbers.append(int(i))
    return np.array(numbers, np.int64)


def spelled(direction: Array, coordinates: tuple[str, ...], several: int = 4) -> str:
    """Returns a direction by the names of its largest coordinates."""
    size = np.abs(direction)
    largest = [k for k in np.argsort(-size, kind="stable")[:several] if size[k] >= 0.1 * size.max()]
    if len(largest) == 1:
        return repr(coordinates[largest[0]])
    return ", ".join(f"{coordinates[k]!r} ({direction[k]:+.2g})" for k in largest)


# Widening --------------------
# Judges a default prior by what rows know: it must not decide a number that they can.
#
# At the mode a prior moves the numbers that people read by H^-1 g to first order, g its gradient and H minus the Hessian of the
# log-posterior. Where that is much, wider priors are tried, and the first is taken that moves none by much, and leaves none less
# sure than the one before it. Where rows set no end (a column that separates responses) there is none, for standard deviations
# go on growing with their prior.
#
# People read means. Where few rows decide (a level with one event) the posterior is skewed away from its prior: along the way d
# to the mode with the first wider prior the mean is c d from the mode, c = -tr(H^-1 dH) / (2 d'Hd), dH the change of the rows'
# curvature on that way. From a half on, the middle of the way, the mean with the job's prior is nearer to the rows' mode than to
# its own: it takes back what a mean of so few rows is too far out, and stays. Source: docs/spec/likelihood.md, section 3.


NOTHING = 1e-6  # of a prior's information, what rows say of a number that none tells of
SURELY = 5.0  # sds of what rounding makes of nothing
FAR = 5e7  # of a prior's information, what rows say about 0 of a column so far from it that rounding hides what moves in it
TIE = 1e-4  # of a prior's sd, which such a number is given about 0
PULL = 0.1  # posterior sds by which a prior may move a number; part by which its variance may be larger than with a narrower one


class Prior(Shape):
    """Is the log-density log p(xi), Jacobians of logarithms included once."""

    def values(self, points: Array) -> Array:
        """Returns the log-density (n,) at points (n, P)."""

    def curvature(self, xi: Array) -> tuple[float, Array, Array]:
        """Returns the log-density at xi (P,), its gradient (P,), and minus its Hessian (P, P)."""


@dataclass(frozen=True)
class Tied:
    """Is a prior of xi given that some numbers are 0: the prior of a model without them."""

    prior: Prior  # of all, normal in what these numbers are made of
    rows: Array  # (m, P) the numbers as a linear map of xi
    variances: Array  # (m,) that they are given about 0

    def values(self, points: Array) -> Array:
        """Returns the log-density (n,) at points (n, P)."""
        return self.prior.values(points) - 0.5 * ((points @ self.rows.T) ** 2 @ (1 / self.variances)) + self._log_norm

    def curvature(self, xi: Array) -> tuple[float, Array, Array]:
        """Returns the log-density at xi (P,), its gradient (P,), and minus its Hessian (P, P)."""
        value, gradient, hessian = self.prior.curvature(xi)
        numbers, square = self.rows @ xi, 1 / self.variances
        value += self._log_norm - 0.5 * float(square @ numbers**2)
        return value, gradient - self.rows.T @ (square * numbers), hessian + self.rows.T * square @ self.rows

    @cached_property
    def _log_norm(self) -> float:
        """The logarithm of the numbers' density at 0 over that of the prior there."""
        mean, covariance = _numbers(self.prior, self.rows)
        of_prior = -0.5 * (mean @ np.linalg.solve(covariance, mean) + np.linalg.slogdet(covariance)[1])
        return float(-0.5 * np.log(self.variances).sum() - of_prior)


def _numbers(prior: Prior, rows: Array) -> tuple[Array, Array]:
    """Returns mean (m,) and covariance (m, m) of numbers of which a prior is normal."""
    inside, middle = rows.any(axis=0), getattr(prior, "middle", np.zeros(rows.shape[1]))
    _, gradient, hessian = prior.curvature(middle)
    back = rows[:, inside] @ np.linalg.inv(hessian[np.ix_(inside, inside)])
    return rows @ middle + back @ gradient[inside], back @ rows[:, inside].T


@dataclass(frozen=True)
class Priors:
    """Holds the prior of a job, and wider ones where rows may decide between them, each wider than the one before."""

    each: tuple[Prior, ...]  # the priors; of several the last stands for none, and is not taken
    # (q, P) the numbers by which they are judged, as a linear map of xi
    read: Array = field(default_factory=lambda: np.empty((0, 0)))
    bent: bool = False  # whether the rows' curvature changes with these
    ties: bool = False  # whether a number of `read` of which rows say nothing is 0
    # of each client, those that follow from others there; None where it cannot say
    follows: tuple[tuple[int, ...] | None, ...] = ()
    intercepts: tuple[int, ...] = ()  # those of a column of ones
    named: tuple[int, ...] = ()  # those with a prior of their own, which tells of them where rows do not

    @property
    def most(self) -> int:
        """The number of the widest that is taken."""
        return max(0, len(self.each) - 2)

    def untold(self, xi: Array, hessian: Array, alone: Array, variances: Array) -> tuple[int, ...]:
        """Returns the numbers of which rows say nothing beside those before them, which R has as NA.

        By elimination in their order, after all that is not `read`: no more may be left of a number than rounding makes of
        nothing. Nearly the same columns, as powers of years, are no such numbers: clients see that they are not the same.

        Parameters
        ----------
        hessian : (P, P) minus the Hessian of the log-posterior at xi with the first prior
        alone : (J, P, P) minus the Hessians of the clients' log-likelihoods
        variances : (J, P, P) of their entries' rounding, twice as large as they may be, for an entry stands on both sides
        """
        prior, R, others = self.each[0].curvature(xi)[2], self.read, ~self.read.any(axis=0)
        # To xi from numbers in their priors' sds, by rows that are as large as each other, however unlike the columns' units are.
        back = np.linalg.pinv(R / np.sqrt(np.diag(_numbers(self.each[0], R)[1]))[:, np.newaxis])
        inside = np.linalg.pinv(hessian[np.ix_(others, others)])

        def told(curvature: Array) -> Array:
            """(q, q + P) What rows say of the numbers, and each one's direction."""
            across = back.T @ curvature[:, others]
            ways = back.T.copy()
            ways[:, others] -= across @ inside
            return np.hstack([back.T @ curvature @ back - across @ inside @ across.T, ways])

        def rounding(left: Array, variance: Array) -> Array:
            squares = left[:, len(R) :] ** 2
            return np.asarray((squares @ variance * squares).sum(axis=1))

        may = np.ones(len(R), bool)  # be such a one: where no client sees that it is none
        for own, variance, follows in zip(map(told, alone), variances, self.follows or repeat(()), strict=False):
            near = np.diag(own) < FAR
            for k in self.intercepts:
                own = own - np.outer(own[:, k], own[k]) / max(own[k, k], NOTHING)
            constant = near & (np.diag(own) <= SURELY * np.sqrt(rounding(own, variance)))
            may &= constant | np.isin(range(len(R)), range(len(R)) if follows is None else follows)
        left, variance, nothing = told(hessian - prior), variances.sum(axis=0), []
        may |= np.abs(np.diag(left)) < NOTHING
        may[[*self.intercepts, *self.named]] = False
        for j in range(len(R)):
            little = left[j, j] <= max(SURELY * float(rounding(left[j : j + 1], variance)[0]) ** 0.5, NOTHING)
            if little and (may[j] or j in self.named):
                nothing += [j] * bool(may[j])
            elif left[j, j] > 0:
                left -= np.outer(left[:, j], left[j]) / left[j, j]
        return tuple(nothing)

    def tied(self, number: int, untold: tuple[int, ...]) -> Prior:
        """Returns a prior, where rows say nothing of these numbers that of the others beside 0 in their places."""
        if not untold:
            return self.each[number]
        rows = self.read[list(untold)]
        return Tied(self.each[number], rows, TIE**2 * np.diag(_numbers(self.each[0], rows)[1]))

    def right(self, number: int, xi: Array, hessian: Array, before: Array) -> bool:
        """Tells whether a prior decides nothing that rows decide, at its mode. `hessian`, `before`: (P, P) minus the Hessian of
        the log-posterior there, and at the mode with the prior before it."""
        slope = self.each[number].curvature(xi)[1] - self.each[-1].curvature(xi)[1]
        B, variance = Metric.of(hessian).factor, self._variance(hessian)
        moved = self.read @ B @ (B.T @ slope)
        sure = variance <= (1 + PULL) * self._variance(before)
        return bool((moved**2 <= PULL**2 * variance).all() and sure.all())

    def grows(self, number: int, xi: Array, hessian: Array, before: Array) -> bool:
        """Tells whether a variance grows with its prior's rather than stays, as of a column that separates the response.

        Parameters are those of `right`, at the last place that is known.
        """
        last, this = (np.diag(self.each[k].curvature(xi)[2])[self.read.any(axis=0)] for k in (number - 1, number))
        grown = self._variance(hessian) / self._variance(before)
        return self.bent and bool(grown.max() ** 2 > (last / this).max())

    def kept(self, way: Array, xi: Array, hessian: Array, before: Array) -> bool:
        """Tells whether means with the job's prior are nearer to the mode with the first wider one than to their own. `way`,
        `xi`: (P,) from the job's mode to that of the wider prior, and this; `hessian`, `before`: (P, P) minus the Hessian of the
        log-posterior there, and at the job's mode."""
        of_priors = self.each[1].curvature(xi)[2] - self.each[0].curvature(xi)[2]
        B = Metric.of(before).factor
        less = -float(np.trace(B.T @ (hessian - before - of_priors) @ B))
        return self.bent and less >= float(way @ before @ way)

    def _variance(self, hessian: Array) -> Array:
        """(q,) of the numbers."""
        return np.asarray(((self.read @ Metric.of(hessian).factor) ** 2).sum(axis=1))
