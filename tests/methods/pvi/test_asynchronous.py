"""Asynchronous jobs: a slow client is waited for, everybody else is not, and what was paid for is in the result."""

from __future__ import annotations

import json
import time
from collections import deque
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.cli.__main__ import main
from fedkern.errors import JobError
from fedkern.jobs import so_far
from fedkern.transports import inprocess

LAST = 2  # the slow client


def slow(every: int) -> Any:
    """The order of a transport whose last client is reached, or heard, after so many other messages."""
    passed = 0

    def order(flying: deque[Any], _: Any) -> None:
        nonlocal passed
        passed += 1
        first = next((k for k, item in enumerate(flying) if (item.client == LAST) == (passed % every == 0)), 0)
        item = flying[first]
        del flying[first]
        flying.appendleft(item)

    return order


@pytest.fixture
def clients() -> dict[str, pd.DataFrame]:
    rng, data = np.random.default_rng(1), {}
    for name, n in (("a", 60), ("b", 60), ("c", 300)):
        x = rng.normal(size=n)
        data[name] = pd.DataFrame({"x": x, "y": 2 * x + rng.normal(size=n)})
    return data


JOB: dict[str, Any] = {
    "job": {"method": "pvi"},
    "data": {"response": "y"},
    "model": {"family": "gaussian", "covariance": "full", "prior_sd": 100.0},
    "algorithm": {"schedule": "asynchronous"},
}


def test_a_slow_client_is_waited_for_and_the_posterior_without_it_is_there(
    clients: dict[str, pd.DataFrame], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(inprocess, "_bring_to_front", slow(40))
    early: list[so_far.SoFar] = []
    monkeypatch.setattr("fedkern.jobs.locks.running", lambda home: True)

    def look(*arguments: Any, **values: Any) -> None:
        if not early and (found := so_far.read(tmp_path / "out")):
            early.append(found)
            assert main(["status", str(tmp_path / "out")]) == 0

    monkeypatch.setattr("fedkern.jobs.progress.Progress.show", look)
    job = {**JOB, "algorithm": {"schedule": "asynchronous", "lead": 40}}
    result = fedkern.run(job, data=clients, place=inprocess.InProcess(order=Random(1)), out=tmp_path / "out")
    assert result is not None
    assert result.converged == "settled"
    rows = pd.concat([*clients.values()])
    slope, intercept = np.polyfit(rows["x"], rows["y"], 1)
    error = np.sqrt(((rows["y"] - intercept - slope * rows["x"]) ** 2).sum() / 418 / ((rows["x"] - rows["x"].mean()) ** 2).sum())
    assert result.parameters["theta[x]"]["mean"] == pytest.approx(slope, abs=0.05 * error)
    told = result.summary["clients"]
    assert told["c"]["updates"] * 3 < told["a"]["updates"]
    assert told["c"]["oldest"] > 5
    # Before it was heard, the posterior of all others was there.
    assert early[0].without == ["c"]
    two = pd.concat([clients["a"], clients["b"]])
    assert early[0].parameters["theta[x]"]["mean"] == pytest.approx(np.polyfit(two["x"], two["y"], 1)[0], abs=0.05)
    printed = capsys.readouterr().out
    assert "posterior so far, without c:" in printed
    (found,) = [found for found in result.summary["findings"] if found["id"] == "client-far-behind"]
    assert found["values"]["clients"] == [["c", told["c"]["updates"]]]
    lines = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    assert any(line.get("behind") == {"c": 0} for line in lines)


def test_what_was_paid_for_is_in_the_result(clients: dict[str, pd.DataFrame], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inprocess, "_bring_to_front", slow(60))
    private: dict[str, Any] = {
        **JOB,
        "job": {"method": "pvi", "rounds": 3},
        "data": {"response": "y", "columns": {"x": {"kind": "numeric", "center": 0.0, "scale": 1.0}}},
        "model": {"family": "gaussian", "scale": 1.0},
        "privacy": {"epsilon": 50.0, "delta": 1e-4, "clip": 3.0, "sampling_rate": 0.2, "noise_multiplier": 1.0},
    }
    result = fedkern.run(private, data=clients, place=inprocess.InProcess(order=Random(1)))
    assert result is not None
    steps = private.get("algorithm", {}).get("local_steps", result.job["algorithm"]["local_steps"])
    for name, client in result.summary["clients"].items():
        assert client["updates"] >= 3
        assert result.privacy[name]["steps"] == client["updates"] * steps
    assert result.summary["clients"]["a"]["updates"] <= 3 + 8
    assert result.summary["clients"]["a"]["waits"] > 0


def test_keys_of_other_schedules_and_a_lead_of_none() -> None:
    with pytest.raises(JobError, match=r'algorithm.lead is for schedule = "asynchronous"; schedule is "sequential"'):
        fedkern.run({**JOB, "algorithm": {"lead": 3}}, data={"a": pd.DataFrame({"x": [1.0], "y": [2.0]})})
    with pytest.raises(JobError, match=r"algorithm.lead"):
        fedkern.run({**JOB, "algorithm": {"schedule": "asynchronous", "lead": 0}}, data={})
    with pytest.raises(JobError, match="an answer counts however old it is"):
        fedkern.run({**JOB, "algorithm": {"schedule": "asynchronous", "max_staleness": 3}}, data={})


def test_clocks_that_jump_change_no_bit(
    clients: dict[str, pd.DataFrame], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    still = fedkern.run(JOB, data=clients, out=tmp_path / "still")
    rng, now, ticks = np.random.default_rng(1), time.time, time.monotonic
    ahead = 0.0

    def forward() -> float:
        nonlocal ahead
        ahead += float(rng.choice([0.0, 1e5], p=[0.9, 0.1]))
        return ticks() + ahead

    monkeypatch.setattr(time, "time", lambda: now() + float(rng.choice([-1e6, 0.0, 1e6])))
    monkeypatch.setattr(time, "monotonic", forward)
    jumped = fedkern.run(JOB, data=clients, out=tmp_path / "jumped")
    assert still is not None
    assert jumped is not None
    assert ahead > 0
    assert jumped.digest == still.digest
    assert [*(tmp_path / "jumped" / "checkpoint").glob("pvi-*")]  # a checkpoint is due at each jump
