"""A policy binds rows in memory by more than the name that the caller gives them: by a map's file, and by a fingerprint."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import fedkern
from fedkern.data import mark, memory, table
from fedkern.errors import HolderError, JobError
from support import few

JOB: dict[str, Any] = {"job": {"rounds": 2}, "data": {"response": "y", **few.ANY}}
PRIVATE = {
    "job": {"rounds": 2},
    "data": {"response": "y", "columns": {"age": {"center": 50, "scale": 20}, "sex": {"levels": ["f", "m"]}}},
    "algorithm": {"local_steps": 3},
    "privacy": {"epsilon": 8.0, "delta": 1e-3, "clip": 2.5, "noise_multiplier": 3.0, "sampling_rate": 0.2},
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FEDKERN_CLIENT_HOME", raising=False)
    monkeypatch.delenv("FEDKERN_REQUIRE_POLICY", raising=False)
    (tmp_path / "home" / ".fedkern").mkdir(parents=True)
    return tmp_path / "home" / ".fedkern"


def policy(home: Path, text: str, head: str = "") -> None:
    (home / "policy.toml").write_text(f"{head}\n[data.survey]\nepsilon = 4.0\ndelta = 1e-3\n{text}\n")


def people(n: int = 60) -> pd.DataFrame:
    random = np.random.default_rng(3)
    sex = np.where(random.random(n) < 0.5, "f", "m")
    return pd.DataFrame({"age": random.integers(20, 80, n), "sex": sex, "y": (random.random(n) < 0.4).astype(int)})


def refused(rows: Any, **more: Any) -> None:
    with pytest.raises(HolderError, match="client 'any name': refused by the holder's policy") as caught:
        fedkern.run(JOB, data={"any name": rows, "b": people(40)}, **more)
    assert "open is not true for [data.survey]" in caught.value.detail


MAPS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda X: X,
    "an array of it": np.asarray,
    "a part": lambda X: X[5:50, 1:],
    "a part of a transposed part": lambda X: np.asarray(X[::2].T[:2]).T,
    "with a response": lambda X: (np.asarray(X), np.arange(60) % 2),
    "in a frame": lambda X: pd.DataFrame(np.asarray(X), columns=["a", "b", "y"], copy=False),
    "masked": lambda X: np.ma.masked_array(X, np.zeros(X.shape, bool)),
    "another type": lambda X: np.asarray(X).view(np.int64),
    "by a view of its memory": lambda X: np.asarray(memoryview(np.asarray(X))),
}


@pytest.mark.parametrize("way", MAPS)
def test_a_memory_map_is_its_file(tmp_path: Path, home: Path, way: str) -> None:
    policy(home, f"paths = [{str(tmp_path / 'survey.npy')!r}]")
    np.save(tmp_path / "survey.npy", np.random.default_rng(1).normal(size=(60, 3)).round())
    rows = MAPS[way](np.load(tmp_path / "survey.npy", mmap_mode="r"))
    assert memory.files(rows) == (tmp_path / "survey.npy",)
    refused(rows)
    policy(home, "")  # by its id, too
    refused(rows)
    with pytest.raises(HolderError, match="the server: refused by the holder's policy"):
        fedkern.run(JOB, data={"a": people(), "b": people(40)}, test=rows)


def test_a_copy_of_a_map_is_bound_by_nothing_but_a_fingerprint(tmp_path: Path, home: Path) -> None:
    policy(home, f"paths = [{str(tmp_path / 'survey.npy')!r}]")
    np.save(tmp_path / "survey.npy", np.random.default_rng(1).normal(size=(60, 3)))
    rows = np.load(tmp_path / "survey.npy", mmap_mode="r").copy()
    assert memory.files(rows) == ()


def test_a_policy_beside_the_file_of_a_map(tmp_path: Path, home: Path) -> None:
    np.save(tmp_path / "survey.npy", np.ones((60, 3)))
    (tmp_path / "fedkern-policy.toml").write_text("[data.other]\nepsilon = 1\ndelta = 1e-5\n")
    with pytest.raises(HolderError, match="a policy must name its data, and none does"):
        fedkern.run(JOB, data={"a": np.load(tmp_path / "survey.npy", mmap_mode="r"), "b": people()})


def test_rows_have_one_fingerprint_whatever_holds_them(tmp_path: Path) -> None:
    frame = people().assign(score=lambda rows: rows["age"] / 7, none=np.nan)
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    wanted = mark.of_rows(table.load(tmp_path / "a.csv"))
    assert wanted == mark.of_rows(table.load(tmp_path / "a.parquet")) == memory.mark(frame)
    assert wanted == memory.mark(pl.from_pandas(frame)) == memory.mark(frame[frame.columns[::-1]])
    assert wanted == memory.mark(frame.astype({"age": str, "sex": "category", "y": "category"}))
    X = np.random.default_rng(2).normal(size=(20, 3))
    np.save(tmp_path / "a.X.npy", X)
    np.save(tmp_path / "a.y.npy", X[:, 0])
    assert memory.mark((X, X[:, 0])) == mark.of_rows(table.load(tmp_path / "a.X.npy"))
    zero = X * 0.0
    assert memory.mark((zero, X[:, 0])) == memory.mark((np.abs(zero), X[:, 0]))
    others = [frame.iloc[:-1], frame.iloc[::-1], frame.assign(y=1 - frame["y"]), frame.rename(columns={"age": "years"})]
    others += [frame.assign(sex=frame["sex"].replace({"f": "m", "m": "f"})), frame.drop(columns="none")]
    assert len({wanted, *map(memory.mark, others)}) == 7
    assert memory.mark(object()) is None


def test_a_fingerprint_binds_whatever_the_rows_are_called(tmp_path: Path, home: Path) -> None:
    policy(home, f'fingerprint = "{memory.mark(people())}"')
    refused(people())
    refused(pl.from_pandas(people()))
    people().to_csv(tmp_path / "copy.csv", index=False)
    people(40).to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(HolderError, match="client 'copy': refused by the holder's policy"):
        fedkern.run(JOB, data={"clients": [str(tmp_path / "copy.csv"), str(tmp_path / "b.csv")], "response": "y"})
    changed = people()
    changed.loc[3, "age"] += 1
    assert fedkern.run(JOB, data={"any name": changed, "b": people(40)}).stop == "rounds", "the pages say that this goes"
    policy(home, f'fingerprint = "{memory.mark(people())}"', head="require = true")
    with pytest.raises(HolderError, match="a policy must name its data, and none does"):
        fedkern.run(JOB, data={"any name": changed, "survey": people()})


def test_the_line_for_a_policy(fedkern: Any, tmp_path: Path, home: Path) -> None:
    people().to_csv(tmp_path / "a.csv", index=False)
    people(40).to_csv(tmp_path / "b.csv", index=False)
    (tmp_path / "job.toml").write_text('[data]\nclients = ["a.csv", "b.csv"]\nresponse = "y"\nleast_rows = 1\n')
    assert f"fingerprint {memory.mark(people())} (of its rows" in fedkern("check", "job.toml", "--local", "a.csv").out
    policy(home, f'fingerprint = "{memory.mark(people())}"')
    said = fedkern("check", "job.toml", "--local", "a.csv").out
    assert "[data.survey]: epsilon 4" in said
    assert "this job, as client 'a', is refused" in said
    policy(home, f'paths = ["{tmp_path}/a.csv"]\nopen = true\nfingerprint = "{memory.mark(people(40))}"')
    ended = fedkern("run", "job.toml", "--out", "out", "--quiet")
    assert ended.code == 0
    assert "client 'a': the data are not those for which [data.survey] of the policy was written" in ended.err


def test_without_a_folder_a_bound_client_is_charged_where_its_policy_is(tmp_path: Path, home: Path) -> None:
    """Never in a folder that ends with the run: that would forget what was spent."""
    policy(home, f'fingerprint = "{memory.mark(people())}"')
    steps = []
    for name in ("one", "two"):
        result = fedkern.run(PRIVATE, data={name: people(), "b": people(40)})
        lines = [json.loads(line) for line in (home / "budget.jsonl").read_text().splitlines()]
        steps.append((result.privacy[name]["steps"], sum(line.get("steps", 0) for line in lines)))
    assert steps[0][0] == steps[0][1]
    assert sum(own for own, _ in steps) == steps[1][1]
    (home / "budget.jsonl").unlink()
    (home / "budget.jsonl").symlink_to("nothing")
    with pytest.raises(JobError, match="it is a link"):
        fedkern.run(PRIVATE, data={"three": people(), "b": people(40)})
    (home / "budget.jsonl").unlink()
    with pytest.raises(HolderError, match=r"has 0 lines, and .* has seen 6 in it: it was cut off, deleted, or an older copy"):
        fedkern.run(PRIVATE, data={"three": people(), "b": people(40)})


def test_a_path_that_is_not_there_is_said_at_every_run(
    fedkern: Any, tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    for name in "ab":
        people().to_csv(tmp_path / "data" / f"{name}.csv", index=False)
    (tmp_path / "job.toml").write_text('[data]\nclients = ["data/*.csv"]\nresponse = "y"\nleast_rows = 1\n[job]\nrounds = 2\n')
    policy(home, 'paths = ["/data/moved.csv", "/data/*.gone"]')
    for n in range(2):
        ended = fedkern("run", "job.toml", "--out", f"out{n}", "--quiet")
        assert ended.code == 0
        wanted = [f"{home / 'policy.toml'}, [data.survey]: /data/{name} is not there, so it binds nothing; correct the path"
                  for name in ("moved.csv", "*.gone")]  # fmt: skip
        assert ended.err.splitlines() == [f"fedkern: {text}" for text in wanted]
        assert (tmp_path / f"out{n}" / "client-a" / "holder.txt").read_text().splitlines() == wanted
        public = [path.read_text() for path in (tmp_path / f"out{n}").glob("*.json*")]
        assert not [text for text in public if "/data/moved" in text or "survey" in text]
