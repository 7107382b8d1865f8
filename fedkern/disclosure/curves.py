"""Decides which intervals of a Kaplan-Meier curve may be told; computes the curve, its limits and the log-rank test of them.

Times and events are told by these intervals alone: another table of either, or bins of the times with other ends, subtracted,
would tell the rows between.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import chdtrc, ndtri

from .cells import added, join
from .rules import Rules

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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


def curve_counts(
    times: ArrayLike, event: ArrayLike, group: ArrayLike, grid: ArrayLike, rules: Rules, groups: int = 1
) -> Counts | None:
    """Returns what a client tells of its times; None if nothing.

    Intervals of the grid join until each has enough events in each group, or none; so has what comes after the last one. Censored
    rows are told where enough of each group, or none, have been since they were told last: the other ends have 0, and so many
    count as at risk. Each interval begins with at least `rules.rows` of each group at risk.

    Parameters
    ----------
    times, event : (n,), nan where missing. A row that misses one of them is left out where enough rows of each group do; else it
        counts as censored in the first interval, and nobody sees how many do.
    group : (n,) 0, 1, .. of the told parts of groups, each with enough rows; all 0 without groups
    grid : (k,) public ends of intervals, above 0
    groups : how many groups all clients have

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.disclosure.curves import curve_counts
    >>> from fedkern.disclosure.rules import LEVELS
    >>> told = curve_counts(np.arange(1, 41), np.tile([1, 0], 20), np.zeros(40, int), [5, 10, 15, 20], LEVELS["standard"])
    >>> told.ends, told.events, told.at_risk
    (array([15.]), array([[8]]), array([[40, 25]]))
    """
    ends, codes = np.asarray(grid, np.float64), np.asarray(group, np.int64)
    time, dies = np.asarray(times, np.float64), np.asarray(event, np.float64)
    lacking = ~(np.isfinite(time) & np.isfinite(dies))
    left_out = np.bincount(codes[lacking], minlength=groups)
    rows = np.bincount(codes, minlength=groups)
    if left_out[rows > 0].min(initial=len(codes)) >= rules.rows_per_value:
        rows, codes, time, dies = rows - left_out, codes[~lacking], time[~lacking], dies[~lacking]
        lacking = np.zeros(len(codes), bool)
    interval = np.where(lacking, 0, np.searchsorted(ends, time))
    dying = ~lacking & (dies != 0)
    events, censored = (
        np.bincount(codes[which] * (len(ends) + 1) + interval[which], minlength=groups * (len(ends) + 1)).reshape(groups, -1)
        for which in (dying, ~dying)
    )
    some, least, last = np.flatnonzero(rows), rules.rows_per_value, len(ends)
    parts = join(events[some], least, ordered=last + 1, into=last, none=True)
    left = np.cumsum((events + censored)[some, ::-1], axis=1)[:, ::-1]
    while len(parts) > 1 and left[:, parts[-1][0]].min() < rules.rows:
        parts = (*parts[:-2], parts[-2] + parts[-1])
    events, censored = added(events, parts), added(censored, parts)
    later = join(censored[some], least, ordered=len(parts), into=len(parts) - 1, none=True)
    if len(parts) == 1:
        return None
    by_then = np.zeros_like(censored)
    by_then[:, [part[-1] for part in later]] = added(censored, later)
    return Counts(ends[[part[-1] for part in parts[:-1]]], rows, events[:, :-1], by_then[:, :-1])


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
