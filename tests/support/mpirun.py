"""Real `mpirun` jobs for tests."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from .command import forking

MPIRUN = Path(sys.executable).with_name("mpirun")
JOB = Path(__file__).with_name("mpi_job.py")
ULFM = ("--with-ft", "ulfm")


def environment():
    """Running as root and more ranks than cores are allowed here; NumPy's BLAS takes one thread."""
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}
    return os.environ | allowed | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def command(n_ranks, ask, options=(), script=JOB):
    python = [sys.executable] if script == JOB else forking()  # that of JOB is about how ranks start and die
    return [str(MPIRUN), *options, "--oversubscribe", "-n", str(n_ranks), *python, str(script), json.dumps(ask)]


def mpirun(n_ranks, options=(), timeout=60, script=JOB, **ask):
    """Exit code, standard output, standard error without the launcher's own words, seconds."""
    before = time.monotonic()
    with subprocess.Popen(
        command(n_ranks, ask, options, script), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as job:
        try:
            out, err = job.communicate(timeout=timeout)
        finally:
            job.kill()
            kill_stopped(json.dumps(ask))
    return job.returncode, out, launcher_removed(err), time.monotonic() - before


def launcher_removed(err):
    """Open MPI frames its own words by lines of dashes, ends an abort's with a zero byte, and sometimes warns of its own end."""
    return re.sub(r"-{70,}\n(.|\n)*?-{70,}\n|\[warn\] Epoll .*\n", "", err).replace("\0", "")


def kill_stopped(ask):
    """A rank that was stopped may outlive its launcher."""
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and ask.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)
        except (OSError, ProcessLookupError):
            continue
