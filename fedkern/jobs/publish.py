"""What a method gives back, and the files that the server publishes of it: the same for all methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import FedkernError
from ..results.digest import digest
from ..results.inference_data import netcdf
from ..results.plain import Record, plain
from ..results.released import Released
from ..results.result import Result
from ..results.summary import Outcome, summary
from ..results.verdict import Verdict
from . import machine
from .keys import C
from .run import Run


@dataclass(frozen=True)
class Fit:
    """What the server has at the end.

    Attributes
    ----------
    posterior : what is released
    arrays : what the digest is of
    stop, rounds : why the rounds ended, and how many were finished
    verdict : whether it has converged
    clients : name -> {"updates", "status"}
    chains, draws : of `posterior.nc`
    encoding : what a reader must know of the columns, or of the rows
    metrics : of the posterior on the test rows
    privacy : client -> its certificate
    notes : for the reader
    more : what only this method has in summary.json
    tables : files beside it, such as predictions.csv: name -> columns
    drawn : whether there is a `posterior.nc`
    inference : what draws came of, where that is neither Markov chains nor a variational fit
    """

    posterior: Released
    arrays: Mapping[str, NDArray[np.float64]]
    stop: str
    rounds: int
    verdict: Verdict
    clients: Mapping[str, Record]
    chains: int
    draws: int
    encoding: Record
    metrics: Mapping[str, float] = field(default_factory=dict)
    privacy: Mapping[str, Record] = field(default_factory=dict)
    notes: Sequence[str] = ()
    more: Record = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, Sequence[Any]]] = field(default_factory=dict)
    drawn: bool = True
    inference: str = ""


def publish(run: Run[C], fit: Fit) -> Result:
    """Everything that the server publishes, in the run's folder if there is one."""
    hooks, job = run.hooks, run.config.job
    files, notes = hooks.folder, [*hooks.notes, *fit.notes]
    made: dict[str, Any] = {"created_at": datetime.now(UTC).isoformat(timespec="seconds")}
    made |= {"inference": fit.inference} if fit.inference else {}
    if not run.config.private:  # how long clients compute is not covered by epsilon
        made["sampling_time"] = round(hooks.seconds, 3)
    if files is not None:
        if fit.drawn:
            try:
                drawn = netcdf(fit.posterior, seed=job.seed, chains=fit.chains, draws=fit.draws, made=made)
            except Exception as error:  # the rounds may have cost a privacy budget: nothing that comes after may lose them
                notes.append(f"no posterior.nc: {_said(error)}")
            else:
                files.write(files.path / "posterior.nc", drawn)
        for name, table in fit.tables.items():
            files.write_csv(name, table)
    outcome = Outcome(
        stop=fit.stop,
        rounds=fit.rounds,
        verdict=fit.verdict,
        clients=fit.clients,
        metrics=fit.metrics,
        privacy=fit.privacy,
        wire=hooks.wire.as_dict(),
        digest=digest(fit.arrays),
        encoding=fit.encoding,
        versions=machine.of_a_run() | dict(run.used.versions),
        notes=notes,
        lost=hooks.gone,
    )
    content = summary(job.method, fit.posterior, outcome, fit.more)
    if files is not None:
        files.write_json("summary.json", content)
    tables = plain(run.config.model_dump())
    return Result(content, fit.posterior, None if files is None else files.path, job.seed, fit.chains, fit.draws, tables, made)


def _said(error: Exception) -> str:
    """What the reader of a result is told of an error."""
    if isinstance(error, MemoryError):
        return "there is not enough memory for the draws; ask for fewer"
    return str(error) if isinstance(error, FedkernError) else f"{type(error).__name__}: {error}"
