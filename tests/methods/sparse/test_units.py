"""A column in another everyday unit at one site: named with the site, no result stands, and either remedy ends it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from jobs.test_wrong_cells import UNITS
from support.found import clients as names_of
from support.found import ids, said
from support.wires import checked_and_run

ROWS = {"a": 110, "b": 280, "c": 130}  # b has more than half of all
FEW_ROUNDS: dict[str, Any] = {"job": {"rounds": 12}, "algorithm": {"burn_in": 2, "chains": 2}}


def sites(name: str, where: str, seed: int = 5) -> dict[str, Any]:
    """Columns age, `name` and y; `name` is in another unit at one site."""
    pd = pytest.importorskip("pandas")
    random, (mean, sd, unit), found = np.random.default_rng(seed), UNITS[name], {}
    for site, n in ROWS.items():
        age, values = random.normal(60, 12, n).round(), random.normal(mean, sd, n).round(1)
        y = 0.4 * (values - mean) / sd + 0.3 * (age - 60) / 12 + random.normal(size=n)
        found[site] = pd.DataFrame({"age": age, name: unit(values).round(2) if site == where else values, "y": y.round(3)})
    return found


def ran(clients: dict[str, Any], **sections: Any) -> Any:
    graph = sections.get("model", {}).get("kind", "regression") != "regression"
    job: dict[str, Any] = {"data": {} if graph else {"response": "y"}, **FEW_ROUNDS}
    job = {**job, **{name: job.get(name, {}) | keys for name, keys in sections.items()}}
    job["job"] = {"method": "sparse", **job["job"]}
    return fedkern.run(job, data=clients)


UNITS_OF_COLUMNS = {"column-in-another-unit", "column-in-a-far-unit", "column-elsewhere", "column-varies-otherwise"}


def named(summary: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Columns that let no result stand, with the sites at which they are in another unit."""
    found = [one for id in ("column-in-another-unit", "column-in-a-far-unit") for one in said(summary, id)]
    return [(one["column"], list(one["clients"])) for one in found]


@pytest.mark.parametrize("where", ["b", "c"])
@pytest.mark.parametrize("name", UNITS)
def test_an_everyday_unit_at_one_site_is_named(name: str, where: str) -> None:
    summary = ran(sites(name, where)).summary
    assert summary["converged"] is False
    assert named(summary) == [(f"column '{name}'", [where])]


@pytest.mark.parametrize(
    "sections",
    [
        {"model": {"kind": "mrf"}},
        {"model": {"kind": "sem"}},
        {"model": {"kind": "mrf", "centre": "sample"}},
        {"model": {"family": "bernoulli"}},
        {"model": {"errors": "student"}},
        {"model": {"missing": "impute"}},
        {"model": {"splines": {"weight": [60.0, 75.0, 90.0, 180.0]}}},
        {"algorithm": {"statistics": "pooled"}},
    ],
    ids=str,
)
def test_every_model_of_columns_sees_it(sections: dict[str, Any]) -> None:
    clients, random = sites("weight", "b"), np.random.default_rng(1)
    for one in clients.values():
        if sections.get("model", {}).get("family"):
            one["y"] = (one["y"] > 0).astype(int)
        if sections.get("model", {}).get("missing"):
            one.loc[random.random(len(one)) < 0.2, "weight"] = np.nan
    assert ("column 'weight'", ["b"]) in named(ran(clients, **sections).summary)


def pressures(m: int, in_kpa: tuple[int, ...], mean: float = 120.0) -> dict[str, Any]:
    """Column age and a response like a blood pressure, about another mean at each site, in kPa at some."""
    pd = pytest.importorskip("pandas")
    random, found = np.random.default_rng(11), {}
    for k in range(m):
        n = int(random.integers(80, 250))
        age = random.normal(60, 12, n).round()
        y = mean + 6 * random.normal() + 0.4 * (age - 60) + 14 * random.normal(size=n)
        found[f"s{k}"] = pd.DataFrame({"age": age, "y": (y / 7.5006).round(2) if k in in_kpa else y.round()})
    return found


@pytest.mark.parametrize(
    ("m", "in_kpa"), [(3, (1,)), (4, (2,)), (6, (5,)), (4, (0, 1, 3)), (6, (0, 1, 3, 4, 5)), (4, (0, 1)), (2, (0,))]
)
def test_a_response_in_kpa_beside_mmhg_lets_no_result_stand(m: int, in_kpa: tuple[int, ...]) -> None:
    """Of more than two sites the smaller side is named; where sides are equal, both are."""
    verdict = ran(pressures(m, in_kpa)).summary["verdict"]
    odd = {f"s{k}" for k in (in_kpa if 2 * len(in_kpa) <= m else set(range(m)) - set(in_kpa))}
    assert "column 'y' is in another unit at " in verdict
    named = verdict.split("in another unit at ")[1].split(", or has")[0]
    assert odd <= {*named.replace(" or at ", ", ").split(", ")}
    assert ("or" in named) == (2 * len(in_kpa) == m)
    assert not ids(ran(pressures(m, ()))) & UNITS_OF_COLUMNS


def test_a_spread_of_seven_times_about_zero_is_noted_alone() -> None:
    """A change since the last visit: a heavy tail may vary so much at one site, and no mean says that it is another unit."""
    clients = {site: one.assign(y=one["y"] - 120) for site, one in pressures(4, ()).items()}
    clients["s2"]["y"] /= 7.5006
    result = ran(clients)
    assert named(result.summary) == []
    assert names_of(result, "column-varies-otherwise") == ["s2"]


def test_a_few_far_responses_are_in_no_other_unit_of_student_errors() -> None:
    """Their mean is far away; their location is not."""
    clients = sites("weight", "")
    for one in clients.values():
        one["y"] += 100.0
    clients["b"].loc[:9, "y"] = 1e6
    assert not ids(ran(clients, model={"errors": "student"}, data={"least_rows": 1})) & UNITS_OF_COLUMNS


@pytest.mark.parametrize("remedy", ["mended", "declared"])
def test_a_remedy_is_the_end_of_it(remedy: str) -> None:
    """A run of full length: right where the file is mended, and its own answer where the job file says that it is right so."""
    clients, columns = sites("weight", "" if remedy == "mended" else "b"), {}
    if remedy == "declared":
        columns = {"weight": {"center": 80.0, "scale": 14.0}}
    until = {"job": {"rounds": "until"}, "algorithm": {"burn_in": 200, "chains": 4, "moves": "auto"}}
    result = ran(clients, **until, data={"columns": columns})
    assert result.summary["converged"] is True
    assert not ids(result) & UNITS_OF_COLUMNS
    average = result.parameters["average[weight]"]
    right = 0.4 / 14 if remedy == "mended" else 0.4 / 14 * np.mean([1, 1 / 2.2046, 1])
    assert abs(average["mean"] - right) < 3 * average["sd"]


def test_a_declared_column_is_not_said_to_vary_otherwise_either() -> None:
    clients = sites("weight", "")
    clients["b"]["age"] *= 30
    assert named(ran(clients).summary) == [("column 'age'", ["b"])]
    columns = {"age": {"center": 60.0, "scale": 12.0}}
    assert not ids(ran(clients, data={"columns": columns})) & UNITS_OF_COLUMNS


def test_what_the_job_file_declares_is_not_asked(tmp_path: Path) -> None:
    def sent(name: str, **more: Any) -> list[Any]:
        job = {"job": {"method": "sparse", "rounds": 4}, "algorithm": {"burn_in": 1, "chains": 1}, **more}
        paths = []
        for site, one in sites("weight", "b").items():
            paths.append(str(tmp_path / f"{site}.csv"))
            one.to_csv(paths[-1], index=False)
        job["data"] = {"response": "y", "clients": paths, **more.get("data", {})}
        checked_and_run(job, tmp_path / name)
        lines = map(json.loads, (tmp_path / name / "ledger" / "a.jsonl").read_text().splitlines())
        return [line["shapes"] for line in lines if line["kind"] == "ColumnMeans"]

    declared = {name: {"center": 1.0, "scale": 1.0} for name in ("age", "weight", "y")}
    assert sent("all") == [{"steps": [3]}]
    assert sent("some", data={"columns": {"weight": declared["weight"]}}) == [{"steps": [2]}]
    assert sent("none", data={"columns": declared}) == []
    assert sent("given", data={"columns": declared}, model={"scale": "given"}) == []
    assert sent("as they are", model={"scale": "none"}) == []
