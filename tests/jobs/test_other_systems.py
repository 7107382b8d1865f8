"""A job runs in one process, and a rank starts, where Linux's own calls are not: macOS has none of these."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import fedkern as package

# Before fedkern is imported: no cores to be bound to, no prctl, no sockets without a file, no /proc.
WITHOUT = """
import os, socket, sys, sysconfig
sysconfig.get_config_vars()  # of the machine that this is
sys.platform = "darwin"
for name in ("sched_getaffinity", "sched_setaffinity", "sched_yield"):
    delattr(os, name)
for name in ("SOCK_NONBLOCK", "SO_PEERCRED"):
    delattr(socket, name)

def no_proc(event, arguments):
    if event == "open" and str(arguments[0]).startswith("/proc"):
        raise FileNotFoundError(2, "No such file or directory", arguments[0])
    if event == "ctypes.dlsym" and arguments[1] == "prctl":
        raise AttributeError("prctl")
    if event == "socket.bind" and isinstance(arguments[1], bytes) and arguments[1][:1] == b"\\0":
        raise FileNotFoundError(2, "No such file or directory")

sys.addaudithook(no_proc)
"""

JOB = """
import fedkern, numpy as np
random = np.random.default_rng(1)
clients = {}
for name in "ab":
    X = random.normal(size=(60, 2))
    clients[name] = X, (random.random(60) < 0.5).astype(float)
job = {"job": {"method": "pvi", "rounds": 3}, "model": {"covariance": "full"}}
result = fedkern.run(job, data=clients, out=sys.argv[1])
print(len(result.parameters))  # of three coefficients, as given and standardised
"""

RANK = """
from fedkern.transports import cores, link, parent
os.environ["OMPI_COMM_WORLD_RANK"] = "0"
assert parent.hello() is False
parent.follow()
assert cores.usable_cores() == list(range(os.cpu_count()))
try:
    link.Bell("job", 0)
    raise SystemExit("a socket without a file")
except OSError:
    pass
wait = link.Patience(1.0)
for _ in range(wait.LOOKS):
    wait.pause()
"""


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(Path(package.__file__).parents[1])}
    command = [sys.executable, "-c", WITHOUT + program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=200, check=False)


def test_a_job_in_one_process(tmp_path: Path) -> None:
    ended = run(JOB, str(tmp_path / "run"))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == "6"


def test_a_rank_that_plain_mpirun_started() -> None:
    ended = run(RANK)
    assert ended.returncode == 0, ended.stderr


def test_launch_names_what_is_missing(tmp_path: Path) -> None:
    ended = run("from fedkern.cli.__main__ import main\nsys.exit(main(['launch', '-n', '3', 'job.toml']))")
    assert ended.returncode == 2
    assert "needs Linux, and this is darwin; start the ranks yourself: mpirun -n RANKS fedkern run JOB.toml --mpi" in ended.stderr


def test_the_script_for_slurm_is_in_the_package() -> None:
    command = [sys.executable, "-m", "fedkern.cli", "launch", "--print-slurm"]
    env = {**os.environ, "PYTHONPATH": str(Path(package.__file__).parents[1])}
    ended = subprocess.run(command, capture_output=True, text=True, env=env, timeout=100, check=True)
    assert ended.stdout == (Path(package.__file__).parent / "transports" / "slurm.sbatch").read_text()
    assert ended.stdout.startswith("#!/bin/bash\n")
