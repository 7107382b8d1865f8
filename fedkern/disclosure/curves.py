"""Decides which intervals of a Kaplan-Meier curve may be told; computes the curve, its limits and the log-rank test of them.

Times and events are told by these intervals alone: another table of either, or bins of the times with other ends, subtracted,
would tell the rows between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import chdtrc, ndtri

from .cells import Parts, added, cut, enough
from .rules import Rules

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
COVERED = 0.9  # of all events: a log-rank test of fewer is another test


class Counts(NamedTuple):
    """Holds what is told of survival times: of each group the rows at first, and events and censored rows of each interval.

    Attributes
    ----------
    ends : (k,) of intervals (before, end]; the first begins at 0
    rows : (groups,)
    events, censored : (groups, k); rows with later times are the rest, of which no more is told. Censored ones stand at the end
        at which they were told
    """

    ends: Floats
    rows: Ints
    events: Ints
    censored: Ints

    @property
    def at_risk(self) -> Ints:
        """(groups, k + 1) the rows at risk at 0 and after each end."""
        gone = np.cumsum(self.events + self.censored, axis=1)
        return np.hstack([self.rows[:, None], self.rows[:, None] - gone])

    @property
    def exposed(self) -> Floats:
        """(groups, k) the rows at risk in each interval: those that are censored in it for half of it."""
        return self.at_risk[:, :-1] - self.censored / 2


class Curve(NamedTuple):
    """Holds survival at the ends of intervals, (groups, k), with its limits (log-log)."""

    survival: Floats
    lower: Floats
    upper: Floats


class LogRank(NamedTuple):
    """Holds the log-rank test of intervals' counts."""

    chi2: float
    df: int
    p: float


def parts(events: ArrayLike, censored: ArrayLike, missing: ArrayLike, ends: Sequence[int], rules: Rules) -> Parts | None:
    """Returns the parts in which a client tells its times; None if in none.

    Cells are the events of each interval, its censored rows, and last the rows without time or event. Intervals join until each
    has enough events in each group, or none, and begins with at least `rules.rows` of each group at risk. Censored rows are told
    where enough of each group, or none, have been since they were told last; those behind the last end are one part with later
    events. A row without time is left out where enough rows of each group are; else it counts as censored in the first interval,
    and nobody sees how many do.

    Parameters
    ----------
    events, censored : (groups, intervals) rows of the told parts of groups, each with enough rows
    missing : (groups,)
    ends : the intervals at whose ends a curve may be told

    Examples
    --------
    >>> from fedkern.disclosure.curves import parts
    >>> from fedkern.disclosure.rules import LEVELS
    >>> parts([[3, 4, 9, 6]], [[0, 9, 0, 30]], [0], range(3), LEVELS["standard"])
    ((0, 1), (2,), (3, 7), (4, 5, 8), (6,))
    """
    some = np.sum(events, axis=1) + np.sum(censored, axis=1) > 0
    dying, gone, lacking = (np.asarray(one, np.int64)[some] for one in (events, censored, missing))
    least, bins = rules.rows_per_value, dying.shape[1]
    out = lacking.min(initial=least) >= least
    if not out:
        gone[:, 0] += lacking
    left = (dying + gone)[:, ::-1].cumsum(axis=1)[:, ::-1]

    def fits(tried: Parts) -> bool:
        at_risk = left[:, [part[0] for part in tried]].min(initial=rules.rows)
        return enough(dying, tried, least, none=True) and bool(at_risk >= rules.rows)

    intervals = cut({end + 1: end + 1 for end in ends}, bins, len(ends) // 2, fits)
    if len(intervals) == 1:
        return None
    waiting, since = [[*intervals[-1]]], list[int]()  # the rest, with all that is not told before it
    for part in intervals[:-1]:
        since += part
        if enough(gone, (tuple(since),), least, none=True):
            waiting.append([bins + cell for cell in since])
            since = []
    waiting[0] += [bins + cell for cell in (*since, *intervals[-1])]
    if not out:
        next(part for part in waiting if bins in part).append(2 * bins)
    return tuple(sorted(tuple(sorted(part)) for part in [*intervals[:-1], *waiting, *([[2 * bins]] if out else [])]))


def counts_of(of: Parts, cells: ArrayLike, ends: ArrayLike) -> Counts:
    """Returns what is told of parts' cells (groups, cells), with the ends of all intervals but the last."""
    counts, every = np.asarray(cells, np.int64), np.asarray(ends, np.float64)
    bins = len(every) + 1
    told = [part for part in of if max(part) < bins - 1]
    at = [max(part) for part in told]
    censored, rest = np.zeros((len(counts), len(told)), np.int64), np.zeros(len(counts), np.int64)
    for part in of:
        last = max((cell for cell in part if cell < 2 * bins), default=0) - bins
        n = counts[:, list(part)].sum(axis=1)
        if bins - 1 in (*part, last):
            rest += n
        elif last >= 0:
            censored[:, at.index(last)] += n
    events = added(counts, tuple(told)) if told else censored
    return Counts(every[at], events.sum(axis=1) + censored.sum(axis=1) + rest, events, censored)


def curve(counts: Counts, level: float = 0.95) -> Curve:
    """Returns the curve of told counts: rows that are censored in an interval are at risk for half of it."""
    exposed, events = counts.exposed, counts.events
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(exposed > 0, events / exposed, 0.0)
        survival = np.cumprod(1 - share, axis=1)
        error = np.sqrt(np.cumsum(np.where(events > 0, share / (exposed - events), 0.0), axis=1)) / -np.log(survival)
        spread = np.exp(ndtri((1 + level) / 2) * error)
        lower, upper = (np.where(survival < 1, survival**power, 1.0) for power in (spread, 1 / spread))
    return Curve(survival, lower, upper)


def covered(counts: Counts) -> bool:
    """Tells whether the intervals hold nine tenths of all events, also if all rows with later times have one."""
    told, later = counts.events.sum(), counts.at_risk[:, -1].sum()
    return bool(told >= COVERED * (told + later))


def log_rank(counts: Counts) -> LogRank:
    """Returns the log-rank test of told counts."""
    some = counts.rows > 0
    exposed, events = counts.exposed[some], counts.events[some]
    at_risk, dying = exposed.sum(axis=0), events.sum(axis=0)
    share = exposed / at_risk
    off = (events - dying * share).sum(axis=1)
    weight = dying * (at_risk - dying) / np.maximum(at_risk - 1, 1)
    covariance = np.einsum("j,ij,ik->ik", weight, share, np.eye(len(share))) - np.einsum("j,ij,kj->ik", weight, share, share)
    square = float(off @ np.linalg.pinv(covariance) @ off)
    df = int(some.sum()) - 1
    return LogRank(square, df, float(chdtrc(df, square)) if df else 1.0)
