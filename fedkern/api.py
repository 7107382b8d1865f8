"""Running a job from Python: `fedkern.run`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import BudgetSpent
from .jobs import engine
from .jobs.keys import JobConfig
from .jobs.run import Output, Part
from .methods import load, named
from .results.result import Result
from .transports.inprocess import InProcess
from .transports.place import Place


def run(job: str | Path | Mapping[str, Any], /, *, out: str | Path | None = None, **sections: Mapping[str, Any]) -> Result:
    """Runs a job in this process.

    Parameters
    ----------
    job : path of a job file, or its tables
    out : folder for the run's files; by default nothing is written
    **sections : tables that override keys of the job, such as `algorithm={"damping": 0.2}`

    Returns
    -------
    Result

    Raises
    ------
    JobError
        A bad job or bad data; the text says which key, client or row, and what to do.
    BudgetSpent
        A privacy budget ended the job before `algorithm.min_updates`.
    """
    config, folder = load(job, sections=sections)
    result = perform(InProcess(), config, folder, Output(None if out is None else Path(out), quiet=True))
    assert result is not None
    if problem := too_few(result, config.least_updates):
        raise BudgetSpent(problem)
    return result


def perform(place: Place, config: JobConfig, folder: Path, output: Output) -> Result | None:
    """The part of one place in a job whose paths are relative to `folder`: the result at the server's, None elsewhere."""
    return engine.perform(named(config.job.method), Part(place, config, folder), output)


def checked(place: Place, config: JobConfig, folder: Path) -> list[str] | None:
    """What `fedkern check` prints of a job, at the server's place; None elsewhere."""
    return engine.checked(named(config.job.method), Part(place, config, folder))


def too_few(result: Result, min_updates: int) -> str | None:
    """What to say if the budgets were spent before the job reached its smallest number of updates."""
    updates = sum(client["updates"] for client in result.summary["clients"].values())
    if result.stop != "budget" or updates >= min_updates:
        return None
    wanted = f"algorithm.min_updates = {min_updates}" if updates else "so there is no result"
    return (
        f"the privacy budgets were spent after {updates} updates, {wanted}; "
        "raise epsilon or noise_multiplier, or lower sampling_rate or local_steps"
    )
