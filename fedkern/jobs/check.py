"""Runs `fedkern check`: is the job sound, what will it spend, what will each party send? Nothing is spent, and rows are not sent.

In a private job no row is read. In an open one each client looks through its rows for columns that teach nothing, and names them,
as it will in the run. The lines of a method come from its `stages`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, NamedTuple

from ..algorithms.exchanges import columns as agreement
from ..algorithms.exchanges.columns import Summary
from ..data import far
from ..data.degenerate import Degenerate, degenerate, with_far
from ..data.design import check_header, column_of, describe, encode, with_event
from ..data.faults import who
from ..data.formula import of_file
from ..data.table import Table
from ..models.encoding import Column, Encoding, Spec
from ..privacy.plan import Plan
from . import column_notes
from .devices import Load
from .formula import agreeing
from .keys import C
from .run import At
from .said import Line
from .stage import Stage

MOST_LEVELS = 200  # of a column that is looked through


@dataclass(frozen=True)
class Check(At[C]):
    """Holds one place of a check: as `Run`, but nothing is kept."""

    def agreed(self, needed: Callable[[tuple[str, ...], str], None] | None = None) -> Encoding | None:
        """Returns the encoding that the parties agree on by names alone, at the server's place; None elsewhere. `needed`: names
        of a file's columns and how to begin a sentence about it -> JobError where the method misses one."""
        spec, clients = public(self.parties.spec), {}
        for k in self.mine:
            source, header = self.parties.header(k)
            check_header(header, self.parties.spec, source, self.names[k])
            if needed is not None:
                needed(header, who(self.names[k], source))
            covariates = spec.covariates(header)
            clients[k] = agreement.Client(spec, Summary(covariates, tuple(_kind(spec, name) for name in covariates)))
        server, _ = self.exchange(Stage.of(agreement), lambda: agreement.start(spec, self.names), clients)
        if server is None or server.encoding is None:
            return None
        return agreeing.centred(self.config, agreeing.by_names(self.parties.spec, server.encoding))

    def notes(self, *, intercept: bool = True, split: bool = False) -> list[str]:
        """Returns lines on columns that tell nothing, or in which few cells decide, at the server's place.

        A private job has none. Raises JobError: a client's rows contradict the job file: as in the run, where (not `split`) all
        have the same columns.
        """
        if self.config.privacy is not None:
            return []
        degenerate = {}
        for k in self.mine:
            rows = self.parties.rows(k)
            if not split:
                describe(rows, self.parties.spec, self.names[k], least_of_level=self.config.least_of_level)
            degenerate[k] = own_columns(self.parties.spec_of(rows.names), rows, intercept)
        found = column_notes.exchange_notes(self, degenerate, split=split, told=False)
        return [Line("note", line) for line in sorted(found, key=lambda line: not line.doubt)]

    def unknown(self, encoding: Encoding) -> list[str]:
        """Returns the columns that only their rows can tell to be categorical."""
        spec = self.parties.spec
        if spec.formula is not None:
            return [name for name in spec.formula.variables if name not in spec.columns and not spec.private]
        return [c.name for c in encoding.columns if c.levels is None and c.name not in spec.columns and not spec.private]


class Said(NamedTuple):
    """Holds a method's answer to a check of a job.

    These are: its model, as far as a check knows it; lines; columns that may turn out to hold texts; the plan by which each
    client (or all, by one name) may spend; the load of a card, if the job can have one.
    """

    model: Any
    lines: Sequence[str]
    unknown: Sequence[str] = ()
    plans: Mapping[str, Plan] = MappingProxyType({})
    load: Load | None = None


@dataclass(frozen=True)
class OwnFile(Generic[C]):
    """Holds a client's own file, as its holder looks through it."""

    # config, folder: the job file with all its defaults; to which its paths are relative
    config: C
    folder: Path
    # path, table: the file's path, and its rows
    path: Path
    table: Table
    # spec, encoding: the job file's facts of its columns, and the encoding of them as this file has them
    spec: Spec
    encoding: Encoding


def own_columns(spec: Spec, table: Table, intercept: bool = True) -> Degenerate:
    """Returns the columns of one file that teach nothing; their kinds and levels are taken from the file."""
    spec = with_event(spec, table)
    if spec.formula is not None:
        encoding = of_file(spec, table)
    else:
        present = (column_of(spec, table, name) for name in spec.covariates(table.names))
        encoding = spec.encoding(tuple(column for column in present if len(column.levels or ()) <= MOST_LEVELS))
    design = encode(table, encoding, private=True, missing=True)
    nothing = degenerate(design.X, encoding, intercept=intercept)
    return with_far(nothing, far.columns(table, encoding), encoding, design.y, design.offset)


def public(spec: Spec) -> Spec:
    """Returns the facts of the columns for an agreement on names alone, as in a private job.

    Levels and constants that are still to be agreed on are left out.
    """
    complete = {n: c for n, c in spec.columns.items() if c.kind == "numeric" or c.levels is not None}
    if spec.formula is not None:
        complete = {**{name: Column(name) for name in spec.formula.variables}, **complete}
    return replace(spec, private=True, standardise="none", columns=complete)


def _kind(spec: Spec, name: str) -> str:
    return spec.columns[name].kind if name in spec.columns else "numeric"
