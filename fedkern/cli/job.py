"""Runs `fedkern run` and `fedkern check`: in this process, or as one rank of an MPI job."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path

from .. import api
from ..algorithms.core.messages import reading
from ..api import check_job, find_ending, job_with_levels, perform
from ..data.dialect import stem
from ..errors import FedkernError, JobError, show_own_faults
from ..jobs.engine import Form, local
from ..jobs.files import writing
from ..jobs.limits import open_more_files, refusals
from ..jobs.run import Output, Part
from ..jobs.site import GIVEN
from ..methods import installed, load, load_method
from ..printing import printable, printable_lines, without_folders
from ..results.result import Result
from ..transports.driver import Hooks, Timeouts
from ..transports.driver import exit_code as exit_code_of
from ..transports.inprocess import InProcess
from ..transports.place import Place
from . import show

LOG = logging.getLogger(__name__)


def run_job(options: argparse.Namespace) -> int:
    """Runs `fedkern run` and returns the exit code."""
    _name_site(options)

    def main(place: Place) -> int:
        _log(options, place)
        config, folder = job_with_levels(place, options.job, sets=options.sets)
        out = Path(options.out) if options.out else _folder(place, Path("runs") / Path(options.job).stem, options.resume)
        result = perform(place, config, folder, Output(out, resume=options.resume, quiet=options.quiet))
        if result is None:
            return 0
        if not options.quiet:
            print("\n".join(map(printable, show.describe_result(result))))
            print(f"results in {out}")
        code, reason = find_ending(result, config.least_updates)
        if reason is not None:
            print(printable(f"fedkern: {reason}"), file=sys.stderr)
        return code

    return place_for(options, main)


def describe(options: argparse.Namespace) -> int:
    """Runs `fedkern describe`: a job that describes columns."""
    options.sets = ['job.method="describe"', *options.sets]
    return run_job(options)


def fit(options: argparse.Namespace) -> int:
    """Runs `fedkern fit`: `fedkern.fit` of files, whose result is printed."""
    with show_own_faults(), refusals():
        from .. import front  # which a job from a file does not need

        result = front.fit(options.formula, options.files, options.family, out=options.out)
        print(result)
        if options.job:
            print(printable(str(result.to_job(options.job))))
    return 0


def add(options: argparse.Namespace) -> int:
    """Runs `fedkern add`: `fedkern.add` of files, whose result is printed."""
    out = options.out or f"{Path(options.folder)}-with-{'-'.join(stem(Path(file)) for file in options.client)}"
    return _extended(lambda: api.add(options.folder, options.client, folder=options.rows, out=out))


def drop(options: argparse.Namespace) -> int:
    """Runs `fedkern drop`: `fedkern.drop`, whose result is printed."""
    out = options.out or f"{Path(options.folder)}-without-{options.client}"
    return _extended(lambda: api.drop(options.folder, options.client, out=out))


def _extended(make: Callable[[], Result]) -> int:
    """Prints the result of a run that extends another, and returns the exit code."""
    with show_own_faults(), refusals():
        result = make()
    print("\n".join(map(printable, show.describe_result(result))))
    print(f"results in {result.folder}")
    return find_ending(result, 0)[0]


def _folder(place: Place, first: Path, resume: bool) -> Path:
    """Returns the first of NAME, NAME-2, .. that holds no finished run, with --resume the last that exists, as rank 0 sees
    them."""

    def chosen() -> Path:
        number, path = 2, first
        while (path / "summary.json").exists() and (not resume or _next(first, number).exists()):
            path, number = _next(first, number), number + 1
        return path

    chosen_name = place.settle(b"", lambda ignored: str(chosen()).encode())
    with reading("the server: the folder of the run"):
        return Path(chosen_name.decode())


def _next(first: Path, number: int) -> Path:
    """Returns the next name of a folder."""
    return first.with_name(f"{first.name}-{number}")


class LogFile(logging.FileHandler):
    """Logs to a file; where that fails, the log ends with one line, and the job goes on."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Ends the log, and says so in one line."""
        error = sys.exc_info()[1]
        logging.getLogger("fedkern").removeHandler(self)
        with suppress(OSError):  # what it still holds cannot be written either
            self.close()
        print(f"fedkern: cannot write {self.baseFilename} ({error}); the job goes on without it", file=sys.stderr)


def _log(options: argparse.Namespace, place: Place) -> None:
    """Sets up logging where the options ask for it; by default nothing is logged."""
    if options.log_level is None and options.log_file is None:
        return
    of_rank = options.log_file if place.size == 1 else f"{options.log_file}.{place.rank}"
    name = options.log_file and of_rank
    with writing(Path(name)) if name else nullcontext():
        handler = LogFile(name, encoding="utf-8") if name else logging.StreamHandler()
    handler.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)s rank {place.rank} %(name)s: %(message)s"))
    log = logging.getLogger("fedkern")
    for before in log.handlers:
        before.close()
    log.handlers = [logging.NullHandler(), handler]
    log.setLevel((options.log_level or "info").upper())


def check(options: argparse.Namespace) -> int:
    """Runs `fedkern check` and returns the exit code."""
    _name_site(options)
    if options.local:
        path = Path(options.local)
        with show_own_faults():
            # A policy beside the file has a word on the job's code, too: it is asked before any of it is imported.
            config, folder = load(options.job, options.sets, files=[path])
            return local(load_method(config.job.method), Part(InProcess(), config, folder), path)

    def main(place: Place) -> int:
        asking_place = None if options.apart else place
        config, folder = job_with_levels(asking_place, options.job, sets=options.sets)
        form: Form = "brief"
        if options.verbose:
            form = "verbose"
        elif options.messages:
            form = "messages"
        lines = check_job(place, config, folder, latency=options.latency, apart=options.apart, form=form)
        if lines is not None:
            print("\n".join(map(printable, lines)))
        return 0

    return place_for(options, main)


def _name_site(options: argparse.Namespace) -> None:
    """Passes on the holder's site file, which is no part of the job: every place finds its own."""
    if options.site:
        os.environ[GIVEN] = os.path.abspath(options.site)


def place_for(options: argparse.Namespace, main: Callable[[Place], int]) -> int:
    """Runs `main` as the options say, in this process or as one rank of an MPI job, and returns the exit code."""
    open_more_files()

    def here(place: Place) -> int:
        try:
            with refusals():
                return main(place)
        except BaseException as error:  # as others may read it: a log may lie where they look
            reason = (place.hooks or Hooks()).public(place.signals.stopped or error)
            LOG.error("ended: %s", printable_lines(without_folders(reason)))
            raise

    if not options.mpi:
        place: Place = InProcess(signals=options.signals)
        if options.place:
            config, folder = load(options.job, options.sets)
            place = installed.place(options.place, config.model_dump(), folder)
        try:
            return here(place)
        except (FedkernError, KeyboardInterrupt, BrokenPipeError):
            raise
        except Exception as error:  # what it says may quote a row: others than its holder read where it came from
            if options.signals.stopped is not None:
                raise
            print(f"fedkern: {printable_lines((place.hooks or Hooks()).public(error))}", file=sys.stderr)
            return exit_code_of(error)
    try:
        from ..transports.launch import launch
    except ImportError as error:
        raise JobError(f"--mpi needs mpi4py and an MPI library ({error}): pip install 'fedkern[mpi]'") from None
    try:
        lost = load(options.job, options.sets)[0].job.deadline
    except JobError:
        lost = Timeouts().lost  # `main` says what is wrong, once for all ranks
    return launch(here, Timeouts(lost=lost), signals=options.signals)
