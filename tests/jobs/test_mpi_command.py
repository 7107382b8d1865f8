"""Whole jobs under mpirun: the same bits as in one process, one clear end, and quiet logs."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import pytest

import fedkern
from fedkern.api import perform
from fedkern.jobs.run import Output
from fedkern.methods import load
from fedkern.transports.inprocess import InProcess
from support import few
from support.command import OPEN, PRIVATE, mpirun, mpirun_commands, mpirun_jobs

DIAGONAL = '[model]\ncovariance = "diagonal"\n'
SYNCHRONOUS = few.lowered(OPEN).replace("clients = 3", "clients = 10") + DIAGONAL + '[algorithm]\nschedule = "synchronous"\n'


JOBS = {  # how many clients, and the job
    "synchronous": (10, SYNCHRONOUS),
    "long": (5, OPEN.replace("clients = 3", "clients = 5").replace("rounds = 3", "rounds = 40")),
    "private": (3, PRIVATE),
}


class Ran(NamedTuple):
    folder: Path  # in which each job has left the folder of its name
    out: dict[str, str]  # of each job
    err: str
    seconds: float


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Ran]:
    """What one mpirun of so many ranks leaves, which has run every job that has so many parties."""

    @cache
    def of(ranks: int) -> Ran:
        folder, commands = tmp_path_factory.mktemp("ran"), {}
        for name, (clients, text) in JOBS.items():
            (folder / f"{name}.toml").write_text(text)
            if ranks <= 1 + clients:
                commands[name] = ["run", folder / f"{name}.toml", "--out", folder / name]
        began = monotonic()
        ended = mpirun_commands(ranks, folder / "commands", commands)
        parts = re.split(r'^\["(\w+)", (\d+)\]\n', ended.out, flags=re.MULTILINE)  # text, name, code, text, ..
        assert dict(zip(parts[1::3], parts[2::3])) == dict.fromkeys(commands, "0"), ended.err
        return Ran(folder, dict(zip(parts[1::3], parts[::3])), ended.err, monotonic() - began)

    return of


@pytest.mark.parametrize("ranks", [3, *(pytest.param(n, marks=pytest.mark.nightly) for n in (2, 4, 11))])
def test_ranks_do_not_change_a_bit(ran: Callable[[int], Ran], ranks: int) -> None:
    folder = ran(ranks).folder
    summary = json.loads((folder / "synchronous" / "summary.json").read_text())
    alone = fedkern.run(folder / "synchronous.toml")
    assert summary["digest"] == alone.digest
    assert summary["wire"] == alone.summary["wire"]
    assert summary["parameters"] == alone.parameters


@pytest.mark.parametrize("optimiser", ["exact", "adagrad"])
def test_threads_and_orders_of_arrival_do_not_change_a_bit(tmp_path: Path, optimiser: str) -> None:
    """R2, with what calls BLAS (the exact optimum) and with sums over more rows than one block holds (two clients)."""
    job = SYNCHRONOUS.replace("clients = 10", "clients = 2") + f'optimiser = "{optimiser}"\n'
    (tmp_path / "job.toml").write_text(job)
    config, folder = load(tmp_path / "job.toml")
    places = [InProcess(n_threads=n) for n in (1, 2, 8)] + [InProcess(order=random.Random(seed)) for seed in range(5)]
    results = [perform(place, config, folder, Output(quiet=True)) for place in places]
    assert len({result.digest for result in results if result is not None}) == 1


@pytest.mark.parametrize("ranks", [3, pytest.param(6, marks=pytest.mark.nightly)])
def test_ranks_say_little(ran: Callable[[int], Ran], ranks: int) -> None:
    """U5: without a terminal at most one line in ten seconds from all ranks together, beside what is said once at the start, and
    no control character."""
    found = ran(ranks)
    progress = [line for line in found.err.splitlines() if line.startswith("fedkern: ")]
    assert len(progress) <= 1 + found.seconds / 10
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", found.out["long"] + found.err)
    assert found.out["long"].count("digest") == 1


def test_a_private_job_certifies_each_client(ran: Callable[[int], Ran]) -> None:
    found = ran(3)
    summary = json.loads((found.folder / "private" / "summary.json").read_text())
    assert {c["steps"] for c in summary["privacy"].values()} == {20}
    assert summary["privacy"].keys() == summary["clients"].keys() == {"client-1", "client-2", "client-3"}
    for name, ways in summary["wire"].items():
        lines = (found.folder / "private" / "ledger" / f"{name}.jsonl").read_text().splitlines()
        assert sum(json.loads(line)["bytes"] for line in lines) == ways["to_server"]["bytes"]
    assert found.out["private"].count("privacy certificate") == 1


def test_a_data_file_that_is_missing_on_one_rank(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,0\n2,1\n")
    (tmp_path / "job.toml").write_text(f'{few.TABLE}[data]\nclients = ["a.csv", "b.csv"]\nresponse = "y"\n')
    ended = mpirun(3, "run", tmp_path / "job.toml", "--out", tmp_path / "out")
    assert ended.code == 2
    (line,) = [line for line in ended.err.splitlines() if line.startswith("fedkern: rank ")]
    for words in ("rank 2", "client 'b'", "b.csv", "no such file"):
        assert words in line


def test_faults_that_all_ranks_see_are_said_once(tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_text(OPEN.replace("rounds", "roundz"))
    (tmp_path / "job.toml").write_text(OPEN.replace("clients = 3", "clients = 2"))
    commands: dict[str, list[str | Path]] = {
        "a key": ["run", tmp_path / "wrong.toml", "--out", tmp_path / "out"],
        "ranks": ["check", tmp_path / "job.toml"],
    }
    codes, err = mpirun_jobs(4, tmp_path / "commands.json", commands)
    assert codes == {"a key": 2, "ranks": 2}
    assert err.count("did you mean job.rounds?") == 1
    assert err.count("4 ranks for a server and 2 clients; start at most 3") == 1


ANOTHER_VERSION = """
import os
if os.environ.get("OMPI_COMM_WORLD_RANK") == "2":
    import fedkern
    fedkern.__version__ = "0.0.9"
"""


@pytest.mark.nightly  # by day: `transports/test_mpi.py`, with ranks that start sooner
def test_a_rank_with_another_version_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(OPEN)
    (tmp_path / "another").mkdir()
    (tmp_path / "another" / "sitecustomize.py").write_text(ANOTHER_VERSION)
    ended = mpirun(4, "run", tmp_path / "job.toml", "--out", tmp_path / "out", before=tmp_path / "another")
    assert ended.code == 2
    (line,) = [line for line in ended.err.splitlines() if line.startswith("fedkern: ")]
    said = f"rank 2 has fedkern 0.0.9, and rank 0 has fedkern {fedkern.__version__}: install the same version for all ranks"
    assert line == f"fedkern: {said}"
    assert not (tmp_path / "out").exists()
