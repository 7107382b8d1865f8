"""Computes the life table of counts in intervals: the curve of survival, its limits, and the log-rank test."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, ndtri

from ..arrays import Floats

Ints = NDArray[np.int64]
COVERED = 0.9  # of all events: a log-rank test of fewer is another test


class Counts(NamedTuple):
    """Holds what is told of survival times: of each group all rows, and events and censored rows of each interval.

    Attributes
    ----------
    ends : (k,) of intervals (before, end]; the first begins at 0
    rows : (groups,)
    events, censored : (groups, k); rows with later times are the rest, of which no more is told. Censored ones stand at the end
        at which they were told
    entered : (groups, k + 1) rows that enter in each interval, and behind the last; None: all are there from 0 on
    exact : whether each time is an end: who is censored at one was at risk, and so was who has entered before it
    """

    ends: Floats
    rows: Ints
    events: Ints
    censored: Ints
    entered: Ints | None = None
    exact: bool = False

    @property
    def at_risk(self) -> Ints:
        """(groups, k + 1) the rows at risk at 0 and after each end."""
        gone = np.cumsum(self.events + self.censored, axis=1)
        before = np.hstack([self.rows[:, None], self.rows[:, None] - gone])
        return before if self.entered is None else np.asarray(before - self.entered[:, ::-1].cumsum(axis=1)[:, ::-1])

    @property
    def exposed(self) -> Floats:
        """(groups, k) the rows at risk in each interval: those that enter or are censored in it for half of it."""
        new = 0 * self.events if self.entered is None else self.entered[:, :-1]
        return np.asarray(self.at_risk[:, :-1] + (new - (0 if self.exact else (new + self.censored) / 2)))


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


def curve(counts: Counts, level: float = 0.95) -> Curve:
    """Returns the curve of told counts.

    It is of those who have no event until the end of the first interval, where nobody is there when that begins: how long the
    rows that enter in it were there is not told.
    """
    nobody = np.logical_and.accumulate(counts.at_risk[:, :-1] == 0, axis=1) & (not counts.exact)
    exposed, events = counts.exposed, np.where(nobody, 0, counts.events)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(exposed > 0, events / exposed, 0.0)
        survival = np.cumprod(1 - share, axis=1)
        error = np.sqrt(np.cumsum(np.where(events > 0, share / (exposed - events), 0.0), axis=1)) / -np.log(survival)
        spread = np.exp(ndtri((1 + level) / 2) * error)
        lower, upper = (np.where(survival < 1, survival**power, 1.0) for power in (spread, 1 / spread))
    # Once nobody is left these limits have no value: the upper one stays where it was.
    return Curve(survival, np.nan_to_num(lower), np.where(np.isnan(upper), np.fmin.accumulate(upper, axis=1), upper))


def covered(counts: Counts) -> bool:
    """Tells whether the intervals hold nine tenths of all events, also if all rows with later times have one."""
    n_events, later = counts.events.sum(), (counts.rows - (counts.events + counts.censored).sum(axis=1)).sum()
    return bool(n_events >= COVERED * (n_events + later))


def log_rank(counts: Counts) -> LogRank:
    """Returns the log-rank test of told counts."""
    some = counts.rows > 0
    exposed, events = counts.exposed[some], counts.events[some]
    at_risk, dying = exposed.sum(axis=0), events.sum(axis=0)
    share = exposed / np.maximum(at_risk, 0.5)  # nobody is at risk where no event can be
    off = (events - dying * share).sum(axis=1)
    weight = dying * (at_risk - dying) / np.maximum(at_risk - 1, 1)
    covariance = np.einsum("j,ij,ik->ik", weight, share, np.eye(len(share))) - np.einsum("j,ij,kj->ik", weight, share, share)
    square = float(off @ np.linalg.pinv(covariance) @ off)
    df = int(some.sum()) - 1
    return LogRank(square, df, float(chdtrc(df, square)) if df else 1.0)
