"""Finds clients whose rows are too few for an open job of a method that counts rows: where each lives, before anything leaves.

The messages of an open client are functions of its rows, and with few rows they are these rows. A client whose rows break a rule
of the job's level, or of its own holder's policy (`JobConfig.rules`), ends the job, or the job goes on without it
(`disclosure.small`). All rules that it breaks are found at once. Others read its name, and not how many rows it has: no message,
no text and no exit code depends on that. (Where it has too few for its coefficients, they read the name of the column that has
the most levels there, and not how many.)

A refusal is an answer too, of one bit, and many jobs are many bits. A holder whose policy forbids jobs that differ by little from
an earlier one (`holders.asked`) has each job's rows in its account before they are counted, and others read the same of few rows
and of rows that are nearly an earlier job's.

In a private job nothing is counted: whether one row more is there must not show. Its holder reads a note in its own folder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..algorithms.core.messages import reading
from ..data.cells import no_number
from ..data.combinations import Combinations, combinations
from ..data.design import column_of, with_event
from ..data.faults import Faults, Refusals, own_text
from ..data.formula import looked_at
from ..data.header import check_header
from ..data.table import Table
from ..errors import JobError, OwnFault, owned
from ..kernels.families import FAMILIES, is_linear
from ..models.encoding import Spec
from ..privacy.disclosure import COARSE, COARSE_ROWS, EQUATIONS, LEAST_OF_LEVEL, LEVELS, Rules, told_up_to
from ..transports.place import Place
from . import alike, holders
from .counting import LEAST_AT_RISK, counted, covered_events, weights
from .holding.binding import Binding
from .holding.policy import Policy
from .keys import JobConfig
from .parties import Parties
from .refusals import find_refusals, say_the_same

Array = NDArray[np.float64]

LEFT_OUT = "has fewer {}, or alike ones, than are asked for, or nearly those of an earlier job, which its holder forbids"
WIDE = 0.25  # of the coefficients: a column that takes more is named where they are too many
NEARLY = 1e-9  # what sums of weights lose
OF_A_SUMMARY = 12  # rows, by their effective number, of a client that takes part by a summary
POLICY = "[disclosure] of its policy"
KEYS = ("rows", "rows_per_value", "groups")  # whose numbers are those of rules


class Broken(NamedTuple):
    """Describes a rule that a client's rows break.

    Attributes
    ----------
    told, own : what others read of it, and what its holder reads
    remedy : for both
    key : of [disclosure], whose number the rule is
    enough : the number that these rows would do for; None where no number would, or nobody knows
    of_values : whether it is about values in the rows, which may be faults
    of : the things of which there are too few
    by_summary : whether the client can take part by a summary all the same
    """

    told: str
    own: str
    remedy: str
    key: str
    enough: float | None = None
    of_values: bool = False
    of: str = "rows"
    by_summary: bool = False

    @property
    def change(self) -> str:
        """How the number has to change for these rows to do."""
        return "raise" if self.key == "leverage" else "lower"


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


class Kept(NamedTuple):
    """Says which clients go on.

    Attributes
    ----------
    parties : those that stay, with the tables that were read (each is given once, and read again after that)
    numbers : the number that each had before
    notes : for the reader of the result
    own : the texts for the left-out clients that live here, by the number that they had
    apart : name -> the rules that would refuse a client if parties were apart, with the numbers that its rows would do for, where
        all rows are in this process
    summaries : the numbers, among `parties`, of those that take part by a summary
    """

    parties: Parties
    numbers: tuple[int, ...]
    notes: tuple[str, ...] = ()
    own: Mapping[int, str] = {}
    apart: Mapping[str, str] = {}
    summaries: frozenset[int] = frozenset()


def lowered(config: JobConfig) -> str | None:
    """Returns the warning about an open job whose own numbers ask for less than level "standard"; None for other jobs."""
    if config.level == "none":
        return None
    usual, p = config.model_copy(update={"disclosure": type(config.disclosure)(level="standard")}), 10
    less = [
        name for name in KEYS if (given := getattr(config.disclosure, name)) is not None and given < getattr(usual.rules, name)
    ]
    if config.disclosure.rows_per_coefficient is not None and config.told_up_to(p) < usual.told_up_to(p):
        less.append("rows_per_coefficient")
    if config.disclosure.leverage is not None and config.rules.leverage > usual.rules.leverage:
        less.append("leverage")
    if not less:
        return None
    keys = ", ".join(f"disclosure.{name}" for name in less)
    return f'this job asks for less than level "standard" ({keys}): what a client sends may tell some of its rows, or all of them'


def first(config: JobConfig) -> list[tuple[str, str]]:
    """Returns the first warnings about a job, each with a word for it: that it lowers a number, or tells rows by itself."""
    said = [("LOWERED", lowered(config)), ("ROWS", config.tells_rows if config.level != "none" else None)]
    return [(word, text) for word, text in said if text]


def describe_few(config: JobConfig) -> list[str]:
    """Returns the lines that `fedkern check` prints about the rules for clients' rows."""
    if not config.counts_rows or config.privacy is not None:
        return []
    if config.level == "none":
        return ["level    none: all rows are in this process, and nothing is asked of them; fedkern check --apart asks"]
    rules, family = config.rules, getattr(config.model, "family", "gaussian")
    ends = (
        "is left out, by its name"
        if config.disclosure.small == "leave-out"
        else "ends the job, before anything of its rows leaves"
    )
    # How many columns there are is known only there.
    more = ", more where another line says so" if config.told_up_to(2) else ""
    said = [f"level    {config.level}: {rules.rows} rows of each client{more}; one that has fewer {ends}"]
    if not config.looks_at_values:
        return [*said, "values   nothing else of its rows is looked at: no rare level, and no cell that is far from all others"]
    if least := alike.asked(config, family):
        what = "differ from its others in a column" if rules.search else "have a level, or one of two values, that occurs there"
        said.append(f"values   a client also counts as small if fewer than {least} of its rows {what}")
    if rules.leverage < 1:
        said.append(f"         and if the fit of its rows has a row of leverage above {rules.leverage:g}")
    if config.tells_combinations:
        said.append(f"         a client whose covariates have at most {COARSE:,} combinations tells how often each occurs")
        if rules.combinations:
            said.append(f"         it counts as small unless each has {rules.combinations} rows, or the client {COARSE_ROWS:,}")
    return said


def may_tell_curvature(config: JobConfig, n_rows: int, coefficients: int) -> bool:
    """Tells whether a client with so many rows may tell X'WX, by the rows a coefficient that are asked for."""
    return n_rows > max(config.told_up_to(coefficients), config.rules.linear * coefficients)


def find_few(config: JobConfig, table: Table, spec: Spec, client: str, policies: Iterable[Policy] = ()) -> Few | None:
    """Returns the rules of the job, and of the client's own policies, that its rows break; None if they break none."""
    mine, spec = config.rules, with_event(spec, table)
    config = holders.bound(config, policies)
    if config.rules == Rules():
        return None
    broken = list(_broken(config, table, spec, client))
    if not broken:
        return None
    # Where rows are few, which other rules they break depends on how many there are, and others do not read it.
    public = [one for one in broken if one.key == "rows"] or broken
    told = "; also ".join(f"{one.told}: {one.remedy}, or {one.change} disclosure.{one.key}" for one in public)
    own = "; also ".join(f"{one.own}: {one.remedy}, or {_lower(config, mine, one)}" for one in broken)
    ends = "" if config.secure else ', or go on without this client (disclosure.small = "leave-out")'
    return Few(
        f"client {client!r}{'' if told.startswith('has ') else ':'} {told}",
        f"client {client!r}, {table.source}: {own}{ends}",
        of_values=all(one.of_values for one in broken),
        of=broken[0].of,
        by_summary=all(one.by_summary for one in broken),
        numbers=", ".join(one.key if one.enough is None else f"{one.key} = {one.enough:g}" for one in broken),
    )


def _lower(config: JobConfig, mine: Rules, one: Broken) -> str:
    """Returns the remedy of a smaller number, and names who asks for the number that there is."""
    rule = "linear" if one.key == "rows_per_coefficient" else one.key
    by_holder = getattr(mine, rule) != getattr(config.rules, rule)
    where = f"{one.key} in {POLICY}" if by_holder else f"disclosure.{one.key}"
    do = "" if one.enough is None else f" to {one.enough:g} (other files may need {'more' if one.key == 'leverage' else 'less'})"
    return f"where all holders agree that such rows may be known to the server, {one.change} {where}{do}"


def _broken(config: JobConfig, table: Table, spec: Spec, client: str) -> Iterator[Broken]:
    """Yields the rules that a client's rows break."""
    rules = config.rules
    # A message is made of a batch, so the rows of a batch are counted.
    n = int(counted(table, spec) * config.batch + 1e-9)
    rows = weights(table, spec)
    if not config.looks_at_values:
        yield from _rows(config, table, n, rules.rows)
        return
    every = combinations(table, spec, rows) if rules.combinations and config.tells_combinations else None
    of_file, of_job = table, spec
    table, spec = looked_at(table, spec, client)  # the columns that a formula makes
    p = coefficients(config, table, spec)
    yield from _rows(config, of_file, n, rules.rows_of_one_column if p <= 1 + spec.intercept else rules.rows)
    if not n:
        return
    found = [*_of_curvature(config, table, spec, n, p), *_of_events(config, table, spec, p, weights(table, spec))]
    if not table.broken:  # rows that cannot be read end the job, with a text of their own
        found += _of_groups(config, of_file, of_job, rows)
        found += _of_combinations(config, table, spec, n, every)
        found += _of_values(config, table, spec, rows, every, config.weighing(p))
    # Rows a coefficient are counted, and again as the fit weighs them: the first says it, with a number that does for both.
    per_coefficient = [one for one in found if one.key == "rows_per_coefficient"]
    enough = min((one.enough or 0 for one in per_coefficient), default=0)
    summed = (
        config.takes_summaries
        and rules.summary > 0
        and enough >= rules.summary
        and enough * p >= (rules.rows_of_one_column if p <= 2 else OF_A_SUMMARY)
    )
    yield from (one._replace(enough=enough, by_summary=summed) for one in per_coefficient[:1])
    yield from (one for one in found if one.key != "rows_per_coefficient")


def _rows(config: JobConfig, table: Table, n: int, least: int) -> Iterator[Broken]:
    if n < least:
        gone = f", once {table.incomplete} that lack a cell are left out" if table.incomplete and _leaves_out(config) else ""
        own = f"{n} rows that count{gone}{_in_a_batch(config)}; {least} are asked for, since what is sent of fewer may tell them"
        remedy = "pool them with another site's, or take part in private jobs only"
        yield Broken("has fewer rows than this job, or its holder, asks for", own, remedy, "rows", n)


def _of_groups(config: JobConfig, table: Table, spec: Spec, rows: Array) -> Iterator[Broken]:
    """Yields that a client has too few groups, of rows that count; an empty label is none."""
    least = config.groups_asked
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


def _in_a_batch(config: JobConfig) -> str:
    return f", in a batch ({config.batch:g} of all)" if config.batch < 1 else ""


def _of_curvature(config: JobConfig, table: Table, spec: Spec, n: int, p: int) -> Iterator[Broken]:
    """Yields that a client has too few rows, `n` to a message, for the part of X'WX that every client of the job tells."""
    wanted = config.told_up_to(p)
    if not wanted or may_tell_curvature(config, n, p):
        return
    levels = _levels(table, spec)
    every = spec.intercept + sum(levels.values())
    widest = max(levels, key=lambda name: levels[name], default="")
    named = widest and levels[widest] > max(2, WIDE * every)  # its number of levels is for the holder alone
    fewer = f"fewer columns ({widest!r} has the most levels: {_instead(config)})" if named else "fewer columns"
    shown = no_number(table.columns[widest]) if named and widest not in spec.columns else ""
    most = f", {levels[widest]} of them of column {widest!r}{shown}" if named else ""
    why = f"a level in fewer than {LEAST_OF_LEVEL} rows is a fault, and not counted" if config.rules.search else "identified ones"
    those = "" if p == every else f" (for {p}: {why})"
    own = (
        f"{n} rows that count{_in_a_batch(config)} and {every} coefficients by its columns and levels{most}{config.counted_too}; "
        f"more than {wanted} rows are asked for{those}, since what is sent of fewer can tell them"
    )
    told, enough = "has too few rows for its coefficients", int(10 * (n - 1) / p) / 10
    if not hasattr(config.model, "covariance"):  # a job whose messages are no sites
        remedy = f"take {fewer}, or fewer {config.fewer_too}, or pool it with another site's rows"
        yield Broken(told, own, remedy, "rows_per_coefficient", enough)
        return
    full = config.told_of(p)
    told = f"{told} and a {'full' if full else 'diagonal'} covariance"
    if full and not FAMILIES[spec.family].linear and n <= (least := told_up_to(p, config.rules, diagonal=True)):
        own += f" (of a diagonal one, up to {least})"
    other = 'take model.covariance = "diagonal" or' if full else "take"  # others may not read whether that is enough
    yield Broken(told, own, f"{other} {fewer}, or pool it with another site's rows", "rows_per_coefficient", enough)


def _of_events(config: JobConfig, table: Table, spec: Spec, p: int, rows: Array) -> Iterator[Broken]:
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
    by_coefficients = config.told_up_to(p)
    wanted = max(config.rules.rows, by_coefficients + 1) if by_coefficients else config.rules.rows
    if counts is None or not counts.events or (counts.covered if by_coefficients else counts.events) >= wanted:
        return
    remedy = "take fewer columns or strata, or pool it with another site's rows"
    if spec.positive is not None:  # one that counts as an event here and as none elsewhere makes few events of many
        means = f"see first that label {spec.positive!r} is the event in this file as in all others, else write it so"
        remedy = f"{means}; {remedy}"
    own = (
        f"{counts.events} events, {counts.covered} of them while at least {LEAST_AT_RISK} rows are at risk, and {p} coefficients "
        f"by its columns and levels{config.counted_too}; no event, or {wanted} such ones, are asked for, since what is sent of "
        "fewer can tell rows"
    )
    told = f"has too few events (column {spec.response!r}) for this job's coefficients, or its holder"
    enough = int(10 * max(counts.covered - 1, 0) / max(p, 1)) / 10
    yield Broken(told, own, remedy, "rows_per_coefficient", enough, of="events")


def _of_values(
    config: JobConfig, table: Table, spec: Spec, rows: Array, every: Combinations | None, weighing: tuple[int, int]
) -> Iterator[Broken]:
    """Yields that too few of a client's rows share a value.

    Covariates are left out where each combination of their values is in enough rows.
    """
    covariates = every is None or bool((every.rows * config.batch < config.rules.combinations - NEARLY).any())
    for found in alike.find_alike(config, table, spec, rows, covariates=covariates, weighing=weighing):
        yield Broken(*found, of_values=True)


def _of_combinations(config: JobConfig, table: Table, spec: Spec, n: int, every: Combinations | None) -> Iterator[Broken]:
    """Yields that a client's covariates take too few different values, where some rows are nearly alone with theirs.

    The messages tell such rows.
    """
    least = config.rules.combinations
    if every is None or not (rare := int((every.rows * config.batch < least - NEARLY).sum())):
        return
    enough = every.possible >= EQUATIONS * coefficients(config, table, spec) ** 2
    if enough and n >= COARSE_ROWS:
        return
    own = (
        f"its covariates can take {every.possible:,} combinations of values, and {rare:,} of those that occur are in fewer than "
        f"{least} rows{_in_a_batch(config)}, while what is sent tells how often each occurs"
        f"{f'; of {COARSE_ROWS:,} rows it does not' if enough else ''}"
    )
    remedy = "join values (ages in bands, rare levels), put a column into data.ignore, pool it with another site's rows"
    yield Broken("has too few rows for covariates of few different values", own, remedy, "combinations", 0, of_values=True)


def coefficients(config: JobConfig, table: Table, spec: Spec) -> int:
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
    follow = 0 if config.rules.search else max(factors - (not spec.intercept), 0)
    return spec.intercept + sum(counts.values()) - follow


def _levels(table: Table, spec: Spec) -> dict[str, int]:
    """Returns how many coefficients each covariate takes, by this file's own cells: 1 for a number."""
    columns = (column_of(spec, table, name) for name in spec.covariates(table.names))
    return {one.name: 1 if one.levels is None else len(one.levels) for one in columns}


def _instead(config: JobConfig) -> str:
    """Returns the remedies for a column of many levels."""
    free = hasattr(config.model, "random") and getattr(config.model.random, "group", None) is None
    group = ", or, of wards and the like, make it the group of [model.random]" if free else ""
    if getattr(config.data, "event", None) is not None:
        group = ", or, of wards and the like, make it data.strata"
    return f"join its levels, write dates as numbers of days, put it into data.ignore{group}"


def curvature(config: JobConfig, p: int) -> list[str]:
    """Returns the lines of `fedkern check` on a job with so many coefficients whose messages tell X'WX of each client."""
    wanted = config.told_up_to(p)
    none = f"each client needs more than {wanted:,} rows"
    if not config.told_of(p):
        return [
            *([f"sites    a client's sites can tell its rows where these are few; {none}"] if wanted else []),
            *rotation(config, p),
        ]
    what = "full site is" if hasattr(config.model, "covariance") else "likelihood tells"
    said = f"curvature a client's {what} X'WX of its rows, and its labels"
    if not wanted:
        return [f"{said}: with a few rows a coefficient, all rows", *rotation(config, p)]
    return [f"{said}; {none}"]


def rotation(config: JobConfig, p: int, n_rows: int | None = None) -> list[str]:
    """Returns a warning where rows may be no more than coefficients and one, of a job or of one's own file.

    X'X tells these rows up to a rotation, and sites with a full covariance, at two values of q, the rotation too.

    Parameters
    ----------
    p : coefficients
    n_rows : the rows of one's own file; None for a client whose rows nobody else may know
    """
    least = config.rules.rows
    if not config.looks_at_values or config.level == "none":
        return []
    lines_of_it = is_linear(getattr(config.model, "family", "gaussian"))
    if n_rows is not None and not lines_of_it and p + 1 < n_rows <= config.told_up_to(p):
        return [f"  note: {n_rows} rows and {p} coefficients: what is sent can tell all these rows"]
    if (least if n_rows is None else n_rows) > p + 1:
        return []
    whole = getattr(config.model, "covariance", None) == "full"
    if n_rows is not None:
        what = "full covariances tell these rows" if whole else "X'X is these rows up to a rotation, and what is sent tells X'X"
        return [f"  note: {n_rows} rows and {p} coefficients: {what}"]
    begin = f"rotation a client with at most {p + 1:,} rows, one more than there are coefficients"
    if whole:
        return [f'{begin}: with model.covariance = "full"', "         what it sends tells its rows, all of them"]
    return [f"{begin}: X'X is its rows up to a rotation,", "         and what it sends tells X'X"]


def _leaves_out(config: JobConfig) -> bool:
    return getattr(config.model, "missing", None) == "drop"


def kept(
    place: Place,
    config: JobConfig,
    parties: Parties,
    bindings: Mapping[int, Binding],
    between: Callable[[int], AbstractContextManager[Any]] = nullcontext,
) -> Kept:
    """Reads the rows of the clients that live here, and returns who goes on.

    Parameters
    ----------
    bindings : client that lives here -> the policies that bind its data
    between : client -> a context in which its account and its policies are asked: it reports their refusals

    Raises
    ------
    OwnFault
        A client has too few rows, and the job does not leave it out.
    HolderError
        The same, or its rows are nearly an earlier job's, where its policy forbids that.
    """
    everybody = tuple(range(parties.n_clients))
    if config.privacy is not None or not config.counts_rows:
        return Kept(parties, everybody)
    if config.level == "none":
        return _in_one_process(place, config, parties)
    leaves_out, tables, own = config.disclosure.small == "leave-out", dict[int, Table](), dict[int, str]()
    summed, faulty = set[int](), Refusals()
    for k in place.mine(parties.n_clients):
        why: list[str] = []
        with faulty.collecting(), owned(k):
            (table, spec), name, policies = _read(parties, k), parties.names[k], bindings[k].policies
            # The rows are noted before they are counted: the answer depends on them.
            with between(k):
                near = holders.asked(config, parties, k, bindings[k], table, spec)
            refusals = find_refusals(config, parties, table, spec, name)
            few = None
            with refusals.collecting():
                few = find_few(config, refusals.usable(table), spec, name, policies)
            if few is not None and few.by_summary:
                summed.add(k)
                few = None
            why = [*(near or ()), *([few.own] if few else [])]
            if near is not None and why and not leaves_out:
                with between(k):
                    holders.refuse(holders.who(parties.names, k), policies, [*why, *map(own_text, refusals.errors)])
            if few is not None and not leaves_out:
                also = "" if config.secure else ' (where clients have rows of their own also by disclosure.small = "leave-out")'
                remedy = f"leave it out of data.clients{also}"
                say_the_same(refusals, f"{few.told}; {remedy}")
                refusals.errors.append(OwnFault(f"{few.told}; {remedy}", few.own))
            if not why or not leaves_out or (few and few.of_values):  # a value that is a fault is told as one
                refusals.refuse()
            if not why:
                tables[k] = table
        if why:
            own[k] = "; ".join(why)
    faulty.refuse()
    # All places must leave out the same clients, and learn no more than which.
    left = _joined(place, own) if leaves_out else []
    summaries = _joined(place, summed) if config.takes_summaries else []
    numbers = tuple(k for k in everybody if k not in left)
    what = "rows" if config.groups_asked is None else "rows or groups"
    what = f"{what} or events" if getattr(config.data, "event", None) is not None else what
    notes = tuple(f"left out: client {parties.names[k]!r} {LEFT_OUT.format(what)}" for k in left)
    among = frozenset(now for now, k in enumerate(numbers) if k in summaries)
    return Kept(_renumbered(parties, numbers, tables), numbers, notes, own, summaries=among)


def _read(parties: Parties, k: int) -> tuple[Table, Spec]:
    """Returns a client's rows, and the facts of their columns."""
    table = parties.rows(k)
    if parties.specs is None:  # a column that is missing says nothing of rows, and is what to mend first
        check_header(table.names, parties.spec, table.source, parties.names[k])
    return table, parties.spec_of(table.names)


def _in_one_process(place: Place, config: JobConfig, parties: Parties) -> Kept:
    """Returns that all go on, and who would not if parties were apart."""
    usual = config.model_copy(update={"disclosure": config.disclosure.model_copy(update={"level": "standard"})})
    tables, apart, faulty = dict[int, Table](), dict[str, str](), Refusals()
    for k in place.mine(parties.n_clients):
        with faulty.collecting(), owned(k):
            (tables[k], spec), name = _read(parties, k), parties.names[k]
            refusals = find_refusals(config, parties, tables[k], spec, name)
            with refusals.collecting():
                few = find_few(usual, refusals.usable(tables[k]), spec, name)
                if few is not None and not few.by_summary:
                    apart[name] = few.numbers
            refusals.refuse()
    faulty.refuse()
    everybody = tuple(range(parties.n_clients))
    return Kept(_renumbered(parties, everybody, tables), everybody, apart=apart)


def describe_apart(config: JobConfig, kept: Kept) -> list[str]:
    """Returns the line on a job whose rows are all in this process: what would be asked of them if parties were apart."""
    if not kept.apart:
        return []
    said = "; ".join(f"{name!r} would be refused ({numbers} would do)" for name, numbers in kept.apart.items())
    return [f"all rows are in this process; with parties apart, {said}"]


def renamed(config: JobConfig) -> list[str]:
    """Returns a line on keys of earlier versions, with those that are meant."""
    if not config.old_keys:
        return []
    now = ", ".join(f"{name} = {json.dumps(value)}" for name, value in config.disclosure.model_dump(exclude_none=True).items())
    return [f"{', '.join(f'data.{name}' for name in config.old_keys)}: the table [disclosure] has these now ({now})"]


def leave_out(place: Place, kept: Kept) -> list[int]:
    """Goes on without some clients, and returns which of the others live here. JobError where nobody is left."""
    if not kept.numbers:
        raise JobError(
            "no client is left: each has fewer rows than this job, or its holder, asks for (or groups), or nearly those of an "
            'earlier job, which its holder forbids ([disclosure], small = "leave-out"); a holder reads which in '
            "fault.txt of its own folder, or by fedkern check JOB --local FILE"
        )
    place.leave_out(kept.numbers, kept.parties.names)
    return place.mine(kept.parties.n_clients)


def _joined(place: Place, own: Iterable[int]) -> list[int]:
    """Returns the clients, of all places, that are left out or take part by a summary."""
    mine = json.dumps(sorted(own)).encode()
    all_of_them = place.settle(mine, lambda told: json.dumps(sorted({k for one in told for k in json.loads(one)})).encode())
    with reading("the server: which clients are left out, or take part by a summary"):
        return [int(k) for k in json.loads(all_of_them)]


def _renumbered(parties: Parties, numbers: tuple[int, ...], tables: dict[int, Table]) -> Parties:
    """Returns some of the parties, under new numbers; tables that were read are given once from memory."""

    def rows(k: int) -> Table:
        read = tables.pop(numbers[k], None)
        return parties.rows(numbers[k]) if read is None else read

    return replace(
        parties,
        names=tuple(parties.names[k] for k in numbers),
        rows=rows,
        header=lambda k: parties.header(numbers[k]),
        holding=lambda k: parties.holding(numbers[k]),
        fingerprint=lambda k: parties.fingerprint(numbers[k]),
        site=lambda k: parties.site(numbers[k]),
    )


def describe_unusable(config: JobConfig, n_rows: int, faults: Faults) -> str | None:
    """Returns a sentence for a holder none of whose rows can be used in a private job, which pays for them; else None.

    It names kinds of faults, and no cell: `check --local` and rows.json have these.
    """
    if config.privacy is None or faults.rows < n_rows:
        return None
    kinds = "; ".join(kind for kind, _ in faults.counts)
    why = f" ({kinds})" if kinds else ": it has none"
    return (
        f"no row can be used{why}; a private job goes on all the same, adds noise and spends the budget, for nobody "
        "may see it: stop it, and look into the rows (fedkern check JOB --local FILE)"
    )


def private_notes(config: JobConfig, n_rows: int) -> list[str]:
    """Returns notes for the client's own eyes, in a private job: nothing was counted, and only its certificate protects it."""
    least = LEVELS["standard"].rows
    if config.privacy is None or config.unit == "case" or n_rows >= least:
        return []
    return [f"{n_rows} rows: an open job would ask for {least}; this one counts none, and its noise is all that protects them"]
