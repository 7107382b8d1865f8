"""What a job that describes columns says of rows and keys that cannot be described: (job, place) -> what is said there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.errors import FedkernError, JobError, OwnFault
from support.found import ids
from support.refusal import refusal

Data = dict[str, dict[str, Any]]
Change = Callable[[Data], None]
N = 60


def clients(n: int = 3) -> Data:
    random = np.random.default_rng(3)
    return {
        f"site{k}": {
            "age": random.normal(60, 10, N).round(1),
            "sex": random.choice(["F", "M"], N).tolist(),
            "arm": random.choice(["A", "B"], N).tolist(),
            "days": random.exponential(9, N).round(1),
            "dead": random.integers(0, 2, N).astype(float),
        }
        for k in range(n)
    }


def described(rows: Data, level: str = "standard", **tables: Any) -> Any:
    job: dict[str, Any] = {"job": {"method": "describe", **tables.pop("job", {})}, "disclosure": {"level": level}}
    keys = tables.pop("data", {})
    return fedkern.run({**job, "data": keys}, data=rows, **tables)


def put(name: str, values: Any, *where: str) -> Change:
    """Sets a column, of all clients if none is named."""

    def change(data: Data) -> None:
        for client in where or data:
            data[client][name] = values

    return change


SURVIVAL = {"time": "days", "event": "dead"}
# name -> (what is done to the rows, tables of the job, words of the one sentence)
REFUSED: dict[str, tuple[Change, dict[str, Any], tuple[str, ...]]] = {
    "a column that names its rows": (put("id", [f"p{i}" for i in range(N)]), {}, ("site0", "data.ignore")),
    "a factor with 500 levels": (
        lambda data: (
            [data[name].update({k: np.resize(v, 5000).tolist() for k, v in own.items()}) for name, own in data.items()]
            and put("code", [f"c{i % 500}" for i in range(5000)])(data)
        ),
        {},
        ("site0", "data.ignore"),
    ),
    "dates": (put("since", [f"2020-01-{1 + i % 28:02d}" for i in range(N)]), {}, ("site0", "data.ignore")),
    "a time below 0": (put("days", [-1.0] + [2.0] * (N - 1), "site1"), {"model": SURVIVAL}, ("site1", "days")),
    "an entry after the end": (
        lambda data: [own.update(since=[0.0] * (N - 1) + [1e6]) for own in data.values()],
        {"model": SURVIVAL | {"entry": "since"}},
        ("site0", "since", "days"),
    ),
    "no such column": (lambda data: None, {"model": {"group": "ward"}}, ("ward", "site0")),
    "a group that a client lacks": (lambda data: data["site1"].pop("arm"), {"model": {"group": "arm"}}, ("arm", "site1")),
    "five rows": (lambda data: data["site2"].update({k: v[:5] for k, v in data["site2"].items()}), {}, ("site2",)),
    "two clients with secure sums": (lambda data: data.pop("site2"), {"job": {"sums": "secure"}}, ("job.sums",)),
    "an infinite number": (put("age", [np.inf] + [1.0] * (N - 1), "site1"), {}, ("site1", "age")),
}


def test_a_measurement_without_two_equal_cells_names_no_rows(tmp_path: Path) -> None:
    """As alk.phos of R's pbc, some of whose cells are NA, so that the file's column is one of texts."""
    files = {}
    for k, name in enumerate(("north", "south")):
        cells = [*(f"{516 + 73.2 * row + k:g}" for row in range(40)), "NA", "NA"]
        files[name] = tmp_path / f"{name}.csv"
        files[name].write_text("\n".join(["alk.phos", *cells]) + "\n")
    result = fedkern.describe(files, disclosure={"level": "standard"})
    (row,) = (row for row in result.rows() if (row["column"], row["level"], row["client"]) == ("alk.phos", "", "north"))
    ends = row["median_in"].split()
    assert float(ends[1]) <= 1943 < float(ends[3])


@pytest.mark.parametrize("name", REFUSED)
def test_rows_that_cannot_be_described_are_refused_at_their_place(name: str) -> None:
    change, tables, words = REFUSED[name]
    data = clients()
    change(data)
    with refusal(FedkernError, *words) as caught:
        described(data, **tables)
    assert ";" in str(caught.value), "a remedy"


KEYS: dict[str, tuple[dict[str, Any], str]] = {
    "half of the times": ({"model": {"time": "days"}}, "model.event"),
    "an entry without times": ({"model": {"entry": "days"}}, "model.entry"),
    "a pair of one": ({"model": {"cross": [["sex", "sex"]]}}, "model.cross"),
    "a pair with the group": ({"model": {"cross": [["sex", "arm"]], "group": "arm"}}, "model.cross"),
    "numbers as levels": (
        {"model": {"group": "arm"}, "data": {"columns": {"arm": {"kind": "numeric"}}}},
        "data.columns.arm.kind",
    ),
    "no epsilon": ({"privacy": {}}, "privacy.epsilon"),
    "no bounds": ({"privacy": {"epsilon": 1.0}, "data": {"columns": {"age": {"kind": "numeric"}}}}, "data.columns.age"),
    "a response": ({"data": {"response": "dead"}}, "data.response"),
    "a card": ({"job": {"device": "cuda"}}, "job.device"),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_that_contradict_each_other_are_refused(name: str) -> None:
    tables, key = KEYS[name]
    with refusal(JobError, key):
        described(clients(), **tables) if "privacy" not in tables else fedkern.run(
            {"job": {"method": "describe"}, **tables}, data=clients()
        )


def test_notes() -> None:
    data = clients(2)
    put("gone", [np.nan] * N)(data)
    result = described(data, data={"columns": {"age": {"lower": 1000.0, "upper": 2000.0}}})
    assert ids(result) >= {"column-all-missing", "bins-hold-nothing", "two-clients-know-each-other"}
    assert not ids(described(clients())) & {"column-all-missing", "bins-hold-nothing", "two-clients-know-each-other"}
    data = clients()
    put("dead", [1.0, 1.0, *[0.0] * (N - 2)])(data)
    assert "no-curve" in ids(described(data, model=SURVIVAL))
    assert "no-curve" not in ids(described(clients(), model=SURVIVAL))


@pytest.mark.parametrize("value", [1.0, "u"])
def test_a_column_of_one_value_is_described(value: float | str) -> None:
    data = clients()
    put("same", [value] * N)(data)
    row = next(row for row in described(data).rows() if row["column"] == "same" and row["level"])
    assert (row["count"], row["share"]) == (3 * N, 1.0)


def test_a_group_of_one_client_counts_at_that_one_alone() -> None:
    data = clients()
    put("arm", ["C"] * N, "site1")(data)
    result = described(data, model={"group": "arm"})
    rows = {row["client"]: row["count"] for row in result.rows() if (row["column"], row["level"], row["by"]) == ("arm", "C", "")}
    assert rows == {"": N, "site1": N, "site0": 0, "site2": 0}


def test_a_spent_budget_ends_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    names = [f"site{k}" for k in range(3)]
    text = "[data.{}]\nepsilon = 1.0\ndelta = 1e-5\n"
    (home / "policy.toml").write_text('unit = "case"\n' + "".join(map(text.format, names)))
    monkeypatch.setenv("FEDKERN_CLIENT_HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    columns = {"age": {"lower": 0.0, "upper": 120.0}, "sex": {"levels": ["F", "M"]}}
    job = {
        "job": {"method": "describe"},
        "data": {"columns": columns, "ignore": ["arm", "days", "dead"]},
        "privacy": {"epsilon": 1.0},
    }
    data = clients()
    fedkern.run(job, data=data)
    fedkern.run(job, data=data)  # the same counts, for nothing
    with refusal(FedkernError, "site0"):
        fedkern.run(job, data=data, privacy={"table": "another"})


def test_a_fault_of_rows_is_told_to_their_holder_alone() -> None:
    data = clients()
    put("id", [f"p{i}" for i in range(N)], "site1")(data)
    for name in ("site0", "site2"):
        put("id", (["u", "v"] * N)[:N], name)(data)
    with pytest.raises(JobError) as caught:
        described(data)
    assert "site1" in str(caught.value)
    assert not isinstance(caught.value, OwnFault)


@pytest.mark.parametrize(
    ("positive", "said"),
    [(None, "set model.positive to that of an event"), ("3", "name one of them")],
    ids=["three labels", "nobody's"],
)
def test_an_event_is_a_label_that_a_file_has(positive: str | None, said: str) -> None:
    status = pd.Series(np.arange(60) % 3).map({0: "censored", 1: "transplant", 2: "dead"})
    rows = pd.DataFrame({"time": np.arange(1.0, 61.0), "status": status, "age": np.arange(60.0)})
    with pytest.raises(JobError, match=f"column 'status' has the labels censored, .*{said}"):
        fedkern.describe({"a": rows, "b": rows}, time="time", event="status", positive=positive)
