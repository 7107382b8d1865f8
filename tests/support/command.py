"""Small jobs, and what a command left behind."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import fedkern
from fedkern.transports.driver import Signals

from . import rank

OPEN = """
[job]
rounds = 3
[data]
builtin = "breast-cancer"
split = {clients = 3}
"""
PRIVATE = """
[job]
rounds = 4
[data]
builtin = "breast-cancer"
split = {clients = 3}
[algorithm]
local_steps = 5
[privacy]
epsilon = 8.0
delta = 1e-3
clip = 2.5
noise_multiplier = 3.0
sampling_rate = 0.1
"""

RANK = Path(rank.__file__)


@dataclass(frozen=True)
class Ended:
    """Exit code, standard output and standard error."""

    code: int
    out: str
    err: str


def python(*arguments: str | Path, timeout: float = 120, folder: Path | None = None) -> Ended:
    """A fresh Python process with the fedkern under test, in `folder`."""
    path = str(Path(fedkern.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def mpirun(ranks: int, *arguments: str | Path, timeout: float = 120, beside: bool = False, before: Path | None = None) -> Ended:
    """`fedkern ARGUMENTS --mpi` on this machine, with the mpirun beside this Python. Ranks are forked (`rank.py`), but for

    `beside`: under the process that mpi/run.sh puts beside mpirun, whose own code after an abort tells nothing. `before`: a
    folder whose modules every rank finds first.
    """
    words = [sys.executable, "-P", "-m", "fedkern.transports.mpirun", str(ranks)] if beside else []
    return _mpirun(ranks, "-m", "fedkern.cli", *map(str, arguments), "--mpi", timeout=timeout, words=words, before=before)


def mpirun_jobs(ranks: int, path: Path, jobs: dict[str, list[str | Path]], timeout: float = 120) -> tuple[dict[str, int], str]:
    """Several commands one after the other, as MPI starts slowly: their exit codes, and what was said on standard error."""
    ended = mpirun_commands(ranks, path, jobs, timeout)
    return dict(json.loads(line) for line in ended.out.splitlines() if line.startswith('["')), ended.err


def mpirun_commands(ranks: int, path: Path, jobs: dict[str, list[str | Path]], timeout: float = 120) -> Ended:
    """The same, with what was printed: after each command a line of its name and its exit code."""
    path.write_text(json.dumps([(name, [str(argument) for argument in arguments]) for name, arguments in jobs.items()]))
    return _mpirun(ranks, str(Path(__file__).with_name("many_jobs.py")), str(path), timeout=timeout)


def _mpirun(ranks: int, *program: str, timeout: float, words: Sequence[str] = (), before: Path | None = None) -> Ended:
    path = os.pathsep.join(map(str, [*([before] if before else []), Path(fedkern.__file__).parents[1]]))
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    launcher = str(Path(sys.executable).with_name("mpirun"))
    fresh = bool(words or before)
    python = [sys.executable] if fresh else forking()
    done = subprocess.run(
        [*words, launcher, "--oversubscribe", "-n", str(ranks), *python, *program],
        env={**os.environ, **allowed, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def forking() -> list[str]:
    """What begins a command in place of Python: its process is forked (`rank.py`), and has imported the package."""
    return [sys.executable, "-I", "-S", str(RANK), _server()]


def seconds() -> float:
    """Of the processor, in all that were forked and have ended: their server waits for them, and not this process."""
    if not _server.cache_info().currsize:
        return 0.0
    with rank.ask(_server(), [rank.SECONDS]) as server:
        return (rank.received(server) or 0) / 1e6


@cache
def _server() -> str:
    """The socket of the process that forks ranks until this one ends."""
    folder = Path(tempfile.mkdtemp(prefix="fedkern-ranks-"))
    path = os.pathsep.join(map(str, (Path(fedkern.__file__).parents[1], RANK.parents[1])))
    server = subprocess.Popen(
        [sys.executable, "-P", str(RANK), "--serve", str(folder / "socket")],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    atexit.register(lambda: (server.communicate(), shutil.rmtree(folder, ignore_errors=True)))
    assert server.stdout.readline() == "ready\n"
    return str(folder / "socket")


class StopsAt(Signals):
    """Stops once a file of metrics has so many lines."""

    def __init__(self, path: Path, lines: int) -> None:
        super().__init__()
        self.path, self.lines = path, lines

    @property
    def pending(self) -> str | None:  # type: ignore[override]
        return "SIGTERM" if self.path.exists() and len(self.path.read_text().splitlines()) >= self.lines else None

    @pending.setter
    def pending(self, value: str | None) -> None:
        pass
