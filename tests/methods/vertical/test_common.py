"""Jobs whose parties find the rows that all have without a list of ids: results, refusals, and what the holder's account has."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.api import perform
from fedkern.cli.__main__ import main
from fedkern.errors import JobError
from fedkern.jobs.run import Output
from fedkern.methods import load
from fedkern.plain import to_toml
from fedkern.transports.driver import Timeouts
from fedkern.transports.inprocess import InProcess
from support.command import mpirun
from support.relayed import careless, over_threads

N = 60
HELD = {"server": range(55), "a": range(2, 60), "b": range(5, 58), "c": range(50)}
COMMON = range(5, 50)


def written(folder: Path, *, common: bool, **held: Any) -> dict[str, Any]:
    """A job whose parties have other rows each, or the common ones alone."""
    rng = np.random.default_rng(1)
    X, ids = rng.normal(size=(N, 4)), np.array([f"r{i}" for i in range(N)])
    y = (rng.random(N) < 1 / (1 + np.exp(-X @ [1.0, -1.0, 0.5, 0.0]))).astype(int)
    columns = {"server": {"y": y}, "a": {"x0": X[:, 0], "x1": X[:, 1]}, "b": {"x2": X[:, 2]}, "c": {"x3": X[:, 3]}}
    folder.mkdir(exist_ok=True)
    for name, values in columns.items():
        rows = rng.permutation(list(COMMON if common else {**HELD, **held}[name]))
        pd.DataFrame({"id": ids[rows], **{key: of[rows] for key, of in values.items()}}).to_csv(
            folder / f"{name}.csv", index=False
        )
    return {
        "job": {"method": "vertical", "seed": 3, "rounds": 20},
        "data": {
            "clients": [str(folder / f"{name}.csv") for name in "abc"],
            "server": str(folder / "server.csv"),
            "id": "id",
            "response": "y",
            **({} if common else {"most_ids": 64}),
        },
    }


def test_the_result_is_that_of_a_plain_join(tmp_path: Path) -> None:
    plain = fedkern.run(written(tmp_path / "plain", common=True))
    found = fedkern.run(written(tmp_path / "found", common=False), out=tmp_path / "out", place=InProcess(order=Random(1)))
    assert plain is not None
    assert found is not None
    assert found.summary["digest"] == plain.summary["digest"]
    assert "13 more rows are left out" in (tmp_path / "out" / "client-a" / "rows.json").read_text()


def test_ranks_find_the_same_rows(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(to_toml(written(tmp_path / "rows", common=False)))
    ended = mpirun(4, "run", path, "--out", tmp_path / "out")
    assert ended.code == 0, ended.err
    assert main(["check", str(path)]) == 0


def test_sites_of_a_relay_that_loses_and_repeats_find_the_same_rows(tmp_path: Path) -> None:
    tables = written(tmp_path / "rows", common=False)
    path = tmp_path / "job.toml"
    path.write_text(to_toml(tables))
    config, where = load(str(path))

    def work(place: Any, name: str | None) -> int:
        perform(place, config, where, Output(tmp_path / (name or "out"), quiet=True))
        return 0

    codes, said, _ = over_threads(work, ("a", "b", "c"), careless(3), Timeouts(lost=300.0, grace=5.0), again=0.05, busy=0.5)
    assert set(codes.values()) == {0}, said
    alone = fedkern.run(tables)
    assert alone is not None
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["digest"] == alone.summary["digest"]


def with_policy(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder / "home"))
    (folder / "home" / ".fedkern").mkdir(parents=True)
    (folder / "home" / ".fedkern" / "policy.toml").write_text(f"open = true\n{text}\n[data.b]\n")


def test_a_policy_limits_the_ids_that_others_may_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_policy(tmp_path, "most_ids = 63", monkeypatch)
    with pytest.raises(JobError, match=r"data\.most_ids = 64 lets each party try more ids than the policy allows"):
        fedkern.run(written(tmp_path / "rows", common=False))


def test_fewer_common_rows_than_a_policy_wants_are_told_to_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_policy(tmp_path, "[disclosure]\nrows = 46", monkeypatch)
    with pytest.raises(JobError, match="fewer rows are in all parties' files") as fault:
        fedkern.run(written(tmp_path / "rows", common=False))
    assert "45" not in str(fault.value)


def test_common_rows_that_differ_by_few_from_an_earlier_job_are_differencing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_policy(tmp_path, '[disclosure]\ndifferencing = "refuse"', monkeypatch)
    for _ in range(2):  # the same rows are no other ones
        assert fedkern.run(written(tmp_path / "rows", common=False), out=tmp_path / "out") is not None
        (tmp_path / "out").rename(tmp_path / f"out{_}")
    with pytest.raises(JobError, match="the rows that count are the same but for a few"):
        fedkern.run(written(tmp_path / "rows", common=False, c=range(48)))


@pytest.mark.parametrize(
    ("data", "job", "said"),
    [
        ({"server": None, "clients": ["a.csv"]}, {}, "two parties at least"),
        ({"clients": ["*.csv"], "server": None}, {}, "name every client"),
        ({"most_ids": 0}, {}, "data.most_ids = 0"),
        ({}, {"privacy": {"epsilon": 1.0, "delta": 1e-5, "noise_multiplier": 1.0}}, "data.most_ids is not for a private job"),
    ],
)
def test_jobs_that_cannot_be(tmp_path: Path, data: dict[str, Any], job: dict[str, Any], said: str) -> None:
    tables = written(tmp_path, common=False)
    tables["data"] = {name: value for name, value in {**tables["data"], **data}.items() if value is not None}
    with pytest.raises(JobError, match=said):
        fedkern.run({**tables, **job})
