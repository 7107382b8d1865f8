"""One place of a running job: what every method is given, and what all of them do the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from ..algorithms.exchanges import columns as agreement
from ..data.design import describe
from ..data.table import Table
from ..errors import owned
from ..models.encoding import Encoding
from ..transports.codec import Codec
from ..transports.place import Place
from .hooks import RunHooks
from .parties import Parties

C = TypeVar("C")


@dataclass(frozen=True)
class Output:
    """Where a run writes, and how much it says.

    Attributes
    ----------
    folder : of the run's files; None writes nothing
    resume : go on from the last checkpoint in it
    quiet : no progress
    """

    folder: Path | None = None
    resume: bool = False
    quiet: bool = False


@dataclass(frozen=True)
class Run(Generic[C]):
    """One place (a process, or an MPI rank) in a job.

    Attributes
    ----------
    place, config, output : where it runs, the job file with all its defaults, where it writes
    folder : to which the job's paths are relative
    parties : who takes part, and where the rows of each are
    hooks : what it does beside computing
    """

    place: Place
    config: C
    folder: Path
    parties: Parties
    hooks: RunHooks
    output: Output

    @property
    def names(self) -> tuple[str, ...]:
        """The clients', in the order of their numbers."""
        return self.parties.names

    def tables(self) -> dict[int, Table]:
        """The rows of the clients that live here."""
        return {k: self.parties.rows(k) for k in self.place.mine(len(self.names))}

    def agreed(self, tables: Mapping[int, Table]) -> Encoding:
        """The encoding of the columns, the same at every place."""
        spec, clients = self.parties.spec, {}
        for k, table in tables.items():
            with owned(k):
                clients[k] = agreement.Client(spec, describe(table, spec, self.names[k]), name=self.names[k])
        start = agreement.start(spec, self.names) if self.place.is_server else None
        codec = Codec(agreement.DIMS, len(self.names))
        server, clients = self.hooks.run(self.place, agreement.PROTOCOL, start, clients, codec)
        encoding: Any = (server if server is not None else next(iter(clients.values()))).encoding
        assert isinstance(encoding, Encoding)
        return encoding
