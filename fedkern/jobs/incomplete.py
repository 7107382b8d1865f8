"""Applies `model.missing` of the methods that leave out rows which lack a cell, or fill and mark them: the same for all of them.

In a private job nothing is left out, for the number of rows that a client works on must not depend on a cell: a row that lacks
one weighs nothing, as every bad row does, and only the client's own folder says so. Cells are filled in both kinds of jobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

from ..algorithms.core.masked import ALL
from ..algorithms.exchanges.sums import Incomplete
from ..data import incomplete
from ..data.design import with_event
from ..data.dialect import Dialect
from ..data.formula import failures_of, joined_columns, made_times, of_end, offset_node, with_calculated
from ..data.repeated import repeated
from ..data.table import Table
from ..errors import owned
from ..finding import Finding
from ..models.encoding import Column
from ..results.plain import Record
from .keys import ColumnSection, JobConfig, Section, key
from .parties import Parties
from .run import At
from .stage import Stage

Missing = Literal["error", "drop", "indicator"]
HELP = "rows that lack a cell: a fault, left out, or filled by data.columns.NAME.center and marked by a column NAME[missing]"
DONE = {"drop": "left out", "indicator": "filled and marked"}


class ModelSection(Section):
    """Declares the key of a method that has `model.missing`."""

    missing: Missing = key("error", help=HELP)


def of(config: JobConfig) -> Missing:
    """Returns how a job treats rows that lack a cell."""
    return config.model.missing if isinstance(config.model, ModelSection) else "error"


def centers(config: JobConfig) -> dict[str, float]:
    """Returns the columns that are filled and marked, each with its filling: those that the job file declares as numeric."""
    if of(config) != "indicator":
        return {}
    encoded = {name: c.encoded for name, c in _columns(config)}
    declared = {name: Column.declared(name, keys) for name, keys in encoded.items()}
    return {name: column.center or 0.0 for name, column in declared.items() if column.kind == "numeric"}


def marks(config: JobConfig) -> dict[str, Column]:
    """Returns the 0/1 columns, which every party knows from the job file; they are not standardised."""
    return {incomplete.marked(name): Column(incomplete.marked(name), "numeric", None, 0.0, 1.0) for name in centers(config)}


def conflicts(config: JobConfig, roles: set[str | None]) -> Iterator[str]:
    """Yields the faults of `model.missing`; `roles`: names of columns that are no covariates."""
    if of(config) != "indicator":
        return
    declared = [(name, c) for name, c in _columns(config) if name not in roles and c.levels is None and c.kind != "categorical"]
    if not declared:
        yield (
            'model.missing = "indicator" marks the numeric columns that the job file declares, and it declares none: give '
            "[data.columns.NAME] with kind, center and scale"
        )
    if getattr(config.data, "standardise", "none") == "none":
        return
    for name, column in declared:
        if column.center is None and column.lower is None:
            what = 'model.missing = "indicator" fills an empty cell with it'
            yield f"data.columns.{name}.center is missing: {what}; give it, and scale"


def _columns(config: JobConfig) -> list[tuple[str, ColumnSection]]:
    return [*getattr(config.data, "columns", {}).items()]


def laid(config: JobConfig, parties: Parties) -> Parties:
    """Returns the parties, with tables whose missing cells are empty, and as `model.missing` has them."""

    def rows(k: int) -> Table:
        with owned(k):
            return prepared(config, parties, parties.rows(k), parties.names[k])

    def header(k: int) -> tuple[str, tuple[str, ...]]:
        source, names = parties.header(k)
        with owned(k):
            offset, trials = parties.spec.offset, parties.spec.trials
            more = [str(trials)] if failures_of(parties.spec, names) is not None else []
            more += made_times(parties.spec, names)
            made = of_end(str(parties.spec.upper))
            more += [made] if parties.spec.response == made and made not in names else []
            more += [name for name in parties.spec.groups if joined_columns(name, names)]
            names = (*names, *([str(offset)] if offset_node(offset, names) is not None else []), *more)
            return source, incomplete.with_marks(names, centers(config))

    def test() -> Table | None:
        table = parties.test()
        return None if table is None else prepared(config, parties, table, open_file=True)

    def server() -> Table | None:
        table = parties.server()
        if table is None:
            return None
        table = _with_empty(config, parties, table)
        if of(config) != "drop":
            return table
        # which may be empty
        return incomplete.without(table, replace(parties.spec_of(table.names), response=None, positive=None))

    return replace(parties, rows=rows, header=header, test=test, server=server)


def prepared(config: JobConfig, parties: Parties, table: Table, client: str = "", *, open_file: bool = False) -> Table:
    """Returns one party's table, a client's with rows repeated as their weights say; `open_file`: the server's, whose rows no
    noise protects in any job."""
    table, times = _completed(config, parties, table, client, open_file=open_file), parties.spec.repeats
    if open_file or times is None or times not in table.columns:
        return table
    return repeated(table, times, client)


def _completed(config: JobConfig, parties: Parties, table: Table, client: str, *, open_file: bool) -> Table:
    table = _with_empty(config, parties, table)
    if of(config) == "indicator":
        return incomplete.fill_cells(table, centers(config))
    if of(config) == "drop" and (open_file or config.privacy is None):
        return incomplete.without(table, with_event(parties.spec_of(table.names), table), client, _roles(config))
    return table


def _with_empty(config: JobConfig, parties: Parties, table: Table) -> Table:
    # The words of a file of text are empty since it was read, by its holder's own dialect if that has one.
    dialect = Dialect(missing=tuple(config.data.dialect.missing if table.lines is None else ()))
    read = incomplete.with_empty(table, dialect, incomplete.levels_of(table, parties.spec_of(table.names)))
    return with_calculated(read, parties.spec)


def _roles(config: JobConfig) -> set[str]:
    """Returns the columns without which a client's row of a vertical job is not complete, beside its covariates.

    These are the group, and the response where the server has no file and a client tells it.
    """
    data = config.data
    response = None if getattr(data, "server", None) else getattr(data, "response", None)
    return {name for name in (getattr(data, "group", None), response) if name is not None}


def stages(config: JobConfig) -> list[Stage]:
    """Returns the stages that it takes: none in a private job."""
    return [] if of(config) == "error" or config.privacy is not None else [_stage(config)]


def _stage(config: JobConfig) -> Stage:
    """Returns the stage in which clients count their rows, and those that lack a cell."""
    return Stage.asking(Incomplete, secure=config.secure)


def describe_missing(config: JobConfig) -> list[str]:
    """Returns the lines that `fedkern check` prints about it."""
    if of(config) == "error":
        return []
    if of(config) == "indicator":
        return [f"missing  empty cells of {', '.join(centers(config))} are filled and marked, others are faults"]
    weighs = "" if config.privacy is None else "; here they weigh nothing, as bad rows do, and nothing says how many they are"
    return [f"missing  rows that lack a cell{_or_end(config)} are left out{weighs}"]


def _or_end(config: JobConfig) -> str:
    """Returns the other rows that are left out, of survival times."""
    entry = getattr(config.data, "entry", None)
    if entry is None or of(config) != "drop":
        return ""
    return f", or whose {getattr(config.data, 'time', None)} is not after their {entry},"


def exchange_incomplete(at: At[Any], tables: Mapping[int, Table], complete: Mapping[int, int] | None = None) -> Record:
    """Returns the rows of each client and those that lack a cell, at the server's place; of all together where sums are secure.

    It is empty elsewhere, or where nothing is exchanged. `complete`: rows of each file that lack no cell, where the tables have
    fewer.
    """
    if not stages(at.config):
        return {}

    def told(k: int) -> Incomplete:
        lacking = tables[k].incomplete or 0
        complete_rows = tables[k].n_rows if complete is None else complete[k]
        return Incomplete(0, complete_rows + (lacking if of(at.config) == "drop" else 0), lacking)

    server = at.collect(_stage(at.config), Incomplete, {k: k for k in tables}, told, before=True)
    if server is None:
        return {}
    whose = (ALL,) if at.config.secure else at.names
    return {whose[k]: {"rows": reply.rows, "incomplete": reply.lacking} for k, reply in sorted(server.replies.items())}


def notes(config: JobConfig, counted: Record) -> list[str]:
    """Returns, for the reader of the result, how many rows lack a cell, and how they were treated.

    They are those of each client, or where sums are secure of all clients together.
    """
    lacking = [f"{name} {counts['incomplete']} of {counts['rows']}" for name, counts in counted.items() if counts["incomplete"]]
    if not lacking:
        return []
    if _or_end(config):
        times = {name: getattr(config.data, name) for name in ("time", "entry")}
        return [Finding.of("rows-lack-cells-or-end", **times, done=DONE[of(config)], clients=lacking)]
    return [Finding.of("rows-lack-cells", done=DONE[of(config)], clients=lacking)]


def own_notes(config: JobConfig, table: Table) -> list[str]:
    """Returns the same for the client's own eyes alone."""
    if table.incomplete is None or not table.incomplete:
        return []
    which = _or_end(config).rstrip(",")
    return [f"{table.incomplete} row{'s lack' if table.incomplete > 1 else ' lacks'} a cell{which}: {DONE[of(config)]}"]
