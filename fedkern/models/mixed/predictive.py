"""Sums one client's rows for the question whether the model makes responses like those that were seen. The server adds them up.

At each draw of the posterior responses are drawn anew: the client's effect as the rows tell it, new effects of its groups. The
mean, the variance and the zeros of the responses are functions of three sums. The calibration is in tenths. Where y is 0 or 1, or
a number of successes, rows are in tenths of their predicted probability (new groups), with the sums of probabilities and
responses; a tenth of few rows is counted with the next one that has any, since the sums of the others and of all would tell those
of the few. Else rows are in the tenth of the predictive distribution in which the response stands, and each tenth should have as
many. Counts, whose distribution jumps, belong to tenths in the shares of their jump (Czado, Gneiting and Held 2009).

New effects of groups hide how responses vary inside of them. So counts and successes of trials are also held to the means that
the groups' own effects, drawn given the rows, say: Pearson's chi-square of the responses, and of responses drawn with these
effects (a realised discrepancy: Gelman, Meng and Stern 1996). Where the model is right both are alike, whatever was fitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ...arrays import Vector
from ...kernels import rng
from ...kernels._rows import special
from ...kernels.families import FAMILIES
from . import effects
from .conditional import group_pieces, pieces, predictor, with_effects
from .joint import added, anew, variance_of_new
from .marginal import average_mean
from .quadrature import rule
from .rows import Rows, alone

TENTHS = 10
FEWEST = 10  # rows of a tenth of predicted probabilities that stands by itself
NODES = 11
MOST_CALLS = 20_000_000  # of a distribution function
LEAST_JUMP = 1e-12
MISFITS = 50  # draws of them
CACHED, TOGETHER = 1 << 16, 1 << 12  # rows times draws whose responses are drawn at once, and rows
CALLS = 1 << 8  # of a source, at most, for one part of the rows
LEAST_VARIANCE = 1e-9  # of a response: beyond, rounding of means near 0 or 1


@dataclass(frozen=True)
class Sums:
    """Holds the sums of one client, or of several added up."""

    observed: Vector  # (4,) number of rows, sums of y and y^2, zeros
    replicated: Vector  # (S, 3) at each draw: sums of y and y^2, zeros
    # (10, 3) rows or trials (of counts and real numbers: shares of rows), sums of predicted probabilities and of responses (of
    # those: 0)
    tenths: Vector
    # (50, 2) at some draws: Pearson's chi-square of the responses, and of those drawn anew with the groups' own effects; 0 for
    # families that have no counts, or learn how these vary
    misfits: Vector

    def __add__(self, other: Sums) -> Sums:
        return Sums(*(a + b for a, b in zip(self.arrays, other.arrays, strict=True)))

    @property
    def arrays(self) -> tuple[Vector, Vector, Vector, Vector]:
        """The sums, in the order of the message."""
        return self.observed, self.replicated, self.tenths, self.misfits

    @property
    def dispersion(self) -> tuple[float, float]:
        """The variation of responses about their means over that in the model, and its distance from 1 in standard deviations.

        These are standard deviations of the drawn misfits. The two are 1 and 0 where nothing was told.
        """
        seen, made = self.misfits.T
        if not made.sum():
            return 1.0, 0.0
        return float(seen.sum() / made.sum()), float((seen - made).mean() / max(float(made.std()), 1e-12))

    @property
    def p_values(self) -> Vector:
        """(3,) posterior predictive p of mean, variance and zeros: the part of the draws whose responses have a larger one, equal
        ones by half."""
        n = self.observed[0]
        seen, again = (_statistics(n, sums) for sums in (self.observed[np.newaxis, 1:], self.replicated))
        scale = 1e-9 * (1 + np.abs(seen))
        return np.asarray(((again > seen + scale) + 0.5 * (np.abs(again - seen) <= scale)).mean(axis=0))


def _statistics(n: float, sums: Vector) -> Vector:
    """(.., 3) mean, variance and zeros."""
    mean = sums[:, 0] / n
    return np.stack([mean, sums[:, 1] / n - mean**2, sums[:, 2]], axis=1)


class Keyed:
    """Draws random numbers for some draws of the posterior at once, of which `draw` is the first; other ones at each call."""

    def __init__(self, key: int, draw: int, part: int = 0):
        self._key, self._draw, self._step = key, draw, part * CALLS

    def uniform(self, n: int) -> Vector:
        self._step += 1
        return rng.uniform(n, key=self._key, draw=self._draw, step=self._step)

    def normal(self, n: int) -> Vector:
        self._step += 1
        return rng.normal(n, key=self._key, draw=self._draw, step=self._step)


def sums(rows: Rows, inner: Vector, key: int) -> Sums:
    """Returns the sums of a client's rows, at draws (S, P_inner) of `effects.complete_draws`; `key`: of its random numbers."""
    y, n = rows.own_y, len(rows)
    replicated, misfits = np.zeros((len(inner), 3)), np.zeros((MISFITS, 2))
    tenths, count = np.zeros((TENTHS, 3)), np.zeros(TENTHS)
    # A row's prediction needs few of the draws, and Pearson's chi-square some.
    wanted = MOST_CALLS // (NODES * max(n, 1))
    few = inner[:: max(1, len(inner) // int(np.clip(wanted, 10, 50)))]
    plain = rows.root is None and not rows.scaled
    by_products = FAMILIES[rows.layout.family].linear and not rows.layout.group and n > 2 and plain
    if by_products:
        replicated = _by_products(rows, inner, key)
        if wanted < 10:  # of so many normal rows the draws' mean foresees what they do: their variance is p / n of sigma^2
            few = inner.mean(axis=0, keepdims=True)
    for k, some in enumerate(_parts(rows)):
        if not by_products:
            replicated += _replicated(some, inner, key, k)
        misfits += _misfits(some, inner, key, k)
        of_part, rows_of_part = _tenths(some, few)
        tenths, count = tenths + of_part, count + rows_of_part
    observed = np.array([n, y.sum(), (y**2).sum(), (y == 0).sum()], dtype=np.float64)
    return Sums(observed, replicated, join_tenths(tenths, count), misfits)


def _parts(rows: Rows) -> Iterator[Rows]:
    """Yields the rows in parts whose numbers stay in the processor's cache, of whole groups."""
    if len(rows) <= TOGETHER or rows.layout.outer:
        yield rows
    elif rows.layout.group:
        yield from (rows.take_groups(part) for part in group_pieces(rows, TOGETHER, TOGETHER))
    else:
        for part in pieces(len(rows), TOGETHER):
            yield rows.take(np.arange(part.start, part.stop), np.array([0, part.stop - part.start]))


def _by_products(rows: Rows, inner: Vector, key: int) -> Vector:
    """(S, 3) the same as `_replicated` says of all rows, where these are normal about X theta, by the cross-products of X.

    Of n normal errors only the parts along the ones and along the means count, and the rest's squares, chi-square of n - 2.
    """
    n, S, weights = len(rows), len(inner), inner[:, : rows.layout.p]
    if rows.offset is not None:
        weights = np.column_stack([weights, np.ones(S)])
    sums, products = np.zeros(weights.shape[1]), np.zeros((weights.shape[1], weights.shape[1]))
    for part in pieces(n, TOGETHER):
        columns = rows.X[part] if rows.offset is None else np.column_stack([rows.X[part], rows.offset[part]])
        sums += np.ones(len(columns)) @ columns
        products += columns.T @ columns
    total, squares = weights @ sums, ((weights @ products) * weights).sum(axis=1)
    along = total / np.sqrt(n)
    source, sd = Keyed(key, 0), rows.layout.scale(inner)
    errors = source.normal(2 * S).reshape(S, 2)
    rest = 2 * special("gammaincinv")(0.5 * n - 1, source.uniform(S))
    again = squares + 2 * sd * (along * errors[:, 0] + np.sqrt(np.maximum(squares - along**2, 0.0)) * errors[:, 1])
    return np.stack([total + sd * np.sqrt(n) * errors[:, 0], again + sd**2 * ((errors**2).sum(axis=1) + rest), 0 * sd], axis=1)


def _replicated(rows: Rows, inner: Vector, key: int, number: int) -> Vector:
    """(S, 3) sums of y and y^2, and zeros, of responses that are drawn anew at each draw; `number`: of this part of the rows."""
    layout, record, n = rows.layout, FAMILIES[rows.layout.family], len(rows)
    T, d = layout.factor(inner, "group"), len(layout.group)
    replicated = np.empty((len(inner), 3))
    # One pass over the rows for several draws, but of levels, whose scale is a vector.
    for part in pieces(len(inner), 1 if record.leveled else max(1, CACHED // max(n, 1))):
        source, eta = Keyed(key, part.start, number), predictor(rows, inner[part])
        k = len(eta)
        if layout.outer:
            eta = added(alone(rows), eta, anew(alone(rows), inner[part], source.normal))
        elif d:
            eta = with_effects(rows, eta, T[part], source.normal(k * rows.n_groups * d).reshape(k, rows.n_groups, d))
        again = record.draw(source, record.mean(eta.ravel()), *_each(rows, inner[part])).reshape(k, n)
        again = again if rows.root is None else again / rows.root
        total = again.sum(axis=1)
        if record.binary:
            replicated[part] = np.stack([total, total, n - total], axis=1)
        else:
            replicated[part] = np.stack([total, (again**2).sum(axis=1), n - np.count_nonzero(again, axis=1)], axis=1)
    return replicated


def _misfits(rows: Rows, inner: Vector, key: int, number: int) -> Vector:
    """(50, 2) Pearson's chi-square of y, and of responses that are drawn anew with the same effects."""
    record, chi_squares = FAMILIES[rows.layout.family], np.zeros((MISFITS, 2))
    if not record.counted or record.dispersion is not None:
        return chi_squares
    some = inner[np.linspace(0, len(inner) - 1, MISFITS).round().astype(int)]
    eta, first = predictor(rows, some), len(inner)  # other numbers than those of `_replicated`
    if rows.layout.outer:
        uniform = Keyed(key, first, number).uniform(MISFITS)[:, np.newaxis]
        found = effects.drawn_together(rows, some, uniform, rows.layout.nodes, key)
        eta = added(alone(rows), eta, {name: effect[:, 0] for name, effect in found.items()})
    elif rows.layout.group:
        uniform = Keyed(key, first, number).uniform(MISFITS * rows.n_groups)
        u = effects.draw_effects(rows, some, uniform.reshape(MISFITS, rows.n_groups))
        eta = with_effects(rows, eta, rows.layout.factor(some, "group"), u)
    for part in pieces(MISFITS, max(1, CACHED // max(len(rows), 1))):
        mean, (scale, trials) = record.mean(record.kept(eta[part])).ravel(), _each(rows, some[part])
        again = record.draw(Keyed(key, first + 1 + part.start, number), mean, scale, trials)
        total = 1.0 if trials is None else trials
        variance = np.maximum(record.spread(mean, scale, total), LEAST_VARIANCE)
        expected = total * record.expected(mean, scale)
        for column, responses in enumerate((np.tile(rows.y, len(some[part])), again)):
            chi_squares[part, column] = ((responses - expected) ** 2 / variance).reshape(-1, len(rows)).sum(axis=1)
    return chi_squares


def _each(rows: Rows, points: Vector) -> tuple[Vector, Vector | None]:
    """Returns the scale at k draws (k, P) and the numbers of trials for each row of the first draw, then of the second, .."""
    whole, trials = rows.scale(points), rows.trials
    if rows.scaled:
        return whole.reshape(*whole.shape[:-2], -1), None
    scale = whole[..., 0]
    own_scale = scale[..., 0] if (scale == scale[..., :1]).all() else np.repeat(scale, len(rows), axis=-1)
    return own_scale, None if trials is None else np.tile(trials, len(points))


def _tenths(rows: Rows, inner: Vector) -> tuple[Vector, Vector]:
    """(10, 3) the calibration at some draws, and (10,) rows in each tenth."""
    tenths, count = np.zeros((TENTHS, 3)), np.zeros(TENTHS)
    eta = predictor(rows, inner)
    variance = variance_of_new(alone(rows), inner)
    if not FAMILIES[rows.layout.family].chances:
        low, high = _jump(rows, inner, eta, variance)
        edges = np.arange(TENTHS + 1)[:, np.newaxis] / TENTHS
        tenths[:, 0] = np.diff(np.clip((edges - low) / (high - low), 0, 1), axis=0).sum(axis=1)
        return tenths, count
    p = average_mean(rows.layout, eta, variance, 0).mean(axis=0)
    trials = np.ones(len(p)) if rows.trials is None else rows.trials
    which = np.minimum((p * TENTHS).astype(np.int64), TENTHS - 1)
    counted = [np.bincount(which, weights, TENTHS) for weights in (trials, trials * p, rows.y, np.ones(len(p)))]
    return np.stack(counted[:3], axis=1), np.asarray(counted[3], np.float64)


def join_tenths(tenths: Vector, rows: Vector) -> Vector:
    """Returns the tenths (10, 3) with those of few rows added to the next that has any, the last to the one before.

    No row is left out: all rows less the others would be those few. `rows`: (10,) the number of rows in each.
    """
    totals, rows = tenths.copy(), rows.copy()
    filled = np.flatnonzero(rows).tolist()
    for tenth, after in pairwise(filled):
        if rows[tenth] < FEWEST:
            for sums in (totals, rows):
                sums[after] += sums[tenth]
                sums[tenth] = 0
    kept = np.flatnonzero(rows).tolist()
    if len(kept) > 1 and rows[kept[-1]] < FEWEST:
        totals[kept[-2]] += totals[kept[-1]]
        totals[kept[-1]] = 0
    return totals


def _jump(rows: Rows, inner: Vector, eta: Vector, variance: Vector) -> tuple[Vector, Vector]:
    """(n,) the predictive distribution function below each response, and at it."""
    y, record, scale = rows.y, FAMILIES[rows.layout.family], rows.scale(inner)
    if rows.layout.family == "gaussian":
        low = record.cdf(y, eta, np.sqrt(variance + scale**2), None).mean(axis=0)
        return _above(low, low)
    low, high = np.zeros(len(y)), np.zeros(len(y))
    jumps = record.counted  # else the distribution function is continuous
    t, log_w = rule(NODES, 1) if variance.any() else rule(1, 1)
    for t_k, w_k in zip(t[:, 0], np.exp(log_w), strict=True):
        mean = record.mean(eta + np.sqrt(variance) * t_k)
        high += w_k * record.cdf(y, mean, scale, None).mean(axis=0)
        if jumps:
            low += w_k * np.where(y > 0, record.cdf(np.maximum(y - 1, 0), mean, scale, None), 0.0).mean(axis=0)
    lowest = low if jumps else high
    return _above(lowest, high)


def _above(low: Vector, high: Vector) -> tuple[Vector, Vector]:
    """Both clipped to [0, 1], with a jump between them."""
    low = np.clip(low, 0.0, 1 - LEAST_JUMP)
    return low, np.clip(high, low + LEAST_JUMP, 1.0)
