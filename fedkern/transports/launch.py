"""How a job over MPI begins and ends: whatever happens on any rank, all leave with one exit code, and one message is printed.

A rank that fails sends FAULT (code, text) to rank 0 and waits; rank 0 prints the text and tells all ranks to EXIT with the code;
they say BYE and finalise MPI in order, so that `mpirun` returns the code. If a rank is dead or does not react in time, rank 0
aborts the job with that code; if rank 0 does not react, the lowest living rank does.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import JobError, LostPeer
from .driver import Ended, Hooks, Signals, Timeouts, exit_code
from .link import CONTROL, Patience, Tag
from .mpi import CODE, Ranks, read_fault

Say = Callable[[str], None]


def launch(main: Callable[[Ranks], int], timeouts: Timeouts | None = None, say: Say | None = None, comm: Any = None) -> int:
    """Runs `main` on every rank of an MPI job; the exit code of the job, the same on every rank: leave with it.

    Parameters
    ----------
    main
        Gets the transport; returns the exit code of a good end (0, 4 or 5; that of rank 0 counts). What it raises ends the job.
    timeouts
        How long silence may last.
    say
        Prints the one message of a failed job; by default on standard error.
    comm
        The communicator, by default that of the world; it is duplicated.
    """
    timeouts, say = timeouts or Timeouts(), say or _say
    from mpi4py import MPI

    comm = comm or MPI.COMM_WORLD
    problem, speaks = launcher_problem(os.environ, comm.size, MPI.Get_library_version())
    if problem:
        if speaks:
            say(problem)
        return JobError.exit_code
    if comm.size < 2:
        say("an MPI job needs a server and at least one client rank: start it with mpirun -n 2 or more")
        return JobError.exit_code
    with Signals() as signals:
        ranks = Ranks(_duplicate(comm, timeouts), timeouts, signals)
        try:
            code, text = main(ranks), None
        except Ended as end:
            code, text = end.exit_code, end.text
        except BaseException as error:
            code, text = exit_code(error), (ranks.hooks or Hooks()).public(error)
            text = text if ranks.is_server else f"rank {ranks.rank}: {text}"
        return _end(ranks, code, text, say)


def launcher_problem(env: Mapping[str, str], size: int, library: str) -> tuple[str | None, bool]:
    """Whether the launcher that started us belongs to another MPI library: what to say, and whether this process is to say it.

    A launcher tells its processes their number in the environment; with a foreign library each of them finds itself alone.
    """
    launchers = {
        "Open MPI's mpirun": ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
        "an mpiexec of MPICH's family (PMI)": ("PMI_SIZE", "PMI_RANK"),
        "Slurm's srun": ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
    }
    for launcher, (count, rank) in launchers.items():
        claimed = env.get(count, "")
        if size == 1 and claimed.isdigit() and int(claimed) > 1:
            name = " ".join(library.split(",")[0].splitlines()[0].replace("Version:", "").split())
            text = (
                f"{launcher} started {claimed} processes, but mpi4py uses {name}, which does not know of them: "
                f"start the job with the mpirun of that library (mpi/run.sh takes the one installed beside this Python)"
            )
            return text, env.get(rank, "0") == "0"
    return None, False


def _duplicate(comm: Any, timeouts: Timeouts) -> Any:
    """A duplicate of `comm`, or an abort if the other ranks do not come to make it."""
    own, request = comm.Idup()
    wait = Patience(2e-4)
    while not request.Test():
        if wait.waited > timeouts.lost:
            _say(f"rank {comm.rank}: not all ranks have started after {wait.waited:.0f} s")
            comm.Abort(LostPeer.exit_code)
        wait.pause()
    own.Set_name("fedkern")
    return own


def _say(text: str) -> None:
    print(f"fedkern: {text}", file=sys.stderr, flush=True)


def _end(ranks: Ranks, code: int, text: str | None, say: Say) -> int:
    """Brings all ranks to one end. `text` is None after a good end, and empty if it has been printed elsewhere."""
    try:
        code, orderly = (_end_server if ranks.is_server else _end_client)(ranks, code, text, say)
    except Exception as error:  # the wire itself is broken
        say(text or f"rank {ranks.rank}: {error}")
        code, orderly = code or 1, False
    if not (orderly and ranks.link.flush(ranks.timeouts.grace)):
        sys.stdout.flush()
        sys.stderr.flush()
        ranks.link.comm.Abort(code)
    return code


def _end_server(ranks: Ranks, code: int, text: str | None, say: Say) -> tuple[int, bool]:
    link, failing, told = ranks.link, text is not None, False
    if text:
        say(text)
    waiting, since = set(ranks.others()), time.monotonic()
    while waiting or not told:
        if not told and (failing or not waiting):
            for rank in ranks.others():
                link.send(rank, Tag.EXIT, CODE.pack(code))
            told, since = True, time.monotonic()
            continue
        if time.monotonic() - since > (ranks.timeouts.grace if failing else ranks.timeouts.lost):
            break
        bye, fault = link.receive(0, Tag.BYE), link.receive(0, Tag.FAULT)
        if bye:
            waiting.discard(bye[0])
        elif fault and not failing:
            failing, (code, text) = True, read_fault(fault[2])
            say(text)
        elif not fault:
            link.patience.pause()
        waiting -= link.gone
    ranks.dead |= waiting | link.gone
    return code or (4 if ranks.dead else 0), not ranks.dead


def _end_client(ranks: Ranks, code: int, text: str | None, say: Say) -> tuple[int, bool]:
    link = ranks.link
    if ranks.exit is None:
        if text is None:
            link.send(0, Tag.BYE)
        else:
            ranks.tell("fault", Tag.FAULT, CODE.pack(code) + text.encode()[: CONTROL - CODE.size])
        wait = Patience(link.patience.spin)
        while ranks.exit is None and 0 not in link.gone | ranks.dead and wait.waited < ranks.timeouts.lost:
            item = link.receive(0, Tag.EXIT)
            if item:
                ranks.exit = CODE.unpack(item[2])[0]
            else:
                wait.pause()
    if ranks.exit is None:
        # All ranks may have found rank 0 dead at once: one of them speaks, and ends the others.
        time.sleep(0.2 * (ranks.rank - 1))
        say(text or f"rank {ranks.rank}: rank 0 (the server) is gone")
        return code or LostPeer.exit_code, False
    if text is not None:
        link.send(0, Tag.BYE)
    return ranks.exit, True
