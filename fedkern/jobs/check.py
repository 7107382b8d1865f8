"""`fedkern check`: is the job sound, what will it spend, what will each party send? Nothing is spent, no row is sent.

In a private job no row is read. In another one each client looks through its own for columns that nothing can be learnt from, and
names them, as it will in the run. What a method has to say is in its `stages`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..algorithms.exchanges import columns as agreement
from ..algorithms.exchanges.columns import Summary
from ..data import table
from ..data.degenerate import Degenerate, degenerate
from ..data.design import check_header, encode
from ..data.faults import who
from ..data.table import Table, Text
from ..errors import JobError
from ..models.encoding import Column, Encoding, Spec
from ..printing import printable
from ..transports.codec import Codec
from ..transports.place import Place
from . import columns, holders
from .engine import agree
from .keys import JobConfig
from .parties import Parties, fingerprint

if TYPE_CHECKING:
    from .method import Method

MOST_LEVELS = 200  # of a column that is looked through

C = TypeVar("C", bound=JobConfig)


@dataclass(frozen=True)
class Check(Generic[C]):
    """One place of a check: as `Run`, but nothing is kept.

    Attributes
    ----------
    place, config, parties : where it runs, the job file with all its defaults, who takes part
    folder : to which the job's paths are relative
    """

    place: Place
    config: C
    folder: Path
    parties: Parties

    @property
    def names(self) -> tuple[str, ...]:
        """The clients', in the order of their numbers."""
        return self.parties.names

    def agreed(self, needed: Callable[[tuple[str, ...], str], None] | None = None) -> Encoding | None:
        """What the parties agree on by names alone, at the server's place; None elsewhere.

        Parameters
        ----------
        needed : names of a file's columns and how to begin a sentence about it -> JobError where the method misses one
        """
        spec, clients = public(self.parties.spec), {}
        for k in self.place.mine(len(self.names)):
            source, header = self.parties.header(k)
            check_header(header, self.parties.spec, source, self.names[k])
            if needed is not None:
                needed(header, who(self.names[k], source))
            covariates = spec.covariates(header)
            clients[k] = agreement.Client(spec, Summary(covariates, tuple(_kind(spec, name) for name in covariates)))
        start = agreement.start(spec, self.names) if self.place.is_server else None
        ended = self.place.run(agreement.PROTOCOL, start, clients, Codec(agreement.DIMS, len(self.names)))
        return None if ended[0] is None else ended[0].encoding

    def notes(self, spec_of: Callable[[Table], Spec] | None = None, *, intercept: bool = True, split: bool = False) -> list[str]:
        """Lines on columns that nothing can be learnt from, at the server's place; a private job has none.

        Parameters
        ----------
        spec_of : a client's table -> what is known of its columns; by default the same for all
        """
        if self.config.privacy is not None:
            return []
        own = {}
        for k in self.place.mine(len(self.names)):
            rows = self.parties.rows(k)
            own[k] = own_columns(self.parties.spec if spec_of is None else spec_of(rows), rows, intercept)
        return [f"note     {note}" for note in columns.exchanged(self.place, self.names, own, split=split)]

    def unknown(self, encoding: Encoding) -> list[str]:
        """Columns that only their rows can tell to be categorical."""
        spec = self.parties.spec
        return [c.name for c in encoding.columns if c.levels is None and c.name not in spec.columns and not spec.private]


def checked(method: Method, place: Place, config: JobConfig, folder: Path) -> list[str] | None:
    """What `fedkern check` prints, at the server's place; None elsewhere.

    Raises
    ------
    JobError
        Whatever would end the job before the first row is read.
    """
    found = method.rows.parties(config, folder)
    agree(place, config, found)
    holders.permit_all(config, found, place.mine(found.n_clients), server=place.is_server)
    return method.stages.checked(Check(place, config, folder, found))


def own_columns(spec: Spec, own: Table, intercept: bool = True) -> Degenerate:
    """What nothing can be learnt from in one file, whose columns are taken as they are there."""
    there = (_found(spec, own, name) for name in spec.covariates(own.names))
    encoding = spec.encoding(tuple(column for column in there if len(column.levels or ()) <= MOST_LEVELS))
    return degenerate(encode(own, encoding, private=True, missing=True).X, encoding, intercept=intercept)


def public(spec: Spec) -> Spec:
    """The agreement on names alone, as in a private job: levels and constants that are still to be found are left out."""
    complete = {n: c for n, c in spec.columns.items() if c.kind == "numeric" or c.levels is not None}
    return replace(spec, private=True, standardise="none", columns=complete)


def _kind(spec: Spec, name: str) -> Any:
    return spec.columns[name].kind if name in spec.columns else "numeric"


def local(method: Method, config: JobConfig, folder: Path, path: Path) -> int:
    """What is wrong with the rows of one's own file. Nothing leaves this process."""
    found = method.rows.parties(config, folder)
    own = table.load(path, text=found.spec.texts, response=found.spec.response or "y")
    spec = method.stages.spec_of_file(config, found.spec, own.names)
    check_header(own.names, spec, own.source)
    encoding = spec.encoding(tuple(_found(spec, own, name) for name in spec.covariates(own.names)))
    design = encode(own, encoding, private=True)
    faults = design.faults
    lines = [f"{path}: {own.n_rows} rows, {faults.rows} with faults"]
    if mark := fingerprint(path):
        lines.append(f"  fingerprint {mark} (for [data.{path.stem}] in policy.toml, if wanted)")
    lines += holders.local(config, found, path)
    lines += [f"  {count:>6}  {reason}" for reason, count in faults.counts]
    lines += [f"  {fault}" for fault in faults.first]
    lines += [f"  note: {note}" for note in (*design.notes, *own_columns(spec, own).lines())]
    print("\n".join(map(printable, lines)))
    if faults.rows and not spec.private:
        return JobError.exit_code
    method.stages.look_through(config, folder, path, own, spec, encoding)
    return 0


def _found(spec: Spec, own: Table, name: str) -> Column:
    """A column as far as it is public, and else as this file has it."""
    cells = own.columns[name]
    declared = spec.columns.get(name) or Column(name, cells.kind() if isinstance(cells, Text) and not spec.private else "numeric")
    if declared.kind == "categorical":
        if declared.levels is None and isinstance(cells, Text):
            return replace(declared, levels=tuple(sorted(set(cells.levels) - {""})))
        return declared
    return declared if declared.center is not None else replace(declared, center=0.0, scale=1.0)
