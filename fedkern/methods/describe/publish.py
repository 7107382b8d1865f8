"""Makes the published numbers of a job that describes columns: rows of one tidy table, correlations, and survival curves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from ...algorithms.exchanges.described import Moments
from ...arrays import Array
from ...disclosure import curves, measures
from ...disclosure.cells import Parts
from ...finding import Finding
from ...jobs.keys import ColumnSection
from ...jobs.publish import Fit
from ...models import life_table
from ...privacy import binned
from ...privacy.binned import Interval, Noise
from ...results import guard
from ...results.described import QUANTILES
from ...results.stored import Stored
from ...results.verdict import Verdict, not_judged
from .model import FEW, TIMES, Agreed, Both, Counted, DescribeModel, Told

Row = dict[str, Any]
Sums = tuple[float, float, float]
LIMITS = tuple(f"{name}_{end}" for name in ("share", "mean", "sd") for end in ("q05", "q95"))  # where parties are apart
EXACT = Noise(math.inf)
PANES = 24  # bins that are shown of rows that are all in one process
ALL = ""  # in the place of a client, a column or a level


@dataclass(frozen=True)
class Facts:
    """Holds what the server knows.

    Attributes
    ----------
    model, agreed : the job; cells and sums
    counts, moments : of all clients together, and of each that tells its own
    noise : of one client's counts; None where they have none
    """

    model: DescribeModel
    agreed: Agreed
    counts: Mapping[str, Array]
    moments: Mapping[str, Moments]
    noise: Noise | None = None

    @cached_property
    def told(self) -> Told:
        """The cells that all clients tell."""
        return self.model.told(self.agreed.told)

    @cached_property
    def tables(self) -> dict[str, dict[Counted, Array]]:
        """The counts by their tables, of all together and of each client."""
        return {client: self.model.split(counts) for client, counts in self.counts.items()}

    def sums(self, client: str, table: Counted, group: int) -> Sums:
        """Returns rows, sum and sum of squares of a column in all rows, or in a group's; zeros where they are not told."""
        if client not in self.moments or table.first not in self.model.numeric or table.second not in ("", self.model.group):
            return 0.0, 0.0, 0.0
        place = self.model.numeric.index(table.first), group if table.second else -1
        rows, first, second = self.moments[client].each[place].tolist()
        return rows, first, second

    def noise_of(self, client: str) -> Noise | None:
        """Returns the noise of a client's counts, or of those of all together."""
        clients = 1 if client else len(self.model.names)
        return None if self.noise is None else self.noise._replace(clients=clients)

    def ends_of(self, name: str) -> Array:
        """Returns the inner ends of a column's bins."""
        ends: Array = self.agreed.ends[self.model.numeric.index(name)]
        return ends

    def few(self, name: str) -> bool:
        """Tells whether a column's cells are levels, or few values."""
        return name not in self.model.numeric or (name in self.agreed.values and len(np.unique(self.ends_of(name))) <= FEW)

    def bounds(self, name: str, part: Sequence[int]) -> tuple[float | None, float | None]:
        """Returns the ends between which the numbers of a part lie; None where there is no end."""
        bins_there = [cell for cell in part if cell < self.model.bins]
        ends = [None, *self.ends_of(name).tolist(), None]
        return ends[min(bins_there)], ends[max(bins_there) + 1]

    def intervals(self, name: str, parts: Parts) -> Array | None:
        """Returns (parts, 2) between which numbers lie, values that are cells exactly; None where nobody knows.

        Behind the first and the last end lie the limits that the job file gives.
        """
        last, declared = self.model.bins, self.model.declared.get(name, ColumnSection())
        if any(last in part and len(part) > 1 for part in parts):  # which of its rows are missing ones is not told
            return None
        ends = self.ends_of(name)
        if name in self.agreed.values:
            of_cells = np.stack([np.append(ends[0], ends)] * 2, axis=-1)
        elif declared.lower is None or declared.upper is None:
            return None
        else:
            of_cells = np.stack([np.append(declared.lower, ends), np.append(ends, declared.upper)], axis=-1)
        return np.array([[of_cells[min(part), 0], of_cells[max(part), 1]] for part in parts if last not in part])

    def label(self, name: str, part: Sequence[int]) -> str:
        """Returns the name of a part of a column's cells; "" of no column."""
        if not name:
            return ""
        cells_there = [cell for cell in part if cell < self.model.size(name) - 1]
        missing, levels = ["missing"] * (len(cells_there) < len(part)), self.model.columns[name].levels
        if levels is not None or not cells_there:
            return " or ".join([*((levels or ())[cell] for cell in cells_there), *missing])
        low, high = self.bounds(name, cells_there)
        words = " ".join(f"{word} {end:g}" for word, end in (("from", low), ("below", high)) if end is not None) or "any"
        return " or ".join([*([f"{value:g}" for value in self.values_of(name, part)] or [words]), *missing])

    def values_of(self, name: str, part: Sequence[int]) -> list[float]:
        """Returns the values that are a part of a column's cells; none where these are bins."""
        cells = [cell - 1 for cell in part if 0 < cell < self.model.bins]
        return np.unique(self.ends_of(name)[cells]).tolist() if name in self.agreed.values and self.few(name) else []


def fit(facts: Facts) -> Fit:
    """Makes the published result."""
    model = facts.model
    content: dict[str, Any] = {
        "group": model.group,
        "event": model.event,
        "rows": [row for table in (*model.single, *model.double) for row in _rows(facts, table)],
    }
    content |= {"correlations": _correlations(facts), "survival": [], "log_rank": None}
    if model.time:
        content |= _survival(facts, model.time)
        content["rows"] += _events(facts)
    tables = {f"described-{name}.csv": content[name] for name in ("rows", "correlations", "survival")}
    return Fit(
        posterior=Stored({"parameters": {}}),
        arrays={f"{client}: counts": counts for client, counts in facts.counts.items()}
        | {f"{client}: {name}": getattr(sums, name) for client, sums in facts.moments.items() for name in ("each", "pairs")},
        stop="rounds",
        rounds=1,
        chains=0,
        draws=0,
        encoding=model.encoding.to_dict(),
        verdict=_verdict(),
        more={"describe": content},
        tables={name: {key: [row[key] for row in rows] for key in rows[0]} for name, rows in tables.items() if rows},
        notes=_notes(facts),
        drawn=False,
    )


@guard.check("the judging of the result", not_judged("no check is known"))
def _verdict() -> Verdict:
    """Returns that there is nothing to be judged."""
    return Verdict.of(True, "nothing is fitted: these are counts, and sums")


@guard.figure("notes on columns", [])
def _notes(facts: Facts) -> list[str]:
    """Returns what a reader has to know of columns."""
    found = list[str]()
    model, counts = facts.model, facts.tables[ALL]
    for name in model.shown:
        of_column, declared = counts[Counted(name)][:, 0], model.declared.get(name)
        if of_column.sum() and of_column[-1] == of_column.sum():
            found.append(Finding.of("column-all-missing", column=name))
        elif name in model.numeric and declared is not None and declared.lower is not None and declared.upper is not None:
            mean = facts.agreed.scale[model.numeric.index(name), 0]  # 0: not known
            if mean and not declared.lower <= mean <= declared.upper:
                found.append(Finding.of("bins-hold-nothing", column=name))
    if model.time and not _survival(facts, model.time).get("survival"):
        found.append(Finding.of("no-curve"))
    if len(model.names) == 2 and not (model.here or model.private):
        found.append(Finding.of("two-clients-know-each-other"))
    return found


# Columns ----------


def _rows(facts: Facts, table: Counted) -> Iterator[Row]:
    """Yields the rows of one column, of all clients and of each: in all rows, or in the rows of each level of another column."""
    told: Both = facts.told[table] or ((), ())
    last = facts.model.size(table.second) - 1
    for (client, tables), second in product(facts.tables.items(), told[1]):
        if not table.second or second != (last,):
            sums = facts.sums(client, table, min(second))
            yield from _of_column(facts, table, client, second, tables[table][:, min(second)], told[0], sums)


def _of_column(
    facts: Facts, table: Counted, client: str, second: Sequence[int], counts: Array, parts: Parts, sums: Sums
) -> Iterator[Row]:
    """Yields a row with a column's numbers, and one for each part of its cells."""
    name, last, noise = table.first, len(counts) - 1, facts.noise_of(client)
    missing = counts[last] if (last,) in parts else None  # else few lack a cell
    n = counts.sum() - (missing or 0)
    row = _row(facts, name, client, table.second, facts.label(table.second, second), n, missing)
    yield {**row, **(_numbers(facts, name, counts, parts, sums, noise) if name in facts.model.numeric else {})}
    shown = [part for part in _shown(facts, name, parts) if counts[list(part)].sum() or name not in facts.model.numeric]
    for part in shown:
        binned_part = name in facts.model.numeric and not facts.values_of(name, part)
        if len(shown) == 1 and (binned_part or len(part) > 1):  # all rows are there, whatever their cells
            continue
        low, high = facts.bounds(name, part) if binned_part else (None, None)
        counted = _counted(counts if noise is None else counts[:-1], part, noise, n)
        yield {**row, "level": facts.label(name, part), "from": low, "to": high, **counted}


def _row(facts: Facts, column: str, client: str, by: str, group: str, n: float, missing: float | None) -> Row:
    """Returns a row of a column of which only rows with a cell, and without, are known."""
    row: Row = {"column": column, "level": "", "from": None, "to": None, "client": client, "by": by, "group": group, "n": int(n)}
    row |= {"missing": None if missing is None else max(int(missing), 0), "count": None, "share": None}
    limits = () if facts.model.here else LIMITS
    return row | dict.fromkeys(("mean", "sd", *QUANTILES, *(f"{key}_in" for key in QUANTILES), *limits))


def _counted(counts: Array, part: Sequence[int], noise: Noise | None, n: float) -> Row:
    """Returns rows and share of a part, with its limits where counts (of cells that are not missing) have noise."""
    count = counts[list(part)].sum()
    share = {"share": float(count / n) if n else None} if noise is None else _limits("share", binned.share(counts, noise, part))
    return {"count": max(int(count), 0), **share}


@guard.figure("events", [])
def _events(facts: Facts) -> list[Row]:
    """Returns the events of all clients and of each, as rows of their column: in all rows of told groups, and in each group."""
    model, found = facts.model, list[Row]()
    table, exits = Counted(TIMES, model.group), 2 * model.bins
    if (told := facts.told[table]) is None or any(min(part) < model.bins <= max(part) for part in told[0]):
        return found
    inside = [cell for part in told[0] if max(part) < model.bins for cell in part]  # else few later events are not told
    groups = {ALL: [cell for part in told[1] for cell in part]}
    last = model.size(model.group) - 1
    groups |= {facts.label(model.group, part): [*part] for part in told[1] if model.group and part != (last,)}
    for client, tables in facts.tables.items():
        for label, group in groups.items():
            counts = tables[table][:, group].sum(axis=1)
            n, missing = counts[:exits].sum(), counts[-1] if (len(counts) - 1,) in told[0] else None
            row = _row(facts, model.event_column, client, model.group if label else "", label, n, missing)
            counted = _counted(counts[:exits], inside, facts.noise_of(client), n)
            found += [row, {**row, "level": model.event_label, **counted}]
    return found


def _shown(facts: Facts, name: str, parts: Parts) -> Parts:
    """Returns the parts that are shown: but those of missing cells; of many cells that are told one by one, wider ones."""
    last = facts.model.size(name) - 1
    if facts.few(name) or not facts.model.here:
        return tuple(part for part in parts if part != (last,))
    ends = facts.ends_of(name)
    wide = np.linspace(ends[0], ends[-1], PANES + 1) if name in facts.agreed.values else ends[:: len(ends) // PANES]
    pane = np.append(0, np.searchsorted(wide, ends, side="right"))
    return tuple(tuple(np.flatnonzero(pane == k).tolist()) for k in np.unique(pane))


def _numbers(facts: Facts, name: str, counts: Array, parts: Parts, sums: Sums, noise: Noise | None) -> Row:
    """Returns mean, sd and quantiles: mean and sd of sums, else of counts of more than two parts whose ends are known.

    A quantile lies between two rows, as R's does. It is a number where their values are cells; else `q25_in` and so on name the
    bins of these rows, which are several where missing cells stand in a bin: any number of its rows may be missing ones. Of
    noisy counts it is an end, and of 1,000 bins the nearest one.
    """
    (rows, first, second), row, last = sums, dict[str, Any](), len(counts) - 1
    inside, intervals = [part for part in parts if min(part) < last], facts.intervals(name, parts)
    of_parts = np.array([counts[min(part)] for part in inside])
    if rows > 1:
        mean = float(facts.agreed.scale[facts.model.numeric.index(name), 0] + first / rows)
        sd = float(max((second - first**2 / rows) / (rows - 1), 0.0) ** 0.5)
        # What clients add is rounded already: digits that say nothing go.
        error = 0.0 if facts.model.here else sd / rows**0.5 / 10
        row = {"mean": measures.rounded(mean, error), "sd": measures.rounded(sd, error / 2**0.5)}
    elif not facts.model.here and intervals is not None and np.count_nonzero(of_parts) > 2:
        row = _limits("mean", binned.mean(of_parts, noise or EXACT, intervals))
        row |= _limits("sd", binned.sd(of_parts, noise or EXACT, intervals))
    if noise and intervals is not None:
        return row | {key: binned.quantile(of_parts, noise, intervals, share).value for key, share in QUANTILES.items()}
    until = np.cumsum(of_parts)
    without = np.cumsum([counts[min(part)] * (last not in part) for part in inside])  # as if all such rows were missing ones
    for key, share in QUANTILES.items() if len(until) and without[-1] else ():
        place = (until[-1] - 1) * share
        (low, high), rest = (
            np.searchsorted(of, [math.floor((of[-1] - 1) * share), math.ceil((of[-1] - 1) * share)], side="right").tolist()
            for of in (until, without)
        )
        if intervals is not None and not np.ptp(intervals[[low, high]], axis=1).any():
            row[key] = float(np.interp(place % 1, [0, 1], intervals[[low, high], 0]))
            continue
        between = [cell for part in inside[min(low, *rest) : max(high, *rest) + 1] for cell in part if cell < last]
        row[f"{key}_in"], ends = facts.label(name, between), facts.bounds(name, between)
        if facts.model.here and None not in ends:
            row[key] = ends[int(place + 0.5 > (until[low] + (until[low - 1] if low else 0)) / 2)]
    return row


def _limits(name: str, interval: Interval) -> Row:
    """Returns an estimate with the ends of its 90 % interval."""
    return {name: interval.value + 0.0, f"{name}_q05": interval.lower, f"{name}_q95": interval.upper}


# Two columns of numbers, and times ----------


@guard.figure("correlations", [])
def _correlations(facts: Facts) -> list[Row]:
    """Returns the correlations of columns of numbers."""
    found = list[Row]()
    for client, sums in facts.moments.items():
        for (first, second), (n, x, y, xx, yy, xy) in zip(facts.model.pairs, sums.pairs.tolist()):
            if n and (spread := (xx - x * x / n) * (yy - y * y / n)) > 0:
                r = float(np.clip((xy - x * y / n) / spread**0.5, -1, 1))
                r = r if facts.model.here else measures.rounded(r, n**-0.5 / 10)
                known = int(n) if facts.model.here else None  # else few rows may lack a cell, which are not told
                found.append({"first": first, "second": second, "client": client, "n": known, "r": r})
    return found


@guard.figure("survival curves", {})
def _survival(facts: Facts, time: str) -> Row:
    """Returns curves, with those at risk, and the log-rank test between groups."""
    table, model = Counted(TIMES, facts.model.group), facts.model
    found, test, told = list[Row](), None, facts.told[table] or ((), ())
    groups = [part for part in told[1] if not model.group or part != (model.size(model.group) - 1,)]
    for client, tables in facts.tables.items() if groups else ():
        noise, of_groups = facts.noise_of(client), tables[table][:, [min(part) for part in groups]].T
        life = curves.counts_of(told[0], of_groups, facts.ends_of(time), exact=model.here and time in facts.agreed.values)
        followed = (life.exposed.sum(axis=0) > 0) & (np.diff(life.ends, prepend=-np.inf) > 0)
        if not followed.any() or not life.rows.all():
            continue
        values = np.stack(life_table.curve(life), axis=-1) if noise is None else binned.survival(life, noise)
        if client == ALL and len(groups) > 1 and noise is None and (model.here or life_table.covered(life)):
            test = life_table.log_rank(life)._asdict()
        for g, i in np.ndindex(life.events.shape):
            row: Row = {"client": client, "group": facts.label(model.group, groups[g])}
            row |= {"time": float(life.ends[i]), "at_risk": int(life.at_risk[g, i])}
            row |= {} if life.entered is None else {"entered": int(life.entered[g, i])}
            row |= {"events": int(life.events[g, i]), "censored": int(life.censored[g, i])}
            found += [row | dict(zip(("survival", "lower", "upper"), values[g, i].tolist()))] * bool(followed[i])
    return {"survival": found, "log_rank": test}
