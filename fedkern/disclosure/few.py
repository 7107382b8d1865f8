"""Finds the rules of disclosure control that a client's rows break, in an open job: where it lives, before anything leaves.

The messages of an open client are functions of its rows, and with few rows they are these rows. All rules that its rows break are
found at once. Others read its name, and not how many rows it has: no message, no text and no exit code depends on that. (Where it
has too few for its coefficients, they read the name of the column that has the most levels there, and not how many.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..data.cells import no_number
from ..data.design import LEAST_OF_LEVEL, column_of, with_event
from ..data.formula import looked_at
from ..data.table import Table
from ..kernels.families import FAMILIES
from ..models.encoding import Spec
from . import alike
from .alike import Broken
from .combinations import Combinations, combinations
from .counting import LEAST_AT_RISK, counted, covered_events, weights
from .requirement import Requirement
from .rules import COARSE_ROWS, EQUATIONS, Rules, told_up_to

Array = NDArray[np.float64]

WIDE = 0.25  # of the coefficients: a column that takes more is named where they are too many
NEARLY = 1e-9  # what sums of weights lose
OF_A_SUMMARY = 12  # rows, by their effective number, of a client that takes part by a summary
POLICY = "[disclosure] of its policy"
TOGETHER = 'with job.sums = "secure" and sites that sign, all clients\' rows are judged together (docs/concepts/secure-sums.md)'
FEWER_ROWS = "has fewer rows than this job, or its holder, asks for"


class Few(NamedTuple):
    """Describes a client that the job refuses to count with.

    It holds the text for others, the text for its holder alone, whether it is about values in its rows alone, which may be
    faults, the things of which it has too few, whether it takes part by a summary, and the keys of the rules with the numbers
    that its rows would do for.
    """

    told: str
    own: str
    of_values: bool = False
    of: str = "rows"
    by_summary: bool = False
    numbers: str = ""


def find_few(asked: Requirement, table: Table, spec: Spec, client: str) -> Few | None:
    """Returns the rules, of the job and of the client's holder, that its rows break; None if they break none."""
    spec = with_event(spec, table)
    if asked.rules == Rules():
        return None
    broken = list(_broken(asked, table, spec, client))
    if not broken:
        return None
    # Where rows are few, which other rules they break depends on how many there are, and others do not read it.
    public = [one for one in broken if one.told == FEWER_ROWS] or broken
    told = "; also ".join(f"{one.told}: {one.remedy}, or {one.change} disclosure.{one.key}" for one in public)
    own = "; also ".join(f"{one.own}: {one.remedy}, or {_lower(asked, one)}" for one in broken)
    ends = "" if asked.secure else ', or go on without this client (disclosure.small = "leave-out")'
    ends += f"; {TOGETHER}" if asked.additive and not asked.summed and asked.level != "none" else ""
    return Few(
        f"client {client!r}{'' if told.startswith('has ') else ':'} {told}",
        f"client {client!r}, {table.source}: {own}{ends}",
        of_values=all(one.of_values for one in broken),
        of=broken[0].of,
        by_summary=all(one.by_summary for one in broken),
        numbers=", ".join(one.key if one.enough is None else f"{one.key} = {one.enough:g}" for one in broken),
    )


def _lower(asked: Requirement, one: Broken) -> str:
    """Returns the remedy of a smaller number, and names who asks for the number that there is."""
    rule = "linear" if one.key == "rows_per_coefficient" else one.key
    by_holder = asked.own is not None and getattr(asked.own, rule) != getattr(asked.rules, rule)
    where = f"{one.key} in {POLICY}" if by_holder else f"disclosure.{one.key}"
    do = "" if one.enough is None else f" to {one.enough:g} (other files may need {'more' if one.key == 'leverage' else 'less'})"
    return f"where all holders agree that such rows may be known to the server, {one.change} {where}{do}"


def _broken(asked: Requirement, table: Table, spec: Spec, client: str) -> Iterator[Broken]:
    """Yields the rules that a client's rows break."""
    rules = asked.rules
    # A message is made of a batch, so the rows of a batch are counted.
    n = int(counted(table, spec) * asked.batch + 1e-9)
    rows = weights(table, spec)
    if not asked.looks_at_values:
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
        found += _of_values(asked, table, spec, rows, every, asked.weighing(p))
    # Rows a coefficient are counted, and again as the fit weighs them: the first says it, with a number that does for both.
    per_coefficient = [one for one in found if one.key == "rows_per_coefficient"]
    enough = min((one.enough or 0 for one in per_coefficient), default=0)
    summed = (
        asked.summaries
        and rules.summary > 0
        and enough >= rules.summary
        and enough * p >= (rules.rows_of_one_column if p <= 2 else OF_A_SUMMARY)
    )
    yield from (one._replace(enough=enough, by_summary=summed) for one in per_coefficient[:1])
    yield from (one for one in found if one.key != "rows_per_coefficient")


def least_rows(asked: Requirement, spec: Spec, coefficients: int) -> str:
    """Returns the rule for the number of rows, by its name."""
    return "rows_of_one_column" if coefficients <= 1 + spec.intercept else "rows"


def _rows(asked: Requirement, table: Table, n: int, rule: str) -> Iterator[Broken]:
    least = getattr(asked.rules, rule)
    if n < least:
        gone = f", once {table.incomplete} that lack a cell are left out" if table.incomplete and asked.drops else ""
        own = f"{n} rows that count{gone}{_in_a_batch(asked)}; {least} are asked for, since what is sent of fewer may tell them"
        remedy = "pool them with another site's, or take part in private jobs only"
        key = "rows" if rule == "rows_of_one_column" else rule
        yield Broken(FEWER_ROWS, own, remedy, key, n)


def _of_groups(asked: Requirement, table: Table, spec: Spec, rows: Array) -> Iterator[Broken]:
    """Yields that a client has too few groups, of rows that count; an empty label is none."""
    least = asked.least_of_group
    if not least or spec.group is None:
        return
    labels = {label for label, row in zip(table.cells(spec.group), rows.tolist()) if row and label}
    if len(labels) < least:
        yield Broken(
            f"has fewer groups in column {spec.group!r} than this job, or its holder, asks for",
            f"{len(labels)} groups in column {spec.group!r}; {least} are asked for",
            "leave out the groups ([model.random]); where a client is one group, take client = true",
            "groups",
            len(labels),
            of="groups",
        )


def _in_a_batch(asked: Requirement) -> str:
    return f", in a batch ({asked.batch:g} of all)" if asked.batch < 1 else ""


def _of_curvature(asked: Requirement, table: Table, spec: Spec, n: int, p: int) -> Iterator[Broken]:
    """Yields that a client has too few rows, `n` to a message, for the part of X'WX that every client of the job tells."""
    wanted = asked.told_up_to(p)
    if not wanted or asked.may_tell_curvature(n, p):
        return
    levels = _levels(table, spec)
    every = spec.intercept + sum(levels.values())
    widest = max(levels, key=lambda name: levels[name], default="")
    named = widest and levels[widest] > max(2, WIDE * every)  # its number of levels is for the holder alone
    fewer = f"fewer columns ({widest!r} has the most levels: {_instead(asked)})" if named else "fewer columns"
    shown = no_number(table.columns[widest]) if named and widest not in spec.columns else ""
    most = f", {levels[widest]} of them of column {widest!r}{shown}" if named else ""
    why = f"a level in fewer than {LEAST_OF_LEVEL} rows is a fault, and not counted" if asked.rules.search else "identified ones"
    those = "" if p == every else f" (for {p}: {why})"
    own = (
        f"{n} rows that count{_in_a_batch(asked)} and {every} coefficients by its columns and levels{most}{asked.counted_too}; "
        f"more than {wanted} rows are asked for{those}, since what is sent of fewer can tell them"
    )
    told, enough = "has too few rows for its coefficients", int(10 * (n - 1) / p) / 10
    if not asked.covariance:  # a job whose messages are no sites
        remedy = f"take {fewer}, or fewer {asked.fewer_too}, or pool it with another site's rows"
        yield Broken(told, own, remedy, "rows_per_coefficient", enough)
        return
    full = asked.told_of(p)
    told = f"{told} and a {'full' if full else 'diagonal'} covariance"
    if full and not FAMILIES[spec.family].linear and n <= (least := told_up_to(p, asked.rules, diagonal=True)):
        own += f" (of a diagonal one, up to {least})"
    other = 'take model.covariance = "diagonal" or' if full else "take"  # others may not read whether that is enough
    yield Broken(told, own, f"{other} {fewer}, or pool it with another site's rows", "rows_per_coefficient", enough)


def _of_events(asked: Requirement, table: Table, spec: Spec, p: int, rows: Array) -> Iterator[Broken]:
    """Yields that too few rows of survival times end with the event while others are at risk.

    Each such row is one term of the likelihood, of the differences to all who are at risk. With few terms in each coefficient, or
    few differences in each term, the messages tell them. Without any event the likelihood is 1, whatever the rows are.

    A fault of a cell is reported as one, later.
    """
    if not spec.times or not {spec.response, *spec.times} <= set(table.columns):
        return
    event = alike.events(table, spec)[0]
    if not np.isin(event, (0, 1)).all():
        return
    counts = covered_events(table, spec, rows, event)
    by_coefficients = asked.told_up_to(p)
    wanted = max(asked.rules.rows, by_coefficients + 1) if by_coefficients else asked.rules.rows
    if counts is None or not counts.events or (counts.covered if by_coefficients else counts.events) >= wanted:
        return
    remedy = "take fewer columns or strata, or pool it with another site's rows"
    if spec.positive is not None:  # one that counts as an event here and as none elsewhere makes few events of many
        means = f"see first that label {spec.positive!r} is the event in this file as in all others, else write it so"
        remedy = f"{means}; {remedy}"
    own = (
        f"{counts.events} events, {counts.covered} of them while at least {LEAST_AT_RISK} rows are at risk, and {p} coefficients "
        f"by its columns and levels{asked.counted_too}; no event, or {wanted} such ones, are asked for, since what is sent of "
        "fewer can tell rows"
    )
    told = f"has too few events (column {spec.response!r}) for this job's coefficients, or its holder"
    enough = int(10 * max(counts.covered - 1, 0) / max(p, 1)) / 10
    yield Broken(told, own, remedy, "rows_per_coefficient", enough, of="events")


def _of_values(
    asked: Requirement, table: Table, spec: Spec, rows: Array, every: Combinations | None, weighing: tuple[int, int]
) -> Iterator[Broken]:
    """Yields that too few of a client's rows share a value.

    Covariates are left out where each combination of their values is in enough rows.
    """
    covariates = every is None or bool((every.rows * asked.batch < asked.rules.combinations - NEARLY).any())
    every_found = alike.find_alike(asked, table, spec, rows, covariates=covariates, weighing=weighing)
    yield from (found._replace(of_values=True) for found in every_found)


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
    own = (
        f"its covariates can take {every.possible:,} combinations of values, and {rare:,} of those that occur are in fewer than "
        f"{least} rows{_in_a_batch(asked)}, while what is sent tells how often each occurs"
        f"{f'; of {COARSE_ROWS:,} rows it does not' if enough else ''}"
    )
    remedy = "join values (ages in bands, rare levels), put a column into data.ignore, pool it with another site's rows"
    yield Broken("has too few rows for covariates of few different values", own, remedy, "combinations", 0, of_values=True)


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


def _instead(asked: Requirement) -> str:
    """Returns the remedies for a column of many levels."""
    group = ", or, of wards and the like, make it the group of [model.random]" if asked.names_groups else ""
    if asked.times:
        group = ", or, of wards and the like, make it data.strata"
    return f"join its levels, write dates as numbers of days, put it into data.ignore{group}"
