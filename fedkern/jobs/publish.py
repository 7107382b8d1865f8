"""Holds the result of a method, and writes the files that the server publishes of it: the same for all methods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms.core.messages import SERVER
from ..algorithms.exchanges.compare import flagged
from ..errors import FedkernError, JobError, mark_party
from ..finding import Finding
from ..results import guard
from ..results.inference_data import netcdf
from ..results.plain import Record, plain
from ..results.released import Released
from ..results.result import Result
from ..results.summary import claim_of, digest
from ..results.verdict import Verdict, not_judged
from . import machine
from .convergence import of_those_left
from .held import written
from .keys import C
from .load import merged
from .run import Run


@dataclass(frozen=True)
class Kept:
    """Says where a posterior's draws were written, and how they were made."""

    path: Path | None  # the path of `posterior.nc`; None where none was written
    made: Record  # when, and how long it took, as ArviZ has it
    notes: Sequence[str] = ()  # for the reader


@dataclass(frozen=True)
class Fit:
    """Holds the server's result at the end of the rounds."""

    posterior: Released  # the released one
    arrays: Mapping[str, NDArray[np.float64]]  # those that the digest covers
    # stop, rounds: why the rounds ended (a word of `STOPS` in `fedkern/results/verdict.py`), and how many were finished
    stop: str
    rounds: int
    # chains, draws: their numbers in `posterior.nc`
    chains: int
    draws: int
    encoding: Record = field(default_factory=dict)  # the facts of the columns, or of the rows, that a reader needs
    verdict: Verdict = field(default_factory=lambda: not_judged("nothing was looked at"))  # whether it has converged
    # name -> {"updates": applied updates, "status": "finished", "budget spent" or "lost"}, and "dropped": how many of its answers
    # are in no result, if any are; where whole clients are protected all answers count as updates, for which of them were applied
    # is secret. By default all have finished with an update in each round
    clients: Mapping[str, Record] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)  # those of the posterior on the test rows
    privacy: Mapping[str, Record] = field(default_factory=dict)  # client -> its certificate
    notes: Sequence[str] = ()  # for the reader
    more: Record = field(default_factory=dict)  # keys of summary.json that only this method has
    # files beside it, such as predictions.csv: name -> columns
    tables: Mapping[str, Mapping[str, Sequence[Any]]] = field(default_factory=dict)
    drawn: bool = True  # whether `posterior.nc` is written
    inference: str = ""  # the source of draws, where that is neither Markov chains nor a variational fit
    kept: Kept | None = None  # the draws, if they are on the disk already


def keep_draws(run: Run[C], posterior: Released, chains: int, draws: int, *, drawn: bool = True, inference: str = "") -> Kept:
    """Writes `posterior.nc`, before the draws are judged: a fault of that loses no round."""
    files = run.hooks.folder
    made: dict[str, object] = {"created_at": datetime.now(UTC).isoformat(timespec="seconds")}
    made |= {"inference": inference} if inference else {}
    if not run.config.private:  # how long clients compute is not covered by epsilon
        made["sampling_time"] = round(run.hooks.seconds, 3)
    if files is None or not drawn:
        return Kept(None, made)
    path = files.path / "posterior.nc"
    try:
        content = netcdf(posterior, seed=run.config.job.seed, chains=chains, draws=draws, made=made)
    except Exception as error:  # the rounds may have cost a privacy budget: nothing that comes after may lose them
        return Kept(None, made, [Finding.of("no-draws-written", why=_said(error))])
    files.write(path, content)
    return Kept(path, made)


@contextmanager
def judging(run: Run[C], kept: Kept) -> Iterator[None]:
    """Completes an error that is raised while draws are judged: it says where the draws are, and how to go on."""
    try:
        yield
    except Exception as error:
        if kept.path is None:
            raise
        mark_party(error, SERVER)
        text = (
            f"the rounds are finished and the posterior is in {kept.path}, but it could not be judged: there is no summary.json; "
            f"once that is mended, run the job again (--resume goes on from its last checkpoint): {run.hooks.public(error)}"
        )
        raise (JobError if isinstance(error, FedkernError | MemoryError) else FedkernError)(text) from error


def publish(run: Run[C], fit: Fit) -> Result:
    """Writes everything that the server publishes, in the run's folder if it has one."""
    hooks, job = run.hooks, run.config.job
    files = hooks.folder
    # Draws are written before they are judged, and summary.json last: where it is, the run has finished.
    kept = fit.kept or keep_draws(run, fit.posterior, fit.chains, fit.draws, drawn=fit.drawn, inference=fit.inference)
    if files is not None:
        for name, table in fit.tables.items():
            files.write_csv(name, table)
    judged = of_those_left(hooks, fit.verdict) or fit.verdict
    clients = fit.clients or {name: {"updates": fit.rounds, "status": "finished"} for name in run.names}
    with judging(run, kept):
        # Names and shapes that other people's scripts depend on; infinite and undefined numbers are texts ("inf", "nan").
        made = {
            "method": job.method,
            "claim": claim_of(fit.privacy),
            "stop": fit.stop,
            "rounds": fit.rounds,
            **judged.content,
            "clients": {
                name: {**entry, "lost": hooks.gone[name]} if name in hooks.gone else entry for name, entry in clients.items()
            },
            "parameters": fit.posterior.parameters(),
            "metrics": fit.metrics,
            "privacy": fit.privacy,
            "wire": hooks.wire.as_dict(),
            "encoding": fit.encoding,
            "versions": machine.of_a_run() | dict(run.used.versions),
            "digest": digest(fit.arrays),
            "notes": [],
            **fit.more,
        }
        content = {key: plain(value) for key, value in made.items()}
    # What is said of the numbers themselves may have failed just now, too.
    judged, notes = guard.judged(judged), [*hooks.notes, *guard.notes(), *fit.notes, *kept.notes]
    doubts = dict.fromkeys([*judged.doubts, *hooks.doubts])
    found = [entry.content for entry in (*doubts, *notes) if isinstance(entry, Finding)]
    publication = {**judged.content, "notes": notes, "findings": found}
    if hooks.columns and not run.config.private:
        publication["columns"] = flagged(hooks.columns, (*doubts, *notes))
    content |= {key: plain(value) for key, value in publication.items()}
    if run.config.counts_rows and not run.config.private:
        content["disclosure"] = {
            "level": run.config.level,
            **({"apart": dict(hooks.apart)} if run.config.level == "none" else {}),
        }
    if files is not None:
        files.write_json("summary.json", content)
    tables = merged(plain(run.config.model_dump()), content.get("chosen", {}))
    folder = None if files is None else files.path
    return Result(
        content, fit.posterior, folder, job.seed, fit.chains, fit.draws, tables, kept.made, given=written(run.config.given)
    )


def _said(error: Exception) -> str:
    """Returns the words for an error that the reader of a result sees."""
    if isinstance(error, MemoryError):
        return "there is not enough memory for the draws; ask for fewer"
    return str(error) if isinstance(error, FedkernError) else f"{type(error).__name__}: {error}"
