"""Finds which clients go on in an open job that counts rows, where each lives, before anything of their rows leaves.

A client whose rows break a rule of the job's level, or of its own holder's policy (`JobConfig.rules`), ends the job, or the job
goes on without it (`disclosure.small`); what these rules ask for is `disclosure.few`.

A refusal is an answer too, of one bit, and many jobs are many bits. A holder whose policy forbids jobs that differ by little from
an earlier one (`holders.asked`) has each job's rows in its account before they are counted, and others read the same of few rows
and of rows that are nearly an earlier job's.

In a private job nothing is counted: whether one row more is there must not show. Its holder reads a note in its own folder.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from ..algorithms.core.messages import reading
from ..data.design import describe
from ..data.faults import Faults, Refusals, own_text
from ..data.formula import check
from ..data.header import check_header
from ..data.table import Table
from ..disclosure.few import find_few
from ..disclosure.refusals import name_rules
from ..disclosure.requirement import Requirement
from ..disclosure.rules import LEVELS
from ..errors import JobError, owned
from ..finding import Finding
from ..models.encoding import Spec
from ..transports.place import Place, signers
from . import holders, joining
from .holding.binding import Binding
from .keys import OLD_KEYS_END, OLD_KEYS_OF_DATA, JobConfig
from .parties import Parties

KEYS = ("rows", "rows_per_value", "groups")  # whose numbers are those of rules


class Kept(NamedTuple):
    """Says which clients go on."""

    parties: Parties  # those that stay, with the tables that were read (each is given once, and read again after that)
    numbers: tuple[int, ...]  # the number that each had before
    notes: tuple[Finding, ...] = ()  # for the reader of the result, on clients that are left out and on groups at several
    own: Mapping[int, str] = {}  # the texts for the left-out clients that live here, by the number that they had
    # name -> the rules that would refuse a client if parties were apart, with the numbers that its rows would do for, where all
    # rows are in this process
    apart: Mapping[str, str] = {}
    # those that take part by a summary, by their places among `parties`, and how many numbers each may tell
    summaries: Mapping[int, int] = {}


def lowered(config: JobConfig) -> str | None:
    """Returns the warning about an open job whose own numbers ask for less than level "standard"; None for other jobs."""
    if config.level == "none":
        return None
    usual, p = config.model_copy(update={"disclosure": type(config.disclosure)(level="standard")}), 10
    less = [
        name for name in KEYS if (given := getattr(config.disclosure, name)) is not None and given < getattr(usual.rules, name)
    ]
    if config.disclosure.rows_per_coefficient is not None and config.requirement.told_up_to(p) < usual.requirement.told_up_to(p):
        less.append("rows_per_coefficient")
    if config.disclosure.leverage is not None and config.rules.leverage > usual.rules.leverage:
        less.append("leverage")
    if not less:
        return None
    keys = ", ".join(f"disclosure.{name}" for name in less)
    return f'this job asks for less than level "standard" ({keys}): what a client sends may tell some of its rows, or all of them'


def first(config: JobConfig) -> list[tuple[str, str]]:
    """Returns the first warnings about a job, each with a word for it: that it lowers a number, or tells rows by itself."""
    less = lowered(config)
    notes = [("LOWERED", less)] if less else []
    return notes + ([("ROWS", found) for found in config.tells_rows] if config.level != "none" else [])


def kept(
    place: Place,
    config: JobConfig,
    parties: Parties,
    bindings: Mapping[int, Binding],
    between: Callable[[int], AbstractContextManager[Any]] = nullcontext,
) -> Kept:
    """Reads the rows of the clients that live here, and returns who goes on. `bindings`: client that lives here -> the policies
    that bind its data; `between`: client -> a context in which its account and its policies are asked: it reports their refusals.
    Raises OwnFault: a client has too few rows, and the job does not leave it out. Raises HolderError: the same, or its rows are
    nearly an earlier job's, where its policy forbids that."""
    everybody = tuple(range(parties.n_clients))
    if config.privacy is not None or not config.counts_rows:
        return Kept(parties, everybody)
    # Where all rows are in one process nothing is asked of them, and it is said what would be if parties were apart.
    alone, leaves_out = config.level == "none", config.disclosure.small == "leave-out"
    usual, tables, why_of, apart = config.at_standard(), dict[int, Table](), dict[int, str](), dict[str, str]()
    signed, requirement, nothing = signers(place, parties.n_clients), usual.requirement, config.requirement
    summed, empty, faulty = dict[int, int](), dict[int, str](), Refusals()
    drops = alone and requirement.drops  # else others would know that these rows are none, and not too few
    for k in place.mine(parties.n_clients):
        with faulty.collecting(), owned(k):
            (table, spec), name, policies = _read(parties, k), parties.names[k], bindings[k].policies
            if drops and table.incomplete and not table.n_rows:
                empty[k] = f"each of its {table.incomplete} rows lacks a cell"
                continue
            near = None
            if not alone and config.most_ids is None:  # the rows are noted before they are counted: the answer depends on them
                with between(k):
                    near = holders.asked(config, parties, k, bindings[k], table, spec)
            requirement_here = nothing if alone else holders.bound(config, policies, signed=k in signed)
            refusals, few = faults_of(config, requirement_here, parties, table, spec, name), None
            with refusals.collecting():
                usable = refusals.usable(table)
                rows = joining.join_rare(usual, usable, spec) if alone else usable
                few = find_few(requirement if alone else requirement_here, rows, spec, name)
            if few is not None and few.by_summary:
                summed[k] = few.by_summary
                few = None
            if few is not None and alone:
                apart[name], few = few.numbers, None
            why = [*(near or ()), *([few.own] if few else [])]
            if near is not None and why and not leaves_out:
                with between(k):
                    holders.refuse(holders.who(parties.names, k), policies, [*why, *map(own_text, refusals.errors)])
            if not why:
                tables[k] = table
            elif leaves_out:
                why_of[k] = "\n".join(why)
                if few is None or not few.of_values:  # a value that is a fault is told as one
                    continue
            elif few is not None:
                refusals.errors += few.errors
            refuse(place, config, bindings[k], refusals.errors)
    faulty.refuse()
    # All places must leave out the same clients, and learn no more than which.
    left = _joined(place, dict.fromkeys(why_of, 0)) if leaves_out else {}
    summaries = _joined(place, summed) if nothing.small_by_summary and not alone else {}
    incomplete = _joined(place, dict.fromkeys(empty, 0)) if drops else {}
    numbers = tuple(k for k in everybody if k not in left and k not in incomplete)
    notes = tuple(Finding.of("left-out", client=parties.names[k]) for k in left)
    notes += tuple(Finding.of("left-out-incomplete", client=parties.names[k]) for k in incomplete)
    if alone and (random := getattr(config.model, "random", None)) is not None:  # no strata, each client's own by design
        notes += tuple(note for group in random.every for note in _shared_groups(group.column, tables.values()))
        notes += tuple(note for group in random.every_shared for note in _single_groups(group.column, tables.values()))
    among = {now: summaries[k] for now, k in enumerate(numbers) if k in summaries}
    return Kept(_renumbered(parties, numbers, tables), numbers, notes, why_of | empty, apart, among)


def _shared_groups(group: str, tables: Iterable[Table]) -> tuple[Finding, ...]:
    """Returns a note on groups whose rows several clients have: each client takes those of its own for a group."""
    n = sum(clients > 1 for clients in _clients_of(group, tables).values())
    return (Finding.of("groups-at-several-clients", column=group, groups=n),) if n else ()


def _single_groups(group: str, tables: Iterable[Table]) -> tuple[Finding, ...]:
    """Returns a note on groups of one client that the job says all have in common."""
    several = [*tables]
    n = sum(clients == 1 for clients in _clients_of(group, several).values()) if several[1:] else 0
    return (Finding.of("shared-groups-of-one-client", column=group, groups=n),) if n else ()


def _clients_of(group: str, tables: Iterable[Table]) -> Counter[str]:
    """Returns how many clients have each label of a column."""
    return Counter(label for table in tables for label in {*table.cells(group)} - {""})


def refuse(place: Place, config: JobConfig, binding: Binding | None, errors: Sequence[JobError]) -> None:
    """Raises refusals of a client's rows, if there are any.

    Others read that they are, and the rules' names where its policies have these told, or where there are no others.
    """
    policies = () if binding is None else binding.policies
    names_rules = bool(policies) and not config.secure and all(policy.tell == "rules" for policy in policies)
    if names_rules or (not policies and holders.in_one_process(place)):
        name_rules(errors)
    refusals = Refusals()
    refusals.errors += errors
    refusals.refuse()


def faults_of(config: JobConfig, requirement: Requirement, parties: Parties, table: Table, spec: Spec, client: str) -> Refusals:
    """Returns the faults of a client's cells and columns, in an open job that asks so much of its rows.

    What counts rows looks at those without a fault (`usable`). Too few is all that is said of no rows; where clients have columns
    apart few rows count.
    """
    found = Refusals(table.n_rows)
    if not table.n_rows or parties.specs is not None or not requirement.looks_at_values:
        return found
    with found.collecting():
        # Rows of each level are counted by the job's rules, where these ask for any.
        describe(table, spec, client, least_of_level=None if requirement.level == "none" else 0)
    for look in (check, partial(parties.check, config)):
        with found.collecting():
            look(found.usable(table), spec, client)
    return found


def _read(parties: Parties, k: int) -> tuple[Table, Spec]:
    """Returns a client's rows, and the facts of their columns."""
    table = parties.rows(k)
    if parties.specs is None:  # a column that is missing says nothing of rows, and is what to mend first
        check_header(table.names, parties.spec, table.source, parties.names[k])
    return table, parties.spec_of(table.names)


def describe_apart(config: JobConfig, kept: Kept) -> list[str]:
    """Returns the line on a job whose rows are all in this process: what would be asked of them if parties were apart."""
    if not kept.apart:
        return []
    refused = "; ".join(f"{name!r} would be refused ({numbers} would do)" for name, numbers in kept.apart.items())
    return [f"all rows are in this process; with parties apart, {refused}"]


def renamed(config: JobConfig) -> list[str]:
    """Returns lines on keys of earlier versions, with those that are meant."""
    notes = []
    for name in config.old_keys:
        if name in OLD_KEYS_OF_DATA:
            new, value = OLD_KEYS_OF_DATA[name][0], json.dumps(getattr(config.data, OLD_KEYS_OF_DATA[name][0]))
            given = f"is now data.{new} = {value}: write that" if value != "null" else f"is now data.{new}: remove it"
            notes.append(f"data.{name} {given}; the old key ends in version {OLD_KEYS_END}")
    if not (old := [name for name in config.old_keys if name not in OLD_KEYS_OF_DATA]):
        return notes
    now = ", ".join(f"{name} = {json.dumps(value)}" for name, value in config.disclosure.model_dump(exclude_none=True).items())
    return [*notes, f"{', '.join(f'data.{name}' for name in old)}: the table [disclosure] has these now ({now})"]


def leave_out(place: Place, kept: Kept) -> list[int]:
    """Goes on without some clients, and returns which of the others live here. JobError where nobody is left."""
    if not kept.numbers:
        raise JobError(
            "no client is left: each is refused by a disclosure rule, or by its holder's policy ([disclosure], small = "
            '"leave-out"); a holder reads why in holder.txt of its own folder, or by fedkern check JOB --local FILE'
        )
    place.leave_out(kept.numbers, kept.parties.names)
    return place.mine(kept.parties.n_clients)


def _joined(place: Place, numbers: Mapping[int, int]) -> dict[int, int]:
    """Returns the clients, of all places, that are left out or take part by a summary, with a number of each."""
    mine = json.dumps(sorted(numbers.items())).encode()
    joined = place.settle(
        mine, lambda answers: json.dumps(sorted(pair for answer in answers for pair in json.loads(answer))).encode()
    )
    with reading("the server: which clients are left out, or take part by a summary"):
        return {int(k): int(number) for k, number in json.loads(joined)}


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
