"""Predicts other rows of a client's areas from its posterior: other years, populations, values of covariates.

The server of a spatial job cannot predict: it has no area. A row is a new observation. Where rows have effects of their own it
has another one than the fit's rows, and where r was learnt each draw has its r. A period after the last has the last one's effect
and, for each step from there, an independent one of the random walk, the same for all rows of a prediction.
Source: docs/spec/sigma.md, section 9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from ...arrays import Array, Indices
from ...data.cells import Text
from ...data.design import encode
from ...data.table import Table
from ...errors import JobError
from ...jobs import new_rows
from ...kernels import rng
from ...kernels.families import FAMILIES, MOST
from ...models.likelihood import Likelihood
from ...models.overdispersed import Overdispersed
from ...results.plain import Record
from ...results.prediction import SDS, WHOLE, Prediction, within, without_lacking, without_means
from ...results.result import Result
from . import kept

ENDS = {"q025": 0.025, "q50": 0.5, "q975": 0.975}
BLOCK = 2**22  # numbers at once
COUNTS, EFFECTS, STEPS = 4, 5, 6  # chains of the stream "posterior": those below drew the areas

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


@dataclass(frozen=True)
class New:
    """Holds new rows; an attribute is None where the job has none."""

    # X, offset, trials, area: (n, p) columns of the encoding, (n,) each
    X: Array
    offset: Array
    trials: Array | None
    area: Indices
    period: Indices | None  # (n,); T and more come after the last period

    def part(self, rows: slice) -> New:
        """Returns some of them."""
        trials = None if self.trials is None else self.trials[rows]
        period = None if self.period is None else self.period[rows]
        return New(self.X[rows], self.offset[rows], trials, self.area[rows], period)


def of(kept_run: kept.Kept, new: New, ids: Mapping[str, Sequence[str]], seed: int) -> tuple[Prediction, NDArray[np.bool_]]:
    """Predicts the rows, by blocks. Returns mean of the response with its ends, mean and sd of the linear predictor, and columns
    of the level and of new counts; and (n,) whether a draw of a row's rate is cut."""
    family, m, columns = FAMILIES[kept_run.about.family], len(kept_run.coefficients), dict[str, list[Array]]()
    like = Overdispersed(family.name) if kept_run.about.effects else Likelihood(family.name, kept_run.about.scale)
    periods = None if new.period is None else _on(kept_run, int(new.period.max(initial=0)) + 1, seed)
    counts = family.counted and (not family.trials or new.trials is not None)
    step = max(1, BLOCK // m)
    # Draws times rows may be more than memory holds.
    for a in range(0, len(new.X), step):
        rows = new.part(slice(a, a + step))
        level = kept_run.coefficients @ rows.X.T + kept_run.spatial[:, rows.area]
        if periods is not None:
            level = level + periods[:, rows.period]
        eta = level + rows.offset
        spread = kept_run.log_scale[:, np.newaxis] if kept_run.about.effects else 0.0
        mean = like.mean_of_new(eta, spread)
        block = {"mean": mean.mean(axis=0), "linear_mean": eta.mean(axis=0), "linear_sd": eta.std(axis=0)}
        highest = eta + SDS * np.exp(kept_run.log_scale)[:, np.newaxis] if kept_run.about.effects else eta
        block["cut"] = (np.maximum(highest, level).max(axis=0) > MOST).astype(float)
        block |= _ends("", mean)
        if family.link != "identity":
            block |= {family.level: like.mean(level).mean(axis=0)} | _ends(f"{family.level}_", like.mean(level))
        if counts:
            drawn = _drawn(kept_run, like, eta, rows.trials, seed, a)
            block |= _ends("new_", np.where(np.isnan(mean), np.nan, drawn), WHOLE)
        for name, values in block.items():
            columns.setdefault(name, []).append(values)
    joined = {name: np.concatenate(values) for name, values in columns.items()}
    first = ("mean", *ENDS, "linear_mean", "linear_sd", "cut")
    more = {name: values for name, values in joined.items() if name not in first}
    ends = {name: joined[name] for name in ENDS}
    prediction = Prediction(joined["mean"], ends, joined["linear_mean"], joined["linear_sd"], ids=ids, more=more)
    return prediction, joined["cut"] > 0


def _on(kept_run: kept.Kept, n: int, seed: int) -> Array:
    """Returns (m, n) effects of periods, continued beyond the last kept one by steps of the walk."""
    known = kept_run.periods
    if n <= known.shape[1]:
        return known
    m = len(known)
    steps = rng.normal(m * (n - known.shape[1]), key=rng.key(seed, "posterior", STEPS)).reshape(-1, m).T
    return np.column_stack([known, known[:, -1:] + np.cumsum(kept_run.step[:, np.newaxis] * steps, axis=1)])


def _drawn(kept_run: kept.Kept, like: Likelihood, eta: Array, trials: Array | None, seed: int, block: int) -> Array:
    """Draws (m, n) a new count of each row in each draw."""
    m, n = eta.shape
    scale: float | Array = kept_run.about.scale
    if kept_run.about.effects:
        effects = rng.normal(m * n, key=rng.key(seed, "posterior", EFFECTS), client=block).reshape(m, n)
        eta = eta + np.exp(kept_run.log_scale)[:, np.newaxis] * effects
    elif len(kept_run.log_scale):
        scale = np.repeat(np.exp(kept_run.log_scale), n)
    source = _Source(rng.key(seed, "posterior", COUNTS), block)
    repeated = None if trials is None else np.tile(trials, m)
    return like.record.draw(source, like.mean(eta).ravel(), scale, repeated).reshape(m, n)


def _ends(prefix: str, draws: Array, method: str = "linear") -> dict[str, Array]:
    """Returns the ends of 95 % intervals."""
    ends = np.quantile(draws, [*ENDS.values()], axis=0, method=method)  # type: ignore[call-overload]  # its names are a Literal
    return {f"{prefix}{name}": values for name, values in zip(ENDS, ends)}


class _Source:
    """Draws the random numbers of a prediction: the same whenever it is made."""

    def __init__(self, key: int, block: int) -> None:
        self.key, self.block = key, block

    def uniform(self, n: int) -> Array:
        """Returns n uniform numbers in (0, 1)."""
        return np.asarray(rng.uniform(n, key=self.key, client=self.block))

    def normal(self, n: int) -> Array:
        """Returns n standard normal numbers."""
        return np.asarray(rng.normal(n, key=self.key, client=self.block))


def predicted(result: Result, rows: object) -> NoReturn:
    """Raises JobError with the reason why the server of a spatial job cannot predict."""
    raise JobError(WHY)


def at_holder(folder: Path, record: Record, rows: object) -> tuple[Prediction, bool]:
    """Predicts rows of a client's areas, at its place. Raises JobError: the run left nothing there to predict with, or a fault of
    the rows.

    Parameters
    ----------
    folder, record : the client's folder, and its job.json

    Returns
    -------
    of each row its area (and period), the mean of its response (a count where the job has exposures), the level without exposure,
    and the ends within which a new count lies; whether the server's checks of the run found nothing
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
    new = New(np.asarray(design.X, np.float64), offset, trials, where, when)
    prediction, cut = of(posterior, new, ids, int(record["job"]["seed"]))
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
