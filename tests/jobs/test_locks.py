"""One job a folder, whoever starts the second: real processes, one clear error, and a lock that ends with its process."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import fedkern
from fedkern.errors import JobError, OwnFault
from fedkern.jobs import locks
from fedkern.methods.sigma.prior import train
from support.command import forking, mpirun
from support.interrupted import job, run
from support.refusal import refusal

LONG = ("--set", "job.rounds=10000000", "--set", "algorithm.checkpoint_every=0.2")


def started(path: Path, out: Path, *more: str, ranks: int = 0) -> subprocess.Popen[bytes]:
    """`fedkern run` in processes of its own; what it says is in a file beside the folder."""
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    launcher = [str(Path(sys.executable).with_name("mpirun")), "--oversubscribe", "-n", str(ranks)] if ranks else []
    command = [*launcher, *forking(), "-m", "fedkern.cli", "run", str(path), "--out", str(out), "--quiet", *more]
    env = os.environ | allowed | {"PYTHONPATH": str(Path(fedkern.__file__).parents[1])}
    with out.with_name(f"said-{len(list(out.parent.glob('said-*')))}").open("wb") as said:
        return subprocess.Popen([*command, *(["--mpi"] if ranks else [])], env=env, stderr=said)


def said(out: Path) -> list[str]:
    return sorted(path.read_text() for path in out.parent.glob("said-*"))


@contextmanager
def running(path: Path, out: Path, ranks: int = 0) -> Iterator[int]:
    """A job that has begun and goes on; the process that is its server."""
    process, until = started(path, out, *LONG, ranks=ranks), time.monotonic() + 60
    server = process.pid
    try:
        while not list(out.glob("checkpoint/*.ckpt")):
            assert process.poll() is None, said(out)
            assert time.monotonic() < until
            time.sleep(0.02)
        server = int((out / ".lock").read_text().split()[1])
        yield server
    finally:
        with suppress(ProcessLookupError):
            os.kill(server, signal.SIGTERM)
        process.wait(60)


def test_a_second_job_in_a_folder_gets_one_clear_error(tmp_path: Path) -> None:
    path, out = job(tmp_path, "pvi"), tmp_path / "out"
    (tmp_path / "other").mkdir()
    with running(path, out) as pid:
        for resume in (False, True):
            with pytest.raises(JobError, match=rf"another job is running .*, of the server \(process {pid} ") as caught:
                run(path, out, *LONG[1::2], resume=resume)
            assert caught.value.exit_code == 2
        with pytest.raises(JobError, match="another job is running in this folder, of client 'a'"):
            run(path, tmp_path / "other", f"output.client_folder={out}")  # a client's folder on the way of another server's
        os.kill(pid, signal.SIGKILL)
        assert run(path, out, "job.rounds=1", resume=True).stop == "rounds"  # a lock ends with its process


def test_of_two_jobs_that_start_at_once_one_goes_on(tmp_path: Path) -> None:
    path, out = job(tmp_path, "pvi"), tmp_path / "out"
    both = [started(path, out, "--set", "job.rounds=300") for _ in range(2)]
    assert sorted(process.wait(120) for process in both) == [0, 2], said(out)
    nothing, refused = said(out)
    assert nothing == ""
    assert refused.count("fedkern: ") == 1
    assert "another job is running in this folder" in refused or "the run in this folder has finished" in refused
    assert json.loads((out / "summary.json").read_text())["rounds"] == 300


@pytest.mark.parametrize(
    ("env", "says"),
    [
        (
            {"OMPI_COMM_WORLD_SIZE": "4"},
            "each of the 4 processes that Open MPI's mpirun has started runs the whole job: with --mpi",
        ),
        ({"PMI_SIZE": "3"}, "each of the 3 processes that an mpiexec of MPICH's family"),
        ({"SLURM_STEP_NUM_TASKS": "2"}, "each of the 2 processes that Slurm's srun has started"),  # of one without PMIx, too
        ({"OMPI_COMM_WORLD_SIZE": "1"}, "--out"),
        ({"SLURM_NTASKS": "4"}, "--out"),  # of a batch script, in which a process stands for itself
    ],
)
def test_processes_that_a_launcher_started_without_ranks_are_told_of_mpi(
    env: dict[str, str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with locks.one_job(tmp_path, "the server"), pytest.raises(JobError) as caught, locks.one_job(tmp_path, "the server"):
        pass
    assert says in str(caught.value)
    assert str(caught.value).endswith("choose another --out") is (says == "--out")


def test_over_mpi_the_server_and_every_client_hold_their_own(tmp_path: Path) -> None:
    path, out = job(tmp_path, "pvi"), tmp_path / "out"
    with running(path, out, ranks=3) as pid:
        holders = {(out / folder / ".lock").read_text().split()[1] for folder in (".", "client-a", "client-b")}
        assert len(holders) == 3
        ended = mpirun(3, "run", path, "--out", out, "--resume")
        assert ended.code == 2, ended.err
        assert ended.err.count("fedkern: ") == 1
        assert f"another job is running in this folder, of the server (process {pid} on " in ended.err
        (tmp_path / "other").mkdir()
        with pytest.raises(JobError, match="another job is running in this folder, of client 'a'"):
            run(path, tmp_path / "other", f"output.client_folder={out}")


def test_a_lock_is_given_back_whatever_happens(tmp_path: Path) -> None:
    path, out = job(tmp_path, "pvi"), tmp_path / "out"
    (tmp_path / "clients" / "b.csv").write_text("age,sex,income\n" + "forty,f,no\n" * 30)
    for _ in range(2):
        with pytest.raises(OwnFault) as caught:
            run(path, out)
        assert "'forty' is not a number" in caught.value.own
    with locks.one_job(out, "the server"), pytest.raises(JobError, match="another job is running"), locks.one_job(out, "a test"):
        pass


def test_a_disk_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", none)
    with refusal(JobError, "Function"):
        run(job(tmp_path, "pvi"), tmp_path / "out")


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    path = job(tmp_path, "pvi")
    (tmp_path / "file").write_text("")
    for resume in (False, True):
        with pytest.raises(JobError, match=r"cannot write .*file is a file, and no folder|there is no run to resume"):
            run(path, tmp_path / "file" / "out", resume=resume)


def test_two_trainings_of_a_prior(tmp_path: Path) -> None:
    from fedkern.data.simulate.federations import Settings, simulate
    from fedkern.jobs.run import Output
    from fedkern.methods.sigma.prior.keys import load

    simulate("sigma", tmp_path, Settings(2, 20, 2, 1))
    config, folder = load(tmp_path / "prior.toml", ["training.steps=10"])
    with locks.one_job(tmp_path / "prior" / "training", "a test"), pytest.raises(JobError, match="of a prior's training"):
        train.perform(config, folder, Output(tmp_path / "prior", quiet=True))
