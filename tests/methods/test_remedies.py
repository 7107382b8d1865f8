"""What notes and first lines say is to be done, done: each ends in a right answer, and is no longer said.

Those that stand beside the test of their own message are not here (weights, units, widths, Student errors, ..).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import fedkern
from support.found import ids, said

Frames = dict[str, pd.DataFrame]


def frames(of: Any, sites: int = 3, rows: int = 120, seed: int = 1) -> Frames:
    """`of(random, k, n)` of each site."""
    random = np.random.default_rng(seed)
    return {f"s{k}": pd.DataFrame(of(random, k, rows)) for k in range(sites)}


def fitted(rows: Frames, /, **sections: dict[str, Any]) -> Any:
    return fedkern.run({**sections, "data": {"response": "y", **sections.get("data", {})}}, data=rows)


def noted(result: Any, words: str) -> str:
    """The note that has these words; "" where none has."""
    return next((note for note in result.summary["notes"] if words in note), "")


def least_squares(data: Frames, *columns: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Slopes and their standard errors, of all rows together."""
    rows = pd.concat([*data.values()])
    X = np.column_stack([np.ones(len(rows)), rows[[*columns]]])
    b, squares, *_ = np.linalg.lstsq(X, rows["y"], rcond=None)
    return b[1:], np.sqrt(np.diag(np.linalg.inv(X.T @ X)) * squares[0] / (len(X) - X.shape[1]))[1:]


def near_least_squares(result: Any, data: Frames, *columns: str) -> None:
    b, se = least_squares(data, *columns)
    for name, slope, error in zip(columns, b, se):
        found = result.parameters[f"theta[{name}]"]
        assert abs(found["mean"] - slope) < 0.15 * error, name
        assert found["sd"] == pytest.approx(error, rel=0.05), name


def test_a_column_that_the_response_was_computed_from_is_ignored() -> None:
    def site(random: Any, _: int, n: int) -> dict[str, Any]:
        x = random.normal(size=n)
        y = 125 + 4 * x + 9 * random.normal(size=n)
        return {"x": x, "inches of mercury": y / 25.4, "y": y}

    data, model = frames(site), {"family": "gaussian"}
    assert "ignore what it was computed from" in noted(fitted(data, model=model), "is a linear function of the others")
    ended = fitted(data, model=model, data={"ignore": ["inches of mercury"]})
    assert not noted(ended, "is a linear function")
    near_least_squares(ended, data, "x")


@pytest.mark.parametrize("in_files", [True, False])
def test_a_code_for_a_missing_value_counts_as_one(in_files: bool, tmp_path: Path) -> None:
    def site(random: Any, k: int, n: int) -> dict[str, Any]:
        x = 37 + 0.6 * random.normal(size=n)
        y = 100 + 5 * (x - 37) + 3 * random.normal(size=n)
        return {"x": np.where((np.arange(n) < 14) & (k == 1), -9.0, x), "y": y}

    data, model, out = frames(site), {"family": "gaussian"}, tmp_path / "out"
    paths = {name: tmp_path / f"{name}.csv" for name in data}
    for name, frame in data.items():
        frame.to_csv(paths[name], index=False)
    job: dict[str, Any] = {"data": {"response": "y"}, "model": model}
    job["data"] |= {"clients": [str(path) for path in paths.values()]} if in_files else {}
    first = fedkern.run(job, data=None if in_files else data, out=out)
    assert first.converged is False
    assert [(one["column"], list(one["clients"])) for one in said(first, "column-in-another-unit")] == [("column 'x'", ["s1"])]
    (note,) = json.loads((out / "client-s1" / "rows.json").read_text())["notes"]
    assert ('count it as one ([data.dialect] missing = ["-9"]), and say' in note) is in_files
    assert ("make these cells empty (in arrays NaN), and say" in note) is not in_files
    job["model"] |= {"missing": "drop"}
    job["data"] |= {"dialect": {"missing": ["-9"]}} if in_files else {}
    empty = {name: frame.replace({"x": {-9.0: np.nan}}) for name, frame in data.items()}
    ended = fedkern.run(job, data=None if in_files else empty)
    assert ended.converged == "settled"
    assert not [one for one in ended.findings if one.id.startswith("column-")]
    near_least_squares(ended, {name: frame.dropna() for name, frame in empty.items()}, "x")


def test_a_column_that_is_right_as_it_is_has_center_and_scale() -> None:
    """Newborns at one site, whose weights are of another size: nothing is in a wrong unit."""

    def site(random: Any, k: int, n: int) -> dict[str, Any]:
        x = random.normal(3.4, 0.5, n) if k == 2 else random.normal(78, 12, n)
        return {"x": x, "y": 0.02 * x + random.normal(size=n)}

    data, model = frames(site), {"family": "gaussian"}
    first = fitted(data, model=model)
    assert first.converged is False
    assert any("declare-column" in one.values.get("remedies", ()) for one in first.findings)
    ended = fitted(data, model=model, data={"columns": {"x": {"center": 50.0, "scale": 35.0}}})
    assert ended.converged == "settled"
    near_least_squares(ended, data, "x")


@pytest.mark.parametrize("kind", ["levels", "codes"])
def test_what_is_written_otherwise_at_one_site_is_written_alike(kind: str) -> None:
    there = {"levels": ("Icu", "Ward"), "codes": (1, 2)}[kind]
    right = {"levels": ("icu", "ward"), "codes": (0, 1)}[kind]

    def site(random: Any, k: int, n: int, other: tuple[Any, Any]) -> dict[str, Any]:
        x = random.integers(0, 2, n)
        return {"x": np.array(other if k == 2 else right)[x], "y": 0.8 * x + random.normal(size=n)}

    data, model = frames(lambda *one: site(*one, there)), {"family": "gaussian"}
    words = {"levels": "write them alike", "codes": "code"}[kind]
    first = fitted(data, model=model)
    assert {"levels": "levels-of-nobody-else", "codes": "column-coded-otherwise"}[kind] in ids(first)
    mended = frames(lambda *one: site(*one, right))
    ended = fitted(mended, model=model)
    assert ended.converged == "settled"
    assert not noted(ended, words)
    numbers = {name: frame.assign(x=(frame["x"] == right[1]) * 1.0) for name, frame in mended.items()}
    if kind == "codes":
        near_least_squares(ended, numbers, "x")
    else:
        row = ended.table().set_index("parameter").loc["x[ward vs icu]"]
        assert abs(row["mean"] - least_squares(numbers, "x")[0][0]) < 0.2 * row["sd"]


def test_trials_that_are_alike_widen_intervals_by_the_factor_that_is_said() -> None:
    """That of a sandwich of each row's own residual."""

    def site(random: Any, _: int, n: int) -> dict[str, Any]:
        x = random.normal(size=n)
        p = expit(-0.5 + 0.5 * x)
        y = random.binomial(20, random.beta(5 * p, 5 * (1 - p)))
        return {"x": x, "ward": [f"w{k}" for k in random.integers(0, 8, n)], "n": 20, "y": y}

    data = frames(site, rows=250)
    wards = {"family": "binomial", "random": {"group": "ward"}}
    result = fitted(data, job={"method": "likelihood"}, data={"trials": "n"}, model=wards)
    (by,) = re.findall(
        r"about (\S+) times too narrow; trials of a row are alike: set model.family = .beta-binomial.$", result.summary["verdict"]
    )
    rows = pd.concat([*data.values()])
    X = np.column_stack([np.ones(len(rows)), rows["x"]])
    p = expit(X @ [result.parameters["intercept"]["mean"], result.parameters["theta[x]"]["mean"]])
    bread = np.linalg.inv(X.T @ (X * (20 * p * (1 - p))[:, None]))
    robust = np.sqrt(np.diag(bread @ (X.T @ (X * ((rows["y"] - 20 * p) ** 2).to_numpy()[:, None])) @ bread))
    assert float(by) * result.parameters["theta[x]"]["sd"] == pytest.approx(robust[1], rel=0.15)


SHORT: dict[str, Any] = {"job": {"method": "sparse", "rounds": 300}, "algorithm": {"burn_in": 100, "chains": 2}}


def test_a_yes_no_response_of_a_sparse_job_is_bernoulli() -> None:
    def site(random: Any, _: int, n: int) -> dict[str, Any]:
        x = random.normal(size=n)
        return {"x": x, "y": (random.random(n) < expit(1.5 * x)) * 1}

    data = frames(site)
    assert 'family = "bernoulli"' in noted(fitted(data, **SHORT), "takes it for continuous")
    ended = fitted(data, model={"family": "bernoulli"}, **SHORT)
    assert not noted(ended, "takes it for continuous")
    assert abs(ended.parameters["average[x]"]["mean"] - 1.5) < 3 * ended.parameters["average[x]"]["sd"]


def graph(random: Any, _: int, n: int) -> dict[str, Any]:
    a = random.uniform(-1, 1, n)
    b = 0.8 * a + random.uniform(-1, 1, n)
    return {"a": a, "b": b, "c": random.uniform(-1, 1, n), "d": (b > 0) * 1}


def drawn(kind: str, *ignored: str) -> Any:
    job = {"job": {"method": "sparse", "rounds": 1000}, "data": {"ignore": [*ignored]}, "model": {"kind": kind}}
    return fedkern.run({**SHORT, **job}, data=frames(graph, sites=4, rows=150))


def test_directions_that_cannot_be_told_are_left_to_a_random_field() -> None:
    assert 'model.kind = "mrf"' in noted(drawn("sem", "d"), "are not Laplace")
    found = drawn("mrf", "d").summary["graph"]["edges"]
    assert {frozenset((edge["to"], edge["source"])) for edge in found} == {frozenset("ab")}


def test_a_node_of_two_values_is_ignored() -> None:
    assert noted(drawn("mrf"), "put it into data.ignore, or read it so").startswith("d: ")
    assert not noted(drawn("mrf", "d"), "put it into data.ignore")


def test_too_few_rounds_of_a_vertical_job_are_given_more() -> None:
    random = np.random.default_rng(4)
    names, a, b = [f"r{i}" for i in range(150)], random.normal(size=150), random.normal(size=150)
    data = {"one": pd.DataFrame({"id": names, "a": a}), "two": pd.DataFrame({"id": names, "b": b})}
    server = pd.DataFrame({"id": names, "y": 0.6 * a - 0.4 * b + 0.5 * random.normal(size=150)})
    job: dict[str, Any] = {"job": {"method": "vertical"}, "data": {"id": "id", "response": "y"}, "model": {"family": "gaussian"}}
    few = fedkern.run(job, job={"rounds": 50}, data=data, server=server)
    assert few.converged is False
    assert "few-rounds-to-settle" in ids(few)
    assert fedkern.run(job, data=data, server=server).converged == "settled"


def test_scores_that_are_taken_for_counts_are_sent_to_the_gaussian_family() -> None:
    """Whole numbers from 0 to 10, which vary less than counts: the remedy is least squares."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=600)
    rows = pd.DataFrame(
        {"x": x, "v": np.clip(np.round(6 + 0.8 * x + 1.8 * rng.normal(size=600)), 0, 10), "site": np.arange(600) % 3}
    )
    first = fedkern.fit("v ~ x", rows, by="site")
    assert first.converged is False
    assert 'take model.family = "gaussian"' in str(first.summary["verdict"])
    slope = np.polyfit(x, rows["v"], 1)[0]
    then = fedkern.fit("v ~ x", rows, "gaussian", by="site")
    assert then.converged is True
    assert then.parameters["theta[x]"]["mean"] == pytest.approx(slope, abs=0.01)
