"""Decides which intervals of a Kaplan-Meier curve may be told.

Times and events are told by these intervals alone: another table of either, or bins of the times with other ends, subtracted,
would tell the rows between.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ..models.life_table import Counts
from .cells import Parts, added, cut, enough
from .rules import Rules


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
    dying, gone, lacking = (np.asarray(counts, np.int64)[some] for counts in (events, censored, missing))
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
    counts, all_ends = np.asarray(cells, np.int64), np.asarray(ends, np.float64)
    bins = len(all_ends) + 1
    parts = [part for part in of if max(part) < bins - 1]
    last_bins = [max(part) for part in parts]
    censored, rest = np.zeros((len(counts), len(parts)), np.int64), np.zeros(len(counts), np.int64)
    for part in of:
        last = max((cell for cell in part if cell < 2 * bins), default=0) - bins
        n = counts[:, list(part)].sum(axis=1)
        if bins - 1 in (*part, last):
            rest += n
        elif last >= 0:
            censored[:, last_bins.index(last)] += n
    events = added(counts, tuple(parts)) if parts else censored
    return Counts(all_ends[last_bins], events.sum(axis=1) + censored.sum(axis=1) + rest, events, censored)
