"""Decides which intervals of a Kaplan-Meier curve may be told.

Times and events are told by these intervals alone: another table of either, or bins of the times with other ends, subtracted,
would tell the rows between.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..models.life_table import Counts
from .cells import Parts, cut, enough
from .rules import Rules

Ints = NDArray[np.int64]


def parts(counts: ArrayLike, bins: int, ends: Sequence[int], rules: Rules) -> Parts | None:
    """Returns the parts in which a client tells its times; None if in none.

    Cells are the events of each interval, its censored rows, where rows enter late those that are there from 0 on and those that
    enter in each interval, and last the rows that lack a time or the event. Intervals join until each has enough events in each
    group, or none, and so of rows that enter, and begins with at least `rules.rows` of each group at risk. Censored rows are told
    where enough of each group, or none, have been since they were told last; if few are in all they are one part with the events
    behind the last end. A row without time is left out where enough rows of each group are; else it counts as censored in the
    first interval, and nobody sees how many do. Where there is one interval no curve is told, but all events, if enough rows of
    each group have one, and none.

    Parameters
    ----------
    counts : (groups, cells) rows of the told parts of groups, each with enough rows
    bins : intervals
    ends : the intervals at whose ends a curve may be told

    Examples
    --------
    >>> from fedkern.disclosure.curves import parts
    >>> from fedkern.disclosure.rules import LEVELS
    >>> parts([[3, 4, 9, 6, 0, 9, 0, 30, 0]], 4, range(3), LEVELS["standard"])
    ((0, 1), (2,), (3,), (4, 5, 8), (6,), (7,))
    """
    table = np.array(counts, np.int64)
    some, last, least, first = table[table.any(axis=1)], table.shape[1] - 1, rules.rows_per_value, 2 * bins
    dying, gone, lacking = some[:, :bins], some[:, bins:first], some[:, last]
    coming = [some[:, first + 1 : last]] if last > first else []
    out = lacking.min(initial=least) >= least
    if not out:
        gone[:, 0] += lacking
    left, later = (_from(rows) for rows in (dying + gone, coming[0] if coming else 0 * dying))

    def fits(tried: Parts) -> bool:
        begins = [part[0] for part in tried]
        at_risk = left[:, begins] - later[:, [begins[1], *begins[1:]]]
        counted = all(enough(rows, tried, least, none=True) for rows in (dying, *coming))
        return counted and bool(at_risk.min(initial=rules.rows) >= rules.rows)

    intervals = cut({end + 1: end + 1 for end in ends}, bins, len(ends) // 2, fits)
    if len(intervals) == 1 and not all(enough(rows, intervals, least) for rows in (dying, gone)):
        return None
    begins = {part[0]: part[0] for part in intervals[1:]}
    leaving = cut(begins, bins, len(ends) // 2, lambda tried: enough(gone, tried, least, none=True))
    told = [[*part] for part in intervals] + [[first + 1 + cell for cell in part] for part in intervals if coming]
    if enough(gone, leaving, least, none=True):
        told += [[bins + cell for cell in part] for part in leaving]
    else:  # few are censored
        told[len(intervals) - 1] += range(bins, first)
    if coming and enough(some, ((first,),), least, none=True):
        told.append([first])
    elif coming:
        told[len(intervals)].append(first)
    told += [[last]] if out else []
    next(part for part in told if bins in part or last in part).extend([] if out else [last])
    return tuple(sorted(tuple(sorted(part)) for part in told))


def _from(rows: Ints) -> Ints:
    """Returns (groups, intervals) the rows of each interval and of all that follow."""
    return np.asarray(rows[:, ::-1].cumsum(axis=1)[:, ::-1])


def counts_of(of: Parts, counts: ArrayLike, ends: ArrayLike, *, exact: bool = False) -> Counts:
    """Returns what is told of parts' cells (groups, cells), with the ends of all intervals but the last; `exact` as in it."""
    table, all_ends = np.asarray(counts, np.int64), np.asarray(ends, np.float64)
    bins, last = len(all_ends) + 1, table.shape[1] - 1
    until = [max(part) for part in of if max(part) < bins - 1]  # the last cells of intervals
    # Events, censored rows and those that enter, of each interval and behind the last one.
    kinds = np.zeros((3, len(table), len(until) + 1), np.int64)
    for part in of:
        if known := [cell for cell in part if cell < last]:
            kind = min(max(known) // bins, 2)
            cell = max(known) - kind * bins - (kind == 2)  # of rows that are there from 0 on -1
            if cell >= 0:
                kinds[kind, :, until.index(cell) if cell < bins - 1 else -1] += table[:, list(part)].sum(axis=1)
    dying, gone, coming = kinds
    entered = coming if last > 2 * bins else None
    return Counts(all_ends[until], (dying + gone).sum(axis=1), dying[:, :-1], gone[:, :-1], entered, exact)
