"""From a client's table to the rows that a spatial model reads: areas or grid points, counts with their exposure, covariates."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...data.artifact import ClientFile
from ...data.cells import MISSING, MOST_COUNTED, TOO_LARGE, Text, too_large
from ...data.degenerate import Degenerate, degenerate
from ...data.design import Column, Encoding, Faults, Spec, encode
from ...data.faults import HINT, LISTED
from ...data.faults import who as begin
from ...data.table import Table
from ...errors import JobError, OwnFault
from ...jobs.parties import Parties, from_files
from ...kernels.families import BINARY, COUNTS, FAMILIES
from ...models.spatial.site import Rows
from .keys import Config

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True)
class AreaRows:
    """A client's rows.

    Attributes
    ----------
    observed : those with a response
    area, X : (n,), (n, p) of all rows, also of those without a response
    exposure : (n,) e^offset of all rows, where the response is a count
    notes, faults : for the client's own eyes
    degenerate : covariates that nothing can be learnt from
    """

    observed: Rows
    area: Index
    X: Array
    exposure: Array
    notes: tuple[str, ...]
    faults: Faults
    degenerate: Degenerate


def parties(config: Config, folder: Path) -> Parties:
    """The parties of a job whose paths are relative to `folder`; JobError where no file matches, or two clients have one name."""
    return from_files(config, folder, spec_of(config), texts_of(config))


def spec_of(config: Config) -> Spec:
    """What is known of a client's columns; the agreement is about covariates alone."""
    data = config.data
    roles = (data.response, data.exposure, data.trials, *data.location)
    return Spec(
        response=None,
        family=config.model.family,
        offset=data.offset,
        row_id=data.area,
        ignore=(*data.ignore, *(name for name in roles if name is not None)),
        intercept=True,
        standardise=data.standardise,
        columns={name: Column.declared(name, section.model_dump(exclude_none=True)) for name, section in data.columns.items()},
    )


def texts_of(config: Config) -> frozenset[str]:
    """Columns that are read as text."""
    data = config.data
    return spec_of(config).texts | ({data.response} if data.positive is not None else set())


def needed(config: Config, names: tuple[str, ...], who: str) -> None:
    """Whether a header has the columns that the job names.

    Raises
    ------
    JobError
        It has not.
    """
    data = config.data
    roles = [(role, getattr(data, role)) for role in ("response", "area", "exposure", "trials", "offset")]
    for role, name in [*roles, *(("location", name) for name in data.location)]:
        if name is not None and name not in names:
            what = f"column {name!r} (data.{role}) is missing"
            raise OwnFault(
                f"{who}: {what}; the header names {len(names)} others; {HINT}", f"{who}: {what}; there are {', '.join(names)}"
            )


def rows(table: Table, config: Config, encoding: Encoding, file: ClientFile, name: str) -> AreaRows:
    """The client's arrays.

    Raises
    ------
    JobError
        Names the column and the remedy, and to its holder the line: an unknown area, no number, a count below 0, more successes
        than trials, a location off the grid.
    """
    who, data, family = begin(name, table.source), config.data, FAMILIES[config.model.family]
    needed(config, table.names, who)
    design = encode(table, encoding, client=name)
    y, seen = _response(table, config, who)
    offset = np.zeros(table.n_rows) if design.offset is None else np.array(design.offset)
    if data.exposure is not None:
        exposure = _numbers(table, data.exposure, who)
        _refuse(table, ~(exposure > 0), data.exposure, who, "is no exposure > 0; remove the row")
        offset += np.log(exposure)
    trials = None
    if data.trials is not None:
        trials = _numbers(table, data.trials, who)
        _refuse(table, ~(trials >= 0) | (trials != np.floor(trials)), data.trials, who, "must be a whole number of at least 0")
        _refuse(table, seen & (y > trials), data.response, who, f"is more than {data.trials}, the number of trials")
    area = _areas(table, config, file, who)
    if data.area is not None and data.rows_per_area == "one":
        _refuse_counts(table, data.area, area, file, who)
    X = np.ascontiguousarray(design.X[:, 1:])
    at = np.flatnonzero(seen)
    observed = Rows(y[at], area[at], X[at], offset[at], None if trials is None else trials[at])
    found = degenerate(design.X[at], encoding)
    notes = [*design.notes, *found.lines()]
    if not len(at):
        notes.append("no row has a response: this client adds nothing, and all its areas are predicted")
    if empty := file.d - len(np.unique(area[at])):
        notes.append(f"{empty} of {file.d} areas have no response: they are predicted")
    counts = np.bincount(area, minlength=file.d)
    if data.area is not None and (absent := int((counts == 0).sum())):
        notes.append(f"{absent} of {file.d} areas stand in no row: they are predicted at the covariates' means")
    if data.area is not None and (several := int((counts > 1).sum())):
        notes.append(f"{several} of {file.d} areas stand in several rows, each an observation of its own")
    if family.domain is COUNTS and len(at) and not y[at].any():
        notes.append("every count is 0")
    with np.errstate(over="ignore"):
        exposed = np.exp(offset) if family.link == "log" else np.ones(len(offset))
    return AreaRows(observed, area, X, exposed, tuple(notes), design.faults, found)


def _response(table: Table, config: Config, who: str) -> tuple[Array, NDArray[np.bool_]]:
    """Values, and where there is one."""
    data, domain, name = config.data, FAMILIES[config.model.family].domain, config.data.response
    column = table.columns[name]
    if data.positive is not None:
        texts = np.array(table.cells(name), dtype=object)
        seen = np.array([text.lower() not in MISSING for text in texts])
        return (texts == data.positive).astype(float), seen
    y = column.numbers() if isinstance(column, Text) else np.array(column, np.float64)
    seen = np.isfinite(y)
    empty = np.isnan(y)
    if isinstance(column, Text):
        empty = np.array([level.lower() in MISSING for level in column.levels])[column.codes]
    _refuse(table, ~seen & ~empty, name, who, "is no number; correct it, or leave the cell empty to have it predicted")
    if domain is BINARY:
        _refuse(table, seen & ~domain.has(y), name, who, "is not 0 or 1; name the label that counts as 1 in data.positive")
    if domain is COUNTS:
        _refuse(table, seen & ~domain.has(y), name, who, "is no count (0, 1, 2, ...)")
        _refuse(table, seen & (y > MOST_COUNTED), name, who, "is too large for a count: beyond 2^53 whole numbers have gaps")
    _refuse(table, too_large(y), name, who, f"is too large; {TOO_LARGE}")
    return np.where(seen, y, 0.0), seen


def _numbers(table: Table, name: str, who: str) -> Array:
    column = table.columns[name]
    values = column.numbers() if isinstance(column, Text) else np.array(column, np.float64)
    _refuse(table, ~np.isfinite(values), name, who, "is no finite number; correct or remove the row")
    _refuse(table, too_large(values), name, who, f"is too large; {TOO_LARGE}")
    return values


def _refuse(table: Table, bad: NDArray[np.bool_], name: str, who: str, remedy: str) -> None:
    """The column, which the job file names, and how many rows; to its holder also which, and what stands there."""
    if bad.any():
        n = int(bad.sum())
        own = [f"{table.place(row)}, column {name!r}: {table.text(name, row)!r} {remedy}" for row in np.flatnonzero(bad)[:LISTED]]
        others = f" ({n - 1} more rows)" if n > 1 else ""
        text = f"{who}: {'1 row' if n == 1 else f'{n} rows'} cannot be used: column {name!r} {remedy}; {HINT}"
        raise OwnFault(text, "\n  ".join([f"{who}, {table.source}, {own[0]}{others}", *own[1:]]))


def _areas(table: Table, config: Config, file: ClientFile, who: str) -> Index:
    """Which of the decoder's coordinates each row belongs to."""
    data = config.data
    if data.area is not None:
        if not file.areas:
            raise JobError(f"{who}: the prior is over locations and has no areas; give data.location instead of data.area")
        index = {area: i for i, area in enumerate(file.areas)}
        names = table.cells(data.area)
        unknown = np.array([area not in index for area in names])
        _refuse(
            table, unknown, data.area, who, "is no area of this client in the prior; correct it, or train a prior that has it"
        )
        return np.array([index[area] for area in names], np.int64)
    if file.common.kind != "gp" or file.locations is None:
        raise JobError(f"{who}: the prior is over areas, not over locations; give data.area instead of data.location")
    grid = file.locations
    if grid.shape[1] != len(data.location):
        raise JobError(f"{who}: data.location names {len(data.location)} columns, and the prior's grid has {grid.shape[1]}")
    place = np.column_stack([_numbers(table, name, who) for name in data.location])
    found = np.array([int(np.argmin(((grid - row) ** 2).sum(axis=1))) for row in place], np.int64)
    off = np.abs(grid[found] - place)
    steps = np.array([_step(column) for column in grid.T])
    far = np.asarray((off > 0.5 * steps * (1 + 1e-9)).any(axis=1))
    _refuse(table, far, data.location[0], who, "is farther than half a step from every grid point of this client in the prior")
    return found


def _refuse_counts(table: Table, name: str, area: Index, file: ClientFile, who: str) -> None:
    """Whether every area has its one row: a line that was copied twice would count twice, and one that was lost be predicted."""
    counts = np.bincount(area, minlength=file.d)
    several, absent = np.flatnonzero(counts > 1), np.flatnonzero(counts == 0)
    found, own = [], []
    if len(several):
        found.append(f"{len(several)} of its {file.d} areas in the prior stand in several rows")
        places = [f"{file.areas[i]!r} ({', '.join(table.place(int(k)) for k in np.flatnonzero(area == i))})" for i in several]
        own.append(f"in several rows: {', '.join(places[:LISTED])}")
    if len(absent):
        found.append(f"{len(absent)} of its {file.d} areas in the prior stand in none")
        own.append(f"in none: {', '.join(repr(file.areas[i]) for i in absent[:LISTED])}")
    if found:
        remedy = (
            "give each one row, with an empty response where it is to be predicted; or set "
            'data.rows_per_area = "any" if rows are observations of their own (years, groups)'
        )
        text = f"{who}: column {name!r}: {' and '.join(found)}; {remedy}"
        raise OwnFault(f"{text}; {HINT}", "\n  ".join([text, *own]))


def _step(values: Array) -> float:
    """The largest gap between neighbouring coordinates of the grid."""
    distinct = np.unique(values)
    return float(np.diff(distinct).max()) if len(distinct) > 1 else np.inf
