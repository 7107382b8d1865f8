"""Connects a rank with the process that started it.

A rank says that it is here and ends when that process is gone; rank 0 tells it how the job goes. mpirun, where it tolerates
deaths, leaves its ranks alive when it is killed: nobody would hear what they say, or could stop them.

Each rank holds a line to the process beside mpirun (`mpirun`) from its first moment to its last: the kernel cuts the line when
the rank dies. It is a socket without a file, of this machine: ranks of other machines have nobody to speak to, and go on without.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

NAME = "FEDKERN_LAUNCHER"  # the name of the socket of `mpirun`
# of every rank: its number, how many are near, and in all; MPI starts; an exit code, and why
HELLO, JOINS, LEFT = (b"hello ", b"joins", b"left ")
BEGUN, ENDED = b"begun", b"ended "  # of rank 0
LONGEST = 1024  # bytes of a word
LOOK = 0.5  # seconds
GONE = 3  # exit code of a rank that has lost its launcher
PDEATHSIG = 1  # of prctl


class Launcher(NamedTuple):
    """Names a program that starts ranks, and its variables for the number of ranks, for this rank, and for the ranks near it."""

    name: str
    size: str
    rank: str
    near: str


LAUNCHERS = (
    Launcher("Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    Launcher("an mpiexec of MPICH's family (PMI)", "PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS"),
    Launcher("Slurm's srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", ""),
)


def claimed(env: Mapping[str, str]) -> tuple[str, int] | None:
    """Returns the name of the launcher that says it has started several processes, of which this is one, and their number."""
    for launcher in LAUNCHERS:
        count = env.get(launcher.size, "")
        if count.isdigit() and int(count) > 1:
            return launcher.name, int(count)
    return None


def beside_others() -> str:
    """Returns, in a process that a launcher has started several of and that is no rank of a job, what to do about it; else ""."""
    started = None if _following else claimed(os.environ)
    if started is None:
        return ""
    name, count = started
    return f"; each of the {count} processes that {name} has started runs the whole job: with --mpi they are the ranks of one"


_line: socket.socket | None = None
_following = False


def new_name() -> str:
    """Returns a new name for a socket of this machine; it says which machine, as sockets without a file see it."""
    return f"{_machine()}{os.urandom(16).hex()}"


def _machine() -> str:
    """Returns the beginning of all socket names of this machine and network."""
    network = os.stat("/proc/self/ns/net").st_ino
    return f"fedkern-{Path('/proc/sys/kernel/random/boot_id').read_text()[:8]}-{network}-"


def tell(word: bytes) -> bool:
    """Says something to `mpirun`; returns whether one on this machine hears it."""
    global _line
    name = os.environ.get(NAME)
    if not name:
        return False
    with suppress(OSError):
        if _line is None:
            line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            line.connect(f"\0{name}".encode())
            _line = line
        _line.send(word)
        return True
    return False


def hello() -> bool:
    """Says which rank this is; returns whether a process watches over the start of all ranks of this machine.

    If that process was on this machine and is gone, so is the job: the rank ends.
    """
    for launcher in LAUNCHERS:
        rank, *counts = (os.environ.get(name, "") for name in (launcher.rank, launcher.near, launcher.size))
        if rank.isdigit():
            heard = tell(HELLO + " ".join([rank, *(count if count.isdigit() else "0" for count in counts)]).encode())
            if not heard and NAME in os.environ and os.environ[NAME].startswith(_machine()):
                os._exit(GONE)
            return heard
    return False


def leave(code: int, why: str = "") -> None:
    """Says that this rank ends by itself and has not died.

    `why`: the reason, if the rank has not printed it, since others may have.
    """
    tell(LEFT + f"{code} {why}".encode()[:LONGEST])


def _is_cut() -> bool:
    """Tells whether the process beside mpirun is gone."""
    if _line is None:
        return False
    try:
        return not _line.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK)  # nothing is said to ranks
    except BlockingIOError:
        return False
    except OSError:
        return True


def at_death_of_parent(number: int) -> None:
    """Asks the kernel to send this process a signal when its parent ends; only Linux does so."""
    import ctypes

    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PDEATHSIG, number)


def follow() -> None:
    """Makes this process end, within a second and with code 3, when its parent or the process beside mpirun ends.

    The parent may have gone before this was called; then the line tells.
    """
    global _following
    if _following:
        return
    _following = True
    parent = os.getppid()

    def look() -> None:
        while os.getppid() == parent and not _is_cut():
            time.sleep(LOOK)
        os._exit(GONE)

    # A rank that was stopped can't look. (To be killed by the kernel is no way: that is for the death of the parent's thread.)
    at_death_of_parent(signal.SIGCONT)
    threading.Thread(target=look, name="fedkern-parent", daemon=True).start()
