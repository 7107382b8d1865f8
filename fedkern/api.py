"""Running a job: `fedkern.run` in this process, `fedkern run` there or as one rank of an MPI job."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .cli import show
from .errors import BudgetSpent, FedkernError, JobError
from .jobs.engine import Output, perform
from .jobs.limits import open_more_files, refusals
from .jobs.load import AnyConfig, Config, load
from .printing import printable, several
from .results.result import Result
from .transports.driver import Hooks, Timeouts
from .transports.driver import exit_code as exit_code_of
from .transports.inprocess import InProcess

if TYPE_CHECKING:
    from .jobs.engine import Place


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
    if problem := too_few(result, least(config)):
        raise BudgetSpent(problem)
    return result


def least(config: AnyConfig) -> int:
    """Updates that a job must reach for its result to count."""
    chosen = config.algorithm.min_updates if isinstance(config, Config) else 0
    return max(chosen, 1 if config.privacy is not None else 0)  # without any, the prior would be the result


def command(options: argparse.Namespace) -> int:
    """Runs `fedkern run` and returns the exit code."""
    if options.device == "cuda":
        raise JobError("--device cuda: this version has no CUDA kernels; use --device cpu")
    out = Path(options.out or Path("runs") / Path(options.job).stem)

    def main(place: Place) -> int:
        config, folder = load(options.job, options.sets)
        result = perform(place, config, folder, Output(out, resume=options.resume, quiet=options.quiet))
        if result is None:
            return 0
        if not options.quiet:
            print("\n".join(map(printable, show.lines(result))))
            print(f"results in {out}")
        return exit_code(result, least(config))

    return place_for(options, main)


def exit_code(result: Result, min_updates: int) -> int:
    """0, 4 without some lost clients (named), 5 if a budget ended the job too early."""
    if problem := too_few(result, min_updates):
        print(f"fedkern: {problem}", file=sys.stderr)
        return BudgetSpent.exit_code
    clients = result.summary["clients"].items()
    lost = [f"client {name!r} ({client.get('lost', 'lost')})" for name, client in clients if client["status"] == "lost"]
    if lost:
        print(printable(f"fedkern: finished without {', '.join(lost)}"), file=sys.stderr)
    return 4 if lost else 0


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


def place_for(options: argparse.Namespace, main: Callable[[Place], int]) -> int:
    """Runs `main` where the options say: in this process, or as one rank of an MPI job; the exit code."""
    open_more_files()

    def here(place: Place) -> int:
        with refusals():
            return main(place)

    if not options.mpi:
        place = InProcess(signals=options.signals)
        try:
            return here(place)
        except (FedkernError, KeyboardInterrupt, BrokenPipeError):
            raise
        except Exception as error:  # what it says may quote a row: others than its holder read where it came from
            if options.signals.stopped is not None:
                raise
            print(f"fedkern: {several((place.hooks or Hooks()).public(error))}", file=sys.stderr)
            return exit_code_of(error)
    try:
        from .transports.launch import launch
    except ImportError as error:
        raise JobError(f"--mpi needs mpi4py and an MPI library ({error}): pip install 'fedkern[mpi]'") from None
    try:
        lost = load(options.job, options.sets)[0].job.deadline
    except JobError:
        lost = Timeouts().lost  # `main` says what is wrong, once for all ranks
    return launch(here, Timeouts(lost=lost), signals=options.signals)
