"""Finds the rules of disclosure control that a client's rows break, in an open job: where it lives, before anything leaves.

The messages of an open client are functions of its rows, and with few rows they are these rows. All rules that its rows break are
found at once, for its holder. No message, no text for others and no exit code depends on how many rows it has.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from ..algorithms.importance.summaries import CELLS, told
from ..data.cells import Text, labels, no_number
from ..data.design import LEAST_OF_LEVEL, column_of, with_event
from ..data.formula import looked_at
from ..data.joined import find_rare, gone_of, with_other
from ..data.table import Table
from ..finding import Value
from ..kernels.families import FAMILIES
from ..models.encoding import OTHER, Spec
from .combinations import Combinations, combinations
from .counting import LEAST_AT_RISK, counted, covered_events, weights
from .look import Look, events, of_a_value
from .refusals import Broken, Few
from .requirement import Requirement
from .rules import COARSE_ROWS, EQUATIONS, Rules, told_up_to, with_keys

Array = NDArray[np.float64]

JOIN = "join-rare"  # the remedy for rare levels
WIDE = 0.25  # of the coefficients: a column that takes more is named where they are too many
NEARLY = 1e-9  # what sums of weights lose
OF_A_SUMMARY = 12  # rows, by their effective number, of a client that takes part by a summary


def find_few(asked: Requirement, table: Table, spec: Spec, client: str, more: Sequence[str] = ()) -> Few | None:
    """Returns the rules, of the job and of the client's holder, that its rows break; None if they break none.

    What is proposed is judged by the same rules: where levels that join would do, what is said beside it is of rows whose levels
    have joined; and a rule that rows break only where the others are lowered is said with these. So all that is proposed, done at
    once, has these rows taken.

    `more`: ids of other remedies.
    """
    spec = with_event(spec, table)
    if asked.rules == Rules():
        return None
    every, lowered = dict[object, Broken](), dict[str, float]()
    now, mended, broken = asked, table, [*_broken(asked, table, spec, client)]
    if joins := [one for one in broken if JOIN in one.remedies]:
        joined = join_rare(asked, table, spec)
        if _joinable(joined):
            every, mended, broken = {one.about: one for one in joins}, joined, [*_broken(asked, joined, spec, client)]
        else:
            joins, broken = [], [one._replace(remedies=tuple(way for way in one.remedies if way != JOIN)) for one in broken]
    while lower := _lowered(broken, lowered):
        every |= {one.about: every.get(one.about, one) for one in broken}
        lowered |= lower
        now = replace(now, rules=with_keys(now.rules, lower))
        mended = join_rare(now, table, spec) if joins else mended
        broken = [*_broken(now, mended, spec, client)]
    every |= {one.about: one for one in broken if one.by_summary}
    found = [one if one.by_summary else one._replace(enough=lowered.get(one.key, one.enough)) for one in every.values()]
    return Few(found, [one.refusal(asked, client, table.source, more) for one in found]) if found else None


def _lowered(broken: Sequence[Broken], before: Mapping[str, float]) -> dict[str, float]:
    """Returns the numbers to which rules are lowered once more, with which these rows would do; none where that helps no more."""
    now = dict[str, float]()
    for one in broken:
        best = max if one.key == "leverage" else min
        if not one.by_summary and (number := best(one.enough, before.get(one.key, one.enough))) != before.get(one.key):
            now[one.key] = best(number, now.get(one.key, number))
    return now


def _joinable(joined: Table) -> bool:
    """Tells whether two levels of each column are left beside those that have joined: at another client these may be others."""
    every = (cells for cells in joined.columns.values() if gone_of(cells))
    return all(isinstance(cells, Text) and len({*cells.levels} - {OTHER}) > 1 for cells in every)


def join_rare(
    asked: Requirement, table: Table, spec: Spec, earlier: Mapping[str, Collection[str]] = MappingProxyType({})
) -> Table:
    """Returns a client's table with "other" in the place of its rare levels; `earlier`: those of an earlier job."""
    least, rows, columns = of_a_value(asked, spec.family), weights(table, spec), dict(table.columns)
    for name in spec.covariates(table.names):
        if (levels := column_of(spec, table, name).levels) is None:
            continue
        cells = labels(columns[name])
        gone, first = find_rare(cells, levels, rows, least), {*earlier.get(name, ())} & {*cells.levels}
        if first and not find_rare(with_other(cells, first), (*levels, OTHER), rows, least):
            gone = frozenset(first)
        columns[name] = with_other(cells, gone) if gone else columns[name]
    return replace(table, columns=columns)


def _broken(asked: Requirement, table: Table, spec: Spec, client: str) -> Iterator[Broken]:
    """Yields the rules that a client's rows break."""
    rules = asked.rules
    # A message is made of a batch, so the rows of a batch are counted.
    n = int(counted(table, spec) * asked.batch + 1e-9)
    rows = weights(table, spec)
    if not asked.looks_at_values or not table.n_rows:  # of no row there is no column of a formula either
        yield from _rows(asked, table, n, "rows")
        return
    every = combinations(table, spec, rows) if rules.combinations and asked.tells_combinations else None
    of_file, of_job = table, spec
    table, spec = looked_at(table, spec, client)  # the columns that a formula makes
    p = coefficients(asked, table, spec)
    # Names of levels, and which columns have one value, leave each client without a mask.
    yield from _rows(asked, of_file, n, "rows_per_value" if asked.summed else least_rows(asked, spec, p))
    if not n:
        return
    found = list[Broken]()
    if not asked.summed:
        found += [*_of_curvature(asked, table, spec, n, p), *_of_events(asked, table, spec, p, weights(table, spec))]
    if not table.broken:  # rows that cannot be read end the job, with a text of their own
        found += [] if asked.summed else _of_groups(asked, of_file, of_job, rows)
        found += _of_combinations(asked, table, spec, n, every)
        # Covariates are left out where each combination of their values is in enough rows.
        covariates = every is None or bool((every.rows * asked.batch < rules.combinations - NEARLY).any())
        alike = Look.at(asked, table, spec, rows).few(covariates=covariates, weighing=asked.weighing(p))
        found += (one._replace(of_values=True) for one in alike)
    # Rows a coefficient are counted, and again as the fit weighs them: the first says it, with a number that does for both.
    per_coefficient = [one for one in found if one.key == "rows_per_coefficient"]
    enough = min((one.enough for one in per_coefficient), default=0)
    columns = sum(_levels(table, spec).values())
    summed = (
        asked.small_by_summary
        and rules.summary > 0
        and enough >= rules.summary
        and enough * p >= (rules.rows_of_one_column if p <= 2 else OF_A_SUMMARY)
        and told(asked.unknowns(columns + spec.intercept) + asked.shapes) <= CELLS * n * columns
    )
    yield from (one._replace(enough=enough, by_summary=summed) for one in per_coefficient[:1])
    yield from (one for one in found if one.key != "rows_per_coefficient")


def least_rows(asked: Requirement, spec: Spec, coefficients: int) -> str:
    """Returns the rule for the number of rows, by its name."""
    return "rows_of_one_column" if coefficients <= 1 + spec.intercept else "rows"


def _rows(asked: Requirement, table: Table, n: int, rule: str) -> Iterator[Broken]:
    least = getattr(asked.rules, rule)
    if n < least:
        values = {"rows": n, "wanted": least, "batch": asked.batch, "incomplete": table.incomplete}
        facts = (*(["once-dropped"] if table.incomplete and asked.drops else []), *_in_a_batch(asked))
        key = rule if rule == "rows_per_value" else "rows"
        yield Broken("few-rows", key, n, values, ("pool", "private-jobs"), facts)


def _of_groups(asked: Requirement, table: Table, spec: Spec, rows: Array) -> Iterator[Broken]:
    """Yields that a client has too few groups, of rows that count; an empty label is none."""
    least = asked.least_of_group
    if not least or spec.group is None:
        return
    labels = {label for label, row in zip(table.cells(spec.group), rows.tolist()) if row and label}
    if len(labels) < least:
        values: dict[str, Value] = {"groups": len(labels), "column": spec.group, "wanted": least}
        yield Broken("few-groups", "groups", len(labels), values, ("no-groups",))


def _in_a_batch(asked: Requirement) -> tuple[str, ...]:
    return ("in-a-batch",) if asked.batch < 1 else ()


def _of_curvature(asked: Requirement, table: Table, spec: Spec, n: int, p: int) -> Iterator[Broken]:
    """Yields that a client has too few rows, `n` to a message, for the part of X'WX that every client of the job tells."""
    wanted = asked.told_up_to(p)
    if not wanted or asked.may_tell_curvature(n, p):
        return
    levels = _levels(table, spec)
    every = spec.intercept + sum(levels.values())
    widest = max(levels, key=lambda name: levels[name], default="")
    named = bool(widest) and levels[widest] > max(2, WIDE * every)
    full = bool(asked.covariance) and asked.told_of(p)
    diagonal = told_up_to(p, asked.rules, diagonal=True)
    facts = {
        **dict.fromkeys(_in_a_batch(asked), True),
        "most-levels": named,
        "identified-ones": p != every and not asked.rules.search,
        "rare-levels-not-counted": p != every and asked.rules.search,
        "of-a-diagonal": full and not FAMILIES[spec.family].linear and n <= diagonal,
    }
    values: dict[str, Value] = {"rows": n, "coefficients": every, "counted": p, "wanted": wanted, "too": asked.counted_too}
    values |= {"batch": asked.batch, "diagonal": diagonal, "fewer": asked.fewer_too}
    if named:
        shown = no_number(table.columns[widest]) if widest not in spec.columns else ""
        values |= {"levels": levels[widest], "widest": widest, "shown": shown}
    # Others may not read whether a diagonal covariance is enough.
    remedies = [*(["diagonal"] if full else []), "fewer-columns", *(_instead(asked) if named else [])]
    remedies += [*([] if asked.covariance else ["fewer-unknowns"]), "pool"]
    yield Broken(
        "few-rows-for-coefficients",
        "rows_per_coefficient",
        _enough(asked, n, p),
        values,
        tuple(remedies),
        tuple(name for name, holds in facts.items() if holds),
    )


def _enough(asked: Requirement, n: int, p: int) -> float:
    """Returns the rows a coefficient that so many rows do for, to a tenth."""

    def too_many(tenths: int) -> bool:
        rules = with_keys(asked.rules, {"rows_per_coefficient": tenths / 10})
        return not replace(asked, rules=rules).may_tell_curvature(n, p)

    return max(bisect_left(range(10 * n), True, key=too_many) - 1, 0) / 10


def _of_events(asked: Requirement, table: Table, spec: Spec, p: int, rows: Array) -> Iterator[Broken]:
    """Yields that too few rows of survival times end with the event while others are at risk.

    Each such row is one term of the likelihood, of the differences to all who are at risk. With few terms in each coefficient, or
    few differences in each term, the messages tell them. Without any event the likelihood is 1, whatever the rows are.

    A fault of a cell is reported as one, later.
    """
    if not spec.times or not {spec.response, *spec.times} <= set(table.columns):
        return
    event = events(table, spec)[0]
    if not np.isin(event, (0, 1)).all():
        return
    counts = covered_events(table, spec, rows, event)
    by_coefficients = asked.told_up_to(p)
    wanted = max(asked.rules.rows, by_coefficients + 1) if by_coefficients else asked.rules.rows
    if counts is None or not counts.events or (counts.covered if by_coefficients else counts.events) >= wanted:
        return
    values: dict[str, Value] = {
        "events": counts.events,
        "covered": counts.covered,
        "at_risk": LEAST_AT_RISK,
        "coefficients": p,
        "wanted": wanted,
    }
    values |= {"too": asked.counted_too, "label": spec.positive}
    # A label that counts as an event here and as none elsewhere makes few events of many.
    remedies = (*(["see-event"] if spec.positive is not None else []), "fewer-columns-or-strata", "pool")
    key, enough = "rows_per_coefficient", _enough(asked, counts.covered, p)
    if not by_coefficients or counts.covered > by_coefficients:
        key, enough = "rows", counts.covered if by_coefficients else counts.events
    yield Broken("few-events-for-coefficients", key, enough, values, remedies)


def _of_combinations(asked: Requirement, table: Table, spec: Spec, n: int, every: Combinations | None) -> Iterator[Broken]:
    """Yields that a client's covariates take too few different values, where some rows are nearly alone with theirs.

    The messages tell such rows.
    """
    least = asked.rules.combinations
    if every is None or not (rare := int((every.rows * asked.batch < least - NEARLY).sum())):
        return
    enough = every.possible >= EQUATIONS * coefficients(asked, table, spec) ** 2
    if enough and n >= COARSE_ROWS:
        return
    values = {"possible": every.possible, "rare": rare, "wanted": least, "batch": asked.batch, "many": COARSE_ROWS}
    facts = (*_in_a_batch(asked), *(["not-of-many-rows"] if enough else []))
    remedies = ("join-values", "ignore-a-column", "pool")
    yield Broken("rare-combinations", "combinations", 0, values, remedies, facts, of_values=True)


def coefficients(asked: Requirement, table: Table, spec: Spec) -> int:
    """Returns the number of coefficients of the model that this file's own columns and levels make.

    At level "standard" these are the identified ones: beside an intercept, or another factor, a factor of K levels has K - 1.
    (Of an undeclared column, levels in few rows are a fault.)
    """
    if spec.coefficients is not None:
        return spec.coefficients
    most = table.n_rows // LEAST_OF_LEVEL
    levels = _levels(table, spec)
    counts = {name: count if name in spec.columns else max(1, min(count, most)) for name, count in levels.items()}
    factors = sum(1 for name in counts if column_of(spec, table, name).levels is not None)
    follow = 0 if asked.rules.search else max(factors - (not spec.intercept), 0)
    return spec.intercept + sum(counts.values()) - follow


def _levels(table: Table, spec: Spec) -> dict[str, int]:
    """Returns how many coefficients each covariate takes, by this file's own cells: 1 for a number."""
    columns = (column_of(spec, table, name) for name in spec.covariates(table.names))
    return {one.name: 1 if one.levels is None else len(one.levels) for one in columns}


def _instead(asked: Requirement) -> list[str]:
    """Returns the remedies for a column of many levels."""
    if asked.times:
        return ["join-its-levels", "make-it-strata"]
    return ["join-its-levels", *(["make-it-groups"] if asked.names_groups else [])]
