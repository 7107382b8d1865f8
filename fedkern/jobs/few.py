"""Finds clients with few rows, in open jobs of methods that count rows: decided where each lives, before anything leaves.

The messages of an open client are functions of its rows, and with few rows they are these rows. A client that has fewer than the
job asks for (`data.least_rows`, of groups `data.least_groups`), or its own holder's policy, ends the job, or the job goes on
without it (`data.small`). Others read its name, and not how many rows it has: no message, no text and no exit code depends on
that. (Where it has too few for its coefficients, they read the name of the column that has the most levels there, and not how
many.)

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
from ..data.cells import MISSING
from ..data.combinations import Combinations, combinations
from ..data.design import column_of, with_event
from ..data.faults import Faults, Refusals, own_text
from ..data.formula import looked_at
from ..data.header import check_header
from ..data.table import Table
from ..errors import JobError, OwnFault, owned
from ..kernels.families import FAMILIES, is_linear
from ..models.encoding import Spec
from ..privacy.disclosure import COARSE, COARSE_ROWS, EQUATIONS, LEAST_OF_LEVEL, OF_A_LINEAR, told_up_to
from ..transports.place import Place
from . import alike, holders
from .counting import LEAST_AT_RISK, counted, covered_events, weights
from .holding.binding import Binding
from .holding.policy import Policy
from .keys import LEAST_GROUPS, LEAST_ROWS, FewSection, JobConfig
from .parties import Parties
from .refusals import find_refusals, say_the_same

Array = NDArray[np.float64]

LEFT_OUT = "has fewer {}, or alike ones, than are asked for, or nearly those of an earlier job, which its holder forbids"
WIDE = 0.25  # of the coefficients: a column that takes more is named where they are too many
NEARLY = 1e-9  # what sums of weights lose
VALUES = (25, 15, 10, 7, 5, 3, 2, 1)  # of data.least_rows, of which the largest that does is named
MOST_TRIED = 100_000  # rows of a file that is looked through so often
ELSE = 'or go on without this client (data.small = "leave-out")'


class Few(NamedTuple):
    """Describes a client that the job refuses to count with.

    It holds the text for others, the text for its holder alone, whether it is about values in its rows, which may be faults, and
    the things of which it has too few.
    """

    told: str
    own: str
    of_values: bool = False
    of: str = "rows"


class Kept(NamedTuple):
    """Says which clients go on.

    Attributes
    ----------
    parties : those that stay, with the tables that were read (each is given once, and read again after that)
    numbers : the number that each had before
    notes : for the reader of the result
    own : the texts for the left-out clients that live here, by the number that they had
    """

    parties: Parties
    numbers: tuple[int, ...]
    notes: tuple[str, ...] = ()
    own: Mapping[int, str] = {}


def lowered(config: JobConfig) -> str | None:
    """Returns the warning about a job that asks for fewer rows than jobs do by default; None for other jobs."""
    asked = holders.least(config)
    return None if asked is None else _lowered("least_rows", asked, LEAST_ROWS, "; ".join(_opened(config, asked)))


def _opened(config: JobConfig, asked: int) -> Iterator[str]:
    """Yields all that a job opens which asks for `asked` rows: also of clients with many, whose rows are looked at less."""
    yield f"what a client with fewer than {LEAST_ROWS} rows sends may tell these rows"
    if not config.looks_at_values:
        return
    family = getattr(config.model, "family", "gaussian")
    before, now = (alike.asked(config, family, least) for least in (LEAST_ROWS, asked))
    if now < before:
        yield (
            "what any client sends, however many rows it has, may tell those of its rows that have a value or an event which "
            f"fewer than {before} have (this job asks for {now})"
        )
    skipped = ["rows for each coefficient"] if config.told_up_to(2) else []
    skipped += [f"{LEAST_OF_LEVEL} rows for each combination of values"] if config.tells_combinations else []
    if skipped:
        yield f"of no client {' or '.join(skipped)} are asked for, without which what is sent may tell its rows, all of them"


def _lowered_groups(config: JobConfig) -> str | None:
    """Returns the same warning about groups."""
    tells = f"of fewer than {LEAST_GROUPS} groups what a client sends may tell each of them"
    return _lowered("least_groups", holders.least_groups(config), LEAST_GROUPS, tells)


def _lowered(key: str, asked: int | None, least: int, tells: str) -> str | None:
    return None if asked is None or asked >= least else f"this job lowers data.{key} from {least} to {asked}: {tells}"


def first(config: JobConfig) -> list[tuple[str, str]]:
    """Returns the first warnings about a job, each with a word for it: that it lowers a number, or tells rows by itself."""
    said = [("LOWERED", lowered(config)), ("LOWERED", _lowered_groups(config)), ("ROWS", config.tells_rows)]
    return [(word, text) for word, text in said if text]


def describe_few(config: JobConfig) -> list[str]:
    """Returns the lines that `fedkern check` prints about few rows."""
    asked = holders.least(config)
    if asked is None:
        return []
    assert isinstance(config.data, FewSection)
    ends = "is left out, by its name" if config.data.small == "leave-out" else "ends the job, before anything of its rows leaves"
    # How many columns there are is known only there.
    more = ", more where another line says so" if config.told_up_to(2) and lowered(config) is None else ""
    said = [f"least    {asked} rows of each client{more}; one that has fewer {ends}"]
    if not config.looks_at_values:
        return [*said, "alike    nothing else of its rows is looked at: no rare level, and no cell that is far from all others"]
    if few := alike.asked(config, getattr(config.model, "family", "gaussian"), asked):
        said.append(f"alike    a client also counts as small if fewer than {few} of its rows differ from its others in a column")
    if config.tells_combinations:
        said.append(f"values   a client whose covariates have at most {COARSE:,} combinations tells how often each occurs")
        if lowered(config) is None:
            said.append(f"         it counts as small unless each has {LEAST_OF_LEVEL} rows, or the client {COARSE_ROWS:,}")
    return said


def may_tell_curvature(config: JobConfig, n_rows: int, coefficients: int) -> bool:
    """Tells whether a client with so many rows may tell X'WX.

    It needs more rows than the job asks for, and two rows a coefficient, unless the job lowers the number that it asks for.
    """
    return n_rows > max(config.told_up_to(coefficients), OF_A_LINEAR * coefficients) or lowered(config) is not None


def find_few(config: JobConfig, table: Table, spec: Spec, client: str, policies: Iterable[Policy] = ()) -> Few | None:
    """Returns why a client has too few rows for the job or for its own policies; None if it has enough.

    Where lowering data.least_rows is a way out, its holder reads the value that this file needs.
    """
    policies, spec = tuple(policies), with_event(spec, table)
    found = _find_few(config, table, spec, client, policies)
    if (
        found is None
        or table.n_rows > MOST_TRIED
        or not found.own.endswith(alike.LOWER)
        or not isinstance(config.data, FewSection)
    ):
        return found
    for least in VALUES:
        data = config.data.model_copy(update={"least_rows": least})
        if (
            least < (config.data.least_rows or 0)
            and _find_few(config.model_copy(update={"data": data}), table, spec, client, policies) is None
        ):
            all_of_it = "" if least > 1 else ", which asks for nothing at all any more"
            return found._replace(own=f"{found.own} to {least}{all_of_it} (other files may need less); {ELSE}")
    return found._replace(own=f"{found.own}, which does not do for this file alone; {ELSE}")


def _find_few(config: JobConfig, table: Table, spec: Spec, client: str, policies: tuple[Policy, ...]) -> Few | None:
    """Returns the same without a value."""
    asked, least = holders.least(config), holders.least(config, policies)
    if asked is None or least is None:
        return None
    # A message is made of a batch, so the rows of a batch are counted.
    n = int(counted(table, spec) * config.batch + 1e-9)
    if n >= least and not config.looks_at_values:
        return None
    if n >= least:
        rows = weights(table, spec)
        told = config.tells_combinations and lowered(config) is None
        every = combinations(table, spec, rows) if told else None
        of_file, of_job = table, spec
        table, spec = looked_at(table, spec, client)  # the columns that a formula makes
        found = [_for_curvature(config, table, spec, client, n)]
        found.append(_for_events(config, table, spec, client, least, weights(table, spec)))
        if not table.broken:  # rows that cannot be read end the job, with a text of their own
            found.append(_for_groups(config, of_file, of_job, client, rows, policies))
            found.append(_for_combinations(config, table, spec, client, n, every))
            found.append(_for_values(config, table, spec, client, least, rows, every))
        return _together([few for few in found if few is not None])
    key = "data.least_rows" if least == asked else "[disclosure] least_rows of its policy"
    gone = f", once {table.incomplete} that lack a cell are left out" if table.incomplete and _leaves_out(config) else ""
    own = (
        f"client {client!r}, {table.source}: {n} rows that count{gone}{_in_a_batch(config)}; {least} are asked for ({key}), "
        "since what is sent of fewer may tell them: pool them with another site's, or take part in private jobs only"
    )
    return Few(f"client {client!r} has fewer rows than this job, or its holder, asks for", own)


def _together(found: list[Few]) -> Few | None:
    """Returns all reasons as one; that which ends in a lower number of rows comes last, for the value that would do follows."""
    if not found:
        return None
    found = sorted(found, key=lambda few: few.own.endswith(alike.LOWER))
    told, own = "; also: ".join(few.told for few in found), "\n".join(few.own for few in found)
    return Few(told, own, all(few.of_values for few in found), found[0].of)


def _for_groups(
    config: JobConfig, table: Table, spec: Spec, client: str, rows: Array, policies: tuple[Policy, ...]
) -> Few | None:
    """Returns why a client has too few groups, of rows that count, or None; an empty label is none."""
    asked, least = holders.least_groups(config), holders.least_groups(config, policies)
    if asked is None or least is None or spec.group is None:
        return None
    labels = {label for label, row in zip(table.cells(spec.group), rows.tolist()) if row and label.lower() not in MISSING}
    if len(labels) >= least:
        return None
    key = "data.least_groups" if least == asked else "[disclosure] least_groups of its policy"
    remedy = "leave out the groups ([model.random]); where a client is one group, take client = true"
    own = f"client {client!r}, {table.source}: {len(labels)} groups in column {spec.group!r}; {least} are asked for ({key})"
    told = f"client {client!r} has fewer groups in column {spec.group!r} than this job, or its holder, asks for"
    return Few(f"{told}: {remedy}", f"{own}: {remedy}", of="groups")


def _in_a_batch(config: JobConfig) -> str:
    return f", in a batch ({config.batch:g} of all)" if config.batch < 1 else ""


def _for_curvature(config: JobConfig, table: Table, spec: Spec, client: str, n: int) -> Few | None:
    """Returns why a client has too few rows, `n` to a message, for the part of X'WX that every client of the job tells."""
    p = coefficients(table, spec)
    wanted = config.told_up_to(p)
    if not wanted or may_tell_curvature(config, n, p):
        return None
    full = config.told_of(p)
    shape = "full" if full else "diagonal"
    other = 'take model.covariance = "diagonal" or' if full else "take"  # others may not read whether that is enough
    levels = _levels(table, spec)
    every = spec.intercept + sum(levels.values())
    widest = max(levels, key=lambda name: levels[name], default="")
    named = widest and levels[widest] > max(2, WIDE * every)  # its number of levels is for the holder alone
    fewer = f"fewer columns ({widest!r} has the most levels: {_instead(config)})" if named else "fewer columns"
    most = f", {levels[widest]} of them of column {widest!r}" if named else ""
    those = "" if p == every else f" (for {p}: a level in fewer than {LEAST_OF_LEVEL} rows is a fault, and not counted)"
    counts = f"{every} coefficients by its columns and levels{most}{config.counted_too}; "
    counts += f"more than {wanted} rows are asked for{those}"
    if not hasattr(config.model, "covariance"):  # a job whose messages are no sites
        remedies = f"take {fewer}, or fewer {config.fewer_too}, or pool it with another site's rows"
        own = f"client {client!r}, {table.source}: {n} rows that count and {counts}, since what is sent of fewer can tell them"
        return Few(f"client {client!r} has too few rows for its coefficients: {remedies}", f"{own}: {remedies}")
    remedies = f"{other} {fewer}, or pool it with another site's rows"
    told = f"client {client!r} has too few rows for its coefficients and a {shape} covariance"
    own = (
        f"client {client!r}, {table.source}: {n} rows that count{_in_a_batch(config)} and {counts}, since the sites of a {shape} "
        "covariance tell fewer"
    )
    if full and not FAMILIES[spec.family].linear and n <= (least := told_up_to(p, diagonal=True)):
        own += f" (of a diagonal one, up to {least})"
    return Few(f"{told}: {remedies}", f"{own}: {remedies}")


def _for_events(config: JobConfig, table: Table, spec: Spec, client: str, least: int, rows: Array) -> Few | None:
    """Returns why too few rows of survival times end with the event while others are at risk.

    Each such row is one term of the likelihood, of the differences to all who are at risk. With few terms in each coefficient, or
    few differences in each term, the messages tell them. Without any event the likelihood is 1, whatever the rows are.

    A fault of a cell is reported as one, later.
    """
    if not spec.times or not {spec.response, *spec.times} <= set(table.columns):
        return None
    event = alike.events(table, spec)[0]
    if not np.isin(event, (0, 1)).all():
        return None
    counts = covered_events(table, spec, rows, event)
    p = coefficients(table, spec)
    wanted = least if lowered(config) else max(least, config.told_up_to(p) + 1)
    if counts is None or not counts.events or (counts.events if lowered(config) else counts.covered) >= wanted:
        return None
    remedy = "take fewer columns or strata, or pool it with another site's rows"
    if spec.positive is not None:  # one that counts as an event here and as none elsewhere makes few events of many
        means = f"see first that label {spec.positive!r} is the event in this file as in all others, else write it so"
        remedy = f"{means}; {remedy}"
    told = f"client {client!r} has too few events (column {spec.response!r}) for this job's coefficients, or its holder: {remedy}"
    own = (
        f"client {client!r}, {table.source}: {counts.events} events, {counts.covered} of them while at least {LEAST_AT_RISK} "
        f"rows are at risk, and {p} coefficients by its columns and levels{config.counted_too}; no event, or {wanted} such ones, "
        f"are asked for, since what is sent of fewer can tell rows: {remedy}"
    )
    return Few(told, own, of="events")


def _for_values(
    config: JobConfig, table: Table, spec: Spec, client: str, least: int, rows: Array, every: Combinations | None
) -> Few | None:
    """Returns why too few of a client's rows share a value.

    Covariates are left out where each combination of their values is in enough rows.
    """
    covariates = every is None or bool((every.rows * config.batch < LEAST_OF_LEVEL - NEARLY).any())
    weighing = config.weighing(coefficients(table, spec)) if lowered(config) is None else 0
    texts = alike.find_alike(config, table, spec, least, rows, covariates=covariates, weighing=weighing)
    own = f"client {client!r}, {table.source}"
    return None if texts is None else Few(f"client {client!r}: {texts[0]}", f"{own}: {texts[1]}", of_values=True)


def _for_combinations(config: JobConfig, table: Table, spec: Spec, client: str, n: int, every: Combinations | None) -> Few | None:
    """Returns why a client's covariates take too few different values, where some rows are nearly alone with theirs.

    The messages tell such rows.
    """
    if every is None or not (rare := int((every.rows * config.batch < LEAST_OF_LEVEL - NEARLY).sum())):
        return None
    enough = every.possible >= EQUATIONS * coefficients(table, spec) ** 2
    if enough and n >= COARSE_ROWS:
        return None
    remedies = (
        "join values (ages in bands, rare levels), put a column into data.ignore, pool it with another site's rows, "
        f"{alike.LOWER}"
    )
    own = (
        f"client {client!r}, {table.source}: its covariates can take {every.possible:,} combinations of values, and {rare:,} of "
        f"those that occur are in fewer than {LEAST_OF_LEVEL} rows{_in_a_batch(config)}, while what is sent tells how often each "
        f"occurs: {remedies}{f'; of {COARSE_ROWS:,} rows it does not' if enough else ''}"
    )
    return Few(f"client {client!r} has too few rows for covariates of few different values: {remedies}", own, of_values=True)


def coefficients(table: Table, spec: Spec) -> int:
    """Returns the number of coefficients of the model that this file's own columns and levels make.

    (Of an undeclared column, levels in few rows are a fault.)
    """
    if spec.coefficients is not None:
        return spec.coefficients
    most = table.n_rows // LEAST_OF_LEVEL
    levels = _levels(table, spec).items()
    return spec.intercept + sum(count if name in spec.columns else max(1, min(count, most)) for name, count in levels)


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
        said = [f"sites    a client's sites can tell its rows where these are few; {none}"] if wanted else []
        return [*(said if lowered(config) is None else []), *rotation(config, p)]
    what = "full site is" if hasattr(config.model, "covariance") else "likelihood tells"
    said = [f"curvature a client's {what} X'WX of its rows, and its labels"]
    if lowered(config) is not None:
        return [f"{said[0]}: with a few rows a coefficient, all rows", *rotation(config, p)]
    return [f"{said[0]}; {none}"]


def rotation(config: JobConfig, p: int, n_rows: int | None = None) -> list[str]:
    """Returns a warning where rows may be no more than coefficients and one, of a job or of one's own file.

    X'X tells these rows up to a rotation, and sites with a full covariance, at two values of q, the rotation too.

    Parameters
    ----------
    p : coefficients
    n_rows : the rows of one's own file; None for a client whose rows nobody else may know
    """
    least = holders.least(config)
    if not config.looks_at_values:
        return []
    lines_of_it = is_linear(getattr(config.model, "family", "gaussian"))
    if n_rows is not None and not lines_of_it and p + 1 < n_rows <= config.told_up_to(p):
        return [f"  note: {n_rows} rows and {p} coefficients: what is sent can tell all these rows"]
    if config.privacy is not None or least is None or (least if n_rows is None else n_rows) > p + 1:
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
    if holders.least(config) is None:
        return Kept(parties, everybody)
    assert isinstance(config.data, FewSection)
    leaves_out, tables, own = config.data.small == "leave-out", dict[int, Table](), dict[int, str]()
    faulty = Refusals()
    for k in place.mine(parties.n_clients):
        why: list[str] = []
        with faulty.collecting(), owned(k):
            table, name = parties.rows(k), parties.names[k]
            if parties.specs is None:  # a column that is missing says nothing of rows, and is what to mend first
                check_header(table.names, parties.spec, table.source, name)
            spec, policies = parties.spec_of(table.names), bindings[k].policies
            # The rows are noted before they are counted: the answer depends on them.
            with between(k):
                near = holders.asked(config, parties, k, bindings[k], table, spec)
            refusals = find_refusals(parties, table, spec, name) if config.looks_at_values else Refusals()
            few = None
            with refusals.collecting():
                few = find_few(config, refusals.usable(table), spec, name, policies)
            why = [*(near or ()), *([few.own] if few else [])]
            if near is not None and why and not leaves_out:
                with between(k):
                    holders.refuse(holders.who(parties.names, k), policies, [*why, *map(own_text, refusals.errors)])
            if few is not None and not leaves_out:
                also = "" if config.secure else ' (where clients have rows of their own also by data.small = "leave-out")'
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
    numbers = tuple(k for k in everybody if k not in left)
    what = "rows" if config.groups_asked is None else "rows or groups"
    what = f"{what} or events" if getattr(config.data, "event", None) is not None else what
    notes = tuple(f"left out: client {parties.names[k]!r} {LEFT_OUT.format(what)}" for k in left)
    return Kept(_renumbered(parties, numbers, tables), numbers, notes, own)


def leave_out(place: Place, kept: Kept) -> list[int]:
    """Goes on without some clients, and returns which of the others live here. JobError where nobody is left."""
    if not kept.numbers:
        raise JobError(
            "no client is left: each has fewer rows than this job, or its holder, asks for (or groups), or nearly those of an "
            'earlier job, which its holder forbids (data.least_rows, data.small = "leave-out"); a holder reads which in '
            "fault.txt of its own folder, or by fedkern check JOB --local FILE"
        )
    place.leave_out(kept.numbers, kept.parties.names)
    return place.mine(kept.parties.n_clients)


def _joined(place: Place, own: Mapping[int, str]) -> list[int]:
    """Returns the clients that are left out, of all places."""
    mine = json.dumps(sorted(own)).encode()
    all_of_them = place.settle(mine, lambda told: json.dumps(sorted({k for one in told for k in json.loads(one)})).encode())
    with reading("the server: which clients are left out"):
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
    if config.privacy is None or config.unit == "case" or n_rows >= LEAST_ROWS:
        return []
    return [
        f"{n_rows} rows: an open job would ask for {LEAST_ROWS}; this one counts none, and its noise is all that protects them"
    ]
