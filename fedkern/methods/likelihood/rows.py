"""Finds the parties of a job and what is known of their columns, and sorts a client's rows by group.

Labels of groups are read where the rows live, and leave it in no form. Two clients that have the
same label have two groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...algorithms.exchanges.compare import one_but_for, spellings
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
from ...models.survey import Clusters
from .clusters import check_clusters
from .keys import Config
from .parts import check_parts
from .pieces import check_pieces
from .times import Columns, check_between, read_times

Array = NDArray[np.float64]

OF_EACH_ROW = ("poisson", "binomial")  # families that a group of each row, of one row or one number of trials, makes vary more


def parties(config: Config, folder: Path) -> Parties:
    """Returns the parties of a job whose paths are relative to `folder`.

    Raises
    ------
    JobError
        No file matches, or two clients have one name.
    """
    data, model = config.data, config.model
    declared = jobs.declared(data.columns) | incomplete.marks(config)
    # Trials are read as rows of successes and of failures with their numbers; the response of survival times is the event.
    family = one_trial(config.row.name)
    known = jobs.Known(family, data.event if config.hazards else data.response, data.positive, declared, model.intercept)
    known = known._replace(levels=config.levels)
    if not data.builtin:
        spec = replace(jobs.rows_spec(config, data, known), repeats=config.repeats, strata=data.survey_strata)
        spec = replace(spec, weight=None) if config.repeats else replace(spec, group=data.psu) if config.survey else spec
        if config.hazards:
            times = tuple(name for name in (data.time, data.entry) if name is not None)
            spec = replace(spec, times=times, upper=data.time_upper, exposed=config.lifetimes)
            spec = spec if config.lifetimes else replace(spec, group=data.strata)  # of which a Cox model has no survey's
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
    if config.random.client and parties.n_clients < 2:
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

    Raises
    ------
    OwnFault
        It lacks one, or has too few rows of it; cells are for the holder.
    """
    spec = with_event(spec, table)
    check_groups(config, table, spec, client)
    asked = config.requirement
    coefficients = few.coefficients(asked, table, spec)
    family, wanted = config.model.family, asked.told_up_to(coefficients) + 1
    if config.survey:
        check_clusters(table, spec, client, coefficients + config.shapes, config.rules)
    if (columns := times_of(config)) is not None:
        event = look.events(table, spec)[0]
        times = read_times(columns, table, event, client, positive=config.lifetimes)
        if not config.lifetimes:
            at = () if config.level == "none" else config.output.survival_at or ()
            check_between(at, times, event, look.weights(table, spec), client, table.source)
        elif config.rules.of_coefficients:
            check_pieces(config.model.cuts or (), times, client, table.source)
            check_parts(family, wanted, table, spec, client, times)
    elif config.rules.of_coefficients:
        check_parts(family, wanted, table, spec, client)


@dataclass(frozen=True)
class Held:
    """Holds the rows that a client's likelihood reads: it is the field of no message.

    Attributes
    ----------
    X : (n, p) the columns of the coefficients; rows sorted by group
    y, trials, offset : (n,) response, number of trials (1 where a row is one), and what is added to the predictor
    starts : (G + 1,) where each group begins, and n; without groups (0, n)
    labels : (G,) of the groups
    order : (n,) the file's row of each; None: they are in its order
    table : the file, where changes of its columns are asked for
    weights : (n,) of rows that have some
    clusters : of a survey
    """

    X: Array
    y: Array
    trials: Array
    offset: Array
    starts: NDArray[np.int64]
    labels: tuple[str, ...] = ()
    order: NDArray[np.int64] | None = None
    table: Table | None = None
    weights: Array | None = None
    clusters: Clusters | None = None

    def __len__(self) -> int:
        return len(self.y)


def sort_by_group(design: Design, table: Table, group: str | None) -> Held:
    """Returns a client's rows for its likelihood, sorted by group."""
    X, y, trials, offset, of_file = _rows(design)
    weights = design.weights if design.units is None else None
    if group is None:
        order = None if design.units is None else of_file
        return Held(X, y, trials, offset, np.array([0, len(y)]), (), order, weights=weights)
    cells = labels(table.columns[group])
    codes = cells.codes[of_file]
    order = np.argsort(codes, kind="stable")
    there, starts = np.unique(codes[order], return_index=True)
    ends = np.append(starts, len(y)).astype(np.int64)
    named = tuple(cells.levels[code] for code in there.tolist())
    weights = None if weights is None else weights[order]
    return Held(X[order], y[order], trials[order], offset[order], ends, named, of_file[order], weights=weights)


def describe_groups(table: Table, group: str | None) -> list[str]:
    """Returns notes for the client's own eyes: labels that may mean one group, and make several."""
    if group is None:
        return []
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
    """Refuses a client's file without the groups and the slopes that the job asks for, whatever other clients' rows are.

    Raises
    ------
    OwnFault
        An empty label, a single row in every group, or a slope of no numeric covariate; cells are for the holder.
    """
    random, begin = config.random, who(client, table.source)
    name = random.group
    laid, of_terms = looked_at(table, spec)  # where a slope may be of what is calculated from a column
    covariates = of_terms.covariates(laid.names)
    for key, slopes in (("slopes", random.slopes), ("client_slopes", random.client_slopes)):
        for slope in slopes:
            if slope not in covariates or column_of(of_terms, laid, slope).kind != "numeric":
                what = "is categorical" if slope in covariates else "is no covariate"
                text = f"{begin}: model.random.{key}: column {slope!r} {what}, and slopes are of numeric covariates"
                raise OwnFault(f"{text}; name another, or leave it out", f"{text}; name another, or leave it out")
    if name is None:
        return
    cells = labels(table.columns[name])
    empty = np.array([level == "" for level in cells.levels])[cells.codes]
    if empty.any():
        remedy = f"give each row its group, or leave the row out ({LEFT_OUT})"
        n, first = int(empty.sum()), table.place(int(np.flatnonzero(empty)[0]))
        text = f"{begin}: model.random.group: column {name!r} is empty in some rows; {remedy}"
        raise OwnFault(text, f"{begin}: column {name!r} is empty in {n} rows, first in {first}; {remedy}", look=HINT)
    counts = np.bincount(cells.codes)
    counts = counts[counts > 0]
    if config.row.linear and config.rules.of_coefficients:
        _small_groups(config, table, spec, cells.codes, client)
    # Counts may vary more by an effect of each row; of most other responses nothing tells it from what they have already.
    if counts.max() == 1 and config.model.family not in OF_EACH_ROW:
        remedy = "name the column of what several rows share, such as a ward or a patient, or remove [model.random]"
        text = f"{begin}: model.random.group: column {name!r} has another label in every row, as what names rows"
        raise OwnFault(f"{text}; {remedy}", f"{text} ({len(counts)} labels of {len(cells.codes)} rows); {remedy}")


def _small_groups(config: Config, table: Table, spec: Spec, codes: NDArray[np.int64], client: str) -> None:
    """Refuses a client with few groups of one row, or of two.

    Messages are sums over all groups of a size, of the squares and products of the means of their rows, as if these were the
    client's only rows. With random slopes they are each group's squares and products, which tell both rows of a group of two
    (docs/spec/likelihood.md, section 6).

    Raises
    ------
    RuleRefusal
        It has few of one kind.
    """
    table, spec = looked_at(table, spec)
    asked, numbers, errors = config.requirement, np.bincount(codes), Refusals()
    ones, twos = (int((numbers == size).sum()) for size in (1, 2))
    p, least = few.coefficients(asked, table, spec), min(LEAST_OF_LEVEL, config.rules.rows_per_value)
    # With slopes a group's message is of its own rows, and not of all of its size.
    sloped, fewest = config.rules.sloped_groups if config.random.slopes else 0, min(ones or twos, twos or ones)
    wanted, pairs = max(least, int(config.rules.linear * p) + 1, sloped), max(least, sloped)
    values: dict[str, Value] = {"column": config.random.group, "ones": ones, "twos": twos, "wanted": wanted, "pairs": pairs}
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
    for found in look.Look.at(asked, table, spec, alone).few() if ones else ():
        raise found.refusal(asked, client, f"{table.source}, among groups of one row")


def check_slopes(held: Held, slopes: Mapping[str, int], client: str, source: str) -> None:
    """Refuses slopes of groups that cannot be told from their intercepts: a column must vary within some group.

    Raises
    ------
    OwnFault
        One of `slopes`, name -> its column of X, varies in no group of this client.
    """
    begin = who(client, source)
    for name, j in slopes.items():
        z, groups = held.X[:, j], len(held.starts) - 1
        low, high = (np.array([f(z[a:b]) for a, b in zip(held.starts[:-1], held.starts[1:])]) for f in (np.min, np.max))
        if groups and not (high > low).any():
            remedy = f"remove {name!r} from model.random.slopes, or leave the client out"
            text = f"{begin}: model.random.slopes: column {name!r} has one value in every group, so that no slope can be learnt"
            raise OwnFault(f"{text}; {remedy}", f"{text} ({groups} groups); {remedy}")


def sizes_of(here: Mapping[int, object], sizes: Sequence[int]) -> Sequence[int]:
    """Returns the number of each client's rows: those that are here, where all are; else what clients have told (`sizes`)."""
    known = [len(rows) for rows in here.values() if isinstance(rows, Held)]
    return known if len(known) == len(sizes) else sizes
