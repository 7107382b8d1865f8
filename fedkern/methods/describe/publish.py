"""Makes the published numbers of a job that describes columns: rows of a tidy table, histograms, cross tables, correlations, curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...algorithms.core.masked import ALL
from ...algorithms.exchanges.described import Cells
from ...disclosure import curves, measures
from ...disclosure.cells import Parts
from ...finding import Finding
from ...jobs.publish import Fit
from ...privacy import binned
from ...privacy.binned import Interval, Noise
from ...results.stored import Stored
from ...results.verdict import Verdict
from .model import FEW, Counted, DescribeModel, Told

Array = NDArray[np.float64]
Row = dict[str, Any]
QUANTILES = {"q25": 0.25, "median": 0.5, "q75": 0.75}
LIMITS = tuple(f"{name}_{end}" for name in ("share", "mean", "sd") for end in ("q05", "q95"))  # where counts have noise
PANES = 24  # bins of a histogram of rows that are all in one process
EVERYWHERE = ""  # in the place of a client, or of a group: all of them


@dataclass(frozen=True)
class Facts:
    """Holds what the server knows.

    Attributes
    ----------
    model : the job
    ends : (columns, ends) inner ends of bins
    discrete : the columns whose values are their cells
    told : which cells all clients tell
    centre : (columns,) about which sums are
    replies : client -> its numbers; where sums are secure those of all
    noise : of one client's counts; None where they have none
    """

    model: DescribeModel
    ends: Array
    discrete: frozenset[str]
    told: Told
    centre: Array
    replies: Mapping[str, Cells]
    noise: Noise | None = None

    def of(self, client: str) -> Noise | None:
        """Returns the noise of a client's counts, or of those of all together."""
        clients = len(self.model.names) if client == EVERYWHERE else 1
        return None if self.noise is None else self.noise._replace(clients=clients)

    def few(self, name: str) -> bool:
        """Tells whether a column's cells are shown one by one: they are levels, or few values."""
        model = self.model
        return name not in model.numeric or (name in self.discrete and len(np.unique(self.ends[model.numeric.index(name)])) <= FEW)

    @property
    def whose(self) -> dict[str, Cells]:
        """The numbers of all together, and of each client."""
        numbers = zip(*(dict(_arrays(reply)).values() for reply in self.replies.values()))
        together = Cells(0, *(np.sum(of_clients, axis=0) for of_clients in numbers))
        each = {} if len(self.replies) == 1 else self.replies
        return {EVERYWHERE: together, **each}

    def groups(self) -> Iterator[tuple[str, int]]:
        """Yields the groups' names, with the first level of each."""
        if self.model.group:
            yield from ((self.label(self.model.group, part), min(part)) for part in self.told.groups)

    def label(self, name: str, part: Sequence[int]) -> str:
        """Returns the name of a part of a column's cells."""
        return " or ".join(self._labels(name, part))

    def _labels(self, name: str, part: Sequence[int]) -> list[str]:
        model, there = self.model, [cell for cell in part if cell < self.model.size(name) - 1]
        missing = ["missing"] * (len(there) < len(part))
        levels = model.columns[name].levels
        if levels is not None:
            return [*(levels[cell] for cell in there), *missing]
        ends = self.ends[model.numeric.index(name)]
        first, last = min(there, default=0), max(there, default=0)
        lower = None if first == 0 else ends[first - 1]
        upper = None if last >= len(ends) else ends[last]
        if not there:
            return missing
        if name in self.discrete and first == last and lower is not None:
            return [f"{lower:g}", *missing]
        begin = "" if lower is None else f"from {lower:g}"
        end = "" if upper is None else f"below {upper:g}"
        return [" ".join(filter(None, (begin, end))) or "any", *missing]


def fit(facts: Facts) -> Fit:
    """Makes the published result."""
    model = facts.model
    content: dict[str, Any] = {"group": model.group, "groups": [name for name, _ in facts.groups()]}
    content["rows"] = [row for name in model.shown for row in _rows(facts, name)]
    content["histograms"] = [row for name in model.numeric if name in model.shown and not facts.few(name) for row in _histogram(facts, name)]
    content["cross"] = [row for table in model.double[len(model.double) - len(model.config.model.cross) :] for row in _cross(facts, table)]
    content["correlations"] = [*_correlations(facts)]
    content |= _survival(facts)
    tables = {f"{name}.csv": _columns(content[name]) for name in ("rows", "histograms", "cross", "correlations", "survival")}
    arrays = {f"{whose}: {name}": values for whose, reply in facts.replies.items() for name, values in _arrays(reply)}
    return Fit(
        posterior=Stored({"parameters": {}}),
        arrays=arrays,
        stop="rounds",
        rounds=1,
        chains=0,
        draws=0,
        encoding=model.encoding.to_dict(),
        verdict=Verdict.of(True, "nothing is fitted: these are counts, and sums"),
        more={"describe": content},
        tables={f"described-{name}": table for name, table in tables.items() if table},
        notes=[*_notes(facts)],
        drawn=False,
    )


def _arrays(reply: Cells) -> list[tuple[str, Array]]:
    return [("counts", reply.counts), ("each", reply.each), ("pairs", reply.pairs)]


def _columns(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """Returns rows as columns of a csv file."""
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


def _notes(facts: Facts) -> Iterator[str]:
    """Yields what a reader has to know of columns."""
    model, together = facts.model, dict(facts.model.split(facts.whose[EVERYWHERE].counts))
    for name in model.shown:
        counts, last = together[Counted(name)][:, 0], model.size(name) - 1
        if counts.sum() and counts[last] == counts.sum():
            yield Finding.of("column-all-missing", column=name)
        elif _beyond(facts, name):
            yield Finding.of("bins-hold-nothing", column=name)
    if len(model.names) == 2 and not (model.here or model.config.private):
        yield Finding.of("two-clients-know-each-other")


def _beyond(facts: Facts, name: str) -> bool:
    """Tells whether the mean of a column is beyond its public limits."""
    declared = facts.model.config.data.columns.get(name)
    if name not in facts.model.numeric or declared is None or declared.lower is None or declared.upper is None:
        return False
    j = facts.model.numeric.index(name)
    rows, first, _ = facts.whose[EVERYWHERE].each[j, -1].tolist()
    return bool(rows) and not declared.lower <= facts.centre[j] + first / rows <= declared.upper


# Columns ----------


def _rows(facts: Facts, name: str) -> Iterator[Row]:
    """Yields the rows of one column: of all clients and each, in all rows and in each group."""
    parts = facts.told.of[Counted(name)]
    by_group = facts.told.of.get(Counted(name, facts.model.group)) if facts.model.group else None
    for client, reply in facts.whose.items():
        counts = dict(facts.model.split(reply.counts))
        if parts is not None:
            yield from _of_column(facts, name, client, EVERYWHERE, counts[Counted(name)][:, 0], parts[0], reply.each, -1)
        for group, first in facts.groups() if by_group is not None else ():
            if any(min(part) == first for part in by_group[1]):
                own = counts[Counted(name, facts.model.group)][:, first]
                yield from _of_column(facts, name, client, group, own, by_group[0], reply.each, first)


def _of_column(
    facts: Facts, name: str, client: str, group: str, counts: Array, parts: Parts, each: Array, at: int
) -> Iterator[Row]:
    """Yields a row with a column's numbers, and one for each part of its cells, where these are levels or values."""
    model, last = facts.model, facts.model.size(name) - 1
    total = counts.sum()
    missing = counts[last] if (last,) in parts else None  # else few lack a cell, or none
    n = total - (missing or 0)
    head = {"column": name, "level": "", "client": client, "group": group, "n": int(n), "missing": _whole(missing)}
    row = {**head, "count": None, "share": None, "mean": None, "sd": None, **dict.fromkeys(QUANTILES)}
    noise, numeric = facts.of(client), name in model.numeric
    row |= dict.fromkeys(LIMITS) if noise else {}
    if numeric and noise:
        row |= _noisy(facts, name, counts[:-1], noise)
    elif numeric:
        row |= _moments(facts, name, counts, parts, each, at) | _quantiles(facts, name, counts, parts)
    yield {**row}
    if not facts.few(name):
        return
    row |= dict.fromkeys(("mean", "sd", *QUANTILES, *(LIMITS if noise else ())))
    for part in parts:
        if part != (last,) and (counts[min(part)] or not numeric):
            count = counts[min(part)]
            row |= {"level": facts.label(name, part), "count": int(count), "share": float(count / n) if n else None}
            if noise:
                row |= _limits("share", binned.share(counts[:-1], noise, min(part)))
            yield {**row}


def _limits(name: str, interval: Interval) -> Row:
    """Returns an estimate with the ends of its 90 % interval."""
    return {name: interval.value + 0.0, f"{name}_q05": interval.lower, f"{name}_q95": interval.upper}


def _noisy(facts: Facts, name: str, counts: Array, noise: Noise) -> Row:
    """Returns numbers of noisy bins, with intervals that contain the noise."""
    declared = facts.model.config.data.columns[name]
    ends = [declared.lower, *facts.ends[facts.model.numeric.index(name)].tolist(), declared.upper]
    row = _limits("mean", binned.mean(counts, noise, ends)) | _limits("sd", binned.sd(counts, noise, ends))
    return row | {key: binned.quantile(counts, noise, ends, share).value for key, share in QUANTILES.items()}


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _moments(facts: Facts, name: str, counts: Array, parts: Parts, each: Array, at: int) -> Row:
    """Returns mean and standard deviation: of sums, or of counts where each value has its own cell and there are three or more."""
    j = facts.model.numeric.index(name)
    rows, first, second = each[j, at].tolist()
    centre = facts.centre[j]
    if rows < 2 and name in facts.discrete and all(len(part) == 1 for part in parts) and np.count_nonzero(counts[:-1]) > 2:
        weights, values = counts[1:-1], facts.ends[j]
        rows, centre = weights.sum(), 0.0
        first, second = weights @ values, weights @ values**2
    if rows < 2:
        return {"mean": float(centre + first) if rows else None}
    mean, sd = float(centre + first / rows), float(max((second - first**2 / rows) / (rows - 1), 0.0) ** 0.5)
    if facts.model.here:
        return {"mean": mean, "sd": sd}
    return {"mean": measures.rounded(mean, sd / rows**0.5), "sd": measures.rounded(sd, sd / (2 * rows) ** 0.5)}


def _quantiles(facts: Facts, name: str, counts: Array, parts: Parts) -> Row:
    """Returns quantiles: values where these are cells, else ends of bins."""
    inside = [part for part in parts if min(part) < facts.model.size(name) - 1]
    weights = np.array([counts[min(part)] for part in inside])
    if not weights.sum():
        return {}
    ends = facts.ends[facts.model.numeric.index(name)]
    cumulative, found = np.cumsum(weights) / weights.sum(), dict[str, float]()
    order = sorted(range(len(inside)), key=lambda k: min(inside[k]))
    for key, share in QUANTILES.items():
        k = order[int(np.searchsorted(cumulative, share - 1e-12))]
        cells = [cell for cell in inside[k] if cell < facts.model.size(name) - 1]
        lower, upper = ends[max(min(cells) - 1, 0)], ends[min(max(cells), len(ends) - 1)]
        before = cumulative[k] - weights[k] / weights.sum()
        nearer = lower if share - before <= cumulative[k] - share else upper
        found[key] = float(lower if name in facts.discrete else nearer)
    return found


def _histogram(facts: Facts, name: str) -> Iterator[Row]:
    """Yields the rows in each bin; where each cell is told, wider ones."""
    told, ends = facts.told.of[Counted(name)], facts.ends[facts.model.numeric.index(name)]
    if told is None:
        return
    parts = [[cell for cell in part if cell < facts.model.bins] for part in told[0]]
    if facts.model.here:
        wide = ends[:: len(ends) // PANES] if name not in facts.discrete else np.linspace(ends[0], ends[-1], PANES + 1)
        bins = np.append(0, np.searchsorted(wide, ends, side="right"))
        parts, ends = [np.flatnonzero(bins == k).tolist() for k in range(len(wide) + 1)], wide
    for client, reply in facts.whose.items():
        counts = dict(facts.model.split(reply.counts))[Counted(name)][:, 0]
        for k, cells in enumerate(parts):
            first, last = (k, k) if facts.model.here else (min(cells, default=0), max(cells, default=0))
            begin, end = (None if first == 0 else float(ends[first - 1])), (None if last >= len(ends) else float(ends[last]))
            if cells and begin != end:
                yield {"column": name, "client": client, "from": begin, "to": end, "count": int(counts[cells].sum())}


# Two columns ----------


def _cross(facts: Facts, table: Counted) -> Iterator[Row]:
    """Yields the cells of a cross table."""
    parts = facts.told.of[table]
    for client, reply in facts.whose.items() if parts is not None else ():
        counts = dict(facts.model.split(reply.counts))[table]
        for p in parts[0] if parts is not None else ():
            for q in parts[1] if parts is not None else ():
                labels = facts.label(table.first, p), facts.label(table.second, q)
                head = {"first": table.first, "first_level": labels[0], "second": table.second, "second_level": labels[1]}
                yield {**head, "client": client, "count": int(counts[min(p), min(q)])}


def _correlations(facts: Facts) -> Iterator[Row]:
    """Yields the correlations of columns of numbers."""
    for client, reply in facts.whose.items():
        for (first, second), (n, x, y, xx, yy, xy) in zip(facts.model.pairs, reply.pairs.tolist()):
            spread = (xx - x * x / n) * (yy - y * y / n) if n else 0.0
            if spread > 0:
                r = float(np.clip((xy - x * y / n) / spread**0.5, -1, 1))
                yield {"first": first, "second": second, "client": client, "n": int(n), "r": r}


# Survival ----------


def _survival(facts: Facts) -> dict[str, Any]:
    """Returns curves, with those at risk, and the log-rank test between groups."""
    model, found = facts.model, dict[str, Any](survival=[], log_rank=None)
    time = model.config.model.time
    if time is None:
        return found
    grid, place = np.unique(facts.ends[model.numeric.index(time)], return_index=True)
    use = facts.told.ends[place] & (grid > 0)
    grid, place, k = grid[use], place[use], model.bins - 1
    names = [*facts.groups()] or [(EVERYWHERE, 0)]
    for client, reply in facts.whose.items():
        counts = [part for table, part in model.split(reply.counts) if table.times][0]
        own = counts[[first for _, first in names]].astype(np.int64)
        events, censored = own[:, place], own[:, k + place]
        told = curves.Counts(grid, events.sum(axis=1) + censored.sum(axis=1) + own[:, -1], events, censored)
        if not len(grid) or not told.rows.all():
            continue
        noise, at_risk = facts.of(client), told.at_risk
        values = np.stack(curves.curve(told), axis=-1) if noise is None else _noisy_curves(told, own[:, -1], noise)
        for g, (group, _) in enumerate(names):
            for i, end in enumerate(grid.tolist()):
                row = {"client": client, "group": group, "time": end, "at_risk": int(at_risk[g, i]), "events": int(events[g, i])}
                row |= {"censored": int(censored[g, i])} | dict(zip(("survival", "lower", "upper"), values[g, i].tolist()))
                found["survival"].append(row)
        if client == EVERYWHERE and len(names) > 1 and noise is None:
            found["log_rank"] = curves.log_rank(told)._asdict()
    return found


def _noisy_curves(told: curves.Counts, rest: NDArray[np.int64], noise: Noise) -> Array:
    """Returns (groups, k, 3) survival with its 90 % interval, of noisy counts; `rest` (groups,) have later times."""
    each = zip(told.events, told.censored, rest.tolist())
    with np.errstate(divide="ignore", invalid="ignore"):  # noise may leave nobody at risk
        return np.array([binned.survival(events, censored, after, noise) for events, censored, after in each])
