"""Has clients come to a run that has ended, or one go: the steps of a job with `job.extends`.

Who takes part says which stage it is. *Alone*: only newcomers are in the job, and answer at the run's points. *Together*: the
run's clients are, too, and all answer at new points. Without anybody (`job.drops`) the points are weighted anew, and nothing is
asked. Columns, constants, reference levels and units are the run's, and so is the prior that its rows have widened.
Source: docs/spec/likelihood.md, section 12.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...algorithms.core.messages import ServerEffects
from ...algorithms.exchanges.column_sums import OTHERS
from ...algorithms.exchanges.compare import is_of_client, of_column, of_response
from ...algorithms.importance import extension
from ...algorithms.importance import machine as importance
from ...data.design import Design
from ...data.table import Table
from ...errors import JobError, OwnFault, owned
from ...finding import NAMES, Finding
from ...jobs.identity import flat
from ...jobs.load import merged
from ...jobs.opened import read as read_json
from ...jobs.publish import Fit
from ...jobs.run import Run
from ...models.encoding import Encoding
from ...models.spatial.units import Units
from ...printing import listed
from ...results.plain import Record, plain
from ...results.verdict import Check, Verdict, against
from ...transports.codec import pack, unpack
from . import publish, regression
from .keys import Config
from .level_models import LevelModel
from .model import Model
from .models import model_of
from .stages import stage_of_draws, stage_of_points, stage_of_steps
from .steps import Read, Tables

Array = NDArray[np.float64]

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


# The run that has ended --------------------


def keep(run: Run[Config], model: Model, ended: publish.Ended, fit: Fit) -> Fit:
    """Writes the points of a run that others may extend; returns its result, which says so."""
    state, folder = ended.mode, run.hooks.folder
    if state is None or folder is None:
        return fit
    values = np.concatenate([draws.values for draws in state.draws]) if ended.singly is None else ended.singly
    names = model.names
    if not model.output.without:
        values, names = values.sum(axis=1, keepdims=True), (ALL,)
    folder.write(folder.path / POINTS, pack(extension.kept(state, values)))
    # What the parties have agreed on beside columns: the response's units or its levels' shares, and how wide the prior is.
    units = {name: getattr(model.units, name) for name in UNITS}
    facts = {"units": units, "shares": getattr(model, "shares", ()), "widened": state.widened}
    return replace(fit, more={**fit.more, ENTRY: {"values": [*names], **facts}})


@dataclass(frozen=True)
class Earlier:
    """Holds a run that has ended, as its folder has it.

    Attributes
    ----------
    path : the folder
    tables : of its job
    summary : summary.json
    """

    path: Path
    tables: Record
    summary: Record

    @classmethod
    def of(cls, config: Config, folder: Path) -> Earlier:
        """Returns the run that a job extends; JobError where it cannot be extended by this job."""
        path = folder / str(config.job.extends)
        tables, summary = (read_json(path / name) for name in ("job.json", "summary.json"))
        begin = f"job.extends = {config.job.extends!r}"
        if tables is None or summary is None:
            raise JobError(f"{begin}: this folder holds no finished run here; give each place a copy of it (but for {POINTS})")
        run = cls(path, merged(tables, summary.get("chosen", {})), summary)
        if ENTRY not in summary:
            raise JobError(f"{begin}: the run has kept no points; run it again with output.extendable = true and an --out")
        if summary["converged"] is not True:
            raise JobError(f"{begin}: the run has not converged ({summary['verdict']}); run it again, with all clients")
        if blank := summary.get("not_estimated"):
            raise JobError(
                f"{begin}: its rows say nothing of {', '.join(blank)}, and others' may; run it again, with all clients"
            )
        before, now = (flat(plain(one)) for one in (run.tables, config.model_dump()))
        for key in sorted({*before, *now}):
            if not key.startswith((*FREE, "run.")) and before.get(key) != now.get(key):
                raise JobError(f"{begin}: {key} is {before.get(key)!r} there and {now.get(key)!r} here; take the run's")
        return run

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of all whose rows are in the result."""
        return tuple(self.summary["clients"])

    def model(self, config: Config, names: tuple[str, ...]) -> Model:
        """Returns the model of these clients, with all that the run's have agreed on."""
        facts = self.summary[ENTRY]
        model = model_of(config, names, Encoding.from_dict(self.summary["encoding"]))
        model = replace(model, units=Units(**facts["units"]), widened=facts["widened"])
        return model.with_shares(tuple(facts["shares"])) if isinstance(model, LevelModel) else model

    def state(self, model: Model) -> importance.Server:
        """Returns the server's machine with all points; JobError where these are not here."""
        path = self.path / POINTS
        try:
            saved = unpack(path.read_bytes())
        except (OSError, ValueError) as fault:
            raise JobError(f"{path}: the points of the earlier run cannot be read ({fault}); put the file back") from None
        return extension.restored(model.start()[0], saved, tuple(self.summary[ENTRY]["values"]))


# Before the rounds --------------------


@dataclass(frozen=True)
class Known:
    """Holds the model that the earlier run's parties have agreed on, and reads newcomers' rows by it.

    Attributes
    ----------
    model, earlier : of this job; the run that it extends
    """

    model: Model
    earlier: Earlier

    def read_rows(self, run: Run[Config], tables: Tables) -> Read:
        """Reads the rows, and exchanges nothing; empties `tables`."""
        model, rows, likelihoods = self.model, dict[int, Any](), dict[int, Any]()
        for k in list(tables):
            with owned(k):
                table, name = tables.pop(k), run.names[k]
                self._check_columns(run, table, name)
                design, _, notes = regression.encode_rows(model, name, table)
                if name not in self.earlier.clients:
                    self._check_units(design, name)
                rows[k] = model.read(design, table, name)
                model.check_rows(rows[k], name, table.source)
            run.note_rows(k, [*notes, *model.describe_rows(rows[k])], design.faults, len(design.X))
            likelihoods[k] = model.likelihood(rows[k], run.threads)
        return Read(model, rows, likelihoods, None, {})

    def _check_columns(self, run: Run[Config], table: Table, name: str) -> None:
        """Refuses a file with covariates that the earlier run has not."""
        known = {column.name for column in self.model.encoding.columns}
        formula = self.model.encoding.formula
        more = [column for column in run.parties.spec.covariates(table.names) if column not in known and formula is None]
        if more:
            begin = f"client {name!r}: its file has columns that the earlier run has not"
            remedy = "remove them from the file, or give them to data.ignore in a new run of all"
            raise OwnFault(f"{begin}; {remedy}", f"{begin} ({', '.join(map(repr, more))}); {remedy}")

    def _check_units(self, design: Design, name: str) -> None:
        """Refuses rows whose columns, or measured response, seem to be in another unit than the earlier run's.

        Their means and standard deviations there are the constants by which columns are standardised, and the response's units.
        """
        model, n, found = self.model, float(len(design.X)), list[Finding]()
        others, who = model.units.n or n, (name, OTHERS)
        columns = {head: column for column in model.encoding.columns if column.levels is None for head in [column.name]}
        for j, head in enumerate(model.encoding.names):
            column = columns.get(head)
            if column is None or column.center is None or column.scale is None or (column.center, column.scale) == (0.0, 1.0):
                continue
            mean, sd = column.center + column.scale * design.X[:, j].mean(), column.scale * design.X[:, j].std()
            moments = np.array([mean, column.center]), np.array([sd, column.scale]) ** 2
            ways = {"remedies": (), "owner": head}
            found += _of_newcomer(of_column(f"column {head!r}", who, np.array([n, others]), *moments, **ways), *moments)
        if model.measured:
            y = design.y - (0.0 if design.offset is None else design.offset)
            moments = np.array([y.mean(), model.units.pooled]), np.array([y.std(), model.units.scale]) ** 2
            response = f"column {model.encoding.response!r}"
            said = of_response(response, who, np.array([n, others]), *moments, linear=model.row.linear)
            found += _of_newcomer(said, *moments)
        if found:
            begin = f"client {name!r}: a column seems to be in another unit than the earlier run has it in"
            remedy = "write it in the run's unit, or run all clients in one job"
            raise OwnFault(f"{begin}; {remedy}", f"{begin}: {'; '.join(found)}; {remedy}")


def _of_newcomer(found: Iterable[Finding], means: Array, variances: Array) -> list[Finding]:
    """Returns doubts about the first of two, and not about all others together."""
    (mean, theirs), (variance, their_variance) = means.tolist(), variances.tolist()
    return [one for one in found if one.doubt and is_of_client(mean, variance, theirs, their_variance)]


def agree(run: Run[Config], tables: Tables) -> Known:
    """Returns the model of the earlier run; the parties exchange nothing.

    Raises
    ------
    JobError
        The run cannot be extended, or not by these clients.
    """
    config, names = run.config, run.names
    earlier = Earlier.of(config, run.part.folder)
    there = [name for name in names if name in earlier.clients]
    if config.job.drops is not None:
        values = earlier.summary[ENTRY]["values"]
        if config.job.drops not in values:
            known = f"it has values of {', '.join(values)}" if values != [ALL] else "it has the sum of all clients' values alone"
            raise JobError(f"job.drops = {config.job.drops!r}: {known}; run it again with output.without = true")
        names = tuple(name for name in earlier.clients if name != config.job.drops)
    elif len(there) == len(names):
        raise JobError(f"job.extends: {', '.join(map(repr, names))} is in the run already; give clients that are not")
    elif there and there != list(names[len(names) - len(earlier.clients) :]):
        lack = [name for name in earlier.clients if name not in there]
        why = f"{', '.join(map(repr, lack))} of the run is missing" if lack else "the newcomers stand among the run's clients"
        raise JobError(f"job.extends: {why}; name newcomers alone, or first these and then all of the run's clients")
    elif there and config.secure:
        raise JobError("job.extends with job.sums: one newcomer cannot hide in a sum; run all clients in one job")
    if run.summaries:
        raise JobError("job.extends: a client has too few rows for values of the likelihood at draws; pool them with another's")
    return Known(earlier.model(config, names), earlier)


# The rounds --------------------


def fit(run: Run[Config], read: Read) -> Fit | None:
    """Returns the result with the newcomers, or without a client, at the server's place; None elsewhere."""
    model, config, earlier = read.model, run.config, Earlier.of(run.config, run.part.folder)
    newcomers = tuple(name for name in run.names if name not in earlier.clients)
    for k, name in enumerate(newcomers):
        if k in read.likelihoods:
            run.hooks.say(k, Finding.of("newcomer-is-told-apart", client=name))
    before = earlier.state(model) if run.place.is_server else None

    def clients() -> dict[int, importance.Client]:
        return {k: model.client(k, own, run.requirement_of(k).rules) for k, own in read.likelihoods.items()}

    def points() -> importance.Server:
        assert before is not None
        return before

    if config.job.drops is not None:
        state: importance.Server | None = extension.without(points(), config.job.drops)
    elif len(newcomers) == len(run.names):
        state, _ = run.exchange(stage_of_points(model), lambda: extension.start(points(), newcomers), clients())
        state = None if state is None else extension.named(state, points().names)
    else:
        mode, _ = run.exchange(stage_of_steps(model), lambda: extension.climb(points(), model.settings, newcomers), clients())
        state, _ = run.exchange(stage_of_draws(model), lambda: _at(model, mode), clients())
    return None if state is None else _result(run, model, earlier, state, newcomers)


def _at(model: Model, mode: importance.Server | None) -> tuple[importance.Server, ServerEffects]:
    assert mode is not None
    return extension.go_on_at(model.start()[0], mode)


def _result(run: Run[Config], model: Model, earlier: Earlier, state: importance.Server, newcomers: Sequence[str]) -> Fit:
    """Returns what is published of the state after the last round."""
    together, sampled = len(newcomers) < len(run.names), importance.read_result(state)
    ended = publish.Ended(state, tuple(run.hooks.doubts))
    made = publish.bare(model, ended, None)
    if together:
        judged = publish.judge_draws(sampled, model.settings.counted, model.reason(sampled.reason))
    else:
        judged = _judged(state, sampled)
    gone = model.config.job.drops
    what = f"without {gone!r}" if gone is not None else f"with {listed(newcomers, NAMES)}"
    entry = {"run": str(earlier.path), "stage": "without" if gone is not None else "together" if together else "alone"}
    counted = {name: {"updates": made.rounds, "status": "finished"} for name in run.names}
    counted |= {name: {"updates": 0, "status": "of the earlier run"} for name in earlier.clients if name not in {*counted, gone}}
    result = replace(
        made,
        verdict=against(ended.doubts, judged),
        clients=counted,
        notes=[Finding.of("extends-a-run", what=what)],
        more={**made.more, **publish.describe_draws(sampled, model.units.log_volume, levelled=False), "extends": entry},
    )
    return keep(run, model, ended, result) if model.config.extendable else result


def _judged(state: importance.Server, sampled: importance.Found) -> Verdict:
    """Returns the verdict on the points of an earlier run with other weights."""
    weights, s = sampled.posterior, state.settings
    assert weights is not None
    of = {"draws": len(weights.draws), "effective": weights.effective, "wanted": s.effective, "k_hat": weights.k_hat}
    of |= {"most": extension.K_HAT, "error": max(sampled.error) if np.isfinite(sampled.error).all() else None, "least": s.error}
    if extension.settled(state):
        return Verdict((Check(Finding.of("points-reach", **of), True),))
    return Verdict((Check(Finding.of("points-do-not-reach", **of), False),))
