"""Of `fedkern run`: where a second run goes, and what is logged; commands that are mistyped."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedkern.cli.__main__ import main
from fedkern.data.simulate import federations
from support.command import mpirun_jobs

ROUNDS = ("--set", "job.rounds=3")


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path(federations.simulate("logistic", "sites", federations.Settings(clients=2, rows=30, columns=2)))


def test_a_second_run_has_a_folder_of_its_own(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("job", "job-2", "job-3"):
        assert main(["run", str(job), *ROUNDS]) == 0
        assert f"results in runs/{folder}\n" in capsys.readouterr().out
        assert Path("runs", folder, "summary.json").exists()
    assert main(["run", str(job), *ROUNDS, "--resume"]) == 2
    assert "runs/job-3/summary.json is there: the run in this folder has finished" in capsys.readouterr().err
    assert main(["run", str(job), *ROUNDS, "--out", "runs/job"]) == 2


def test_ranks_go_where_rank_0_goes(job: Path) -> None:
    pytest.importorskip("mpi4py")
    codes, err = mpirun_jobs(3, Path("commands.json"), {folder: ["run", job, *ROUNDS] for folder in ("job", "job-2")})
    assert codes == {"job": 0, "job-2": 0}, err
    for folder in codes:
        assert Path("runs", folder, "summary.json").exists()
        assert len([*Path("runs", folder).glob("client-*")]) == 2


@pytest.fixture
def silent_again() -> Iterator[None]:
    yield
    log = logging.getLogger("fedkern")
    for handler in log.handlers:
        handler.close()
    log.handlers = []
    log.setLevel(logging.NOTSET)


@pytest.mark.usefixtures("silent_again")
def test_what_is_logged(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(job), *ROUNDS, "--log-level", "debug", "--log-file", "log.txt", "--quiet"]) == 0
    log = Path("log.txt").read_text()
    for words in ("pvi: 2 clients, rank 0 of 1", "stage agreement", "round 3", "finished"):
        assert words in log, words
    assert capsys.readouterr().err == ""
    assert main(["run", str(job), *ROUNDS, "--log-level", "info", "--quiet"]) == 0
    assert "stage agreement" in capsys.readouterr().err
    assert main(["run", str(job), *ROUNDS, "--log-file", "nowhere/log.txt"]) == 2
    assert "cannot write nowhere/log.txt" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rnu", "job.toml"], "rnu: no such command; did you mean run?"),
        (["sigma", "bulid"], "bulid: no such command; did you mean build?"),
        (["zzz"], "zzz: no such command; there are run, describe, fit"),
        (["run", "job.toml", "--quite"], "unrecognized arguments: --quite; did you mean --quiet?"),
        (["report", "x", "--out", "t.docx"], "unrecognized arguments: --out t.docx; see fedkern report --help"),
        (["site", "list", "--site=x"], "unrecognized arguments: --site=x; see fedkern site list --help"),
    ],
)
def test_the_nearest_command_is_named(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert said in capsys.readouterr().err


def test_the_package_is_the_command() -> None:
    ran = subprocess.run([sys.executable, "-P", "-m", "fedkern", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("fedkern ")


def test_a_full_disk_ends_a_log_and_not_the_job(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    assert main(["run", str(job), *ROUNDS, "--log-level", "debug", "--log-file", "/dev/full", "--quiet"]) == 0
    told = capsys.readouterr().err
    assert told.count("cannot write /dev/full") == 1
    assert "the job goes on without it" in told
    assert "Traceback" not in told


def test_a_run_that_fails_leaves_its_reason_in_the_log(job: Path) -> None:
    nowhere = json.dumps(str(Path("away", "rows-*.csv").absolute()))
    assert main(["run", str(job), *ROUNDS, "--log-file", "log.txt", "--set", f"data.clients={nowhere}"]) == 2
    (line,) = [line for line in Path("log.txt").read_text().splitlines() if "ended: " in line]
    assert "ERROR" in line
    assert str(Path.cwd()) not in line
