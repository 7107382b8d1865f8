"""Counts the rows of a table in an open job by their weights, and the events of survival times."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..data.cells import MISSING, Text, floats
from ..data.rounded import join_rounded
from ..data.table import Table
from ..kernels.survival import arranged
from ..models.encoding import Spec
from ..models.weighing import effective

Floats = NDArray[np.float64]
LEAST_AT_RISK = 5  # rows at the time of an event that counts as one: of two, the term is a function of one difference of rows
MOST_LOOKED = 1000  # rows that are at risk, first
SHORT = 1e-9  # what sums of weights lose


def weights(table: Table, spec: Spec) -> Floats:
    """Returns (n,) the weight of each row: 1 without weights, and 0 where a job learns nothing of it, for it has no response.

    (A cell that cannot be read is a fault, and counts.)
    """
    there = np.ones(table.n_rows, dtype=bool)
    cells, weight = (table.columns.get(name) if name else None for name in (spec.response, spec.weight or spec.trials))
    if isinstance(cells, Text):
        words = {""} if spec.labelled else MISSING
        there &= np.array([level.lower() not in words for level in cells.levels], dtype=bool)[cells.codes]
    elif cells is not None:
        there &= ~np.isnan(np.asarray(cells, np.float64))
    there[[*table.broken]] = True
    if weight is None:
        return there.astype(np.float64)
    values = floats(weight)
    return np.where(there & (values != 0), np.nan_to_num(np.abs(values), posinf=0.0), 0.0)


def counted(table: Table, spec: Spec) -> int:
    """Returns how many rows an open job learns from: those with a response.

    For weighted rows it is the effective number, (sum w)^2 / sum w^2, for a row that weighs nearly all is nearly alone; for
    successes of trials likewise, by trials, so that a row is never more than one.
    """
    return int(effective(weights(table, spec)) + 1e-9)


class Events(NamedTuple):
    """Counts survival times by their weights: effective numbers of rows with their event, in all and where enough are at risk."""

    events: int
    covered: int


def covered_events(table: Table, spec: Spec, rows: Floats, event: Floats) -> Events | None:
    """Counts the events of survival times; None where times cannot be read, which is a fault of its own.

    Parameters
    ----------
    rows : (n,) `weights`
    event : (n,) 1 where a row ends with its event
    """
    time, *entry = join_rounded((), *(floats(table.columns[name]) for name in spec.times))
    if spec.upper is not None and spec.upper in table.columns:  # of an event in an interval its end
        upper = floats(table.columns[spec.upper])
        time = np.where(np.isfinite(upper), np.maximum(time, upper), time)
    # Of a hazard that all share a group is a frailty, and no stratum.
    stratified = not spec.exposed and spec.group is not None and spec.group in table.columns
    strata = np.array(table.cells(str(spec.group))) if stratified else None
    there = rows > 0
    dying = there & (event == 1)
    try:
        sets = arranged(time[there], dying[there], entry[0][there] if entry else None, None if strata is None else strata[there])
    except ValueError:
        return None
    weight, covered = rows[there][sets.order], np.zeros(int(there.sum()))
    until = np.full(len(covered), len(sets.ends)) if sets.until is None else sets.until
    most = float(weight.max(initial=0.0))
    for k, (first, end, deaths) in enumerate(zip(sets.first.tolist(), sets.ends.tolist(), sets.deaths.tolist())):
        if _enough_at_risk(weight[first:end], until[first:end], k, most):
            covered[end - deaths : end] = weight[end - deaths : end]
    return Events(int(effective(rows * dying) + 1e-9), int(effective(covered) + 1e-9))


def _enough_at_risk(weight: Floats, until: NDArray[np.int64], k: int, most: float) -> bool:
    """Tells whether the rows at risk at a time, by the effective number of their weights, are enough for its events to count.

    Parameters
    ----------
    weight, until : (n,) of rows that came in time, and the number of the time from which on each is no more at risk
    k : the number of this time
    most : the largest weight of all rows. No effective number is below the sum of weights over the largest, by which the first
        rows decide most sets
    """
    some = weight[:MOST_LOOKED][until[:MOST_LOOKED] > k]
    return float(some.sum()) >= LEAST_AT_RISK * most or effective(weight[until > k]) >= LEAST_AT_RISK * (1 - SHORT)
