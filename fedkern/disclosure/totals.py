"""Judges rules on sums on all clients' rows together, where clients mask their sums, and each adds up by itself what all count.

Whoever knows its own rows reads from a sum that of the others. So a rule holds where it holds of all rows, and of all but this
client's. Of a thing that no other client has, all rows are this client's own.

Of a column of numbers rows are counted that differ from the most frequent value of their own client. Of rows together, no fewer
differ from any one value. As the fit weighs them, rows are weighed by the fit of their own client, whose prior has one part in
as many as there are clients: a fit of all rows together is bound by it no more.

Source: docs/concepts/secure-sums.md, "Rules on sums".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..algorithms.exchanges.columns import Summary
from ..algorithms.importance.settings import ASKED_OF_ALL
from ..algorithms.importance.summaries import CELLS_OF_ALL, CELLS_OF_ONE, told
from ..arrays import Array
from ..data.cells import Text, floats, labels
from ..data.design import LEAST_OF_LEVEL
from ..data.faults import who
from ..data.formula import looked_at
from ..data.rare import differing
from ..data.table import Table
from ..errors import OwnFault
from ..models.encoding import Encoding, Spec
from .few import coefficients
from .look import Look, causes, codes_of, covered_events, groups_of, weights
from .requirement import Requirement

LAX = (
    "some holder takes jobs that differ by little from an earlier one: a second job, subtracted, would tell them; have each "
    'policy say differencing = "refuse"'
)
POOL = "take fewer columns, or more clients"
RARE = 'set disclosure.rare = "join", join rare values in all files, or put the column into data.ignore'


class Count(NamedTuple):
    """Counts rows of one kind, by their effective number."""

    of: str  # the kind, as all clients know it
    key: str  # the rule's, of [disclosure]
    least: float  # its number
    sum: float  # of the rows' weights
    squares: float  # of their squares
    none: bool = False  # whether no row of this kind is enough, too
    summary: float = math.inf  # the number where all clients together take part by a summary

    @classmethod
    def of_rows(cls, of: str, key: str, least: float, rows: Array, *, none: bool = False, summary: float = math.inf) -> Count:
        """Returns the count of rows (n,) of these weights."""
        return cls(of, key, least, float(rows.sum()), float((rows**2).sum()), none, summary)

    @property
    def remedy(self) -> str:
        """What to do where there are fewer."""
        return RARE if self.key == "rows_per_value" else POOL

    @property
    def effective(self) -> float:
        """The number of rows that weigh as much."""
        return self.sum**2 / self.squares if self.squares > 0 else 0.0


class Judged(NamedTuple):
    """Says of sums that are over enough rows whether some client's are too few by themselves, and all for values at draws."""

    small: bool
    summary: bool


def agreed(spec: Spec, encoding: Encoding) -> Spec:
    """Returns the facts of the columns with the levels, and the label of the event, that all clients have agreed on."""
    levels = {column.name: column for column in encoding.columns if column.levels is not None}
    positive = encoding.positive if encoding.positive is not None else spec.positive
    return replace(spec, columns={**spec.columns, **levels}, positive=positive)


def told_of(summary: Summary, table: Table) -> Summary:
    """Returns what a client tells of its columns: of undeclared ones the levels alone that it has in enough rows."""
    levels = dict[str, tuple[str, ...]]()
    for name, levels_here in summary.levels.items():
        cells = labels(table.columns[name])
        many = dict(zip(cells.levels, np.bincount(cells.codes, minlength=len(cells.levels)).tolist()))
        levels[name] = tuple(level for level in levels_here if many[level] >= LEAST_OF_LEVEL)
    return replace(summary, levels=levels)


def check_levels(table: Table, encoding: Encoding, client: str) -> None:
    """Refuses levels that a client has in few rows, and that nobody has in enough to tell their names (OwnFault)."""
    for column in encoding.columns:
        cells = table.columns[column.name] if column.levels is not None else None
        present = {cells.levels[code] for code in np.unique(cells.codes)} - {""} if isinstance(cells, Text) else set[str]()
        if unknown := sorted(present - {*(column.levels or ())}):
            begin = f"{who(client, table.source)}: column {column.name!r} has a level in fewer than {LEAST_OF_LEVEL} rows"
            text = f"{begin}, and no client has it in more: {RARE}, or declare the levels if others may know them"
            raise OwnFault(text, f"{text} ({', '.join(map(repr, unknown))})")


def counts(requirement: Requirement, table: Table, spec: Spec, n_clients: int) -> tuple[list[Count], list[Count]]:
    """Returns what a client of so many counts in its rows: first of all columns together, then of values.

    It is the same, in the same order, at all of them. Where a rule of the first is broken the second are not told: whoever lists
    words that a column may have is told how often each occurs only where rows are enough for so many coefficients.
    """
    requirement = replace(requirement, fit=replace(requirement.fit, part=1 / n_clients))
    rows = weights(table, spec)
    n_groups = {name: len(groups_of(table, name, rows)) for name in spec.with_effects if requirement.least_of_group}
    table, spec = looked_at(table, spec)
    p = coefficients(requirement, table, spec)
    wanted = requirement.told_up_to(p)
    least = getattr(requirement.rules, requirement.least_rows(p, intercept=spec.intercept))
    found = [Count.of_rows("rows", "rows", least, rows)]
    # Rows, or events, that the job asks for by coefficients; by a summary of all together, numbers are fewer than cells.
    columns, summary = p - requirement.intercept, None
    if requirement.summaries and requirement.rules.summary and columns > 0:
        cells = columns * (CELLS_OF_ONE if columns == 1 else CELLS_OF_ALL)
        summary = told(requirement.unknowns(p) + requirement.shapes, ASKED_OF_ALL) / cells

    def by_coefficients(of: str, least: float, weights: Array) -> Count:
        enough = math.inf if summary is None else min(least, summary)
        return Count.of_rows(of, "rows_per_coefficient", least, weights, summary=enough)

    if wanted:
        found.append(by_coefficients(f"rows for {p} coefficients", max(wanted, int(requirement.rules.linear * p)) + 1, rows))
        if spec.times:
            for cause, event in causes(table, spec):
                dying = covered_events(table, spec, rows, event)  # of their own client
                covered = np.ones(0 if dying is None else dying.covered)
                of = f"events {cause!r}" if spec.levels else "events"
                found.append(by_coefficients(of, max(requirement.rules.rows, wanted + 1), covered))
    for name, n in n_groups.items():
        of = f"groups in column {name!r}"
        found.append(Count.of_rows(of, "groups", requirement.least_of_group, np.ones(n)))
    look, least_weighed = Look.at(requirement, table, spec, rows), requirement.weighing(p)[0]
    at_fit = (by_coefficients("rows that weigh in the fit", max(look.wanted, least_weighed), fit) for fit in look.by_fit())
    return found, [*_values(look, requirement.rules.fewest_per_value if requirement.summaries else math.inf), *at_fit]


def _values(look: Look, fewer: float) -> Iterator[Count]:
    """Yields the counts of rows that share a value; `fewer`: rows that do where all clients take part by a summary."""
    for column in look.columns:
        cells, of = look.table.columns[column.name], f"rows in column {column.name!r}"
        if column.levels is None:
            sums = differing(floats(cells), look.weights)
            yield Count(f"{of} that differ from all others", "rows_per_value", look.wanted, *sums, none=True, summary=fewer)
            continue
        codes = codes_of(cells, column.levels)
        for k, level in enumerate(column.levels):
            of_level = np.where(codes == k, look.weights, 0.0)
            yield Count.of_rows(f"{of} with {level!r}", "rows_per_value", look.wanted, of_level, none=True, summary=fewer)
    if not look.family.measured:
        least, parts = look.of_response()
        for what, of_level in parts:
            of = f"rows in column {look.spec.response!r} {what}"
            yield Count.of_rows(of, "rows_per_value", least, of_level, none=True, summary=fewer)


def numbers(counts: Sequence[Count], *, small: bool, lax: bool) -> Array:
    """Returns the numbers of a client that are added.

    Parameters
    ----------
    counts : its counts
    small : whether its own rows break a rule by themselves
    lax : whether its holder takes jobs that differ by little from an earlier one
    """
    return np.array([float(small), float(lax), *(value for count in counts for value in (count.sum, count.squares))])


def judge(counts: Sequence[Count], total: Array, others: Array, client: str, source: str) -> Judged:
    """Refuses a sum over too few rows.

    Parameters
    ----------
    counts : a client's counts
    total, others : `numbers` of all clients, and of all but this one

    Raises
    ------
    OwnFault
        All rows together, or all but this client's, break a rule. Or a job without some client would be taken, too: the
        difference of two sums would be this client's own.
    """
    small, summary = bool(total[0]), False
    if not small:
        return Judged(small, summary)
    if total[1]:
        text = f"client {client!r}: some client has too few rows by itself, and {LAX}"
        raise OwnFault(text, text)
    for place, count in enumerate(counts):
        of_all, of_others = (count._replace(sum=both[2 + 2 * place], squares=both[3 + 2 * place]) for both in (total, others))
        for found, whose in ((of_all, "all clients together"), (of_others, "all clients but this one")):
            enough = found.effective >= count.least - 1e-6 or (count.none and found.squares <= 0)
            if enough or found.effective >= count.summary - 1e-6:
                summary |= not enough
                continue
            text = f"client {client!r}: {whose} have too few {count.of}, and a sum over these would tell them: {count.remedy}"
            has = f"{math.floor(found.effective + 1e-6)} {count.of}; {count.least:g} are asked for ({count.key})"
            raise OwnFault(text, f"client {client!r}, {source}: {whose} have {has}: {count.remedy}")
    return Judged(small, summary)
