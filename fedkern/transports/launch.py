"""Begins a job over MPI. Whatever happens on its ranks later ends in `ending`."""

from __future__ import annotations

import faulthandler
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import JobError, LostPeer
from ..printing import printable_lines
from . import parent
from .driver import Timeouts
from .ending import end, leave, outcome
from .place import Place
from .signals import Signals

BEFORE = "{} before the job had begun; start it again"
WATCHED = 3  # times as long a rank waits for the others where the process beside mpirun does it too


def launch(
    main: Callable[[Place], int],
    timeouts: Timeouts | None = None,
    say: Callable[[str], None] | None = None,
    comm: object = None,
    signals: Signals | None = None,
) -> int:
    """Runs `main` on every rank of an MPI job. Returns the exit code of the job, the same on every rank: leave with it.

    Parameters
    ----------
    main
        Gets the transport; returns the exit code of a good end (0, 4 or 5; that of rank 0 counts). What it raises ends the job.
        A private job sets `ranks.hooks` before it reads rows: these hooks decide how much others may learn of a fault.
    timeouts
        How long silence may last.
    say
        Prints the one message of a failed job; by default on standard error.
    comm
        The communicator, by default that of the world; it is duplicated.
    signals
        Handlers that are already in place; by default they are put there for the time of the job.
    """
    timeouts, say = timeouts or Timeouts(), say or _say
    if signals is None:
        with Signals(at_once=True) as signals:
            return _launched(main, timeouts, say, comm, signals)
    return _launched(main, timeouts, say, comm, signals)


def _launched(main: Callable[[Place], int], timeouts: Timeouts, say: Callable[[str], None], comm: Any, signals: Signals) -> int:
    # While MPI starts no code of ours runs, and a launcher that tolerates deaths lets the others wait for ever. Where somebody
    # watches over the ranks of this machine, that process knows which have not come, and how busy the machine is.
    """Starts MPI, checks the launcher, runs `main` on this rank and brings all ranks to one end; returns the exit code."""
    watched = parent.hello()
    parent.follow()
    faulthandler.dump_traceback_later(timeouts.start * (1 + WATCHED * watched), exit=True)
    try:
        MPI, problem = _library()
        if signals.stopped is not None:
            raise signals.stopped
        if not problem:
            starts = not MPI.Is_initialized()
            if starts:
                stopped = "fedkern: " + BEFORE.format("stopped by {}") + "\n" if _is_first() else ""
                with warnings.catch_warnings(), signals.deadly(LostPeer.exit_code, stopped):  # it waits for all ranks
                    warnings.simplefilter("ignore", RuntimeWarning)  # of a foreign launcher, which we describe ourselves
                    parent.tell(parent.JOINS)
                    MPI.Init_thread(MPI.THREAD_FUNNELED)
            comm = comm or MPI.COMM_WORLD
            problem = foreign_launcher(os.environ, comm.size, MPI.Get_library_version())
            if not problem and comm.size < 2:
                problem = "an MPI job needs a server and at least one client rank: start it with mpirun -n 2 or more"
        if problem:
            faulthandler.cancel_dump_traceback_later()
            if _is_first():
                say(problem)
                parent.tell(parent.ENDED + b"%d" % JobError.exit_code)
            text = "" if _is_first() else printable_lines(problem)
            parent.leave(JobError.exit_code, text)
            return JobError.exit_code
        from .mpi import MpiLink, duplicate, ranks_of

        try:
            ranks = ranks_of(duplicate(comm), timeouts, signals)
        except LostPeer as error:
            if not watched:  # else it is said which rank
                say(f"rank {comm.rank}: {error}")
            leave(MpiLink(comm), LostPeer.exit_code)
    except BaseException:
        if signals.stopped is None:
            raise
        if _is_first():
            say(BEFORE.format(signals.stopped))
        parent.leave(LostPeer.exit_code)
        os._exit(LostPeer.exit_code)  # as all ranks do: none can wait for the others, who may not have come
    faulthandler.cancel_dump_traceback_later()
    if ranks.is_server:
        parent.tell(parent.BEGUN)
    code = end(ranks, *outcome(main, ranks, say), say)
    if ranks.is_server:
        parent.tell(parent.ENDED + b"%d" % code)
    if starts:
        assert isinstance(ranks.link, MpiLink)
        if not ranks.link.leave_together(timeouts.lost + 2 * timeouts.grace):  # rank 0 ends all before, where it can
            leave(ranks.link, code)
        faulthandler.dump_traceback_later(timeouts.lost, exit=True)
        MPI.Finalize()
        faulthandler.cancel_dump_traceback_later()
    return code


def _is_first() -> bool:
    """Tells whether this is rank 0, as far as the launcher says."""
    return not any(os.environ.get(launcher.rank, "0") != "0" for launcher in parent.LAUNCHERS)


def _library() -> tuple[Any, str | None]:
    """Returns mpi4py's MPI, not started yet unless somebody else has, or the reason why it cannot be started."""
    try:
        import mpi4py

        if "mpi4py.MPI" not in sys.modules:
            mpi4py.rc.initialize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        return None, f"a job over MPI needs mpi4py and an MPI library (pip install 'fedkern[mpi]'): {error}"
    surely = cannot_join(os.environ, *MPI.get_vendor())
    launcher = foreign_launcher(os.environ, 1, MPI.Get_library_version()) if surely else None
    return MPI, launcher


def cannot_join(env: Mapping[str, str], vendor: str, version: tuple[int, ...]) -> bool:
    """Tells whether a library is known, before it starts, not to understand the launcher.

    (MPICH would abort, Open MPI complain.)
    """
    if "OMPI_COMM_WORLD_SIZE" in env:
        return vendor in ("MPICH", "MVAPICH", "Intel MPI")
    return "PMI_SIZE" in env and "PMIX_RANK" not in env and vendor == "Open MPI" and version >= (5,)


def foreign_launcher(env: Mapping[str, str], size: int, library: str) -> str | None:
    """Returns a message if the launcher that started this process belongs to another MPI library than `library`, else None.

    A launcher tells its processes their number in the environment; with a foreign library each of them finds itself alone.
    """
    started = parent.claimed(env)
    if size > 1 or started is None:
        return None
    launcher, count = started
    name = " ".join(library.split(",")[0].splitlines()[0].replace("Version:", "").split())
    return (
        f"{launcher} started {count} processes, but mpi4py uses {name}, which does not know of them: "
        "start the job with the mpirun of that library (mpi/run.sh takes the one installed beside this Python)"
    )


def _say(text: str) -> None:
    print(f"fedkern: {printable_lines(text)}", file=sys.stderr, flush=True)
