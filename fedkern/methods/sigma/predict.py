"""Predicts other rows of a client's areas from its posterior: other years, populations, values of covariates.

The server of a spatial job cannot predict: it has no area.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from ...data.cells import Text
from ...data.design import encode
from ...data.table import Table
from ...errors import JobError
from ...jobs import new_rows
from ...results.plain import Record
from ...results.prediction import Prediction, within, without_lacking, without_means
from ...results.result import Result
from . import foreseen, kept

Array = NDArray[np.float64]

# exp(sd z) has the mean exp(sd^2 / 2), and exp(-sd^2 / 2) is how fast the half-normal prior of sd falls: after a step or more
# there is no mean over the posterior.
INFINITE = (
    "periods after the last: the posterior mean of a rate is infinite there, for steps of a random walk may be long; cells of "
    "means are empty, and q50 columns are medians"
)

WHY = (
    "a spatial job cannot predict at the server: the areas' effects are in their clients' own folders; areas.csv there has the "
    "level of every area, also of those without rows, and `fedkern predict RUN/client-NAME ROWS` foresees other rows of them"
)


def predicted(result: Result, rows: object) -> NoReturn:
    """Raises JobError with the reason why the server of a spatial job cannot predict."""
    raise JobError(WHY)


def at_holder(folder: Path, record: Record, rows: object) -> tuple[Prediction, bool]:
    """Predicts rows of a client's areas, at its place.

    Parameters
    ----------
    folder, record : the client's folder, and its job.json

    Returns
    -------
    of each row its area (and period), the mean of its response (a count where the job has exposures), the level without exposure,
    and the ends within which a new count lies; whether the server's checks of the run found nothing

    Raises
    ------
    JobError
        The run left nothing there to predict with, or a fault of the rows.
    """
    posterior, data = kept.read(folder, record["run"]["id"], record["run"]["party"]), record["data"]
    area, about, encoding = data["area"], posterior.about, posterior.encoding
    if area is None:
        raise JobError(f"{folder}: the job is over locations; areas.csv there has the level of every point")
    period = data.get("period")
    with new_rows.own():
        read, lacking = new_rows.read(record, encoding, rows, area, period)
        for name in (area, period, data.get("exposure")):
            if name is not None and name not in read.names:
                raise JobError(f"{read.source}: column {name!r} is missing; give it (an exposure of 1 for rates)")
        design = encode(read, encoding)
    number = {name: i for i, name in enumerate(about.areas)}
    names = read.cells(area)
    _refuse(read, area, np.array([name not in number for name in names]), "is no area of this client in the prior")
    where = np.array([number[name] for name in names], np.int64)
    offset = np.zeros(read.n_rows) if design.offset is None else np.array(design.offset)
    if data.get("exposure") is not None:
        exposure = _numbers(read, data["exposure"])
        _refuse(read, data["exposure"], ~(exposure > 0), "is no exposure > 0")
        offset = offset + np.log(exposure)
    trials = None
    if data.get("trials") in read.names:
        trials = _numbers(read, data["trials"])
        _refuse(read, data["trials"], ~((trials >= 0) & (trials == np.floor(trials))), "is no number of trials")
    ids, when = {area: names}, None
    if period is not None:
        ids[period], when = _periods(read, period, about.periods)
    new = foreseen.New(np.asarray(design.X, np.float64), offset, trials, where, when)
    prediction, cut = foreseen.of(posterior, new, ids, int(record["job"]["seed"]))
    far = new_rows.notes(data.get("columns"), encoding, new.X)
    prediction = within(replace(prediction, notes=(*prediction.notes, *far)), about.family, cut)
    later = np.zeros(read.n_rows, bool) if when is None else when >= len(about.periods)
    return without_lacking(without_means(prediction, about.family, later, INFINITE), lacking), about.converged


def _periods(read: Table, name: str, known: list[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Returns each row's period, and its number among the job's periods.

    Periods after the last are counted on where the job's are whole numbers with the same gaps.
    """
    cells, follow = [cell.strip() for cell in read.cells(name)], _following(known)
    number = {period: t for t, period in enumerate([*known, *follow])}
    remedy = (
        f"is none of the job's periods, nor one of the {len(follow)} after the last"
        if follow
        else "is none of the job's periods, and which come after them is known of whole numbers with the same gaps alone"
    )
    _refuse(read, name, np.array([cell not in number for cell in cells]), remedy)
    return cells, np.array([number[cell] for cell in cells], np.int64)


def _following(known: list[str]) -> list[str]:
    """Returns as many periods after the last as the job has; none where it is not known which they are."""
    try:
        numbers = [int(period) for period in known]
    except ValueError:
        return []
    gaps = set(np.diff(numbers).tolist())
    if len(gaps) != 1 or [str(number) for number in numbers] != known:
        return []
    gap = gaps.pop()
    return [str(numbers[-1] + gap * (h + 1)) for h in range(len(known))]


def _numbers(read: Table, name: str) -> Array:
    """Reads a column of finite numbers."""
    column = read.columns[name]
    values = column.numbers() if isinstance(column, Text) else np.array(column, np.float64)
    _refuse(read, name, ~np.isfinite(values), "is no finite number")
    return np.asarray(values)


def _refuse(read: Table, column: str, bad: NDArray[np.bool_], what: str) -> None:
    """Refuses the first bad row: whoever predicts holds the rows."""
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        others = f" ({int(bad.sum()) - 1} more rows)" if bad.sum() > 1 else ""
        raise JobError(f"{read.source}, {read.place(row)}, column {column!r}: {read.text(column, row)!r} {what}{others}")
