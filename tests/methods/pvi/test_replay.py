"""`fedkern replay`: the posterior of an asynchronous run follows from its server's log, however the answers came."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.algorithms.pvi import machine as pvi
from fedkern.api import perform
from fedkern.cli.__main__ import main
from fedkern.errors import LostPeer
from fedkern.jobs import answers
from fedkern.jobs.answers import FILE
from fedkern.jobs.keeping import Keeper
from fedkern.jobs.run import Output
from fedkern.methods import load
from fedkern.plain import to_toml
from fedkern.transports.codec import Codec
from fedkern.transports.inprocess import InProcess
from support.command import mpirun
from support.interrupted import stopped_and_resumed
from support.losing import Losing
from support.mpirun import environment

JOBS: dict[str, dict[str, Any]] = {
    "a learnt scale": {"model": {"family": "gaussian"}},
    "logistic": {"model": {"family": "bernoulli"}, "data": {"response": "ill"}},
    "a number of rounds, steps": {
        "model": {"family": "gaussian"},
        "job": {"rounds": 3},
        "algorithm": {"optimiser": "adam", "local_steps": 3},
    },
    "private": {
        "model": {"family": "bernoulli"},
        "data": {
            "response": "ill",
            "columns": {"x": {"kind": "numeric", "center": 0.0, "scale": 1.0}, "ill": {"kind": "numeric"}},
        },
        "job": {"rounds": 3},
        "privacy": {"epsilon": 50.0, "delta": 1e-4, "clip": 3.0, "sampling_rate": 0.2, "noise_multiplier": 1.0},
    },
}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    rng, paths = np.random.default_rng(1), []
    for name in "abc":
        x = rng.normal(size=80)
        frame = pd.DataFrame(
            {"x": x, "y": 2 * x + rng.normal(size=80), "ill": (rng.random(80) < 1 / (1 + np.exp(-x))).astype(int)}
        )
        frame.to_csv(path := tmp_path / f"{name}.csv", index=False)
        paths.append(str(path))
    return {"clients": paths, "response": "y", "ignore": []}


def job(files: dict[str, Any], name: str) -> dict[str, Any]:
    tables: dict[str, Any] = {"job": {"method": "pvi"}, "algorithm": {"schedule": "asynchronous"}, "data": files}
    for section, keys in JOBS[name].items():
        tables[section] = {**tables.get(section, {}), **keys}
    tables["data"]["ignore"] = ["y"] if tables["data"]["response"] == "ill" else ["ill"]
    return tables


@pytest.mark.parametrize("name", JOBS)
def test_the_log_gives_the_same_bits(
    files: dict[str, Any], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fedkern.run(job(files, name), out=tmp_path / "out", place=InProcess(order=Random(3)))
    assert main(["replay", str(tmp_path / "out")]) == 0
    assert "the same posterior" in capsys.readouterr().out


def test_ranks_whose_answers_come_as_they_come(files: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(to_toml(job(files, "a learnt scale")))
    ended = mpirun(4, "run", path, "--out", tmp_path / "out")
    assert ended.code == 0, ended.err
    assert main(["replay", str(tmp_path / "out")]) == 0


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(5))
def test_ranks_that_were_killed_and_went_on(files: dict[str, Any], tmp_path: Path, seed: int) -> None:
    tables = job(files, "a number of rounds, steps")
    tables["job"]["rounds"] = 300
    tables["algorithm"]["checkpoint_every"] = 0.1
    path = tmp_path / "job.toml"
    path.write_text(to_toml(tables))
    run = [sys.executable, "-m", "fedkern", "launch", "-n", "4", str(path), "--out", str(tmp_path / "out")]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(run, start_new_session=True, env=environment(), **silent) as going:
        while not (tmp_path / "out" / FILE).exists() or (tmp_path / "out" / FILE).stat().st_size < 20_000 * (seed + 1):
            assert going.poll() is None
            time.sleep(0.02)
        os.killpg(going.pid, signal.SIGKILL)
    ended = subprocess.run([*run, "--resume"], env=environment(), capture_output=True, text=True, timeout=200, check=False)
    assert ended.returncode == 0, ended.stderr
    assert main(["replay", str(tmp_path / "out")]) == 0
    assert any("began" in line for line in answers.read(tmp_path / "out" / FILE))


def altered(lines: list[str]) -> list[str]:
    return [*lines[:4], lines[4].replace('\\"client\\": \\"', '\\"client\\": \\"x'), *lines[5:]]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (altered, "line 5 is not as the run wrote it"),
        (lambda lines: lines[:3] + lines[4:], "line 4 is not as the run wrote it, or one before it is missing"),
        (lambda lines: lines[:-2], "ends after line"),
        (lambda lines: [], "ends after line 0"),
    ],
    ids=["altered", "one removed", "cut", "empty"],
)
def test_a_log_that_was_changed_is_refused_by_its_line(
    files: dict[str, Any], change: Callable[[list[str]], list[str]], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fedkern.run(job(files, "logistic"), out=tmp_path / "out")
    log = tmp_path / "out" / FILE
    log.write_text("".join(f"{line}\n" for line in change(log.read_text().splitlines())))
    assert main(["replay", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err


def test_a_log_of_other_rows_gives_another_posterior(files: dict[str, Any], tmp_path: Path) -> None:
    """With its own entry in summary.json it is whole, and the digest is another."""
    one = fedkern.run(job(files, "logistic"), out=tmp_path / "one")
    rows = pd.read_csv(files["clients"][0])
    rows["ill"] = 1 - rows["ill"]
    rows.to_csv(files["clients"][0], index=False)
    other = fedkern.run(job(files, "logistic"), out=tmp_path / "other")
    assert one is not None
    assert other is not None
    (tmp_path / "one" / FILE).write_bytes((tmp_path / "other" / FILE).read_bytes())
    summary = json.loads((tmp_path / "one" / "summary.json").read_text())
    summary["answers"] = other.summary["answers"]
    (tmp_path / "one" / "summary.json").write_text(json.dumps(summary))
    assert main(["replay", str(tmp_path / "one")]) == 2


def test_other_schedules_have_no_log(files: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fedkern.run({**job(files, "logistic"), "algorithm": {"schedule": "sequential"}}, out=tmp_path / "out")
    assert not (tmp_path / "out" / FILE).exists()
    assert main(["replay", str(tmp_path / "out")]) == 2
    assert 'replay wants a finished run with algorithm.schedule = "asynchronous"' in capsys.readouterr().err


def test_a_run_that_was_interrupted_is_replayed_as_it_went_on(files: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(to_toml(job(files, "a learnt scale")))
    stopped_and_resumed(path, tmp_path / "out", after=19)
    assert main(["replay", str(tmp_path / "out")]) == 0


# Answers computed again --------------------


@pytest.mark.parametrize("name", [name for name in JOBS if name != "private"])
def test_the_rows_give_the_same_answers(
    files: dict[str, Any], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fedkern.run(job(files, name), out=tmp_path / "out", place=InProcess(order=Random(3)))
    assert main(["replay", str(tmp_path / "out"), "--rows"]) == 0
    assert "its clients' rows: the same posterior" in capsys.readouterr().out


def test_the_rows_of_a_run_over_ranks_and_one_that_went_on(files: dict[str, Any], tmp_path: Path) -> None:
    path, out = tmp_path / "job.toml", str(tmp_path / "out")
    path.write_text(to_toml(job(files, "a learnt scale")))
    ended = mpirun(4, "run", path, "--out", out)
    assert ended.code == 0, ended.err
    assert main(["replay", out, "--rows"]) == 0
    again = mpirun(4, "replay", out, "--rows")
    assert again.code == 0, again.err
    assert "the same posterior" in again.out
    stopped_and_resumed(path, tmp_path / "other", after=19)
    assert main(["replay", str(tmp_path / "other"), "--rows"]) == 0


def test_a_client_that_was_lost_and_came_back_answers_the_same_again(files: dict[str, Any], tmp_path: Path) -> None:
    tables = job(files, "a number of rounds, steps")
    tables["job"]["rounds"] = 12
    path, out = tmp_path / "job.toml", tmp_path / "out"
    path.write_text(to_toml(tables))
    config, folder = load(path)
    with pytest.raises(LostPeer, match="stopped by SIGTERM"):
        perform(Losing("pvi", after=3, stop=6), config, folder, Output(out, quiet=True))
    result = perform(InProcess(order=Random(2)), config, folder, Output(out, resume=True, quiet=True))
    assert result is not None
    assert result.summary["clients"]["b"]["came_back"]
    assert main(["replay", str(out)]) == 0
    assert main(["replay", str(out), "--rows"]) == 0


def test_a_log_of_other_rows_is_refused_by_the_digest_at_their_holder(
    files: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fedkern.run(job(files, "logistic"), out=tmp_path / "out")
    whole = Path(files["clients"][1]).read_text()
    Path(files["clients"][1]).write_text(whole.replace("1\n", "0\n", 1))
    assert main(["replay", str(tmp_path / "out")]) == 0
    assert main(["replay", str(tmp_path / "out"), "--rows"]) == 2
    assert re.search(r"client 'b': .*answers.jsonl is a log of other rows than it has now", capsys.readouterr().err)
    Path(files["clients"][1]).write_text(whole)
    shutil.rmtree(tmp_path / "out" / "client-b")
    assert main(["replay", str(tmp_path / "out"), "--rows"]) == 2
    assert "which says of which rows the log is, is not here" in capsys.readouterr().err


def test_an_answer_that_rows_do_not_give_is_named_by_its_line(
    files: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is whole, and of a server that wrote what no client had sent."""
    heard = Keeper.heard

    def forged(self: Keeper, client: int, frame: Any) -> None:
        if self.answers is not None and self.answers.number == 6:
            codec_kinds = pvi.protocol(private=False, until=True, readmits=True).to_server
            sender, delta = forged.codec.decode(bytes(frame), codec_kinds)  # type: ignore[attr-defined]
            frame = forged.codec.encode(sender, replace(delta, dh=1.01 * delta.dh), True)  # type: ignore[attr-defined]
        heard(self, client, frame)

    forged.codec = Codec({"d": 2, "p": 3, "t": 3}, 3)  # type: ignore[attr-defined]
    monkeypatch.setattr(Keeper, "heard", forged)
    fedkern.run(job(files, "logistic"), out=tmp_path / "out")
    monkeypatch.setattr(Keeper, "heard", heard)
    assert main(["replay", str(tmp_path / "out"), "--rows"]) == 2
    assert re.search(r"line 7: computed again, the answer of client '.' is another", capsys.readouterr().err)


def test_private_answers_and_those_of_secret_numbers_are_never_computed_again(
    files: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fedkern.run(job(files, "private"), out=tmp_path / "private")
    assert main(["replay", str(tmp_path / "private"), "--rows"]) == 2
    assert "would be a second release" in capsys.readouterr().err
    tables = job(files, "a number of rounds, steps")
    tables["algorithm"] |= {"batch": 0.5, "random_source": "secure"}
    fedkern.run(tables, out=tmp_path / "secret")
    assert main(["replay", str(tmp_path / "secret"), "--rows"]) == 2
    assert "only clients know which rows were in their batches" in capsys.readouterr().err
    assert main(["replay", str(tmp_path / "secret")]) == 0
