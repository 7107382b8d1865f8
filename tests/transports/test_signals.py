"""Signals while a program starts, where none of its code runs."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("mpi4py")
from fedkern.transports.signals import Signals
from support.command import python
from support.mpirun import MPIRUN, environment

ALONE = """
import ctypes, signal
signal.signal(signal.{name}, signal.SIG_DFL)  # what runs the tests may ignore it, as nohup does
from fedkern.transports.signals import Signals
with Signals(at_once=True) as signals, signals.deadly(3, "stopped by {{}}, in the end\\n"):
    print("here", flush=True)
    ctypes.PyDLL(None).sleep(60)  # with the interpreter's lock, which only C code can do without
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP"])
def test_a_signal_ends_a_process_of_which_no_python_runs(name):
    words = [sys.executable, "-c", ALONE.format(name=name)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "here\n"
        process.send_signal(getattr(signal, name))
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (3, f"stopped by {name}, in the end\n")


def test_afterwards_signals_are_remembered_again():
    with Signals() as signals:
        with signals.deadly(3):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.pending == "SIGTERM"


def test_what_the_caller_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Signals() as signals, signals.deadly(3):
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert signals.pending is None


IMPORTING = """
import os, signal, sys
from importlib.abc import MetaPathFinder
class Finder(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGTERM)
sys.meta_path.insert(0, Finder())
from fedkern.cli.__main__ import main
sys.exit(main(["run", "job.toml", *{options!r}]))
"""


ALL = ("numpy", "scipy.linalg", "pydantic", "fedkern.jobs.engine", "fedkern.methods.pvi.run")


@pytest.mark.parametrize(
    ("module", "options"), [*((module, []) for module in ALL), *((module, ["--mpi"]) for module in (*ALL, "mpi4py.MPI"))]
)
def test_a_signal_while_modules_are_imported_ends_the_process(module, options, tmp_path):
    (tmp_path / "job.toml").write_text('[data]\nbuiltin = "breast-cancer"\nsplit = {clients = 2}')
    ended = python("-c", IMPORTING.format(module=module, options=options), folder=tmp_path, timeout=60)
    assert ended.code == 3, ended.err
    assert ended.err.startswith("fedkern: stopped by SIGTERM")
    assert ended.err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


RANK = """
import os, sys, time
from fedkern.transports.launch import launch
if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
    time.sleep(120)
print(os.getpid(), flush=True)
sys.exit(launch(lambda ranks: 0))
"""


def test_a_rank_that_waits_for_the_others_to_start_ends_at_once(tmp_path):
    (program := tmp_path / "rank.py").write_text(RANK)
    command = [str(MPIRUN), "--oversubscribe", "-n", "2", sys.executable, "-P", str(program)]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
        pid = int(job.stdout.readline())
        while "libmpi" not in Path(f"/proc/{pid}/maps").read_text():
            time.sleep(0.05)
        time.sleep(1)  # MPI starts
        os.kill(pid, signal.SIGTERM)
        _, err = job.communicate(timeout=30)
    assert job.returncode == 3
    assert err.startswith("fedkern: stopped by SIGTERM before the job had begun; start it again\n")
