"""Maps, vertical jobs and own models whose clients do not wait for one another: the log, losses, resuming, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.cli.__main__ import main
from fedkern.errors import JobError
from fedkern.jobs.answers import FILE
from fedkern.methods.likelihood import own_variational
from fedkern.plain import to_toml
from fedkern.transports.inprocess import InProcess
from support import sigma_artifacts as artifacts
from support.command import mpirun
from support.interrupted import stopped_and_resumed
from support.own_package import PRIORS
from support.own_package import job as own_job
from support.own_package import package as package  # a fixture

Tables = dict[str, Any]


def of_map(folder: Path, inference: str = "sfvi", rounds: int = 30) -> Tables:
    artifacts.written(folder / "prior")
    rows = artifacts.counts(folder / "rows")
    return {
        "job": {"method": "sigma", "seed": 3, "rounds": rounds},
        "data": {"clients": [rows], "area": "district", "response": "cases", "exposure": "expected"},
        "model": {"prior": str(folder / "prior")},
        "algorithm": {"inference": inference, "schedule": "asynchronous"},
    }


def of_columns(folder: Path, rounds: int = 30, **algorithm: Any) -> Tables:
    rng, n = np.random.default_rng(1), 40
    X, ids = rng.normal(size=(n, 4)), [f"r{i}" for i in range(n)]
    y = (rng.random(n) < 1 / (1 + np.exp(-X @ [1.0, -1.0, 0.5, 0.0]))).astype(int)
    pd.DataFrame({"id": ids, "y": y}).to_csv(folder / "server.csv", index=False)
    own = {"y": y} if algorithm.get("response") == "shared" else {}
    for name, columns in (("a", [0, 1]), ("b", [2]), ("c", [3])):
        pd.DataFrame({"id": ids, **own, **{f"x{j}": X[:, j] for j in columns}}).to_csv(folder / f"{name}.csv", index=False)
    return {
        "job": {"method": "vertical", "seed": 3, "rounds": rounds},
        "data": {
            "clients": [str(folder / f"{name}.csv") for name in "abc"],
            "server": str(folder / "server.csv"),
            "id": "id",
            "response": "y",
        },
        "algorithm": {"schedule": "asynchronous", **algorithm},
    }


JOBS: dict[str, Callable[[Path], Tables]] = {
    "sfvi": of_map,
    "sfvi-avg": lambda folder: of_map(folder, "sfvi-avg"),
    "vertical": of_columns,
    "vertical, batches": lambda folder: of_columns(folder, batch_size=7, auxiliary="mean-field"),
    "vertical, response shared": lambda folder: of_columns(folder, response="shared"),
}


@pytest.mark.parametrize("name", JOBS)
def test_the_log_gives_the_same_bits_and_all_clients_have_their_rounds(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = fedkern.run(JOBS[name](tmp_path), out=tmp_path / "out", place=InProcess(order=Random(3)))
    assert result is not None
    assert result.summary["rounds"] == 30
    assert main(["replay", str(tmp_path / "out")]) == 0
    assert "the same posterior" in capsys.readouterr().out
    log = (tmp_path / "out" / FILE).read_text().splitlines()
    line = len(log) // 2
    (tmp_path / "out" / FILE).write_text("".join(f"{one}\n" for one in log[:line] + log[line + 1 :]))
    assert main(["replay", str(tmp_path / "out")]) == 2
    assert f"line {line + 1} is not as the run wrote it" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["sfvi", "vertical"])
def test_the_rows_give_the_same_answers_again(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fedkern.run(JOBS[name](tmp_path), out=tmp_path / "out", place=InProcess(order=Random(3)))
    assert main(["replay", str(tmp_path / "out"), "--rows", str(tmp_path)]) == 0, capsys.readouterr().err
    assert "the same posterior" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["sfvi", "vertical"])
def test_another_order_of_answers_gives_another_digest_and_nearly_the_same_numbers(name: str, tmp_path: Path) -> None:
    tables = JOBS[name](tmp_path)
    one, other = (fedkern.run(tables, place=InProcess(order=Random(seed))) for seed in (1, 2))
    assert one is not None
    assert other is not None
    assert one.summary["digest"] != other.summary["digest"]
    for key, row in one.parameters.items():
        assert abs(other.parameters[key]["mean"] - row["mean"]) < 0.5 * row["sd"]


@pytest.mark.parametrize("name", ["sfvi", "vertical"])
def test_ranks_whose_answers_come_as_they_come(name: str, tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(to_toml(JOBS[name](tmp_path)))
    ended = mpirun(4, "run", path, "--out", tmp_path / "out")
    assert ended.code == 0, ended.err
    assert main(["replay", str(tmp_path / "out")]) == 0


@pytest.mark.parametrize("name", ["sfvi", "sfvi-avg", "vertical", "vertical, batches"])
def test_a_run_that_was_stopped_is_replayed_as_it_went_on(name: str, tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(to_toml(JOBS[name](tmp_path)))
    stopped_and_resumed(path, tmp_path / "out", after=19)
    assert main(["replay", str(tmp_path / "out")]) == 0


@pytest.mark.parametrize(("factory", "priors"), [("by_hand", PRIORS), ("with_local", "")])
def test_an_own_model(factory: str, priors: str, tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_variational, "PIECES", 1)
    monkeypatch.setattr(own_variational, "INNER", 2)
    path = own_job(tmp_path, factory, priors + '[algorithm]\nsampler = "sfvi"\nschedule = "asynchronous"\n', 3)
    text = path.read_text().replace('kind = "own"\n', 'kind = "own"\nlocal = true\n')
    path.write_text(text.replace("seed = 3", "seed = 3\nrounds = 30"))
    fedkern.run(path, out=tmp_path / "out", place=InProcess(order=Random(3)))
    assert main(["replay", str(tmp_path / "out")]) == 0


def test_a_synchronous_run_has_no_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = of_columns(tmp_path, 5)
    del tables["algorithm"]["schedule"]
    fedkern.run(tables, out=tmp_path / "out")
    assert not (tmp_path / "out" / FILE).exists()
    assert main(["replay", str(tmp_path / "out")]) == 2
    assert 'replay wants a finished run with algorithm.schedule = "asynchronous"' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"method": "sigma", "inference": "hmc"}, "a step of a chain is accepted or not by the log density of all clients' rows"),
        ({"method": "sigma", "sums": "secure"}, "adds what all clients answer to one question"),
        ({"method": "sigma", "inference": "nested"}, 'inference = "nested" takes no steps of an optimiser'),
        ({"method": "vertical", "inference": "soul"}, "the mode of the auxiliary variables moves by what all clients say"),
        ({"method": "vertical", "augmentation": "power"}, "the others' slopes at a client's own newest draw"),
        ({"method": "likelihood"}, "the log-likelihoods of all clients' rows are added at each point"),
        ({"method": "vertical", "schedule": "synchronous", "lead": 3}, 'algorithm.lead is for schedule = "asynchronous"'),
        ({"method": "vertical", "lead": 0}, "algorithm.lead"),
        ({"method": "sparse"}, "algorithm.schedule"),
    ],
)
def test_what_needs_everybody_at_each_step_is_refused_with_the_reason(tables: dict[str, Any], said: str, tmp_path: Path) -> None:
    given = dict(tables)
    method, job = given.pop("method"), {}
    if "sums" in given:
        job["sums"] = given.pop("sums")
    model = {"augmentation": given.pop("augmentation")} if "augmentation" in given else {}
    made: Tables = {
        "sigma": {"data": {"clients": ["a.csv", "b.csv", "c.csv"], "area": "area", "response": "y"}, "model": {"prior": "prior"}},
        "vertical": {"data": {"clients": ["a.csv", "b.csv"], "id": "id", "response": "y"}, "model": model},
        "likelihood": {"data": {"clients": ["a.csv", "b.csv"], "response": "y"}},
        "sparse": {"data": {"clients": ["a.csv", "b.csv"]}},
    }[method]
    made |= {"job": {"method": method, "rounds": 20, **job}, "algorithm": {"schedule": "asynchronous", **given}}
    with pytest.raises(JobError) as raised:
        fedkern.run(made, data={})
    assert said in str(raised.value)


def test_check_says_the_schedule_and_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.toml"
    path.write_text(to_toml(of_columns(tmp_path, 5)))
    assert main(["check", str(path), "--verbose"]) == 0
    assert "asynchronous: who is 8 answers ahead of the slowest waits" in capsys.readouterr().out
