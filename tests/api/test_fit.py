"""One line from a formula and tables in memory to a result: the job that it makes, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

pytest.importorskip("formulaic", reason='formulaic is not installed: pip install "fedkern[formula]"')

import fedkern
from fedkern import front
from fedkern.errors import JobError

rng = np.random.default_rng(3)
N = 240
X = rng.normal(size=N)
LABELS = np.array(["a", "b", "c"])[rng.integers(0, 3, N)]
ROWS = pd.DataFrame(
    {
        "x": X,
        "site": np.array(["north", "south"])[rng.integers(0, 2, N)],
        "two": (rng.random(N) < 1 / (1 + np.exp(-X))).astype(int),
        "word": np.where(rng.random(N) < 0.5, "yes", "no"),
        "measured": 3 + 2 * X + rng.normal(size=N),
        "count": rng.poisson(np.exp(0.5 + 0.3 * X)),
        "several": LABELS,
        "grade": pd.Categorical(LABELS, ["b", "a", "c"], ordered=True),
        "time": rng.exponential(np.exp(-0.5 * X)).round(3) + 0.001,
        "event": (rng.random(N) < 0.8).astype(int),
        "hits": rng.binomial(8, 0.4, N),
        "tries": 8,
    }
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The jobs that are run."""
    jobs: list[dict[str, Any]] = []

    def run(job: dict[str, Any], /, **options: Any) -> str:
        jobs.append({**job, "options": options})
        return "a result"

    monkeypatch.setattr(front.api, "run", run)
    return jobs


@pytest.mark.parametrize(
    ("left", "family"),
    [
        ("two", "bernoulli"),
        ("word", "bernoulli"),
        ("measured", "gaussian"),
        ("count", "auto"),
        ("several", "multinomial"),
        ("grade", "ordinal"),
        ("Surv(time, event)", "cox"),
        ("cbind(hits, tries - hits)", "binomial"),
    ],
)
def test_the_family_is_the_plain_one_of_the_response(left: str, family: str, asked: list[dict[str, Any]]) -> None:
    assert fedkern.fit(f"{left} ~ x", ROWS, by="site") == "a result"
    assert asked[0]["model"] == {"formula": f"{left} ~ x", "family": family}
    assert asked[0]["job"] == {"method": "likelihood"}


@pytest.mark.parametrize("table", [ROWS, pl.from_pandas(ROWS.drop(columns="grade")), ROWS.to_dict("list")])
def test_one_table_is_divided_by_its_column_of_clients(table: Any, asked: list[dict[str, Any]]) -> None:
    fedkern.fit("two ~ x", table, by="site")
    clients = asked[0]["options"]["data"]
    assert list(clients) == ["north", "south"]
    for name, rows in clients.items():
        assert "site" not in (rows if isinstance(rows, dict) else rows.columns)
        np.testing.assert_array_equal(np.asarray(rows["x"]), ROWS.x[ROWS.site == name])


def test_a_table_for_each_client_is_taken_as_it_is(asked: list[dict[str, Any]]) -> None:
    data = {"north": ROWS[:100].to_dict("list"), "south": ROWS[100:]}
    fedkern.fit("two ~ x", data, "bernoulli", priors={"prior_sd": 1.0}, output={"loo": True}, out="folder")
    assert asked[0]["options"] == {"data": data, "out": "folder"}
    assert asked[0]["model"]["prior_sd"] == 1.0
    assert asked[0]["output"] == {"loo": True}


def test_a_result_is_that_of_the_job(tmp_path: Any) -> None:
    fitted = fedkern.fit("measured ~ x", ROWS, by="site")
    clients = {name: rows.drop(columns="site") for name, rows in ROWS.groupby("site")}
    job = {"job": {"method": "likelihood"}, "model": {"formula": "measured ~ x", "family": "gaussian"}}
    assert fitted.parameters == fedkern.run(job, data=clients).parameters


def test_a_column_that_the_formula_does_not_name_may_hold_anything(asked: list[dict[str, Any]]) -> None:
    fedkern.fit("two ~ x", ROWS.assign(lists=[[1]] * N), by="site")
    assert asked[0]["model"]["family"] == "bernoulli"


PRIVATE = {"epsilon": 4.0, "delta": 1e-4}


def test_privacy_takes_pvi_with_public_numbers(asked: list[dict[str, Any]]) -> None:
    fedkern.fit("two ~ x", ROWS, "bernoulli", by="site", privacy=PRIVATE, columns={"x": {"center": 0, "scale": 1}})
    assert asked[0]["job"] == {"method": "pvi", "rounds": "budget"}
    assert asked[0]["privacy"] == {**front.STARTS, **PRIVATE}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"data": ROWS}, ["by ="]),
        ({"data": ROWS, "by": "city"}, ["'city'"]),
        ({"data": {"a": ROWS, "b": ROWS}, "by": "site"}, ["by = 'site'"]),
        ({"data": ROWS, "by": "site", "formula": "gone ~ x"}, ["'gone'"]),
        ({"data": {}, "by": "site"}, ["data"]),
        ({"data": ROWS, "by": "site", "output": 3}, ["output"]),
        ({"data": ROWS, "by": "site", "privacy": PRIVATE}, ["poisson"]),
        ({"data": ROWS, "by": "site", "family": "bernoulli", "privacy": {"epsilon": 1.0}}, ["delta", '"x"', "center"]),
        (
            {"data": ROWS, "by": "site", "family": "bernoulli", "privacy": PRIVATE, "formula": "two ~ x + (1 | word)"},
            ["likelihood"],
        ),
    ],
)
def test_what_is_missing_is_named(arguments: dict[str, Any], named: list[str], asked: list[dict[str, Any]]) -> None:
    with pytest.raises(JobError) as fault:
        fedkern.fit(**{"formula": "two ~ x", **arguments})
    assert all(name in str(fault.value) for name in named)
    assert not asked


def _lacking(values: list[Any]) -> pd.DataFrame:
    return pd.DataFrame({"x": range(len(values)), "two": [k % 2 for k in range(len(values))], "site": values})


@pytest.mark.parametrize(
    "table",
    [
        _lacking(["a", None, "b", "a", np.nan]),
        _lacking([1, pd.NA, 2, 1, pd.NA]).convert_dtypes(),
        _lacking([1.0, np.nan, 2.0, 1.0, np.nan]),
        _lacking([1.0, np.nan, 2.0, 1.0, np.nan]).to_dict("list"),
        _lacking(["a", "", "b", "a", " "]),
        pl.DataFrame({"x": range(5), "two": [0, 1, 0, 1, 0], "site": ["a", None, "b", "a", None]}),
        {"x": np.arange(5.0), "two": [0, 1, 0, 1, 0], "site": ["a", None, "b", "a", None]},
    ],
)
def test_rows_of_no_client_are_named(table: Any, asked: list[dict[str, Any]]) -> None:
    """They were a client called None or nan, of no rows."""
    with pytest.raises(JobError, match=r"'site'.*row 2, 5"):
        fedkern.fit("two ~ x", table, by="site")
    assert not asked
