"""Decides which intervals of a Kaplan-Meier curve may be told, and computes the curve, its limits and the log-rank test of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .rules import Rules

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Counts(NamedTuple):
    """Holds what is told of survival times: of each group the rows at first, and events and censored rows of each interval.

    Attributes
    ----------
    ends : (k,) of intervals (before, end]; the first begins at 0
    rows : (groups,)
    events, censored : (groups, k); rows with later times are the rest, of which no more is told
    """

    ends: Floats
    rows: Ints
    events: Ints
    censored: Ints

    @property
    def at_risk(self) -> Ints:
        """(groups, k + 1) the rows at risk at 0 and after each end."""
        raise NotImplementedError


class Curve(NamedTuple):
    """Holds survival at the ends of intervals, (groups, k), with its 95 % limits (log-log)."""

    survival: Floats
    lower: Floats
    upper: Floats


class LogRank(NamedTuple):
    """Holds the log-rank test of intervals' counts."""

    chi2: float
    df: int
    p: float


def curve_counts(times: ArrayLike, event: ArrayLike, group: ArrayLike, grid: ArrayLike, rules: Rules) -> Counts | None:
    """Returns what a client tells of its times; None if nothing.

    Intervals of the grid join until each has enough events and enough censored rows in each group; they end where fewer than
    `rules.rows` of a group would be at risk.

    Parameters
    ----------
    times, event : (n,), rows with a missing one left out
    group : (n,) 0, 1, .. of the told parts of groups, each with enough rows; all of 0 without groups
    grid : (k,) public ends of intervals, above 0
    """
    raise NotImplementedError


def pooled_counts(of_clients: Sequence[Counts]) -> Counts:
    """Returns the counts of all clients' rows in intervals that all of them tell."""
    raise NotImplementedError


def curve(counts: Counts, level: float = 0.95) -> Curve:
    """Returns the curve of told counts: rows that are censored in an interval are at risk for half of it."""
    raise NotImplementedError


def log_rank(counts: Counts) -> LogRank:
    """Returns the log-rank test of told counts."""
    raise NotImplementedError
