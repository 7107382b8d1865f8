"""Jobs whose server asks a client about few of its rows: by which numbers clients look, what is written, and how a job ends."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.algorithms.importance import client as of_client
from fedkern.arrays import Array
from fedkern.errors import JobError
from fedkern.models.weighing import Least
from support.refusal import refusal

JOB: dict[str, Any] = {"job": {"method": "likelihood", "seed": 3}, "data": {"response": "y"}, "model": {"family": "bernoulli"}}
STANDARD: dict[str, Any] = {**JOB, "disclosure": {"level": "standard"}}


def rows(seed: int, n: int = 150) -> tuple[Array, Array]:
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, 3))
    return X, (random.random(n) < 1 / (1 + np.exp(-X[:, 0]))).astype(float)


DATA = {name: rows(seed) for seed, name in enumerate("abc")}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Least | None]:
    """What each question's client asks of its rows."""
    seen: list[Least | None] = []

    def looked(state: of_client.Client, point: Array) -> bool:
        seen.append(state.least)
        return False

    monkeypatch.setattr(of_client, "few_rows", looked)
    return seen


@pytest.mark.parametrize(
    ("keys", "least"),
    [
        ({"level": "none"}, None),
        ({"level": "standard"}, Least(10, 0.9)),
        ({"level": "strict"}, Least(10, 0.9)),
        ({"level": "standard", "rows": 7, "rows_per_coefficient": 1}, Least(0, 0.9)),
        ({"level": "standard", "rows": 7, "rows_per_coefficient": 1, "leverage": 0.95}, None),
        ({"level": "standard", "rows_per_coefficient": 3, "leverage": 0.5}, Least(10, 0.5)),
    ],
)
def test_what_is_asked_is_the_level_s(asked: list[Least | None], keys: dict[str, Any], least: Least | None) -> None:
    fedkern.run({**JOB, "disclosure": keys}, data=DATA)
    assert {*asked} == {least}


def test_a_holder_asks_for_more(asked: list[Least | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".fedkern").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".fedkern" / "policy.toml").write_text("open = true\n[data.b]\n[data.b.disclosure]\nleverage = 0.6\n")
    fedkern.run(STANDARD, data=DATA)
    assert {*asked} == {Least(10, 0.9), Least(10, 0.6)}


@pytest.mark.parametrize("sections", [{"model": {"family": "gaussian"}}, {"job": {**JOB["job"], "sums": "secure"}}])
def test_nothing_is_asked_where_rows_weigh_alike_or_sums_are_secure(asked: list[Least | None], sections: dict[str, Any]) -> None:
    fedkern.run({**STANDARD, **sections}, data=DATA)
    assert {*asked} == {None}


def refusing(monkeypatch: pytest.MonkeyPatch, *rounds: int) -> None:
    """Has client b find few rows in these rounds."""
    monkeypatch.setattr(of_client, "few_rows", lambda state, point: state.name == "b" and state.round in rounds)


def test_a_job_goes_on_and_the_log_counts_it(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    usual = fedkern.run(STANDARD, data=DATA)
    refusing(monkeypatch, 1)
    with caplog.at_level(logging.WARNING):
        result = fedkern.run(STANDARD, data=DATA)
    assert "client 'b': 1 question was about few of its rows, and had no answer" in caplog.text
    assert result.converged is True
    for one, other in zip(result.rows(), usual.rows(), strict=True):
        assert one["mean"] == pytest.approx(other["mean"], abs=0.05 * other["sd"])


def test_the_second_question_ends_the_job_with_client_and_rule(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refusing(monkeypatch, 1, 2)
    with refusal(JobError, "b", "2", "disclosure.rows"):
        fedkern.run(STANDARD, data=DATA, out=tmp_path / "run")
    (fault,) = (tmp_path / "run").rglob("holder.txt")
    assert "the last in round 2" in fault.read_text()


def test_honest_rows_are_asked_about_enough_of_them(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert fedkern.run(STANDARD, data=DATA).converged is True
    assert "question" not in caplog.text


def test_the_logarithm_of_a_skewed_column_is_answered_where_the_column_is_not() -> None:
    """As the refusal says; a narrower prior moves no point away from the few rows that decide."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": np.exp(rng.normal(size=240)), "site": np.arange(240) % 3})
    frame["n"] = rng.poisson(np.exp(0.5 + 0.3 * np.log(frame.x)))
    apart = {"by": "site", "disclosure": {"level": "standard"}}
    with pytest.raises(JobError, match=r"answers no more: .*: take the logarithm of a column with a few large cells"):
        fedkern.fit("n ~ x", frame, "poisson", **apart)
    assert fedkern.fit("n ~ log(x)", frame, "poisson", **apart).converged is True
