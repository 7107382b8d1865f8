"""mpi/run.sh and mpi/slurm.sbatch with a job in the place of `fedkern run`."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("mpi4py")
from support import mpi_job
from support.mpirun import environment

RUN = Path(__file__).parents[2] / "mpi" / "run.sh"
SLURM, SLURM_SH = RUN.with_name("slurm.sbatch"), "THIS-FILE"  # a cluster runs a copy, which does not know the name
ARGUMENTS = "-P -m fedkern.cli run {job} --mpi"


@pytest.fixture
def run_sh(tmp_path):
    """Starts run.sh with a Python that runs the tests' job, and checks what it was asked to run."""
    python = tmp_path / "python"
    script = f'#!/bin/sh\n[ "$3" = fedkern.transports.mpirun ] && exec "{sys.executable}" "$@"\n'
    script += f'[ "$1 $2 $3 $4 $6" = "{ARGUMENTS.replace("{job} ", "")}" ] || exit 9\n'
    python.write_text(script + f'exec "{sys.executable}" "{mpi_job.__file__}" "$5"\n')
    python.chmod(0o755)
    (tmp_path / "python3").symlink_to(python)  # as the environment has it that was active at sbatch
    (tmp_path / "mpirun").symlink_to(Path(sys.executable).with_name("mpirun"))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def start(*arguments, script=RUN, **env):
        at = path if script == RUN else f"{tmp_path}{os.pathsep}{path}"
        full = environment() | {"PATH": at, "PYTHON": str(python)} | env
        full = {name: value for name, value in full.items() if value is not None}
        return subprocess.Popen([script, *arguments], env=full, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return start


@pytest.mark.parametrize(
    ("script", "name"), [(RUN, "SIGTERM"), (SLURM, "SIGUSR1"), pytest.param(SLURM, "SIGTERM", marks=pytest.mark.nightly)]
)
def test_a_request_to_end_becomes_a_checkpoint(script, name, run_sh, tmp_path):
    ask = json.dumps({"rounds": 500, "nap": 0.02, "folder": str(tmp_path / "out")})
    arguments = ["-n", "2", ask] if script == RUN else [ask]
    with run_sh(*arguments, script=script, SLURM_NTASKS="2", HOME=None) as job:
        for _ in range(300):
            time.sleep(0.1)
            if list((tmp_path / "out").glob("checkpoint/second-*")):
                break
        job.send_signal(getattr(signal, name))
        out, err = job.communicate(timeout=60)
    assert job.returncode == 3
    assert re.fullmatch(r"fedkern: stopped by SIGUSR1.*; --resume goes on from checkpoint \d+\n", err)
    assert out == ("" if script == RUN else f"where a checkpoint was kept, this goes on: sbatch {SLURM_SH} {ask} --resume\n")


def test_a_killed_rank_is_a_lost_client(run_sh):
    out, _ = (job := run_sh("-n", "3", json.dumps({"mishap": "kill"}))).communicate(timeout=60)
    assert job.returncode == 4
    assert json.loads(out)["lost"] == [0, 2, 4]


@pytest.mark.parametrize("arguments", [(), ("-n",), ("-n", "two", "job.toml"), ("job.toml",)])
def test_wrong_arguments_show_the_right_ones(run_sh, arguments):
    _, err = (job := run_sh(*arguments)).communicate(timeout=60)
    assert job.returncode == 2
    assert "mpi/run.sh -n RANKS JOB.toml" in err


@pytest.mark.skipif(os.getuid() != 0, reason="Open MPI only refuses to start as root")
def test_root_is_told_how_to_allow_it(run_sh):
    _, err = (job := run_sh("-n", "2", "job.toml", OMPI_ALLOW_RUN_AS_ROOT=None)).communicate(timeout=60)
    assert job.returncode == 2
    assert "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1" in err


@pytest.mark.parametrize("to", ["mpirun", "both"])
def test_a_request_to_end_while_mpirun_is_asked_what_it_is(to, run_sh, tmp_path):
    """Its answer is missing then: the job would be started without what the answer tells to add."""
    slow = '#!/bin/sh\necho $$ > "$0.pid.part" && mv "$0.pid.part" "$0.pid"\nexec sleep 60\n'
    (tmp_path / "mpirun").unlink()
    (tmp_path / "mpirun").write_text(slow)
    (tmp_path / "mpirun").chmod(0o755)
    with run_sh("-n", "3", "{}") as job:
        while not (tmp_path / "mpirun.pid").exists():
            time.sleep(0.02)
        if to == "both":
            job.send_signal(signal.SIGTERM)
        os.kill(int((tmp_path / "mpirun.pid").read_text()), signal.SIGTERM)
        out, err = job.communicate(timeout=30)
    assert (job.returncode, out, err) == (3, "", "fedkern: stopped before the job had begun; start it again\n")
