"""`fedkern launch` and `fedkern demo`, as an installed package has them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("mpi4py")
from fedkern.cli import launch
from fedkern.cli.__main__ import main
from fedkern.results.gaussian import comparable
from support import forked
from support.mpirun import environment

FEDKERN = [sys.executable, "-P", "-m", "fedkern"]


def started(*arguments: str) -> subprocess.Popen[str]:
    env = environment() | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.Popen([*FEDKERN, *arguments], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    made = forked.fedkern("simulate", "logistic", "--out", "sites", "--clients", "2", "--rows", "40", folder=tmp_path)
    assert made.code == 0, made.err
    return tmp_path / "sites" / "job.toml"


def test_a_request_to_end_reaches_the_job(job: Path, tmp_path: Path) -> None:
    running = started("launch", "-n", "3", str(job), "--out", str(tmp_path / "run"), "--set", "job.rounds=200000")
    until = time.monotonic() + 60
    while not (tmp_path / "run" / "metrics.jsonl").exists() and time.monotonic() < until:
        time.sleep(0.1)
    running.send_signal(signal.SIGTERM)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 3
    assert "--resume goes on from" in err


@pytest.mark.parametrize("arguments", [(), ("-n", "two", "job.toml"), ("job.toml",), ("-n", "3")])
def test_wrong_arguments_show_the_right_ones(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = forked.fedkern("launch", *arguments, folder=tmp_path)
    assert done.code == 2
    assert "-n RANKS" in done.err
    assert "JOB.toml" in done.err


@pytest.mark.nightly  # by day the same is asked of `launch`, above
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_request_to_end_the_demo_alone_is_passed_on_once(number: int, tmp_path: Path) -> None:
    text = launch.DEMO.read_text()
    running = started("demo", "--out", str(tmp_path / "demo"))
    until = time.monotonic() + 60
    while not (tmp_path / "demo" / "metrics.jsonl").exists() and time.monotonic() < until:
        time.sleep(0.02)
    running.send_signal(number)
    out, err = running.communicate(timeout=60)
    if running.returncode == 0:
        pytest.skip("the demo had ended before it could be asked")
    assert running.returncode == 3, err
    assert err.count("stopped by") == 1
    assert launch.DEMO.read_text() == text
    assert "Traceback" not in out + err


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("rounds", [10, pytest.param("budget", marks=pytest.mark.nightly)])
def test_the_demo_is_that_of_the_repository(
    rounds: int | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its job file is the one that `make demo` runs; by day for some rounds, on three ranks."""
    text = launch.DEMO.read_text()
    assert text == (Path(__file__).parents[2] / "mpi" / "breast-cancer.toml").read_text()
    if rounds != "budget":
        (tmp_path / "demo.toml").write_text(text.replace('rounds = "budget" ', f"rounds = {rounds} "))
        monkeypatch.setattr(launch, "DEMO", tmp_path / "demo.toml")
        monkeypatch.setattr(launch, "DEMO_RANKS", 3)
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    code = main(["demo", "--out", str(tmp_path / "demo")])
    out, err = capfd.readouterr()
    assert code == 0, err
    assert "privacy certificate" in out
    assert str(tmp_path / "demo" / "report.html") in out
    summary = json.loads((tmp_path / "demo" / "summary.json").read_text())
    assert summary["rounds"] == rounds or rounds == "budget"
    pooled = json.loads((tmp_path / "demo" / "pooled" / "summary.json").read_text())
    assert pooled["converged"] is True
    wider = [value["sd"] / pooled["parameters"][name]["sd"] for name, value in comparable(summary["parameters"]).items()]
    assert len(wider) == 3
    cost = f"What privacy cost: intervals {min(wider):.2g} to {max(wider):.2g} times as wide as without it."
    assert cost in out
    page = (tmp_path / "demo" / "report.html").read_text()
    assert cost in page
    assert "var(--orange)" in page  # the pooled answer, in the figure


def test_without_bash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch.shutil, "which", lambda name: None)
    with pytest.raises(launch.JobError, match="start the ranks yourself: mpirun"):
        launch._command([])
