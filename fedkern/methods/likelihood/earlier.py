"""Reads a run that has ended, which a job extends (`job.extends`), and newcomers' rows by what its parties have agreed on.

Columns, constants, reference levels and units are the run's, and so is the prior that its rows have widened: nothing is exchanged
before the rounds (`extended`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...algorithms.importance import extension
from ...algorithms.importance import machine as importance
from ...data.table import Table
from ...errors import JobError, OwnFault, owned
from ...jobs.identity import flat
from ...jobs.load import merged
from ...jobs.opened import read as read_json
from ...jobs.run import At, Run
from ...models.encoding import Encoding
from ...models.spatial.units import Units
from ...results.plain import Record, plain
from ...transports.codec import unpack
from . import newcomer, regression
from .keys import Config
from .level_models import LevelModel
from .model import Model
from .models import model_of
from .newcomer import Published
from .steps import Read, Tables

POINTS = "points.bin"  # the server's: all weighted draws, with the sums of the clients' values there
ALL = "all"  # in the place of clients' names, where values are their sums
ENTRY = "extendable"  # of summary.json
UNITS = ("level", "scale", "pooled", "n")  # of a response
# Keys that may be others than the run's: who takes part, what is published, and what is asked of rows.
FREE = (
    "job.extends",
    "job.drops",
    "job.sums",
    "job.sums_except",
    "data.clients",
    "data.names",
    "data.test",
    "output.",
    "disclosure.",
)


@dataclass(frozen=True)
class Earlier:
    """Holds a run that has ended, as its folder has it."""

    path: Path  # the folder
    tables: Record  # of its job
    summary: Record  # summary.json
    gone: str | None  # the client without which the result is wanted, if one goes

    @classmethod
    def of(cls, config: Config, folder: Path) -> Earlier:
        """Returns the run that a job extends; JobError where it cannot be extended by this job."""
        path = folder / str(config.job.extends)
        tables, summary = (read_json(path / name) for name in ("job.json", "summary.json"))
        begin = f"job.extends = {config.job.extends!r}"
        if tables is None or summary is None:
            raise JobError(f"{begin}: this folder holds no finished run here; give each place a copy of it (but for {POINTS})")
        run = cls(path, merged(tables, summary.get("chosen", {})), summary, config.job.drops)
        if ENTRY not in summary:
            raise JobError(f"{begin}: the run has kept no points; run it again with output.extendable = true and an --out")
        if summary["converged"] is not True:
            raise JobError(f"{begin}: the run has not converged ({summary['verdict']}); run it again, with all clients")
        if blank := summary.get("not_estimated"):
            raise JobError(
                f"{begin}: its rows say nothing of {', '.join(blank)}, and others' may; run it again, with all clients"
            )
        before, now = (flat(plain(tables)) for tables in (run.tables, config.model_dump()))
        for key in sorted({*before, *now}):
            if not key.startswith((*FREE, "run.")) and before.get(key) != now.get(key):
                raise JobError(f"{begin}: {key} is {before.get(key)!r} there and {now.get(key)!r} here; take the run's")
        return run

    @property
    def published(self) -> Published:
        """What a newcomer's rows are compared with."""
        facts = self.summary[ENTRY]
        normal = extension.Normal.of_content(facts["normal"])
        return Published(self.clients, self.summary.get("columns", []), facts["total"], facts["rows"], facts["events"], normal)

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of all whose rows are in the result."""
        return tuple(self.summary["clients"])

    def model(self, config: Config, names: tuple[str, ...]) -> Model:
        """Returns the model of these clients, with all that the run's have agreed on."""
        facts = self.summary[ENTRY]
        model = model_of(config, names, Encoding.from_dict(self.summary["encoding"]))
        newcomers = sum(name not in self.clients for name in names)
        model = replace(model, units=Units(**facts["units"]), widened=facts["widened"], newcomers=newcomers)
        return model.with_shares(tuple(facts["shares"])) if isinstance(model, LevelModel) else model

    def state(self, model: Model) -> importance.Server:
        """Returns the server's machine with all points; JobError where these are not here."""
        path = self.path / POINTS
        try:
            saved = unpack(path.read_bytes())
        except (OSError, ValueError) as fault:
            raise JobError(f"{path}: the points of the earlier run cannot be read ({fault}); put the file back") from None
        return extension.restored(model.start()[0], saved, tuple(self.summary[ENTRY]["values"]))


@dataclass(frozen=True)
class Known:
    """Holds the model that the earlier run's parties have agreed on, and reads newcomers' rows by it."""

    # model, earlier: of this job; the run that it extends
    model: Model
    earlier: Earlier

    def read_rows(self, run: Run[Config], tables: Tables) -> Read:
        """Reads the rows, and exchanges nothing; empties `tables`."""
        model, rows, likelihoods, secret = self.model, dict[int, Any](), dict[int, Any](), dict[int, Table]()
        for k in list(tables):
            with owned(k):
                table, name = tables.pop(k), run.names[k]
                self._check_columns(run, table, name)
                design, _, notes = regression.encode_rows(model, name, table)
                rows[k] = model.read(design, table, name)
                model.check_rows(rows[k], name, table.source)
                likelihoods[k] = model.likelihood(rows[k], run.threads)
                if name not in self.earlier.clients:
                    notes += newcomer.compare(model, self.earlier.published, name, design, rows[k], likelihoods[k])
                if run.parties.site(k).structure is not None:
                    secret[k] = table
            run.note_rows(k, [*notes, *model.describe_rows(rows[k])], design.faults, len(design.X))
        structured = regression.structures(run, model, rows, secret, likelihoods)
        return Read(model, rows, likelihoods, None, {}, structured=structured, earlier=self.earlier)

    def _check_columns(self, run: Run[Config], table: Table, name: str) -> None:
        """Refuses a file with covariates that the earlier run has not."""
        known = {column.name for column in self.model.encoding.columns}
        formula = self.model.encoding.formula
        more = [column for column in run.parties.spec.covariates(table.names) if column not in known and formula is None]
        if more:
            begin = f"client {name!r}: its file has columns that the earlier run has not"
            remedy = "remove them from the file, or give them to data.ignore in a new run of all"
            raise OwnFault(f"{begin}; {remedy}", f"{begin} ({', '.join(map(repr, more))}); {remedy}")


def agree(run: At[Config], tables: Tables) -> Known:
    """Returns the model of the earlier run; the parties exchange nothing. Raises JobError: the run cannot be extended, or not by
    these clients."""
    config, names = run.config, run.names
    earlier = Earlier.of(config, run.part.folder)
    known = [name for name in names if name in earlier.clients]
    if earlier.gone is not None:
        begin = f"job.drops = {earlier.gone!r}"
        if earlier.gone not in earlier.clients:
            raise JobError(f"{begin}: the run's clients are {', '.join(earlier.clients)}; name one of them")
        if earlier.summary[ENTRY]["values"] == [ALL]:
            more = ' and job.sums_except = "without"' if earlier.tables["job"].get("sums") else ""
            raise JobError(
                f"{begin}: the run has the sum of all clients' values alone; run it again with output.without = true{more}"
            )
        names = tuple(name for name in earlier.clients if name != earlier.gone)
    elif len(known) == len(names):
        raise JobError(f"job.extends: {', '.join(map(repr, names))} is in the run already; give clients that are not")
    elif known and known != list(names[len(names) - len(earlier.clients) :]):
        lack = [name for name in earlier.clients if name not in known]
        why = f"{', '.join(map(repr, lack))} of the run is missing" if lack else "the newcomers stand among the run's clients"
        raise JobError(f"job.extends: {why}; name newcomers alone, or first these and then all of the run's clients")
    elif known and config.secure:
        raise JobError("job.extends with job.sums: one newcomer cannot hide in a sum; run all clients in one job")
    if run.summaries:
        few = ", ".join(repr(names[k]) for k in sorted(run.summaries))
        remedy = "pool them with another's, or run all clients in one job, where it may take part by a summary"
        raise JobError(f"job.extends: {few} has too few rows for values of the likelihood at draws; {remedy}")
    return Known(earlier.model(config, names), earlier)
