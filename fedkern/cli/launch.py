"""`fedkern launch` and `fedkern demo`: a job over MPI on this machine."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from ..errors import JobError

PACKAGE = Path(__file__).parents[1]
SCRIPT, DEMO, DEMO_RANKS = PACKAGE / "transports" / "run.sh", PACKAGE / "demo.toml", 6


def launch(options: argparse.Namespace) -> int:
    """Becomes the script that starts mpirun and stays beside it: what is sent to this process reaches the job."""
    command = _command([*(["-n", str(options.ranks)] if options.ranks is not None else []), *options.arguments])
    sys.stdout.flush()
    os.execve(command[0], command, _environment())


def demo(options: argparse.Namespace) -> int:
    """The job of the README, and its page; without MPI in one process."""
    out = Path(options.out)
    if find_spec("mpi4py") is None:
        print("No mpi4py here (pip install 'fedkern[mpi]'): the job runs in one process.", flush=True)
        command = [sys.executable, "-P", "-m", "fedkern", "run", str(DEMO), "--out", str(out)]
    else:
        command = _command(["-n", str(DEMO_RANKS), str(DEMO), "--out", str(out)])
    environment = _environment()
    if os.getuid() == 0:
        print("You are root: telling Open MPI that this is allowed (OMPI_ALLOW_RUN_AS_ROOT).", flush=True)
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    before = signal.signal(signal.SIGINT, lambda *_: None)  # of a terminal's Ctrl-C the job itself makes a checkpoint
    try:
        code = subprocess.run(command, env=environment, check=False).returncode
    finally:
        signal.signal(signal.SIGINT, before)
    if code == 0:
        from . import report

        print(report.write(out))
    return code


def _command(arguments: list[str]) -> list[str]:
    bash = shutil.which("bash")
    if bash is None:
        raise JobError("launch: no bash on this machine; start the ranks yourself: mpirun -n RANKS fedkern run JOB.toml --mpi")
    return [bash, str(SCRIPT), *arguments]


def _environment() -> dict[str, str]:
    """The script takes the Python that runs us."""
    return {**os.environ, "PYTHON": sys.executable}
