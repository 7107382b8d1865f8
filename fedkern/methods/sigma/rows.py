"""Finds the parties of a spatial job and reads their files: areas or points, counts with their exposure, covariates.

Lines of a private job's file that cannot be read are replaced: they weigh nothing, and no message shows that they exist. Whether
a line can be read may depend on its count (1,234 without quotes is two cells), so that it ends no private job, as bad rows end
none (`data.design`). An area that is in no other line gets a row in the place of the lost one, so that the number of rows and the
sums of public columns are what they would be: numbers in the middle of the client's others, the most frequent of levels, no
exposure. Its count is 0, to which noise is added as to all, and the likelihood leaves it out: to others it is an area whose
exposure is 0. Source: docs/spec/sigma.md, section 14.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...arrays import Array, Indices
from ...data import far
from ...data.artifact import OwnFile
from ...data.cells import MISSING, MOST_COUNTED, TOO_LARGE, Cells, Text, as_text, plain, too_far, too_large
from ...data.degenerate import Degenerate, degenerate
from ...data.design import Encoding, Spec, encode
from ...data.faults import HINT, LISTED, Faults, Marks
from ...data.faults import who as begin
from ...data.header import list_columns
from ...data.places import zeros
from ...data.table import Table
from ...errors import JobError, OwnFault
from ...jobs.parties import Parties, declared, from_files
from ...kernels.families import FAMILIES, Family
from ...labels import label
from ...models.likelihood import Noisy
from ...models.spatial.site import Rows
from .keys import Config, DataSection

SHOWN = 20  # names in a note
MOST_CASES = 1 << 40  # of an area

LEAST_VARIANCE = 1e-100  # of a response, by which is divided


@dataclass(frozen=True)
class Unread:
    """Holds the lost lines, for the holder alone: faults of the lines, and the areas that have no other line."""

    faults: Faults = field(default_factory=Faults)
    areas: tuple[str, ...] = ()

    def describe_lost(self, table: str) -> list[str]:
        """Returns notes on them; `table` is that of noisy counts."""
        if not self.faults.rows:
            return []
        places = ", ".join(fault.place for fault in self.faults.first[:SHOWN])
        text = f"{self.faults.rows} lines cannot be read, and count as nothing ({places})"
        if not self.areas:
            return [text]
        more = f", .. ({len(self.areas)} in all)" if len(self.areas) > SHOWN else ""
        return [
            f"{text}: areas {', '.join(map(repr, self.areas[:SHOWN]))}{more} stand in no other line and are predicted as if they "
            f"had no exposure. If noise is drawn now it is added to 0 in the place of their counts, and they stay without one in "
            f"the noisy table {table!r}: mend the lines first, or take another privacy.table then, which is paid for"
        ]


def restore_table(table: Table, data: DataSection, texts: Collection[str], areas: Sequence[str]) -> tuple[Table, Unread]:
    """Returns a private client's table without lines that cannot be read, and with a row for each area of only such lines.

    Parameters
    ----------
    data : which columns the job has
    texts : columns that are read as text
    areas : of the client in the prior

    Returns
    -------
    the table, and the lost lines
    """
    if not table.broken or data.area is None:
        return table, Unread()
    rows = np.array([row for row in range(table.n_rows) if row not in table.broken], np.int64)
    readable = set(table.select(rows).cells(data.area))
    lost = tuple(area for area in areas if area not in readable)
    none = {data.response, data.exposure, data.trials}
    columns: dict[str, Cells] = {}
    for name in table.names:
        if name == data.area:
            columns[name] = as_text([*(table.text(name, int(row)) for row in rows), *lost])
            continue
        section = data.columns.get(name)
        levels = () if section is None or section.levels is None else tuple(section.levels)
        filled = [] if name in none else levels[:1]
        columns[name] = _with(table.columns[name], rows, len(lost), filled, zero=name in none, text=name in texts)
    places = [table.lines[row] for row in sorted(table.broken)] if table.lines is not None else []
    lines = None if table.lines is None else [*(table.lines[row] for row in rows), *(places + [0] * len(lost))[: len(lost)]]
    whole = Table(table.source, table.names, columns, len(rows) + len(lost), lines=lines, texts=table.texts)
    return whole, Unread(Marks(table).faults(), lost)


def _with(cells: Cells, rows: NDArray[np.int64], more: int, levels: Sequence[str], *, zero: bool, text: bool) -> Cells:
    """Returns a column's cells in some rows, and `more` cells after them: 0, the middle, or the most frequent level.

    Without any level among the cells it is the first of `levels`.
    """
    all_numbers = cells.numbers() if isinstance(cells, Text) else np.asarray(cells, np.float64)
    numbers = all_numbers[rows]
    known = numbers[np.isfinite(numbers)]
    if len(known) == len(numbers) and not text:
        middle = 0.0 if zero or not len(known) else float(np.median(known))
        return np.concatenate([numbers, np.full(more, middle)])
    texts = cells if isinstance(cells, Text) else as_text([*map(plain, np.asarray(cells).tolist())])
    written = [texts.levels[code] for code in texts.codes[rows]]
    most = Counter(written).most_common(1)
    if zero:
        fill = "0"
    elif most:
        fill = most[0][0]
    else:
        fill = next(iter(levels), "")
    if not zero and not text and texts.kind() == "numeric" and len(known):
        fill = plain(float(np.median(known)))
        fill = fill.replace(".", texts.decimal)
    return as_text([*written, *[fill] * more], texts.decimal)


@dataclass(frozen=True)
class AreaRows:
    """Holds a client's rows."""

    observed: Rows  # those with a response
    # area, X, period: (n,), (n, p), (n,) of all rows, also of those without a response; no period where the job has none
    area: Indices
    X: Array
    exposure: Array  # (n,) e^offset of all rows, where the response is a count
    # notes, faults: for the client alone
    notes: tuple[str, ...]
    faults: Faults
    degenerate: Degenerate  # covariates of which nothing can be learnt
    response: Indices  # (n,) which of all rows those of `observed` are
    period: Indices | None = None
    # (d,) of a private job, by area, to which noise is added before any use of them; `observed` has none
    counts: NDArray[np.int64] | None = None
    unread: tuple[int, ...] = ()  # of a private job, areas whose only lines cannot be read

    def noisy(self, counts: Array, noise: Noisy, unread: Sequence[int] = ()) -> AreaRows:
        """Returns the rows with noisy counts (d,), and without the others; areas that are `unread` have no observation."""
        seen = self.observed
        kept = np.flatnonzero(~np.isin(seen.area, np.array([*unread], np.int64)))
        trials = None if seen.trials is None else seen.trials[kept]
        observed = Rows(
            counts[seen.area[kept]], seen.area[kept], np.ascontiguousarray(seen.X[kept]), seen.offset[kept], trials, noise
        )
        return replace(self, observed=observed, response=self.response[kept], counts=None, unread=tuple(unread))


def parties(config: Config, folder: Path) -> Parties:
    """Returns the parties of a job whose paths are relative to `folder`. Raises JobError: no file matches, or two clients have
    one name."""
    return from_files(config, folder, spec_of(config), texts_of(config))


def spec_of(config: Config) -> Spec:
    """Returns the public knowledge of a client's columns; the agreement is about covariates alone."""
    data = config.data
    roles = (data.response, data.exposure, data.trials, data.variance, data.period, *data.location)
    return Spec(
        response=None,
        family=config.model.family,
        offset=data.offset,
        row_id=data.area,
        ignore=(*data.ignore, *(name for name in roles if name is not None)),
        intercept=True,
        standardise=data.standardise,
        columns=declared(data.columns),
    )


def texts_of(config: Config) -> frozenset[str]:
    """Returns the columns that are read as text."""
    data = config.data
    response = data.response if data.positive is not None else None
    return spec_of(config).texts | {name for name in (response, data.period) if name is not None}


def prior_of(config: Config, folder: Path) -> Path:
    """Returns the path of the job's prior, as seen from `folder`."""
    return folder / config.model.prior


def drawn(config: Config, folder: Path) -> tuple[Path, str, str, bool] | None:
    """Returns the polygons' path, its text in the job file, the property that names areas, and whether a GeoPackage is wanted.

    It is None where the job has no polygons.
    """
    data, packed = config.data, config.output.polygons == "gpkg"
    return None if data.polygons is None or data.area is None else (folder / data.polygons, data.polygons, data.area, packed)


@dataclass(frozen=True)
class Reading:
    """Holds a client's table, the job by which it is read, the client's `name`, and lines of a private job that are not in it."""

    table: Table
    config: Config
    name: str
    unread: Unread = field(default_factory=Unread)

    @staticmethod
    def of(table: Table, config: Config, name: str, areas: Sequence[str]) -> Reading:
        """Reads a client's file; its `areas` are those in the prior."""
        if config.privacy is None:  # there such a line is an error
            return Reading(table, config, name)
        whole, unread = restore_table(table, config.data, texts_of(config), areas)
        return Reading(whole, config, name, unread)

    @property
    def who(self) -> str:
        """The beginning of a sentence about it."""
        return begin(self.name, self.table.source)

    @property
    def data(self) -> DataSection:
        """The job file's section about the columns."""
        return self.config.data

    @property
    def family(self) -> Family:
        """The likelihood family of the response."""
        return FAMILIES[self.config.model.family]

    @property
    def location(self) -> list[str]:
        """The columns of a row's coordinates."""
        return self.data.location

    def refuse(self, bad: NDArray[np.bool_], column: str, remedy: str) -> None:
        """Refuses bad rows: others read the column, which the job file names; the holder also reads rows, number and cells."""
        if bad.any():
            n, table = int(bad.sum()), self.table
            listed = [f"{table.place(row)}, column {column!r}: {table.text(column, row)!r} {remedy}" for row in _first(bad)]
            others = f" ({n - 1} more rows)" if n > 1 else ""
            text = f"{self.who}: rows cannot be used: column {column!r} {remedy}"
            raise OwnFault(text, f"{self.who}, {table.source}, {listed[0]}{others}", listed[1:], HINT)

    def numbers(self, name: str, where: NDArray[np.bool_] | None = None) -> Array:
        """Returns a column of finite numbers. `where`: rows in which they are needed; elsewhere a cell that is no number becomes
        0."""
        column = self.table.columns[name]
        values = column.numbers() if isinstance(column, Text) else np.array(column, np.float64)
        needed = np.ones(len(values), bool) if where is None else where
        self.refuse(needed & ~np.isfinite(values), name, "is no finite number; correct or remove the row")
        self.refuse(needed & too_large(values), name, f"is too large; {TOO_LARGE}")
        return np.where(np.isfinite(values), values, 0.0)


def _first(bad: NDArray[np.bool_]) -> Indices:
    """Returns the first few bad rows."""
    return np.flatnonzero(bad)[:LISTED]


def needed(config: Config, names: tuple[str, ...], who: str) -> None:
    """Refuses a header without the columns that the job names. Raises JobError: a column is missing."""
    data = config.data
    roles = [(role, getattr(data, role)) for role in ("response", "area", "period", "exposure", "trials", "variance", "offset")]
    taken = [name for _, name in roles if name is not None]
    for role, name in [*roles, *(("location", name) for name in data.location)]:
        if name is not None and name not in names:
            what = f"column {name!r} (data.{role}) is missing"
            raise OwnFault(
                f"{who}: {what}; the header names {len(names)} others",
                f"{who}: {what}{list_columns(name, names, taken)}",
                look=HINT,
            )


def rows(read: Reading, encoding: Encoding, file: OwnFile) -> AreaRows:
    """Reads the client's arrays. Raises JobError: names the column and the remedy, and to its holder the line: an unknown area,
    no number, a count below 0, more successes than trials, a location off the grid."""
    table, data, family = read.table, read.data, read.family
    needed(read.config, table.names, read.who)
    design = encode(table, encoding, client=read.name)
    y, seen, last = _response(read) if read.config.privacy is None else _protected(read)
    private = read.config.privacy is not None
    offset = np.zeros(table.n_rows) if design.offset is None else np.array(design.offset)
    notes = list[str]()
    if data.exposure is not None:
        exposure = read.numbers(data.exposure, where=seen)
        nobody = seen & (exposure == 0) & ((y == 0) | private)
        seen = seen & ~nobody
        if nobody.any() and private:
            notes.append(f"{nobody.sum()} areas without exposure are predicted; their counts have noise like all others")
        elif nobody.any():
            notes.append(f"{nobody.sum()} rows without exposure and without an event tell nothing: they are predicted")
        at_home = "is no exposure > 0; where nobody lives leave the response empty, and the area is predicted"
        at_home = "is below 0; where nobody lives give 0, and the area is predicted" if private else at_home
        read.refuse(seen & ~(exposure > 0), data.exposure, at_home)
        exposed_rows = exposure > 0
        exposure = np.where(exposed_rows, exposure, 1.0)
        odd = seen & too_far(np.log(exposure), family.link)
        read.refuse(odd, data.exposure, "is too far from 1 for an exposure (e^-100 to e^100); correct the cell")
        offset += np.log(exposure)
    trials = None
    if data.trials is not None:
        trials = read.numbers(data.trials, where=seen)
        read.refuse(seen & (~(trials >= 0) | (trials != np.floor(trials))), data.trials, "must be a whole number of at least 0")
        read.refuse(seen & (y > trials) & (not private), data.response, f"is more than {data.trials}, the number of trials")
        last = np.minimum(last, trials)
    errors = None
    if data.variance is not None:
        variance = read.numbers(data.variance, where=seen)
        remedy = "is no variance > 0; where it is not known leave the response empty, and the area is predicted"
        read.refuse(seen & ~(variance > LEAST_VARIANCE), data.variance, remedy)
        errors = np.sqrt(variance[seen])
    area = _areas(read, file)
    period = _period(read)
    if period is not None and data.rows_per_area == "one":
        _refuse_pairs(read, area, period, file)
    elif data.area is not None and data.rows_per_area == "one":
        _refuse_counts(read, area, file)
    protected = None
    if private:  # from here on nothing is known of a count: bad cells end no job, and tell nothing
        protected = np.zeros(file.d, np.int64)
        most = np.inf if trials is None else trials
        protected[area] = counted = np.minimum(y, most).astype(np.int64)
        notes += _odd(read, counted)
        y = last = np.full(len(y), np.nan)
    X = np.ascontiguousarray(design.X[:, 1:])
    responding = np.flatnonzero(seen)
    intervals = last[responding] if (last > y)[responding].any() else None
    tried = None if trials is None else trials[responding]
    observed = Rows(y[responding], area[responding], X[responding], offset[responding], tried, intervals, errors)
    if period is not None:
        observed = replace(observed, period=period[responding])
    nothing = degenerate(design.X[responding], encoding)
    if family.counted and not private:
        exact = np.where(seen & (last == y), y, np.nan)
        codes = far.count_notes(table, data.response, read.config.model.family, exact, offset)
        notes += codes
        coded = (data.response,) if codes else ()
        nothing = replace(nothing, far=coded)
    unread = tuple(file.areas.index(name) for name in read.unread.areas)
    lost = [] if read.config.privacy is None else read.unread.describe_lost(read.config.privacy.table)
    notes = [*design.notes, *lost, *notes, *nothing.describe_columns()]
    if not len(responding):
        notes.append("no row has a response: this client adds nothing, and all its areas are predicted")
    if empty := file.d - len(np.unique(area[responding])):
        notes.append(f"{empty} of {file.d} areas have no response: they are predicted, as if that did not depend on their counts")
    if some := int(observed.censored.sum()):
        notes.append(f"{some} counts are known by an interval (data.censored)")
    counts = np.bincount(area, minlength=file.d)
    if data.area is not None and (absent := int((counts == 0).sum())):
        notes.append(f"{absent} of {file.d} areas stand in no row: they are predicted at the covariates' means")
    if period is not None:
        pairs = len(np.unique(area * len(data.periods) + period))
        if lacking := file.d * len(data.periods) - pairs:
            notes.append(f"{lacking} pairs of the {file.d} areas and {len(data.periods)} periods stand in no row")
        if empty_periods := len(data.periods) - len(np.unique(period[responding])):
            notes.append(f"{empty_periods} of {len(data.periods)} periods have no response here: other clients' decide")
    elif data.area is not None and (several := int((counts > 1).sum())):
        notes.append(f"{several} of {file.d} areas stand in several rows, each an observation of its own")
    if intervals is None and not private and (nothing_else := _one_sided(family, y[responding])):
        notes.append(nothing_else)
    with np.errstate(over="ignore"):
        exposed = np.exp(offset) if family.link == "log" else np.ones(len(offset))
        if data.exposure is not None:
            exposed = np.where(exposed_rows, exposed, 0.0)
    faults = read.unread.faults if read.unread.faults.rows else design.faults
    return AreaRows(observed, area, X, exposed, tuple(notes), faults, nothing, responding, period, protected, unread)


def _protected(read: Reading) -> tuple[Array, NDArray[np.bool_], Array]:
    """Returns the same as `_response` for a private job, in which every row has a count, and a bad cell counts as 0.

    A case more or less moves a count by no more than 1, also where a cell has more than can be.
    """
    column = read.table.columns[read.data.response]
    y = column.numbers() if isinstance(column, Text) else np.array(column, np.float64)
    y = np.where(np.isfinite(y) & (y == np.floor(y)), np.clip(y, 0, MOST_CASES), 0.0)
    return y, np.ones(len(y), bool), y


def _odd(read: Reading, counted: NDArray[np.int64]) -> list[str]:
    """Returns the note for the holder about cells that are no counts."""
    name = read.data.response
    column = read.table.columns[name]
    given = column.numbers() if isinstance(column, Text) else np.array(column, np.float64)
    odd = ~(given == counted)
    if not odd.any():
        return []
    places = ", ".join(read.table.place(int(row)) for row in _first(odd))
    return [
        f"column {name!r}: {odd.sum()} cells are no counts of 0, 1, .. (or more than the trials): empty ones, texts and numbers "
        f"below 0 count as 0, and noise is added to these like to all others ({places}); suppressed cells such as <5 are not "
        "protected, for one case more makes several of them: give the counts"
    ]


def _one_sided(family: Family, y: Array) -> str:
    """Says that next to none of the responses, or all of them, are events; "" where they are mixed."""
    if not len(y) or not (family.counted or family.binary):
        return ""
    what = "count" if family.counted else "response"
    if (events := y.sum()) <= 1:
        return "there is one event in all: other clients' rows and the prior decide" if events else f"every {what} is 0"
    return f"every {what} is 1" if family.binary and events == len(y) else ""


def _response(read: Reading) -> tuple[Array, NDArray[np.bool_], Array]:
    """Returns values (for a count that is an interval, its least), which rows have one, and the largest value that may be."""
    table, data, family = read.table, read.data, read.family
    name = data.response
    column = table.columns[name]
    if data.positive is not None:
        texts = np.array(table.cells(name), dtype=object)
        seen = np.array([text.lower() not in MISSING for text in texts])
        y = (texts == label(data.positive)).astype(float)
        return y, seen, y
    y = column.numbers() if isinstance(column, Text) else np.array(column, np.float64)
    seen = np.isfinite(y)
    empty, last = np.isnan(y), y.copy()
    if isinstance(column, Text):
        empty = np.array([level.lower() in MISSING for level in column.levels])[column.codes]
        for cell, (low, high) in data.censored.items():
            those = np.array([level.strip() == cell for level in column.levels])[column.codes]
            y, last, seen, empty = np.where(those, low, y), np.where(those, high, last), seen | those, empty & ~those
    remedy = "is no number; correct it, or leave the cell empty to have it predicted"
    if family.counted:
        remedy += ', or name what it stands for (data.censored), such as "<5" = [0, 4]'
    read.refuse(~seen & ~empty, name, remedy)
    if family.binary:
        read.refuse(seen & ~family.domain.has(y), name, "is not 0 or 1; name the label that counts as 1 in data.positive")
    if family.counted:
        read.refuse(seen & ~family.domain.has(y), name, "is no count (0, 1, 2, ...)")
        read.refuse(seen & (y > MOST_COUNTED), name, "is too large for a count: beyond 2^53 whole numbers have gaps")
    read.refuse(too_large(y), name, f"is too large; {TOO_LARGE}")
    return np.where(seen, y, 0.0), seen, np.where(seen, last, 0.0)


def _areas(read: Reading, file: OwnFile) -> Indices:
    """Returns the decoder's coordinate to which each row belongs."""
    table, data, who = read.table, read.data, read.who
    if data.area is not None:
        if not file.areas:
            raise JobError(f"{who}: the prior is over locations and has no areas; give data.location instead of data.area")
        index = {area: i for i, area in enumerate(file.areas)}
        names = table.cells(data.area)
        island = np.array([area in file.islands for area in names])
        remedy = "remove the row, or make the prior with it (link, or independent)"
        read.refuse(island, data.area, f'is an island that the prior leaves out (data.islands = "drop"); {remedy}')
        unknown = np.array([area not in index for area in names])
        zeros_lost = zeros([name for name, new in zip(names, unknown) if new], file.areas)
        make = "build" if file.common.within else "train"
        lost = ""  # no cell: others read it
        if zeros_lost:
            lost = " (it is there with other leading zeros: a spreadsheet drops them)"
        read.refuse(
            unknown, data.area, f"is no area of this client in the prior{lost}; correct it, or {make} a prior that has it"
        )
        return np.array([index[area] for area in names], np.int64)
    if file.common.kind != "gp" or file.locations is None:
        raise JobError(f"{who}: the prior is over areas, not over locations; give data.area instead of data.location")
    grid = file.locations
    if grid.shape[1] != len(data.location):
        raise JobError(f"{who}: data.location names {len(data.location)} columns, and the prior's grid has {grid.shape[1]}")
    place = np.column_stack([read.numbers(name) for name in data.location])
    nearest = np.array([int(np.argmin(((grid - row) ** 2).sum(axis=1))) for row in place], np.int64)
    off = np.abs(grid[nearest] - place)
    steps = np.array([_step(column) for column in grid.T])
    away = np.asarray((off > 0.5 * steps * (1 + 1e-9)).any(axis=1))
    read.refuse(away, data.location[0], "is farther than half a step from every grid point of this client in the prior")
    return nearest


def _period(read: Reading) -> Indices | None:
    """Returns the job's period to which each row belongs; None where it has none."""
    data, name = read.data, read.data.period
    if name is None:
        return None
    index = {period: i for i, period in enumerate(data.periods)}
    cells = [cell.strip() for cell in read.table.cells(name)]
    unknown = np.array([cell not in index for cell in cells])
    read.refuse(unknown, name, "is none of data.periods; correct it, or list it there in all parties' job files")
    return np.array([index[cell] for cell in cells], np.int64)


def _refuse_pairs(read: Reading, area: Indices, period: Indices, file: OwnFile) -> None:
    """Refuses two rows of one area and period: a line that was copied twice would count twice."""
    table, periods = read.table, read.data.periods
    pairs, counts = np.unique(area * len(periods) + period, return_counts=True)
    several = pairs[counts > 1]
    if not len(several):
        return
    pairs_named = []
    for pair in several[:LISTED]:
        i, t = divmod(int(pair), len(periods))
        places = ", ".join(table.place(int(k)) for k in np.flatnonzero((area == i) & (period == t)))
        pairs_named.append(f"{file.areas[i]!r} in {periods[t]!r} ({places})")
    text = (
        f"{read.who}: columns {read.data.area!r} and {read.data.period!r}: {len(several)} pairs of an area and a period stand in "
        'several rows; give each one row; or set data.rows_per_area = "any" if rows are observations of their own (groups)'
    )
    raise OwnFault(text, text, [f"in several rows: {', '.join(pairs_named)}"], HINT)


def _refuse_counts(read: Reading, area: Indices, file: OwnFile) -> None:
    """Refuses an area without exactly one row: a copied line would count twice, and a lost one be predicted."""
    table, name = read.table, read.data.area
    counts = np.bincount(area, minlength=file.d)
    several, absent = np.flatnonzero(counts > 1), np.flatnonzero(counts == 0)
    reasons, places_named = [], []
    if len(several):
        reasons.append(f"{len(several)} of its {file.d} areas in the prior stand in several rows")
        places = [f"{file.areas[i]!r} ({', '.join(table.place(int(k)) for k in np.flatnonzero(area == i))})" for i in several]
        places_named.append(f"in several rows: {', '.join(places[:LISTED])}")
    if len(absent):
        reasons.append(f"{len(absent)} of its {file.d} areas in the prior stand in none")
        places_named.append(f"in none: {', '.join(repr(file.areas[i]) for i in absent[:LISTED])}")
    if reasons:
        remedy = (
            "give each one row, with an empty response where it is to be predicted; or set "
            'data.rows_per_area = "any" if rows are observations of their own (years, groups)'
        )
        text = f"{read.who}: column {name!r}: {' and '.join(reasons)}; {remedy}"
        raise OwnFault(text, text, places_named, HINT)


def _step(values: Array) -> float:
    """Returns the largest gap between neighbouring coordinates of the grid."""
    distinct = np.unique(values)
    return float(np.diff(distinct).max()) if len(distinct) > 1 else np.inf
