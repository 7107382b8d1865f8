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

from ..algorithms.importance.summaries import allowed, told
from ..arrays import Array
from ..data.cells import Text, floats, labels, no_number
from ..data.design import LEAST_OF_LEVEL, column_of, with_event
from ..data.formula import looked_at
from ..data.joined import as_before, find_rare, gone_of, with_other
from ..data.table import Table
from ..finding import Value
from ..kernels.families import FAMILIES
from ..labels import OTHER
from ..models.encoding import Spec
from ..models.weighing import effective
from .combinations import Combinations, combinations
from .look import LEAST_AT_RISK, NEARLY, Events, Look, causes, covered_events, groups_of, of_a_value, weights, whole
from .measures import MANY, n_values, present
from .refusals import Broken, Few
from .requirement import Requirement
from .rules import COARSE_ROWS, EQUATIONS, Rules, told_up_to, with_keys

JOIN = "join-rare"  # the remedy for rare levels
WIDE = 0.25  # of the coefficients: a column that takes more is named where they are too many
OF_A_SUMMARY = 12  # rows, by their effective number, of a client that takes part by a summary


def find_few(requirement: Requirement, table: Table, spec: Spec, client: str, more: Sequence[str] = ()) -> Few | None:
    """Returns the rules, of the job and of the client's holder, that its rows break; None if they break none.

    What is proposed is judged by the same rules: where levels that join would do, what is said beside it is of rows whose levels
    have joined; and a rule that rows break only where the others are lowered is said with these. So all that is proposed, done at
    once, has these rows taken.

    `more`: ids of other remedies.
    """
    if requirement.rules == Rules():
        return None
    spec = with_event(spec, table)
    requirement = required_of(requirement, table, spec)
    of_all, lowered = dict[object, Broken](), dict[str, float]()
    now, mended, broken = requirement, table, [*_broken(requirement, table, spec, client)]
    # Of a number that is lowered fewer levels join.
    joining = [name for name, cells in table.columns.items() if gone_of(cells)]
    if joins := [rule for rule in broken if JOIN in rule.remedies]:
        joined = join_rare(requirement, table, spec)
        if _joinable(joined):
            of_all, mended, broken = {rule.about: rule for rule in joins}, joined, [*_broken(requirement, joined, spec, client)]
        else:
            joins, broken = [], [rule._replace(remedies=tuple(way for way in rule.remedies if way != JOIN)) for rule in broken]
    while lower := _lowered(broken, lowered):
        of_all |= {rule.about: of_all.get(rule.about, rule) for rule in broken}
        lowered |= lower
        now = replace(now, rules=with_keys(now.rules, lower))
        if joins or joining:
            whole = join_rare(now, as_before(table), spec).columns
            mended = replace(
                table, columns={name: whole[name] if joins or name in joining else cells for name, cells in table.columns.items()}
            )
        broken = [*_broken(now, mended, spec, client)]
    found = [rule._replace(enough=lowered.get(rule.key, rule.enough)) for rule in of_all.values() if not rule.by_summary]
    # Rules for which a summary is enough are no faults; where no others are broken the client takes part by one.
    found = found or [rule for rule in broken if rule.by_summary]
    return Few(found, [rule.refusal(requirement, client, table.source, more) for rule in found]) if found else None


def _lowered(broken: Sequence[Broken], before: Mapping[str, float]) -> dict[str, float]:
    """Returns the numbers to which rules are lowered once more, with which these rows would do; none where that helps no more."""
    now = dict[str, float]()
    for rule in broken:
        best = max if rule.key == "leverage" else min
        if not rule.by_summary and (number := best(rule.enough, before.get(rule.key, rule.enough))) != before.get(rule.key):
            now[rule.key] = best(number, now.get(rule.key, number))
    return now


def _joinable(joined: Table) -> bool:
    """Tells whether two levels of each column are left beside those that have joined: at another client these may be others."""
    joined_columns = (cells for cells in joined.columns.values() if gone_of(cells))
    return all(isinstance(cells, Text) and len({*cells.levels} - {OTHER}) > 1 for cells in joined_columns)


def join_rare(
    requirement: Requirement,
    table: Table,
    spec: Spec,
    earlier: Mapping[str, Collection[str]] = MappingProxyType({}),
    *,
    whole: bool = True,
) -> Table:
    """Returns a client's table with `OTHER` in the place of its rare levels.

    Parameters
    ----------
    earlier : those of an earlier job
    whole : whether levels join where none of their column is left beside them
    """
    least, rows, columns = of_a_value(requirement, spec.family), weights(table, spec), dict(table.columns)
    for name in spec.covariates(table.names):
        if (levels := column_of(spec, table, name).levels) is None:
            continue
        cells = labels(columns[name])
        gone, first = find_rare(cells, levels, rows, least), {*earlier.get(name, ())} & {*cells.levels}
        if first and not find_rare(with_other(cells, first), (*levels, OTHER), rows, least):
            gone = frozenset(first)
        if gone and (whole or {cells.levels[code] for code in np.unique(cells.codes)} - {*gone, "", OTHER}):
            columns[name] = with_other(cells, gone)
    return replace(table, columns=columns)


def _broken(requirement: Requirement, table: Table, spec: Spec, client: str) -> Iterator[Broken]:
    """Yields the rules that a client's rows break."""
    rules, rows = requirement.rules, weights(table, spec)
    n = whole(effective(rows) * requirement.batch)  # a message is made of a batch, so the rows of a batch are counted
    # Of no row there is no column of a formula either.
    if requirement.cells or not requirement.looks_at_values or not table.n_rows:
        yield from _of_rows(requirement, table, n, "rows")
        return
    of_values = combinations(table, spec, rows) if rules.combinations and requirement.tells_combinations else None
    laid, of_terms = looked_at(table, spec, client)  # the columns that a formula makes
    p = coefficients(requirement, laid, of_terms)
    # Names of levels, and which columns have one value, leave each client without a mask.
    yield from _of_rows(
        requirement, table, n, "rows_per_value" if requirement.summed else requirement.least_rows(p, intercept=of_terms.intercept)
    )
    if not n:
        return
    found = list[Broken]()
    if not requirement.summed:
        found += [
            *_of_curvature(requirement, laid, of_terms, n, p),
            *_of_events(requirement, laid, of_terms, p, weights(laid, of_terms)),
        ]
    if not laid.broken:  # rows that cannot be read end the job, with a text of their own
        found += [] if requirement.summed else _of_groups(requirement, table, spec, rows)
        found += _of_combinations(requirement, laid, of_terms, n, of_values)
        # Covariates are left out where each combination of their values is in enough rows.
        covariates = of_values is None or bool((of_values.rows * requirement.batch < rules.combinations - NEARLY).any())
        alike = Look.at(requirement, laid, of_terms, rows).few(covariates=covariates, weighing=requirement.weighing(p))
        found += (rule._replace(of_values=True) for rule in alike)
    # Rows a coefficient are counted, and again as the fit weighs them: the first says it, with a number that does for both.
    per_coefficient = [rule for rule in found if rule.key == "rows_per_coefficient"]
    count, columns = min([n, *(rule.rows for rule in per_coefficient)]), sum(_levels(laid, of_terms).values())
    single = measured(table, spec, rules.fewest_per_value) == 1
    summed, least = 0, max(rules.summary * p, rules.rows_of_one_column if single else OF_A_SUMMARY)
    if requirement.small_by_summary and rules.summary > 0 and count >= least:
        unknowns = requirement.unknowns(columns + of_terms.intercept) + requirement.shapes
        summed = allowed(unknowns, count, columns) * told(unknowns, 1)
    if per_coefficient:
        yield per_coefficient[0]._replace(enough=min(rule.enough for rule in per_coefficient), by_summary=summed)
    for rule in found:
        if rule.key != "rows_per_coefficient":
            of_covariates = rule.id == "rare-values" and spec.response not in rule.columns
            yield rule._replace(by_summary=summed * (of_covariates and rule.enough >= rules.fewest_per_value))


def _of_rows(requirement: Requirement, table: Table, n: int, rule: str) -> Iterator[Broken]:
    """Yields that a client has too few rows, `n` to a message."""
    least = getattr(requirement.rules, rule)
    if n < least:
        values = {"rows": n, "wanted": least, "batch": requirement.batch, "incomplete": table.incomplete}
        facts = (*(["once-dropped"] if table.incomplete and requirement.drops else []), *_in_a_batch(requirement))
        key = rule if rule == "rows_per_value" else "rows"
        yield Broken("few-rows", key, n, values, ("pool", "private-jobs"), facts)


def _of_groups(requirement: Requirement, table: Table, spec: Spec, rows: Array) -> Iterator[Broken]:
    """Yields that a client has too few groups."""
    for name in spec.with_effects if requirement.least_of_group else ():
        if (n := len(groups_of(table, name, rows))) >= requirement.least_of_group:
            continue
        values: dict[str, Value] = {"groups": n, "column": name, "wanted": requirement.least_of_group}
        yield Broken("few-groups", "groups", n, values, ("no-groups",))


def _in_a_batch(requirement: Requirement) -> tuple[str, ...]:
    return ("in-a-batch",) if requirement.batch < 1 else ()


def _of_curvature(requirement: Requirement, table: Table, spec: Spec, n: int, p: int) -> Iterator[Broken]:
    """Yields that a client has too few rows, `n` to a message, for the part of X'WX that every client of the job tells."""
    wanted = requirement.told_up_to(p)
    if not wanted or requirement.may_tell_curvature(n, p):
        return
    levels = _levels(table, spec)
    n_coefficients = spec.intercept + sum(levels.values())
    widest = max(levels, key=lambda name: levels[name], default="")
    named = bool(widest) and levels[widest] > max(2, WIDE * n_coefficients)
    full = bool(requirement.covariance) and requirement.told_of(p)
    diagonal = told_up_to(p, requirement.rules, diagonal=True)
    facts = {
        **dict.fromkeys(_in_a_batch(requirement), True),
        "most-levels": named,
        "identified-ones": p != n_coefficients and not requirement.rules.search,
        "rare-levels-not-counted": p != n_coefficients and requirement.rules.search,
        "of-a-diagonal": full and not FAMILIES[spec.family].linear and n <= diagonal,
    }
    values: dict[str, Value] = {
        "rows": n,
        "coefficients": n_coefficients,
        "counted": p,
        "wanted": wanted,
        "too": requirement.counted_too,
    }
    values |= {"batch": requirement.batch, "diagonal": diagonal, "fewer": requirement.fewer_too}
    # Others may not read whether a diagonal covariance is enough.
    remedies = [*(["diagonal"] if full else []), "fewer-columns"]
    if named:
        shown = no_number(table.columns[widest]) if widest not in spec.columns else ""
        values |= {"levels": levels[widest], "widest": widest, "shown": shown}
        remedies += ["join-its-levels"]
        if requirement.times:
            remedies += ["make-it-strata"]
        elif requirement.names_groups:
            remedies += ["make-it-groups"]
    remedies += [*([] if requirement.covariance else ["fewer-unknowns"]), "pool"]
    holding = tuple(name for name, holds in facts.items() if holds)
    key, enough = "rows_per_coefficient", _enough(requirement, n, p)
    yield Broken("few-rows-for-coefficients", key, enough, values, tuple(remedies), holding, rows=n)


def _enough(requirement: Requirement, n: int, p: int) -> float:
    """Returns the rows a coefficient that so many rows do for, to a tenth."""

    def too_many(tenths: int) -> bool:
        rules = with_keys(requirement.rules, {"rows_per_coefficient": tenths / 10})
        return not replace(requirement, rules=rules).may_tell_curvature(n, p)

    return max(bisect_left(range(10 * n), True, key=too_many) - 1, 0) / 10


def _of_events(requirement: Requirement, table: Table, spec: Spec, p: int, rows: Array) -> Iterator[Broken]:
    """Yields that too few rows of survival times end with the event while others are at risk.

    Each such row is one term of the likelihood, of the differences to all who are at risk. With few terms in each coefficient, or
    few differences in each term, the messages tell them. Without any event the likelihood is 1, whatever the rows are.

    A fault of a cell is reported as one, later.
    """
    if not spec.times or not {spec.response, *spec.times} <= set(table.columns):
        return
    for label, event in causes(table, spec):
        counts = covered_events(table, spec, rows, event) if np.isin(event, (0, 1)).all() else None
        if counts is not None and counts.events:
            yield from _of_cause(requirement, counts, label, p)


def _of_cause(requirement: Requirement, counts: Events, label: str | None, p: int) -> Iterator[Broken]:
    """Yields the same of the events of one cause, whose label counts as the event."""
    by_coefficients, number = requirement.told_up_to(p), counts.events
    wanted = requirement.rules.rows
    if by_coefficients:
        wanted, number = max(wanted, by_coefficients + 1), counts.covered
    if number >= wanted:
        return
    of_rows = not by_coefficients or number > by_coefficients
    key, enough = ("rows", number) if of_rows else ("rows_per_coefficient", _enough(requirement, number, p))
    values: dict[str, Value] = {"events": counts.events, "covered": counts.covered, "at_risk": LEAST_AT_RISK, "coefficients": p}
    values |= {"wanted": wanted, "too": requirement.counted_too, "label": label}
    # A label that counts as an event here and as none elsewhere makes few events of many.
    remedies = (*(["see-event"] if label is not None else []), "fewer-columns-or-strata", "pool")
    yield Broken("few-events-for-coefficients", key, enough, values, remedies, rows=number)


def _of_combinations(
    requirement: Requirement, table: Table, spec: Spec, n: int, of_values: Combinations | None
) -> Iterator[Broken]:
    """Yields that a client's covariates take too few different values, where some rows are nearly alone with theirs.

    The messages tell such rows.
    """
    least = requirement.rules.combinations
    if of_values is None or not (rare := int((of_values.rows * requirement.batch < least - NEARLY).sum())):
        return
    enough = of_values.possible >= EQUATIONS * coefficients(requirement, table, spec) ** 2
    if enough and n >= COARSE_ROWS:
        return
    values = {"possible": of_values.possible, "rare": rare, "wanted": least, "batch": requirement.batch, "many": COARSE_ROWS}
    facts = (*_in_a_batch(requirement), *(["not-of-many-rows"] if enough else []))
    remedies = ("join-values", "ignore-a-column", "pool")
    yield Broken("rare-combinations", "combinations", 0, values, remedies, facts, of_values=True)


def coefficients(requirement: Requirement, table: Table, spec: Spec) -> int:
    """Returns the number of coefficients of the model that this file's own columns and levels make.

    At level "standard" these are the identified ones: beside an intercept, or another factor, a factor of K levels has K - 1.
    (Of an undeclared column, levels in few rows are a fault.)
    """
    if spec.coefficients is not None:
        return spec.coefficients
    most, levels = table.n_rows // LEAST_OF_LEVEL, _levels(table, spec)
    counts = {name: count if name in spec.columns else max(1, min(count, most)) for name, count in levels.items()}
    factors = sum(1 for name in counts if column_of(spec, table, name).levels is not None)
    follow = 0 if requirement.rules.search else max(factors - (not spec.intercept), 0)
    return spec.intercept + sum(counts.values()) - follow


def required_of(requirement: Requirement, table: Table, spec: Spec) -> Requirement:
    """Returns what is asked of these rows: less, where no cell of theirs is a measurement, and sums are all that is told."""
    counted = not (requirement.shapes or spec.offset or spec.weight or spec.times or FAMILIES[spec.family].measured)
    if requirement.tells != "values" or not counted or measured(table, spec, requirement.rules.fewest_per_value):
        return requirement
    own_rules = requirement.own
    return replace(requirement, rules=requirement.rules.of_counts(), own=own_rules and own_rules.of_counts())


def measured(table: Table, spec: Spec, least: int) -> int:
    """Returns how many covariates are measurements: numbers of many values, or of three and more with one in fewer than `least`
    rows.

    Of others messages tell no more than those of a model that has each value for a level.
    """
    columns = (column_of(spec, table, name) for name in spec.covariates(table.names))
    return sum(_is_measured(present(floats(table.columns[column.name])), least) for column in columns if column.levels is None)


def _is_measured(values: Array, least: int) -> bool:
    if (n := n_values(values, MANY + 1)) <= 2:
        return False
    return n > MANY or int(np.unique(values, return_counts=True)[1].min()) < least


def _levels(table: Table, spec: Spec) -> dict[str, int]:
    """Returns how many coefficients each covariate takes, by this file's own cells: 1 for a number."""
    columns = (column_of(spec, table, name) for name in spec.covariates(table.names))
    return {column.name: 1 if column.levels is None else len(column.levels) for column in columns}
