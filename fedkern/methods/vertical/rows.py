"""Finds the parties of a vertical job and reads their files: rows in the agreed order, which of them train, and their arrays."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from ...algorithms.exchanges import rows as alignment
from ...algorithms.exchanges.compare import spelled
from ...arrays import Array, Indices
from ...data import far
from ...data.cells import MISSING, TOO_FAR, floats, too_far, too_large
from ...data.degenerate import Degenerate, degenerate, with_far
from ...data.design import Column, Encoding, Faults, Spec, describe, encode, encode_alone
from ...data.faults import HINT, name_column, who
from ...data.header import UNFIT, unfit
from ...data.table import Table
from ...errors import JobError, OwnFault, owned
from ...jobs import holders, incomplete
from ...jobs.formula import agreeing
from ...jobs.holding.policy import DataSet, Policy
from ...jobs.parties import Parties, from_files, name_clients, there
from ...kernels import rng
from ...kernels.families import FAMILIES
from . import levels as of_levels
from .keys import Config
from .levels import Levels

TINY = 1e-14


def parties(config: Config, folder: Path) -> Parties:
    """Returns the parties of a job whose paths are relative to `folder`. Raises JobError: no file matches, two clients have one
    name, or the job file names clients that do not exist."""
    spec = spec_of(config, response=False)
    taking_part = _builtin(config, spec) if config.data.builtin else from_files(config, folder, spec, texts_of(config))
    taking_part = replace(taking_part, specs=partial(spec_of_file, config))
    return there(taking_part, model__priors=config.model.priors)


def spec_of_file(config: Config, names: tuple[str, ...]) -> Spec:
    """Returns the public knowledge of a file's columns: a client's, or the server's, which has no covariate."""
    client = spec_of(config, response=config.shared and config.data.response in names, names=names)
    return client if client.covariates(names) else server_spec(config)


def _builtin(config: Config, spec: Spec) -> Parties:
    """Returns the parties of built-in data whose columns are split."""
    from ...data.sets import heart_failure

    clients = tuple(heart_failure.CLIENTS)
    names = name_clients(config, clients)

    def rows(k: int) -> Table:
        return heart_failure.read().table(clients[k])

    def header(k: int) -> tuple[str, tuple[str, ...]]:
        return f"heart-failure, {names[k]}", ("id", *heart_failure.CLIENTS[clients[k]])

    held = DataSet(("heart-failure",))
    return Parties(names, spec, rows, header, lambda: None, lambda k: held, server=lambda: heart_failure.read().table("server"))


def spec_of(config: Config, *, response: bool, names: Collection[str] = ()) -> Spec:
    """Returns the public knowledge of a client's columns. `response`: whether the response is used there; `names`: of the columns
    that it has."""
    data = config.data
    sections = {name: section.model_dump(exclude_none=True) for name, section in data.columns.items() if name in names}
    columns = {name: Column.declared(name, given) for name, given in sections.items() if given or not config.private}
    columns |= {name: column for name, column in incomplete.marks(config).items() if name in names}
    response_here = data.response if response else None
    ignore = {*data.ignore, data.group} - {None}
    if not response:
        ignore.add(data.response)
    standardise: Literal["public", "none"] = "public" if data.standardise == "public" else "none"
    positive = data.positive if response else None
    return Spec(
        response=response_here,
        family=config.model.family,
        positive=positive,
        row_id=data.id,
        ignore=tuple(sorted(str(name) for name in ignore)),
        intercept=False,
        standardise=standardise,
        private=config.private,
        columns=columns,
    )


def server_spec(config: Config) -> Spec:
    """Describes the server's file: id, response and offset; other columns are not read."""
    data = config.data
    return Spec(
        response=data.response,
        family=config.model.family,
        positive=data.positive,
        offset=data.offset,
        row_id=data.id,
        intercept=True,
        standardise="none",
    )


def texts_of(config: Config) -> frozenset[str]:
    """Returns the columns of files that are read as text."""
    data = config.data
    texts = {data.id, data.group or data.id}
    if data.positive is not None:
        texts.add(data.response)
    return frozenset(texts | {name for name, c in data.columns.items() if c.kind == "categorical" or c.levels is not None})


class Alignment(NamedTuple):
    """Holds the job file's keys about how rows are brought together."""

    seed: int  # of the keyed digests
    response: str  # its column
    shared: bool  # whether every client uses it
    counted: bool  # whether others are told how many rows a party lacks
    common: bool  # whether a row that lacks a cell at some party is left out at all
    placed: bool  # whether parties have left out, before, the rows that not all have
    from_client: bool  # whether the response is told by a client


def alignment_of(config: Config) -> Alignment:
    """Takes them from a job."""
    data, shared = config.data, config.shared
    from_client = data.server is None and not data.builtin
    common = config.model.missing == "drop"
    placed = data.most_ids is not None
    return Alignment(config.job.seed, data.response, shared, not config.private, common, placed, from_client)


def aligned(table: Table, config: Config, who: str) -> tuple[Table, tuple[str, ...]]:
    """Returns a party's rows in the agreed order, and their ids."""
    name, by = config.data.id, alignment_of(config)
    if name not in table.names:
        raise _missing(who, f"column {name!r} (data.id) is missing", table, config)
    ids = table.cells(name)
    places = [table.place(row) for row in range(table.n_rows)]
    order = alignment.order(ids, by.seed, who, places, f"{who}, {table.source}", counted=by.counted)
    return replace(table.select(order), incomplete=table.incomplete), tuple(ids[row] for row in order)


def _missing(who: str, what: str, table: Table, config: Config) -> OwnFault:
    """Returns the error for a column that the job file names and a file lacks."""
    text, look = f"{what}; the header names {len(table.names)} others", HINT
    if config.private:
        text, look = unfit(spec_of(config, response=False)), UNFIT
    return OwnFault(f"{who}: {text}", f"{who}, {table.source}: {what}; there are {', '.join(table.names)}", look=look)


def held_out(config: Config, n_rows: int, new: Sequence[int] = ()) -> tuple[Indices, Indices]:
    """Splits rows into those that train and those kept for testing, alike at every party; `new` rows are in neither.

    New rows have no response. Raises JobError: nothing would be left to learn from.
    """
    data = config.data
    shuffled = np.argsort(rng.uniform(n_rows, key=rng.key(0, "partition")), kind="stable")
    known = shuffled[~np.isin(shuffled, np.array(new, np.int64))]
    if data.folds is not None:
        if data.folds > len(known):
            raise JobError(f"data.folds = {data.folds}: there are {len(known)} rows with a response; give fewer folds")
        test = known[data.fold :: data.folds]
    else:
        test = known[: round(data.holdout * len(known))]
    train = np.setdiff1d(known, test)
    if not len(train):
        raise JobError(f"data.holdout = {data.holdout:g} leaves no row of {len(known)} to learn from; lower it")
    return train, np.sort(test)


def check_counts(config: Config, n_train: int, n_new: int) -> None:
    """Raises JobError if a job cannot have this many training rows, or this many rows without a response."""
    if config.private and n_new:
        raise JobError(
            f"data.server: {n_new} rows have no response, and predictions would leave a client without noise; remove "
            "these rows at all parties"
        )
    batch = config.algorithm.batch_size
    if batch is not None and batch > n_train:
        raise JobError(f"algorithm.batch_size = {batch}: there are {n_train} training rows; lower it, or leave it out")


def least_rows(config: Config, policies: Mapping[int, Sequence[Policy]]) -> int:
    """Returns how many rows all parties must have, by the job and the policies of these clients."""
    return max([1, config.rules.rows, *(holders.bound(config, bound_by).rules.rows for bound_by in policies.values())])


def check_common(config: Config, n_rows: int, policies: Mapping[int, Sequence[Policy]]) -> None:
    """Raises JobError if too few rows are left where rows that lack a cell at some party are left out.

    It does not say how many are left. `policies`: of the clients that live here.
    """
    if config.model.missing == "drop" and n_rows < least_rows(config, policies):
        raise JobError(
            'model.missing = "drop": fewer rows are complete at all parties than disclosure.rows, or a holder\'s policy, asks '
            'for; are the ids the same? Take "indicator", or give data.ignore the columns that are empty in many rows'
        )


def no_response(config: Config) -> JobError:
    """Returns the error if neither the server nor a client has the response."""
    data = config.data
    return JobError(
        f"data.server is missing, and no client has a column {data.response!r}: give the server a file with "
        f"{data.id!r} and {data.response!r}"
    )


def needed(config: Config, names: tuple[str, ...], who: str) -> None:
    """Refuses a client's header without a column of its own, or without the group. Raises JobError: one of these is missing."""
    spec = spec_of(config, response=config.shared, names=names)
    if not spec.covariates(names):
        remedy = "a client of a vertical job needs a column of its own: add one, or remove the client"
        both = ([name for name in names if name in known] for known in (spec.known, names))  # for others, and for the holder
        raise OwnFault(*(f"{who}: no column is left beside {', '.join(others)}; {remedy}" for others in both))
    group = config.data.group
    if group is not None and group not in names:
        raise JobError(f"{who}: column {group!r} (data.group) is missing; every client needs it")


def check_declared(config: Config, parties: Parties, mine: Sequence[int]) -> None:
    """Raises JobError, naming the clients, if a private job lacks constants of several clients' columns.

    `check` and `run` themselves refuse a single such client. The error says nothing else of the headers.
    """
    if not config.private:
        return
    lacking = []
    for k in mine:
        with owned(k):
            _, header = parties.header(k)
        spec = spec_of(config, response=config.shared, names=header)
        if not all(map(spec.complete, spec.covariates(header))):
            lacking.append(parties.names[k])
    if len(lacking) > 1:
        reason = spec_of(config, response=False, names=config.data.columns).undeclared
        raise JobError(f"clients {', '.join(map(repr, lacking))}: {reason}; {HINT} it does not")


@dataclass(frozen=True)
class Columns:
    """Holds one client's covariates in the agreed order of rows, encoded by its constants, which nobody else learns."""

    encoding: Encoding
    X: Array
    y: Array | None  # the response, where it is used here
    # group, levels: the level of each row, where slopes vary by group
    group: Indices | None = None
    levels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    faults: Faults = field(default_factory=Faults)
    degenerate: Degenerate = field(default_factory=Degenerate)
    contrasts: Levels | None = None  # of the columns' levels, where X has these and no coefficient for each level
    tied: bool = False  # whether levels have a coefficient each, beside an intercept of the server's


@dataclass(frozen=True)
class Reading:
    """Holds a client's table, rows in the agreed order, the job by which it is read, and the client's `name`."""

    table: Table
    config: Config
    name: str

    @property
    def who(self) -> str:
        """The beginning of a sentence about it."""
        return who(self.name, self.table.source)

    @property
    def response(self) -> bool:
        """Whether the response is used here."""
        by = alignment_of(self.config)
        return by.shared and by.response in self.table.names

    @property
    def spec(self) -> Spec:
        """The public knowledge of its columns."""
        return spec_of(self.config, response=self.response, names=self.table.names)

    def called(self, column: str) -> str:
        """Returns a column's name as others may read it."""
        return name_column(column, self.table.names, self.spec.known)


def columns(read: Reading, train: Indices) -> Columns:
    """Encodes a client's table. Raises JobError: no column is left, one is constant in the training rows, or the first bad
    row."""
    table, spec, client, response = read.table, read.spec, read.name, read.response
    needed(read.config, table.names, read.who)
    private = spec.private
    spec_here = spec if private else replace(spec, standardise="exchange")
    summary = describe(table, spec_here, client)
    numbers = np.empty((0, 0)) if summary.numeric is None else np.asarray(summary.numeric)
    numeric = iter(numbers.T)
    complete = []
    for name, kind in zip(summary.names, summary.kinds):
        declared = spec.columns.get(name, Column(name))
        if kind == "categorical":
            levels = declared.levels or tuple(summary.levels.get(name, ()))
            complete.append(Column(name, "categorical", levels))
            continue
        values = np.empty(0) if private else np.asarray(next(numeric)[train], np.float64)
        complete.append(_standardised(read, declared, values))
    encoding = agreeing.centred(read.config, spec.encoding(tuple(complete)))
    encoding.check_references({name: column.reference for name, column in read.config.data.columns.items()})
    design = encode(table, encoding, private=private, client=client)
    X = np.ascontiguousarray(design.X, np.float64)
    if not private:
        _refuse_constants(read, encoding, X[train])
    group, levels = _grouped(table, read.config)
    nothing = degenerate(X[train], encoding)
    of_response, y = (design.notes, design.y) if response else ((), None)
    notes = (*of_response, *incomplete.own_notes(read.config, table), *nothing.describe_columns())
    if not private:
        notes = (*notes, *far.notes(table, encoding, y, design.offset), *spelled(encoding.columns))
        offset = None if design.offset is None else design.offset[train]
        trained_on = None if y is None else y[train]
        nothing = with_far(nothing, far.columns(table, encoding, train), encoding, trained_on, offset)
    contrasts, tied = _contrasts(read.config, client, encoding, X[train])
    X = X if contrasts is None else contrasts.design(X)
    return Columns(encoding, X, y, group, levels, notes, design.faults, nothing, contrasts, tied)


def _contrasts(config: Config, client: str, encoding: Encoding, X: Array) -> tuple[Levels | None, bool]:
    """Returns contrasts that separate the levels' coefficients from the intercept, and whether nothing separates them. `X`: (n,
    d) of the training rows."""
    m = config.model
    if config.private or not m.intercept or m.kind not in ("linear", "multilevel") or not of_levels.has_levels(encoding):
        return None, False
    if m.kind == "linear" and m.priors.get(client, m.prior).mean != 0:
        return None, True  # kernels have one prior mean for all of a client's coefficients, and contrasts' is 0
    return Levels.among(encoding, X), False


def _refuse_constants(read: Reading, encoding: Encoding, X: Array) -> None:
    # Only training rows count for the constants of columns.
    """Refuses a column with one value, which tells the same as the intercept.

    A level that no training row has, and a mark of cells that no such row lacks, are left to the prior.
    """
    if len(X) < 2:
        return
    begin, marks = 0, incomplete.marks(read.config)
    for column in encoding.columns:
        width = 1 if column.levels is None else len(column.levels)
        constant = np.ptp(X[:, begin]) == 0 if column.levels is None else width == 1
        if column.name not in marks and constant:
            what = "has one value in all training rows, which the intercept already says; add it to data.ignore"
            text = f"{read.who}: {read.called(column.name)} {what}"
            raise OwnFault(text, f"client {read.name!r}, {read.table.source}: column {column.name!r} {what}")
        begin += width


def _standardised(read: Reading, declared: Column, values: Array) -> Column:
    """Returns a numeric column with the constants by which it is encoded."""
    config, begin = read.config, read.who
    if config.data.standardise == "none":
        return Column(declared.name, "numeric", None, 0.0, 1.0)
    if declared.center is not None or config.data.standardise == "public":
        if declared.center is None:
            remedy = 'give them in [data.columns.NAME], or take standardise = "own"'
            raise OwnFault(
                f"{begin}: {read.called(declared.name)} has no public center and scale; {remedy}",
                f"{begin}: column {declared.name!r} has no public center and scale; {remedy}",
                look=HINT,
            )
        return declared
    center, spread = float(values.mean()), float(values.std())
    scale = spread if spread > TINY * abs(center) else 1.0
    return Column(declared.name, "numeric", None, center, scale)


def _grouped(table: Table, config: Config) -> tuple[Indices | None, tuple[str, ...]]:
    """Returns the level of each row, and the levels."""
    name = config.data.group
    if name is None:
        return None, ()
    levels, codes = np.unique(np.array(table.cells(name)), return_inverse=True)
    return codes.astype(np.int64), tuple(str(level) for level in levels)


@dataclass(frozen=True)
class ServerRows:
    """Holds the server's response and offset, in the agreed order."""

    y: Array
    offset: Array | None

    def of(self, index: Indices) -> tuple[Array, Array | None]:
        """Returns response and offset of some rows."""
        offset = None if self.offset is None else self.offset[index]
        return self.y[index], offset


@dataclass(frozen=True)
class Rows:
    """Holds the rows of one place.

    Attributes
    ----------
    columns : of its clients
    server : the server's rows, where it lives
    train, test, new : which rows train, and which test; `new` ones have no response and are predicted
    ids : of all rows, where the server has a file
    """

    columns: Mapping[int, Columns]
    server: ServerRows | None
    train: Indices
    test: Indices
    new: Indices
    ids: tuple[str, ...] = ()

    @property
    def predicted(self) -> Indices:
        """The rows that are predicted: those kept for testing, then new ones."""
        return np.concatenate([self.test, self.new])


def unknown(table: Table, config: Config) -> tuple[int, ...]:
    """Returns the rows of the server's file whose response is empty: they are predicted."""
    name = config.data.response
    if name not in table.names:
        return ()
    return tuple(i for i, cell in enumerate(table.cells(name)) if cell.strip().lower() in MISSING)


def server_rows(table: Table, config: Config) -> ServerRows:
    """Reads response and offset from the server's file."""
    data = config.data
    kept = tuple(name for name in (data.id, data.response, data.offset) if name is not None)
    missing = [name for name in kept if name not in table.names]
    if missing:
        what = f"column {missing[0]!r} (data.server) is missing"
        raise _missing("the server's file", what, table, config)
    narrow = _only(table, kept)
    known = np.setdiff1d(np.arange(table.n_rows), np.array(unknown(table, config), np.int64))
    if not len(known):
        raise JobError("data.server: no row has a response; there is nothing to learn from")
    with_response = narrow if len(known) == table.n_rows else narrow.select(known)
    design = encode_alone(with_response, server_spec(config), client="")
    y = np.full(table.n_rows, np.nan)
    y[known] = design.y
    link = FAMILIES[config.model.family].link
    offset = None if data.offset is None else _offset(narrow, data.offset, link)
    return ServerRows(y, offset)


def _only(table: Table, names: tuple[str, ...]) -> Table:
    """Returns a table with some of the columns."""
    return replace(table, names=names, columns={name: table.columns[name] for name in names}, matrix=None, matrix_names=())


def _offset(table: Table, name: str, link: str) -> Array:
    """Reads the offset; a cell that is no finite number, or too far from 0, is refused."""
    column = table.columns[name]
    values = floats(column)
    finite = np.isfinite(values)
    bad = np.flatnonzero(~finite | too_large(values))
    if len(bad):
        reason = "is too large" if finite[bad].all() else "is not a finite number"
        where, what = table.place(int(bad[0])), f"column {name!r}: {reason}; correct the cell"
        raise OwnFault(f"data.server, {what}", f"data.server, {table.source}, {where}, {what}")
    if len(bad := np.flatnonzero(too_far(values, link))):
        where, what = table.place(int(bad[0])), f"column {name!r}: is too far from 0; {TOO_FAR}"
        raise OwnFault(f"data.server, {what}", f"data.server, {table.source}, {where}, {what}")
    return values


def response_of(table: Table, config: Config, client: str) -> Array:
    """Reads the response of a client that tells it to the server."""
    data = config.data
    narrow = _only(table, (data.id, data.response))
    spec = replace(server_spec(config), offset=None)
    return encode_alone(narrow, spec, client=client).y
