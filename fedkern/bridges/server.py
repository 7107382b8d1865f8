"""Runs the server's side of a job whose sites are reached over another engine's wire."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..api import find_ending, perform
from ..jobs.limits import open_more_files, refusals
from ..jobs.run import Output
from ..methods import load
from ..transports.driver import Signals, Timeouts
from ..transports.ending import Say
from ..transports.place import Place
from ..transports.relay import Hub, Wire
from .digest import as_asked, digest_of, names_of
from .saying import say


def run_hub(
    job: str | Path,
    wire: Wire,
    out: str | Path,
    *,
    resume: bool = False,
    quiet: bool = False,
    sites: Sequence[str] | None = None,
    sets: Sequence[str] = (),
    again: float = 30.0,
    grace: float = Timeouts.grace,
    timeouts: Timeouts | None = None,
    signals: Signals | None = None,
    say: Say = say,
) -> int:
    """Runs the server's part of a job, and returns its exit code, as `fedkern --help` lists them.

    Parameters
    ----------
    job : the server's own copy of the job file
    wire : to the sites
    out : the folder of the results
    resume : go on from the last checkpoint in `out`
    quiet : no progress
    sites : the names by which the wire knows the sites, in the order of the job's clients; by default the clients' names
    sets : "section.key=value" overrides, which are in the job that sites are asked for
    again : seconds after which a request without a reply is sent again
    grace : seconds that sites get to hear how the job has ended
    timeouts : how long silence may last, in the place of `grace`, too; by default as the job says (job.deadline)
    signals : that end the job with a checkpoint
    say : is given each line for the coordinator

    Raises
    ------
    JobError
        The job file is faulty, or does not name its clients.
    """
    open_more_files()
    config, folder = load(job, sets)
    digest = as_asked(digest_of(config), resume=resume)
    timeouts = timeouts or Timeouts(lost=config.job.deadline, grace=grace)

    def main(place: Place) -> int:
        with refusals():
            result = perform(place, config, folder, Output(Path(out), resume=resume, quiet=quiet))
        assert result is not None  # this is the server's place
        code, reason = find_ending(result, config.least_updates)
        if reason is not None:
            say(reason)
        return code

    return Hub(wire, sites or names_of(config), timeouts, again, digest).run(main, say, signals)
