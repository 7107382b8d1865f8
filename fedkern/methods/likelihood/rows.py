"""Finds the parties of a job and what is known of their columns, and sorts a client's rows by group.

Labels of groups are read where the rows live, and leave it in no form. Two clients that have the
same label have two groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...algorithms.exchanges.compare import one_but_for, spellings
from ...arrays import Array
from ...data.cells import labels
from ...data.design import LEAST_OF_LEVEL, Design, column_of, with_event
from ...data.faults import HINT, LEFT_OUT, Refusals, who
from ...data.formula import looked_at
from ...data.table import Table
from ...disclosure import few, look
from ...errors import JobError, OwnFault
from ...finding import RuleRefusal, Value
from ...jobs import incomplete
from ...jobs import parties as jobs
from ...jobs.parties import Parties
from ...kernels.families import one_trial
from ...models.encoding import Spec
from ...models.mixed.grouping import Grouping, nested
from ...models.mixed.joint import MOST_EFFECTS, parts_of
from ...models.survey import Clusters
from ...printing import listed
from .clusters import check_clusters
from .keys import Config, RandomSection
from .parts import check_parts
from .pieces import LEAST, check_pieces
from .times import Columns, check_between, read_times

MOST = 8  # labels that a fault lists
OF_EACH_ROW = ("poisson", "binomial")  # families that a group of each row, of one row or one number of trials, makes vary more


def parties(config: Config, folder: Path) -> Parties:
    """Returns the parties of a job whose paths are relative to `folder`. Raises JobError: no file matches, or two clients have
    one name."""
    data, model = config.data, config.model
    declared = jobs.declared(data.columns) | incomplete.marks(config)
    # Trials are read as rows of successes and of failures with their numbers; the response of survival times is the event.
    family = one_trial(config.row.name)
    known = jobs.Known(family, data.event if config.hazards else data.response, data.positive, declared, model.intercept)
    known = known._replace(levels=config.levels)
    if not data.builtin:
        spec = replace(jobs.rows_spec(config, data, known), repeats=config.repeats, strata=data.survey_strata)
        if config.repeats:
            spec = replace(spec, weight=None)
        elif config.survey:
            spec = replace(spec, groups=() if data.psu is None else (data.psu,))
        if config.hazards:
            times = tuple(name for name in (data.time, data.entry) if name is not None)
            spec = replace(spec, times=times, upper=data.time_upper, exposed=config.lifetimes)
            if not config.lifetimes and data.strata is not None:  # a Cox model, which is of no survey
                spec = replace(spec, groups=(data.strata, *spec.groups))
        job_parties = jobs.from_files(config, folder, spec, spec.texts)
        _several(config, job_parties)
        job_parties = jobs.there(job_parties, algorithm__client_weights=config.algorithm.client_weights or ())
        return replace(job_parties, check=check_file)
    dealt = jobs.dealt(data)
    jobs.fits(model.family, dealt)
    columns, response = {**dealt.columns, **declared}, data.response or dealt.response or None
    known = known._replace(response=response, positive=dealt.positive, columns=columns)
    job_parties = jobs.of_dealt(config, dealt, jobs.rows_spec(config, data, known))
    _several(config, job_parties)
    return replace(job_parties, check=check_file)


def _several(config: Config, parties: Parties) -> None:
    """Refuses an effect of clients in a job of one client, with a JobError."""
    if config.random.client and parties.n_clients < 2 and not config.extends:
        raise JobError(
            "model.random.client = true: an effect of each client needs at least two, and there is one; remove it, or name the "
            'column of what differs in this file (group = "COLUMN")'
        )


def times_of(config: Config) -> Columns | None:
    """Returns the columns of survival times; None where rows have none."""
    data = config.data
    if not config.hazards:
        return None
    named = (*(config.output.survival_at or ()), *(config.model.cuts or ()))
    return Columns(str(data.time), data.entry, data.strata, data.time_upper, named)


def check_file(config: Config, table: Table, spec: Spec, client: str = "") -> None:
    """Refuses a client's file without the groups, slopes or survival times that the job asks for, whatever others' rows are.
    Raises OwnFault: it lacks one, or has too few rows of it; cells are for the holder."""
    spec = with_event(spec, table)
    check_groups(config, table, spec, client)
    requirement = config.requirement
    coefficients = few.coefficients(requirement, table, spec)
    family, wanted = config.model.family, requirement.told_up_to(coefficients) + 1
    if config.survey:
        check_clusters(table, spec, client, coefficients + config.shapes, config.rules)
    if (columns := times_of(config)) is not None:
        event = look.events(table, spec)[0]
        times = read_times(columns, table, event, client, positive=config.lifetimes)
        if not config.lifetimes:
            survival_at = () if config.level == "none" else config.output.survival_at or ()
            for _, of_cause in look.causes(table, spec):
                check_between(survival_at, times, of_cause, look.weights(table, spec), client, table.source)
        elif config.rules.of_coefficients:
            check_pieces(config.model.cuts or (), times, client, table.source)
            check_parts(family, wanted, table, spec, client, times)
    elif config.rules.of_coefficients:
        check_parts(family, wanted, table, spec, client)


@dataclass(frozen=True)
class Held:
    """Holds the rows that a client's likelihood reads: it is the field of no message."""

    X: Array  # (n, p) the columns of the coefficients; rows sorted by group
    # y, trials, offset: (n,) response, number of trials (1 where a row is one), and what is added to the predictor
    y: Array
    trials: Array
    offset: Array
    starts: NDArray[np.int64]  # (G + 1,) where each group begins, and n; without groups (0, n)
    labels: tuple[str, ...] = ()  # (G,) of the groups
    order: NDArray[np.int64] | None = None  # (n,) the file's row of each; None: they are in its order
    table: Table | None = None  # the file, where changes of its columns are asked for
    weights: Array | None = None  # (n,) of rows that have some
    clusters: Clusters | None = None  # of a survey
    # codes, outer: (n,) the group of each row in each other column of groups, and the labels of these groups
    codes: tuple[NDArray[np.int64], ...] = ()
    outer: tuple[tuple[str, ...], ...] = ()
    key: int = 0  # of the numbers by which effects are integrated together

    def __len__(self) -> int:
        return len(self.y)


def sort_by_group(design: Design, table: Table, random: RandomSection) -> Held:
    """Returns a client's rows for its likelihood, sorted by the groups of the last kind, first by those in which they lie."""
    X, y, trials, offset, of_file = _rows(design)
    weights = design.weights if design.units is None else None
    if random.shared is not None:
        X = np.hstack([X, _indicators(table, random.shared, of_file)])
    if not random.every:
        order = None if design.units is None else of_file
        return Held(X, y, trials, offset, np.array([0, len(y)]), (), order, weights=weights)
    *outer, (codes, named) = [codes_of(table, grouping.column, of_file) for grouping in random.every]
    around = outer[0][0] if nested(random.every) else 0 * codes
    order = np.lexsort((codes, around))
    edges = np.diff(codes[order], prepend=-1, append=-1) | np.diff(around[order], prepend=-1, append=-1)
    ends = np.flatnonzero(edges)
    named = tuple(named[code] for code in codes[order][ends[:-1]])
    weights = None if weights is None else weights[order]
    held = Held(X[order], y[order], trials[order], offset[order], ends, named, of_file[order], weights=weights)
    return replace(held, codes=tuple(numbers[order] for numbers, _ in outer), outer=tuple(of for _, of in outer))


def _indicators(table: Table, shared: Grouping, of_file: NDArray[np.int64]) -> Array:
    """(n, L) which group that clients have in common each row is of."""
    codes, labels_here = codes_of(table, shared.column, of_file)
    places = {level: k for k, level in enumerate(shared.levels)}
    return np.eye(len(places))[[places[level] for level in labels_here]][codes]


def codes_of(table: Table, group: str, of_file: NDArray[np.int64]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Returns (n,) numbers of rows' groups, and (G,) their labels; `of_file`: the file's row of each."""
    cells = labels(table.columns[group])
    present, codes = np.unique(cells.codes[of_file], return_inverse=True)
    return codes.astype(np.int64), tuple(cells.levels[code] for code in present.tolist())


def describe_groups(table: Table, groups: Sequence[str]) -> list[str]:
    """Returns notes for the client's own eyes: labels that may mean one group, and make several; groups that are alike."""
    notes, partitions = list[str](), [codes_of(table, group, np.arange(table.n_rows))[0] for group in groups]
    for (a, first), (b, second) in combinations(zip(groups, partitions), 2):
        if len({*zip(first.tolist(), second.tolist())}) == first.max(initial=-1) + 1 == second.max(initial=-1) + 1:
            notes.append(f"columns {a!r} and {b!r} make the same groups of these rows, which do not tell their effects apart")
    for group in groups:
        parts = group.split(":")
        if group in table.names and len(parts) > 1 and {*parts} <= {*table.names}:
            several = len({*zip(*(table.cells(part) for part in parts))}) - len({*table.cells(parts[-1])})
            if several > 0:
                notes.append(f"labels of {parts[-1]!r} stand in several groups of {parts[0]!r}, and are other groups in each")
    return notes + [note for group in groups for note in _alike(table, group)]


def _alike(table: Table, group: str) -> list[str]:
    return [
        f"column {group!r}: the groups {', '.join(map(repr, same))} {one_but_for(same)}, and are {len(same)} groups: write them "
        "alike if they are one"
        for same in spellings(labels(table.columns[group]).levels)
    ]


def _rows(design: Design) -> tuple[Array, Array, Array, Array, NDArray[np.int64]]:
    """X, y, trials, offset, and the file's row of each: one row each, where a design has successes and failures apart."""
    n = len(design.y)
    offset = np.broadcast_to(0.0, n) if design.offset is None else design.offset
    X = np.ascontiguousarray(design.X, np.float64)
    if design.units is None:
        return X, design.y, np.broadcast_to(1.0, n), offset, np.arange(n)
    assert design.weights is not None
    units, first, unit = np.unique(design.units, return_index=True, return_inverse=True)
    weights: Array = design.weights
    y, trials = (np.bincount(unit, weights=w).astype(np.float64) for w in (weights * design.y, weights))
    return np.ascontiguousarray(X[first]), y, trials, offset[first], units


def check_groups(config: Config, table: Table, spec: Spec, client: str = "") -> None:
    """Refuses a client's file without the groups and the slopes that the job asks for, whatever other clients' rows are. Raises
    OwnFault: an empty label, a single row in every group, or a slope of no numeric covariate; cells are for the holder."""
    random, begin = config.random, who(client, table.source)
    laid, of_terms = looked_at(table, spec)  # where a slope may be of what is calculated from a column
    covariates = of_terms.covariates(laid.names)
    for key, slopes in (("slopes", random.all_slopes), ("client_slopes", random.client_slopes)):
        for slope in slopes:
            if slope not in covariates or column_of(of_terms, laid, slope).kind != "numeric":
                what = "is categorical" if slope in covariates else "is no covariate"
                text = f"{begin}: model.random.{key}: column {slope!r} {what}, and slopes are of numeric covariates"
                raise OwnFault(f"{text}; name another, or leave it out", f"{text}; name another, or leave it out")
    for name in random.columns:
        _check_empty(table, name, client)
    for grouping in random.every:
        _check_labels(config, table, spec, grouping.column, client)
    if random.shared is not None:
        _check_shared(config, table, random.shared, client)


def _check_empty(table: Table, name: str, client: str) -> None:
    begin, cells = who(client, table.source), labels(table.columns[name])
    empty = np.array([level == "" for level in cells.levels])[cells.codes]
    if empty.any():
        remedy = f"give each row its group, or leave the row out ({LEFT_OUT})"
        n, first = int(empty.sum()), table.place(int(np.flatnonzero(empty)[0]))
        text = f"{begin}: model.random.group: column {name!r} is empty in some rows; {remedy}"
        raise OwnFault(text, f"{begin}: column {name!r} is empty in {n} rows, first in {first}; {remedy}", look=HINT)


def _check_shared(config: Config, table: Table, shared: Grouping, client: str) -> None:
    """Refuses labels that the job does not list, and groups of which a client has few rows.

    Messages tell derivatives by each group's effect: sums over its rows at this client.

    Raises
    ------
    OwnFault, RuleRefusal
        A label is none of the job's; a group has few rows, and not none.
    """
    name, cells = shared.column, labels(table.columns[shared.column])
    counts = np.bincount(cells.codes, minlength=len(cells.levels))
    sizes = {level: int(n) for level, n in zip(cells.levels, counts) if n}
    if unknown := [level for level in sizes if level not in shared.levels]:
        begin = f"{who(client, table.source)}: model.random.groups: column {name!r} has labels that are none of levels"
        remedy = "name them there, in the job of all, or mend the cells"
        raise OwnFault(f"{begin}; {remedy}", f"{begin} ({listed([repr(level) for level in unknown], MOST)}); {remedy}")
    least = max(LEAST, config.rules.rows_per_value) if config.rules.rows_per_value else 0
    if few_rows := [(level, n) for level, n in sizes.items() if n < least]:
        values: dict[str, Value] = {"column": name, "groups": few_rows, "least": least, "remedies": ("join-groups", "pool")}
        raise RuleRefusal("few-of-a-shared-group", client, "disclosure.rows_per_value", where=table.source, **values)


def _check_labels(config: Config, table: Table, spec: Spec, name: str, client: str) -> None:
    begin, cells = who(client, table.source), labels(table.columns[name])
    counts = np.bincount(cells.codes)
    counts = counts[counts > 0]
    if config.row.linear and config.rules.of_coefficients:
        _small_groups(config, table, spec, name, client)
    # Counts may vary more by an effect of each row; of most other responses nothing tells it from what they have already.
    if counts.max() == 1 and config.model.family not in OF_EACH_ROW:
        remedy = "name the column of what several rows share, such as a ward or a patient, or remove [model.random]"
        text = f"{begin}: model.random.group: column {name!r} has another label in every row, as what names rows"
        raise OwnFault(f"{text}; {remedy}", f"{text} ({len(counts)} labels of {len(cells.codes)} rows); {remedy}")


def _small_groups(config: Config, table: Table, spec: Spec, column: str, client: str) -> None:
    """Refuses a client with few groups of one row, or of two.

    Messages are sums over all groups of a size, of the squares and products of the means of their rows, as if these were the
    client's only rows. With random slopes, or groups of other columns beside, they are each group's squares and products, which
    tell both rows of a group of two (docs/spec/likelihood.md, section 6). Raises RuleRefusal: it has few of one kind.
    """
    codes = labels(table.columns[column]).codes
    table, spec = looked_at(table, spec)
    requirement, numbers, errors = config.requirement, np.bincount(codes), Refusals()
    ones, twos = (int((numbers == size).sum()) for size in (1, 2))
    p, least = few.coefficients(requirement, table, spec), min(LEAST_OF_LEVEL, config.rules.rows_per_value)
    fewest = min(ones or twos, twos or ones)
    # With slopes a group's message is of its own rows, and not of all of its size.
    sloped = config.rules.sloped_groups if config.random.n_terms > 1 else 0
    wanted, pairs = max(least, int(config.rules.linear * p) + 1, sloped), max(least, sloped)
    values: dict[str, Value] = {"column": column, "ones": ones, "twos": twos, "wanted": wanted, "pairs": pairs}
    broken, remedies = dict[str, float](), ("join-groups", *(() if sloped else ("lower-rule",)))
    if 0 < fewest < pairs:
        broken["disclosure.rows_per_value"] = fewest
    if 0 < ones < wanted and not (sloped and broken):
        broken["disclosure.rows_per_coefficient"] = int(10 * (ones - 1) / p) / 10
    for rule, enough in broken.items():
        values |= {"asks": rule, "enough": enough, "where": table.source, "remedies": remedies}
        errors.errors.append(RuleRefusal("small-groups", client, rule, **values))
    errors.refuse()
    alone = look.weights(table, spec) * (numbers[codes] == 1)
    for found in look.Look.at(requirement, table, spec, alone).few() if ones else ():
        raise found.refusal(requirement, client, f"{table.source}, among groups of one row")


def check_slopes(held: Held, slopes: Sequence[Mapping[str, int]], client: str, source: str) -> None:
    """Refuses slopes of groups that cannot be told from their intercepts: a column must vary within some group. Raises OwnFault:
    one of `slopes`, of each kind of groups name -> its column of X, varies in no group of this client."""
    begin = who(client, source)
    all_codes = (*held.codes, np.repeat(np.arange(len(held.starts) - 1), np.diff(held.starts)))
    for codes, of_kind in zip(all_codes, slopes, strict=False):  # no slopes without groups
        groups = int(codes.max(initial=-1)) + 1
        for name, j in of_kind.items():
            low, high = np.full(groups, np.inf), np.full(groups, -np.inf)
            np.minimum.at(low, codes, held.X[:, j])
            np.maximum.at(high, codes, held.X[:, j])
            if not groups or (high > low).any():
                continue
            remedy = f"remove {name!r} from model.random.slopes, or leave the client out"
            text = f"{begin}: model.random.slopes: column {name!r} has one value in every group, so that no slope can be learnt"
            raise OwnFault(f"{text}; {remedy}", f"{text} ({groups} groups); {remedy}")


def check_size(held: Held, random: RandomSection, client: str, source: str) -> None:
    """Refuses more effects than are integrated together, with an OwnFault."""
    if not random.joint:
        return
    codes = [*held.codes, np.repeat(np.arange(len(held.labels)), np.diff(held.starts))]
    part = np.zeros(len(held), np.int64) if random.client else parts_of(codes)
    found = np.zeros(int(part.max(initial=-1)) + 1, np.int64)
    for of_kind, grouping in zip(codes, random.every, strict=True):
        first = np.unique(of_kind, return_index=True)[1]
        found += len(grouping.terms) * np.bincount(part[first], minlength=len(found))
    check_number(int(found.max(initial=0)), client, source)


def check_number(n: int, client: str, source: str) -> None:
    """Refuses more than so many effects that are integrated together, with an OwnFault."""
    if n > MOST_EFFECTS:
        why = "effects of groups that rows tie together, or of a Cox model, are integrated together"
        text = f"{who(client, source)}: {why}, at most {MOST_EFFECTS:,}; leave out the column with most groups"
        raise OwnFault(text, f"{text} ({n:,} here)")


def sizes_of(here: Mapping[int, object], sizes: Sequence[int]) -> Sequence[int]:
    """Returns the number of each client's rows: those that are here, where all are; else what clients have told (`sizes`)."""
    known = [len(rows) for rows in here.values() if isinstance(rows, Held)]
    return known if len(known) == len(sizes) else sizes
