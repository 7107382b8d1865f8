"""What a client's own posterior says of other rows of its areas: other years, populations, values of covariates. The server of a
spatial job cannot say it: it has no area."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from ...data.cells import Text
from ...data.design import encode
from ...data.faults import NO_VALUE
from ...data.table import Table
from ...errors import JobError, OwnFault
from ...jobs import new_rows
from ...kernels import rng
from ...kernels.families import FAMILIES, MOST
from ...models.likelihood import Likelihood
from ...results.plain import Record
from ...results.prediction import WHOLE, Prediction, within
from ...results.result import Result
from . import kept

Array = NDArray[np.float64]

WHY = (
    "a spatial job cannot predict at the server: the areas' effects are in their clients' own folders; areas.csv there has the "
    "level of every area, also of those without rows, and `fedkern predict RUN/client-NAME ROWS` foresees other rows of them"
)
ENDS = {"q025": 0.025, "q975": 0.975}
BLOCK = 2**22  # numbers at once
NEW = 4  # chain of the stream "posterior": those below drew the areas


def predicted(result: Result, rows: object) -> NoReturn:
    """Nothing: JobError with the reason."""
    raise JobError(WHY)


def at_holder(folder: Path, record: Record, rows: object) -> tuple[Prediction, bool]:
    """Of rows of a client's own areas, at its place.

    Parameters
    ----------
    folder, record : the client's own folder, and its job.json

    Returns
    -------
    of each row its area, the mean of its response (a count where the job has exposures), the level without exposure, and the ends
    within which a new count lies; whether the server's checks of the run found nothing

    Raises
    ------
    JobError
        The run left nothing there to predict with, its rows have effects that are not kept, or a fault of the rows.
    """
    own, data = kept.read(folder, record["run"]["id"], record["run"]["party"]), record["data"]
    area, about, encoding = data["area"], own.about, own.encoding
    if about.lacks:
        raise JobError(f"{folder}: rows of this job cannot be foreseen: {about.lacks}")
    if area is None:
        raise JobError(f"{folder}: the job is over locations; areas.csv there has the level of every point")
    try:
        read = new_rows.read(record, encoding, rows, area)
        for name in (area, data.get("exposure")):
            if name is not None and name not in read.names:
                raise JobError(f"{read.source}: column {name!r} is missing; give it (an exposure of 1 for rates)")
        design = encode(read, encoding)
    except OwnFault as fault:  # whoever predicts holds the rows, and the job is over
        raise JobError(fault.own.replace(f" ({NO_VALUE})", "")) from None
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
    found = _foreseen(own, np.asarray(design.X, np.float64), offset, trials, where, int(record["job"]["seed"]))
    return within(replace(found[0], ids={area: names}), about.family, found[1]), about.converged


def _foreseen(
    own: kept.Kept, X: Array, offset: Array, trials: Array | None, area: NDArray[np.int64], seed: int
) -> tuple[Prediction, NDArray[np.bool_]]:
    """With columns of the level and of new counts; and (n,) whether a draw of a row's rate is cut. By blocks of rows."""
    family = FAMILIES[own.about.family]
    like, n, m = Likelihood(family.name, own.about.scale), len(X), len(own.coefficients)
    counts = family.counted and (not family.trials or trials is not None)
    columns: dict[str, list[Array]] = {}
    step = max(1, BLOCK // m)
    for a in range(0, n, step):
        at = slice(a, a + step)
        level = own.coefficients @ X[at].T + own.spatial[:, area[at]]
        eta = level + offset[at]
        mean = like.mean(eta)
        one = {"mean": mean.mean(axis=0), "linear_mean": eta.mean(axis=0), "linear_sd": eta.std(axis=0)}
        one["cut"] = (np.maximum(eta, level).max(axis=0) > MOST).astype(float)
        one |= _ends("", mean)
        if family.link != "identity":
            one |= {family.level: like.mean(level).mean(axis=0)} | _ends(f"{family.level}_", like.mean(level))
        if counts:
            own_trials = None if trials is None else np.tile(trials[at], m)
            key = rng.key(seed, "posterior", NEW)
            new = family.draw(_Source(key, a), mean.ravel(), own.about.scale, own_trials).reshape(mean.shape)
            one |= _ends("new_", np.where(np.isnan(mean), np.nan, new), WHOLE)
        for name, values in one.items():
            columns.setdefault(name, []).append(values)
    joined = {name: np.concatenate(values) for name, values in columns.items()}
    first = ("mean", *ENDS, "linear_mean", "linear_sd", "cut")
    more = {name: values for name, values in joined.items() if name not in first}
    ends = {name: joined[name] for name in ENDS}
    return Prediction(joined["mean"], ends, joined["linear_mean"], joined["linear_sd"], more=more), joined["cut"] > 0


def _ends(prefix: str, draws: Array, method: str = "linear") -> dict[str, Array]:
    """Of 95 %."""
    found = np.quantile(draws, [*ENDS.values()], axis=0, method=method)  # type: ignore[call-overload]  # its names are a Literal
    return {f"{prefix}{name}": values for name, values in zip(ENDS, found)}


class _Source:
    """Random numbers of a prediction: the same whenever it is made."""

    def __init__(self, key: int, block: int) -> None:
        self.key, self.block = key, block

    def uniform(self, n: int) -> Array:
        """n of them, in (0, 1)."""
        return np.asarray(rng.uniform(n, key=self.key, client=self.block))

    def normal(self, n: int) -> Array:
        """n of them."""
        return np.asarray(rng.normal(n, key=self.key, client=self.block))


def _numbers(read: Table, name: str) -> Array:
    column = read.columns[name]
    values = column.numbers() if isinstance(column, Text) else np.array(column, np.float64)
    _refuse(read, name, ~np.isfinite(values), "is no finite number")
    return np.asarray(values)


def _refuse(read: Table, column: str, bad: NDArray[np.bool_], what: str) -> None:
    """The first bad row: whoever predicts holds the rows."""
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        others = f" ({int(bad.sum()) - 1} more rows)" if bad.sum() > 1 else ""
        raise JobError(f"{read.source}, {read.place(row)}, column {column!r}: {read.text(column, row)!r} {what}{others}")
