"""Describes, for `fedkern check` and the page on disclosure, what is asked of rows, and what the messages of a job tell of them.

The meaning of each message, and the numbers that can be computed from it, stand with the message (a class of
`algorithms.core.tells`). This module applies them to one job, private or open, and to a client with no more rows than
the job asks for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ..algorithms.core.messages import Message
from ..algorithms.core.tells import FEW, FEW_AREAS, FEW_OR_FULL, FEW_OR_SUMS, NOISED, ONE_OR_TWO, TWO, Tells
from ..algorithms.exchanges.columns import NAMES, SchemaReply
from ..data.design import LEAST_OF_LEVEL
from ..kernels.families import is_linear
from ..models.encoding import Spec
from .requirement import Requirement
from .rules import LEAST_ROWS, Rules

Sizes = Mapping[str, int]

ANY = "a server that runs another program can compute any row"
NO_MORE = "no more in any way that was tried, which is no guarantee"
FIRST = "of every client: what ROWS, first of all lines, says"
ALONE = "of every client: each row that is alone in a function of columns which the job does not look for, exactly"
PRODUCTS = (
    "of every client: by second moments of its columns, response included, how many rows have a value of each of two, and the "
    "sum of another over the rows with a value; of one such row, its cell"
)
COMBINATIONS = "where columns have few values, how often each combination occurs"
# Rows up to which it is so.
MOST = {ONE_OR_TWO: 2, TWO: 2, FEW_AREAS: 2, FEW: LEAST_ROWS - 1, FEW_OR_FULL: LEAST_ROWS - 1, FEW_OR_SUMS: LEAST_ROWS - 1}


class Rule(NamedTuple):
    """Says what a rule counts, on which rows, with its number at a level, in words, and of which jobs it is asked."""

    key: str  # of [disclosure]; "" of what no key changes
    what: str
    number: Callable[[Rules], str]
    applies: Callable[[Requirement], bool]


def _rows(rules: Rules) -> str:
    least = rules.rows_of_one_column
    return f"{rules.rows}" if least == rules.rows else f"{rules.rows} ({least} where there is one column)"


def _values(rules: Rules) -> str:
    few = f"{rules.values_of_two_columns:g} where there are two columns, {rules.values_of_one_column:g} where there is one"
    return f"{rules.values:g} ({few}), and {rules.weighed:g} by their effective number as the fit of the rows weighs them"


RULES = (
    Rule("rows", "rows of a client", _rows, lambda job: True),
    Rule(
        "rows_per_coefficient",
        "rows a coefficient (identified ones: K - 1 of a factor) of values at draws (`likelihood`), more than",
        _values,
        lambda job: job.tells == "values" and job.told_up_to(2) > 0,
    ),
    Rule(
        "rows_per_coefficient",
        "rows a coefficient of sites (`pvi`), more than",
        lambda rules: f"{rules.sites:g} ({rules.sites_of_few_columns:g} where there are one or two columns)",
        lambda job: job.tells == "sites" and job.told_up_to(2) > 0,
    ),
    Rule(
        "rows_per_coefficient",
        "rows a coefficient of cross-products (linear models), more than",
        lambda rules: f"{rules.linear:g}",
        lambda job: job.tells == "products" and job.told_up_to(2) > 0,
    ),
    Rule(
        "rows_per_value",
        "rows that have a level, or an event, that some row has, or that differ from all others in a column",
        lambda rules: f"{rules.rows_per_value} (linear {min(rules.rows_per_value, LEAST_OF_LEVEL)})",
        lambda job: job.looks_at_values and not job.each_row,
    ),
    Rule(
        "groups",
        "groups of a client, of a model with effects of groups",
        lambda rules: f"{rules.groups}{', and more where slopes differ between groups' if rules.slopes else ''}",
        lambda job: job.groups,
    ),
    Rule(
        "leverage",
        "leverage of a row at the fit of its client's rows, at most",
        lambda rules: f"{rules.leverage:g}",
        lambda job: job.looks_at_values and job.rules.leverage < 1,
    ),
    Rule(
        "combinations",
        "rows of each combination of covariates' values, where few can occur",
        lambda rules: f"{rules.combinations or 'said, not asked'}",
        lambda job: job.tells_combinations,
    ),
    Rule(
        "",
        "sums and products of columns that a few rows have to themselves",
        lambda rules: "searched for" if rules.search else "-",
        lambda job: job.looks_at_values and job.rules.search,
    ),
)


def tells(kind: type[Message], spec: Spec) -> Tells:
    """Returns how much a client's message of this kind tells in a job with these columns."""
    assert kind.tells is not None  # no protocol has another message of clients
    return NAMES if kind is SchemaReply and spec.standardise != "exchange" else kind.tells


def what(kind: type[Message], requirement: Requirement, spec: Spec) -> str:
    """Returns the meaning of a client's message of this kind in this job."""
    tell = tells(kind, spec)
    if requirement.unit == "client" and tell.private == NOISED:
        return f"{tell.what}; the server, which is trusted, adds the noise"
    if requirement.unit == "case":  # all is computed of them
        return tell.private or f"{tell.what}, of noisy counts"
    return tell.what if requirement.unit is None else tell.private or tell.what


def computed(
    requirement: Requirement, kinds: Mapping[type[Message], Sizes], spec: Spec, least: int | None = None, *, named: bool = False
) -> str:
    """Returns what can be computed of a client of this job, as far as that is known.

    Parameters
    ----------
    kinds : what clients send, with the sizes of these messages
    least : the rows that a client has, of which statements on fewer rows do not hold; None: as many as the job asks for
    named : whether each number is said with the messages that it takes
    """
    tells_of, unit = {kind: tells(kind, spec) for kind in kinds}, requirement.unit
    if unit == "case":  # all is computed of them
        return "the noisy counts, and nothing more of the counts than these tell"
    if requirement.keyed:
        return "keyed noise bounds nothing: what can be computed of a row is that of a job without [privacy]"
    if unit is not None:
        # Only messages without noise are listed beside it; with whole clients protected the server sees sums without noise.
        client = unit == "client"
        bare = {kind: tell for kind, tell in tells_of.items() if tell.private in ((NOISED,) if client else ("", tell.what))}
        whom = "anybody but the server of a whole client" if client else "anybody of one row"
        bound = f"epsilon and delta bound what this job tells {whom}; other jobs on these rows add to it"
        words = ", ".join(_computed(bare, named=named))
        return f"{bound}; {'the server, which is trusted, computes' if client else 'without noise'}: {words}" if words else bound
    if requirement.factory is not None:  # nobody can tell what a function of the holder's packages makes of rows
        return f'what the answers of "{requirement.factory}" tell was not tried, and may be all rows, of whatever number of rows'
    d = max((dims.get("d", 0) for dims in kinds.values()), default=0)
    if least is None:
        least = max(requirement.rules.rows, requirement.told_up_to(d) + 1)
    parts = [COMBINATIONS] if requirement.tells_combinations else []
    if named:
        more = [ALONE] if requirement.tells_combinations else [PRODUCTS] if requirement.tells == "products" else []
        parts = [*([FIRST] if requirement.rows else []), *more, *parts]
    most = {where: max(rows, d if where == FEW_OR_SUMS else 0) for where, rows in MOST.items()}
    statements: dict[str, dict[type[Message], Tells]] = {}
    for kind, tell in tells_of.items():
        if tell.computed and most.get(tell.where, math.inf) >= least:
            statements.setdefault(tell.where, {})[kind] = tell
    for where in sorted(statements, key=lambda place: (place != "", -most.get(place, math.inf), place)):
        parts.append(
            f"of {f'a client {where}' if where else 'every client'}: {', '.join(_computed(statements[where], named=named))}"
        )
    return f"{ANY}; else {requirement.readers.strip(',')}: {'; '.join(parts) or NO_MORE}"


def _computed(tells_of: Mapping[type[Message], Tells], *, named: bool) -> Iterator[str]:
    """Yields the numbers that can be computed, `named` with the messages that they take."""
    for words in dict.fromkeys(tell.computed for tell in tells_of.values() if tell.computed):
        names = ", ".join(kind.__name__ for kind, tell in tells_of.items() if tell.computed == words)
        yield f"{words} ({names})" if named else words


def describe_few(requirement: Requirement) -> list[str]:
    """Returns the lines that `fedkern check` prints about the rules for clients' rows."""
    if not requirement.counts:
        return []
    if requirement.level == "none":
        return ["level    none: all rows are in this process, and nothing is asked of them; fedkern check --apart asks"]
    rules = requirement.rules
    ends = "is left out, by its name" if requirement.small == "leave-out" else "ends the job, before anything of its rows leaves"
    lines = [f"level    {requirement.level}: {rules.rows} rows of each client; one whose rows break a rule {ends}"]
    if requirement.cells:
        return [*lines, f"values   cells with fewer than {rules.rows_per_value} rows of a client join others, at all clients"]
    return [*lines, *(f"         {rule.what}: {rule.number(rules)}" for rule in RULES if rule.applies(requirement))]


def curvature(requirement: Requirement, p: int) -> list[str]:
    """Returns the lines of `fedkern check` on a job with so many coefficients whose sites tell of each client's X'WX."""
    wanted = requirement.told_up_to(p)
    if not wanted:
        return rotation(requirement, p)
    whole = "a client's full site is X'WX of its rows, and its labels"
    few = "a client's sites can tell its rows where these are few"
    return [f"sites    {whole if requirement.told_of(p) else few}; each client needs more than {wanted:,} rows"]


def rotation(requirement: Requirement, p: int, n_rows: int | None = None) -> list[str]:
    """Returns a warning where rows may be no more than coefficients and one, of a job or of one's own file.

    X'X tells these rows up to a rotation, and sites with a full covariance, at two values of q, the rotation too.

    Parameters
    ----------
    p : coefficients
    n_rows : the rows of one's own file; None for a client whose rows nobody else may know
    """
    if not requirement.looks_at_values or requirement.level == "none":
        return []
    n, most, all_told = requirement.rules.rows if n_rows is None else n_rows, p + 1, requirement.covariance == "full"
    if n_rows is not None and not is_linear(requirement.family) and p + 1 < n_rows <= requirement.told_up_to(p):
        most, all_told = n_rows, True
    if n > most:
        return []
    whose = f"rotation a client with at most {most:,} rows" if n_rows is None else f"  note: {n_rows} rows"
    tells_what = (
        "what is sent tells all these rows" if all_told else "X'X is these rows up to a rotation, and what is sent tells X'X"
    )
    return [f"{whose} and {p} coefficients: {tells_what}"]
