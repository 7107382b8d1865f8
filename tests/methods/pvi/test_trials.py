"""Successes of trials are so many rows of 0 and 1: in the posterior, in the constants of columns, and in every score."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.errors import JobError
from support import few

pd = pytest.importorskip("pandas")
JOB: dict[str, Any] = {"data": {"response": "y", "trials": "n", "offset": "o"}}


def grouped(n: int, seed: int, shift: float = 0.0) -> Any:
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"age": random.normal(60 + shift, 9, n), "sex": random.choice(["f", "m"], n), "o": random.normal(0, 0.2, n)}
    )
    frame["n"] = random.integers(1, 12, n)
    p = 1 / (1 + np.exp(-(0.05 * (frame["age"] - 60) - 0.4 * (frame["sex"] == "m") + frame["o"])))
    frame["y"] = random.binomial(frame["n"], p)
    return frame


def single(frame: Any) -> Any:
    """A row for each trial."""
    rows = frame.loc[frame.index.repeat(frame["n"])].reset_index(drop=True)
    first = np.concatenate([np.arange(n) for n in frame["n"]])
    return rows.assign(y=(first < rows["y"]).astype(int)).drop(columns="n")


def job(**sections: Any) -> dict[str, Any]:
    return {name: JOB.get(name, {}) | sections.get(name, {}) for name in {*JOB, *sections}}


def test_the_result_is_that_of_a_row_for_each_trial(tmp_path: Path) -> None:
    clients = {"a": grouped(60, 1), "b": grouped(40, 2, 8.0)}
    test = grouped(30, 3)
    rows = {name: single(frame) for name, frame in clients.items()}
    found = fedkern.run(job(), data=clients, test=test, out=tmp_path / "run")
    plain = job()
    plain["data"] = {"response": "y", "offset": "o", **few.ANY}  # a row of trials comes several times
    wanted = fedkern.run(plain, data=rows, test=single(test))
    assert (found.converged, wanted.converged) == ("settled", "settled")
    assert found.parameters.keys() == wanted.parameters.keys()
    for name, row in wanted.parameters.items():
        assert found.parameters[name] == pytest.approx(row, rel=1e-7, abs=1e-9), name
    for constant in ("center", "scale"):
        ours, theirs = (one.summary["encoding"]["columns"][0][constant] for one in (found, wanted))
        assert ours == pytest.approx(theirs, rel=1e-12), "columns are standardised by trials"
    assert found.metrics == pytest.approx(wanted.metrics, rel=1e-7)
    ours, theirs = found.summary["test"], wanted.summary["test"]
    assert ours["rows"] == theirs["rows"] == int(test["n"].sum())
    assert ours["guess"] == pytest.approx(theirs["guess"], rel=1e-9)
    assert [one["rows"] for one in ours["reliability"]] == [one["rows"] for one in theirs["reliability"]]
    for one, other in zip(ours["reliability"], theirs["reliability"]):
        assert one == pytest.approx(other, rel=1e-6)
    again = fedkern.load(tmp_path / "run")
    assert again.scores(test) == pytest.approx(wanted.metrics, rel=1e-7)
    predicted = again.predict(test)
    assert len(predicted) == len(test), "a row of trials has one mean"
    np.testing.assert_allclose(predicted["mean"], again.predict(test.drop(columns=["y", "n"]))["mean"], rtol=1e-12)
    p, s, n = predicted["mean"].to_numpy(), test["y"].to_numpy(), test["n"].to_numpy()
    density = (s * np.log(p + 1e-10) + (n - s) * np.log(1 - p + 1e-10)).sum() / n.sum()
    assert found.metrics["log_likelihood"] == pytest.approx(density, rel=1e-6)
    assert found.metrics["accuracy"] == pytest.approx(np.where(p > 0.5, s, n - s).sum() / n.sum())
    assert any("as patients of one ward" in note for note in found.summary["notes"])
    assert "trials" in json.loads((tmp_path / "run" / "summary.json").read_text())["encoding"]


def test_one_trial_a_row_changes_nothing() -> None:
    rows = single(grouped(60, 1))
    plain = job()
    plain["data"] = {"response": "y", "offset": "o", **few.ANY}  # a row of trials comes several times
    wanted, found = fedkern.run(plain, data={"a": rows}), fedkern.run(job(data=few.ANY), data={"a": rows.assign(n=1)})
    for name, row in wanted.parameters.items():
        assert found.parameters[name] == pytest.approx(row, rel=1e-12), name


@pytest.mark.parametrize(
    ("y", "n", "text"),
    [
        (5, 3, r"column 'y': '5' is more than the number of trials"),
        (-1, 3, r"column 'y': '-1' is not a count"),
        (1.5, 3, r"column 'y': '1.5' is not a count"),
        (1, -2, r"column 'n': '-2' is no number of trials"),
        (1, 2.5, r"column 'n': '2.5' is no number of trials"),
    ],
)
def test_cells_that_cannot_be_are_named(y: float, n: float, text: str) -> None:
    frame = grouped(60, 1).astype({"y": float, "n": float})
    frame.loc[7, ["y", "n"]] = [y, n]
    with pytest.raises(JobError, match=rf"row 8, {text}"):
        fedkern.run(job(), data={"a": frame})


@pytest.mark.parametrize(
    ("sections", "text"),
    [
        ({"model": {"family": "poisson"}}, 'of model.family = "bernoulli", not "poisson"'),
        ({"data": {"positive": "yes"}}, "data.positive that it is a label"),
        ({"data": {"weight": "w"}}, "both say how often a row counts"),
        ({"data": {"offset": "n"}}, "must be different columns"),
        ({"privacy": {"epsilon": 1.0, "delta": 1e-5}}, "has no private form"),
        ({"job": {"method": "sparse"}}, 'data.trials is for method = "pvi" and "sigma"'),
        ({"job": {"method": "vertical"}, "data": {"id": "i"}}, 'data.trials is for method = "pvi" and "sigma"'),
    ],
)
def test_what_cannot_be_is_refused(sections: dict[str, Any], text: str) -> None:
    with pytest.raises(JobError, match=text):
        fedkern.run(job(**sections), data={"a": grouped(60, 1)})


def test_a_row_is_one_row_however_many_trials_it_has() -> None:
    few = grouped(12, 1).assign(n=100)
    with pytest.raises(JobError, match="12 rows that count; 20 are asked for"):
        fedkern.run(job(disclosure={"level": "strict"}), data={"a": few})
    heavy = grouped(40, 1)
    heavy.loc[0, "n"] = 5000
    with pytest.raises(JobError, match=r"1 rows that count; 20 are asked for"):
        fedkern.run(job(disclosure={"level": "strict"}), data={"a": heavy})


def test_a_row_without_its_trials_lacks_a_cell() -> None:
    frame = grouped(60, 1).astype({"n": float})
    frame.loc[3, "n"] = np.nan
    result = fedkern.run(job(model={"missing": "drop"}), data={"a": frame})
    assert result.summary["incomplete"] == {"a": {"rows": 60, "incomplete": 1}}
