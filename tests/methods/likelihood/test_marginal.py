"""Average marginal effects of clients' rows against sums over the pooled rows, at the draws that the job publishes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import norm

import fedkern
from fedkern.algorithms.exchanges.sums import MarginalSums
from fedkern.arrays import Array
from fedkern.cli import report
from fedkern.cli.__main__ import main

TOLD = {"chains": 2, "draws": 100}  # so many are the draws that clients are told, and then the same
JOB: dict[str, Any] = {
    "job": {"method": "likelihood", "seed": 5},
    "data": {"response": "y", "columns": {"unit": {"kind": "categorical", "reference": "mid"}}},
    "algorithm": {"points": 256, "effective": 100.0},
    "output": {"marginal": True, **TOLD},
}
MEANS: dict[str, Callable[[Array], Array]] = {
    "bernoulli": expit,
    "bernoulli-probit": norm.cdf,
    "bernoulli-cloglog": lambda eta: -np.expm1(-np.exp(eta)),
    "poisson": np.exp,
    "gaussian": lambda eta: eta,
}
RESPONSES: dict[str, Callable[[np.random.Generator, Array], Any]] = {
    "bernoulli": lambda rng, eta: (rng.random(len(eta)) < expit(eta)).astype(int),
    "poisson": lambda rng, eta: rng.poisson(np.exp(eta)),
    "gaussian": lambda rng, eta: np.round(100 + 20 * eta + 8 * rng.normal(size=len(eta)), 2),
}


def frames(family: str) -> dict[str, pd.DataFrame]:
    rng, found = np.random.default_rng(6), {}
    for name, n in zip(("ada", "bo", "cy"), (96, 120, 144)):
        age, male = rng.normal(60, 12, n).round(2), rng.integers(0, 2, n)
        unit, ward = rng.choice(["low", "mid", "top"], n), rng.permutation(np.arange(n) % 12)
        effects = 0.8 * rng.normal(size=12)[ward] + 0.3 * rng.normal()
        eta = 0.02 * (age - 60) + 0.5 * male + 0.4 * (unit == "top") + effects
        y = RESPONSES[family.partition("-")[0]](rng, eta)
        found[name] = pd.DataFrame({"age": age, "male": male, "unit": unit, "ward": ward, "y": y})
    return found


def run(family: str, random: dict[str, Any] | None, **more: Any) -> tuple[fedkern.Result, pd.DataFrame]:
    held = frames(family)
    ignored = [] if random and "group" in random else ["ward"]
    name, _, link = family.partition("-")
    tables = {**JOB, "model": {"family": name, **({"link": link} if link else {}), **({"random": random} if random else {})}}
    tables["data"] = {**JOB["data"], "ignore": ignored}
    return fedkern.run(tables, data=held, **more), pd.concat(held.values())


def expected(result: fedkern.Result, rows: pd.DataFrame, family: str) -> dict[str, Array]:
    """Of each change its average over the rows and over a normal effect, at the published draws."""
    variables = result.posterior.groups(None)["posterior"].variables
    draws = {name: values.reshape(200, -1) for name, (_, values) in variables.items()}
    theta = np.column_stack([draws["intercept"], draws["theta"]])
    variance = sum((draws[name] ** 2 for name in draws if name.endswith("_sd[intercept]")), np.zeros((200, 1)))
    u = np.linspace(-8, 8, 161)
    weight = norm.pdf(u) * (u[1] - u[0])

    def average(**cells: Any) -> Array:
        some = rows.assign(**cells)
        columns = [np.ones(len(some)), some.age, some.male, *(some.unit == level for level in ("low", "top"))]  # to "mid"
        eta = theta @ np.array(columns, np.float64)
        means = MEANS[family]
        if not variance.any():
            return np.asarray(means(eta).mean(axis=1))
        return sum(w * means(eta + np.sqrt(variance) * t).mean(axis=1) for t, w in zip(u, weight))

    h = 1e-3
    return {
        "age": (average(age=rows.age + h) - average(age=rows.age - h)) / (2 * h),
        "male": average(male=1) - average(male=0),
        "unit=low": average(unit="low") - average(unit="mid"),
        "unit=top": average(unit="top") - average(unit="mid"),
    }


@pytest.mark.parametrize(
    ("family", "random"),
    [
        ("bernoulli", None),
        ("gaussian", None),
        ("bernoulli", {"group": "ward"}),
        ("poisson", {"group": "ward", "client": True}),
        ("bernoulli-probit", {"group": "ward"}),
        ("bernoulli-cloglog", None),
    ],
)
def test_marginal_effects_are_averages_over_the_pooled_rows(family: str, random: dict[str, Any] | None) -> None:
    result, rows = run(family, random)
    found = result.summary["marginal"]
    assert found["rows"] == len(rows) == 360
    wanted = expected(result, rows, family)
    assert list(found["effects"]) == list(wanted)
    for name, values in wanted.items():
        row = found["effects"][name]
        assert row["mean"] == pytest.approx(values.mean(), rel=2e-4, abs=1e-6), name
        assert row["sd"] == pytest.approx(values.std(), rel=5e-4), name
        low, high = np.quantile(values, [0.025, 0.975], method="hazen")
        assert (row["q025"], row["q975"]) == pytest.approx((low, high), rel=5e-4, abs=1e-6), name
    changes = {name: row["change"] for name, row in found["effects"].items()}
    assert changes == {
        "age": "slope per unit",
        "male": "1 against 0",
        "unit=low": "low against mid",
        "unit=top": "top against mid",
    }


def test_a_column_of_other_numbers_at_one_client_has_a_slope() -> None:
    held = {name: frame.drop(columns=["unit", "ward"]) for name, frame in frames("poisson").items()}
    held["bo"].loc[3:9, "male"] = 2
    tables = {**JOB, "data": {"response": "y"}, "model": {"family": "poisson"}}
    found = fedkern.run(tables, data=held).summary["marginal"]["effects"]
    assert {name: row["change"] for name, row in found.items()} == {"age": "slope per unit", "male": "slope per unit"}


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("asked", [True, False])
def test_the_effects_are_shown_where_they_are_asked_for(asked: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows").mkdir()
    for name, frame in frames("bernoulli").items():
        frame.to_csv(tmp_path / "rows" / f"{name}.csv", index=False)
    (tmp_path / "job.toml").write_text(
        '[job]\nmethod = "likelihood"\n[data]\nclients = ["rows/*.csv"]\nresponse = "y"\nignore = ["ward"]\n'
        f"[algorithm]\npoints = 256\neffective = 100\n[output]\nmarginal = {str(asked).lower()}\n"
    )
    assert main(["check", "--verbose", str(tmp_path / "job.toml")]) == 0
    said = capsys.readouterr().out
    assert ("MarginalSums" in said) == asked
    assert ("and which of its columns are 0 or 1" in said) == asked
    assert main(["run", str(tmp_path / "job.toml"), "--out", str(tmp_path / "out")]) == 0
    assert ("male (1 against 0)" in capsys.readouterr().out) == asked
    assert ("marginal" in fedkern.load(tmp_path / "out").summary) == asked
    page = report.write(tmp_path / "out").read_text()
    assert ("Marginal effects" in page) == asked
    assert ("low against" in page or "mid against" in page) == asked


def test_sums_are_of_five_rows_at_least() -> None:
    sums = np.array([[0.123456789, -2.0]])
    assert MarginalSums(0, 5, np.ones(1), sums).leaving().sums.tolist() == [[0.1235, -2.0]]
    few = MarginalSums(0, 4, np.ones(1), sums).leaving()
    assert (few.rows, few.binary.tolist(), few.sums.tolist()) == (0, [0.0], [[0.0, 0.0]])


def test_a_client_of_few_rows_is_left_out_by_name() -> None:
    held = {name: frame.drop(columns=["unit", "ward"]) for name, frame in frames("bernoulli").items()}
    held["bo"] = held["bo"][:4]
    tables = {**JOB, "data": {"response": "y", "least_rows": 3}, "model": {"family": "bernoulli"}}
    result = fedkern.run(tables, data=held)
    assert result.summary["marginal"]["rows"] == 240
    assert "client 'bo' is not in the marginal effects, for it has fewer than 5 rows" in result.summary["notes"]


@pytest.mark.usefixtures("undrawn")
def test_a_number_has_a_slope_and_is_not_said_to_change_the_mean_by_a_unit(tmp_path: Path) -> None:
    """A share has a slope above 1, by which no probability can change."""
    random, data = np.random.default_rng(4), {}
    for name in ("ay", "bo"):
        share = random.beta(2, 2, 300)
        data[name] = pd.DataFrame({"share": share, "y": (random.random(300) < 1 / (1 + np.exp(-9 * (share - 0.5)))).astype(int)})
    job = {
        "job": {"method": "likelihood"},
        "data": {"response": "y"},
        "model": {"family": "bernoulli"},
        "output": {"marginal": True},
    }
    result = fedkern.run(job, data=data, out=tmp_path / "out")
    row = result.summary["marginal"]["effects"]["share"]
    assert row["mean"] > 1
    assert row["change"] == "slope per unit"
    page = report.write(tmp_path / "out").read_text(encoding="utf-8")
    assert "average derivative" in page
    assert "for a unit of a numeric column" not in page
