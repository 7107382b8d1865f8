"""Marginal effects on levels' probabilities against averages over the pooled rows, at the draws that the job publishes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, softmax
from scipy.stats import norm

import fedkern
from fedkern.arrays import Array
from fedkern.cli import report
from fedkern.cli.__main__ import main

LEVELS = ("none", "mild", "severe")
JOB: dict[str, Any] = {
    "job": {"method": "likelihood", "seed": 5},
    "data": {"response": "y", "levels": [*LEVELS], "columns": {"unit": {"kind": "categorical", "reference": "mid"}}},
    "algorithm": {"points": 256, "effective": 100.0},
    "output": {"marginal": True, "chains": 2, "draws": 100},  # so many are the draws that clients are told, and then the same
}


def frames() -> dict[str, pd.DataFrame]:
    rng, found = np.random.default_rng(6), {}
    for name, n in zip(("ada", "bo", "cy"), (300, 324, 348)):
        age, male = rng.normal(60, 12, n).round(2), rng.integers(0, 2, n)
        unit, ward = rng.choice(["low", "mid", "top"], n), rng.permutation(np.arange(n) % 12)
        slope = 0.02 + 0.03 * rng.normal(size=12)[ward]
        eta = slope * (age - 60) + 0.5 * male + 0.4 * (unit == "top") + 0.8 * rng.normal(size=12)[ward] + rng.logistic(size=n)
        y = np.array(LEVELS)[(eta > -0.7).astype(int) + (eta > 1.1)]
        found[name] = pd.DataFrame({"age": age, "male": male, "unit": unit, "ward": ward, "y": y})
    return found


def run(model: dict[str, Any], **more: Any) -> tuple[fedkern.Result, pd.DataFrame]:
    held = frames()
    ignored = [] if "random" in model else ["ward"]
    tables = {**JOB, "model": model, "data": {**JOB["data"], "ignore": ignored}}
    return fedkern.run(tables, data=held, **more), pd.concat(held.values())


def chances(result: fedkern.Result, rows: pd.DataFrame, model: dict[str, Any]) -> Array:
    """(200, K) averages over rows, and over a normal effect by a fine sum."""
    variables = result.posterior.groups(None)["posterior"].variables
    draws = {name: values.reshape(200, -1) for name, (_, values) in variables.items()}
    X = np.array([rows.age, rows.male, *(rows.unit == level for level in ("low", "top"))], np.float64)  # to "mid"
    if model["family"] == "multinomial":
        blocks = draws["theta"].reshape(200, 2, 5)
        eta = np.einsum("skj,jn->skn", blocks, np.concatenate([np.ones((1, len(rows))), X]))
        return softmax(np.concatenate([np.zeros_like(eta[:, :1]), eta], axis=1), axis=1).mean(axis=2)
    F = norm.cdf if model.get("link") == "probit" else expit
    eta = draws["theta"] @ X
    sd = draws.get("group_sd[intercept]", np.zeros((200, 1)))
    variance = sd**2 + 0 * X[0]
    if "group_sd[age]" in draws:
        slope, r = draws["group_sd[age]"], draws["group_correlation[intercept,age]"]
        variance = variance + 2 * r * sd * slope * X[0] + slope**2 * X[0] ** 2
    u = np.linspace(-8, 8, 161) if variance.any() else np.zeros(1)
    weight = norm.pdf(u) * 0.1 if variance.any() else np.ones(1)
    below = []
    for name in ("threshold[none|mild]", "threshold[mild|severe]"):
        below.append(sum(w * F(draws[name] - eta - np.sqrt(variance) * t).mean(axis=1) for t, w in zip(u, weight)))
    return np.diff(np.stack([np.zeros(200), *below, np.ones(200)], axis=1), axis=1)


MODELS: list[dict[str, Any]] = [
    {"family": "ordinal"},
    {"family": "ordinal", "link": "probit"},
    {"family": "ordinal", "random": {"group": "ward"}},
    {"family": "ordinal", "random": {"group": "ward", "slopes": ["age"]}},
    {"family": "multinomial"},
]


@pytest.mark.parametrize("model", [pytest.param(m, marks=[pytest.mark.nightly] * ("random" in m), id=str(m)) for m in MODELS])
def test_effects_on_levels_are_averages_over_the_pooled_rows(model: dict[str, Any]) -> None:
    result, rows = run(model)
    found = result.summary["marginal"]
    assert found["rows"] == len(rows) == 972

    def at(**cells: Any) -> Array:
        return chances(result, rows.assign(**cells), model)

    h = 1e-3
    wanted = {
        "age": ("slope per unit", (at(age=rows.age + h) - at(age=rows.age - h)) / (2 * h)),
        "male": ("1 against 0", at(male=1) - at(male=0)),
        "unit=low": ("low against mid", at(unit="low") - at(unit="mid")),
        "unit=top": ("top against mid", at(unit="top") - at(unit="mid")),
    }
    assert list(found["effects"]) == [f"{level}:{name}" for name in wanted for level in LEVELS]
    for name, (change, values) in wanted.items():
        for k, level in enumerate(LEVELS):
            row, own = found["effects"][f"{level}:{name}"], values[:, k]
            assert (row["change"], row["level"]) == (change, level)
            # A client's sums have three digits.
            assert row["mean"] == pytest.approx(own.mean(), rel=1.5e-3, abs=2e-5), (name, level)
            assert row["sd"] == pytest.approx(own.std(), rel=5e-3, abs=1e-6), (name, level)
            low, high = np.quantile(own, [0.025, 0.975], method="hazen")
            assert (row["q025"], row["q975"]) == pytest.approx((low, high), rel=6e-3, abs=2e-5), (name, level)
        assert abs(sum(found["effects"][f"{level}:{name}"]["mean"] for level in LEVELS)) < 2e-4  # some level is always there


def test_a_formula_moves_all_terms_of_a_column() -> None:
    pytest.importorskip("formulaic")
    plain, _ = run({"family": "ordinal"})
    tables = {**JOB, "data": {"levels": [*LEVELS]}, "model": {"family": "ordinal", "formula": "y ~ age + male + C(unit)"}}
    found = fedkern.run(tables, data=frames()).summary["marginal"]["effects"]
    for level in LEVELS:
        row, other = found[f"{level}:male"], plain.summary["marginal"]["effects"][f"{level}:male"]
        assert row["mean"] == pytest.approx(other["mean"], abs=0.3 * other["sd"])  # other draws: one column fewer
        assert row["sd"] == pytest.approx(other["sd"], rel=0.3)


@pytest.mark.usefixtures("undrawn")
def test_they_are_announced_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows").mkdir()
    for name, frame in frames().items():
        frame.to_csv(tmp_path / "rows" / f"{name}.csv", index=False)
    (tmp_path / "job.toml").write_text(
        '[job]\nmethod = "likelihood"\n[data]\nclients = ["rows/*.csv"]\nresponse = "y"\nignore = ["ward"]\n'
        'levels = ["none", "mild", "severe"]\n[model]\nfamily = "multinomial"\n'
        "[algorithm]\npoints = 256\neffective = 100\n[output]\nmarginal = true\n"
    )
    assert main(["check", "--verbose", str(tmp_path / "job.toml")]) == 0
    said = capsys.readouterr().out
    assert "MarginalSums" in said
    assert "and which of its columns are 0 or 1" in said
    assert main(["run", str(tmp_path / "job.toml"), "--out", str(tmp_path / "out")]) == 0
    assert "severe:male (1 against 0)" in capsys.readouterr().out
    assert "Average marginal effects on the probability of each level" in report.write(tmp_path / "out").read_text()
