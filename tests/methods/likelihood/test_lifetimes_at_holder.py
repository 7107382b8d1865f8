"""Times of new rows at a holder: by what the rows of its own wards, and of itself, say of their effects, on a grid of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp

import fedkern
from fedkern.cli.__main__ import main

CUTS, AT, TAU = [6.0, 20.0], [5.0, 15.0], 24.0
GRID = np.linspace(-5, 5, 101)


def federation(seed: int = 3, each: int = 25) -> dict[str, pd.DataFrame]:
    rng, found = np.random.default_rng(seed), {}
    for name in ("ada", "bo", "cy"):
        ward = np.repeat([f"w{k}" for k in range(6)], each)
        n = len(ward)
        effect = np.repeat(0.9 * rng.normal(size=6), each) + 0.7 * rng.normal()
        age = rng.normal(60, 10, n)
        time, end = rng.exponential(np.exp(3 - effect - 0.03 * (age - 60))) + 1e-3, rng.uniform(10, 60, n)
        columns = {"age": age, "months": np.minimum(time, end).round(3) + 1e-3, "died": (time < end).astype(int)}
        found[name] = pd.DataFrame(columns | {"ward": ward})
    return found


def job(family: str, random: dict[str, Any], **output: Any) -> dict[str, Any]:
    model = {"family": family, "random": random, **({"cuts": CUTS} if family == "piecewise" else {})}
    ignored = [] if "group" in random else ["ward"]
    return {
        "job": {"method": "likelihood", "seed": 2},
        "data": {"time": "months", "event": "died", "ignore": ignored},
        "model": model,
        "algorithm": {"points": 1024, "effective": 400.0},
        "output": {"survival_at": AT, "restricted_mean": TAU, "chains": 2, "draws": 100, **output},
    }


def predicted(folder: Path, rows: pd.DataFrame) -> pd.DataFrame:
    rows.to_csv(folder / "new.csv", index=False)
    assert main(["predict", str(folder), str(folder / "new.csv"), "--out", str(folder / "out.csv")]) == 0
    return pd.read_csv(folder / "out.csv")


def cumulative(family: str, draws: dict[str, np.ndarray], s: int, time: np.ndarray) -> np.ndarray:
    """H at draw s, of a row whose covariates and effects are 0."""
    if family == "weibull":
        return np.exp(draws["intercept"][s]) * time ** draws["shape"][s]
    if family == "exponential":
        return np.exp(draws["intercept"][s]) * time
    logs = [draws["intercept"][s], *(draws[name][s] for name in draws if name.startswith("log_hazard"))]
    spent = np.clip(time[:, np.newaxis] - np.array([0.0, *CUTS]), 0, np.array([CUTS[0], CUTS[1] - CUTS[0], np.inf]))
    return spent @ np.exp(logs)


def log_hazard(family: str, draws: dict[str, np.ndarray], s: int, time: np.ndarray) -> np.ndarray:
    if family == "weibull":
        k = draws["shape"][s]
        return draws["intercept"][s] + np.log(k) + (k - 1) * np.log(time)
    if family == "exponential":
        return np.full(len(time), draws["intercept"][s])
    logs = [draws["intercept"][s], *(draws[name][s] for name in draws if name.startswith("log_hazard"))]
    return np.array(logs)[np.searchsorted(CUTS, time)]


def by_grid(family: str, result: fedkern.Result, own: pd.DataFrame, sd: str, age: float) -> np.ndarray:
    """(3,) survival at the times, and the restricted mean, of a row of those whose effect these rows share."""
    variables = result.posterior.groups(None)["posterior"].variables
    draws = {name: np.asarray(values).reshape(200, -1)[:, 0] for name, (_, values) in variables.items()}
    steps = np.linspace(0, TAU, 241)
    found = []
    for s in range(200):
        linear = draws["theta"][s] * own.age.to_numpy()
        u = draws[sd][s] * GRID[:, np.newaxis]
        time, event = own.months.to_numpy(), own.died.to_numpy()
        log = event * (log_hazard(family, draws, s, time) + linear + u) - cumulative(family, draws, s, time) * np.exp(linear + u)
        weight = log.sum(axis=1) - GRID**2 / 2
        weight = np.exp(weight - logsumexp(weight))
        H = cumulative(family, draws, s, np.concatenate([AT, steps]))
        S = weight @ np.exp(-np.exp(draws["theta"][s] * age + u) * H)
        found.append([*S[:2], np.trapezoid(S[2:], steps)])
    return np.mean(found, axis=0)


@pytest.mark.parametrize(
    ("family", "random"),
    [
        ("weibull", {"group": "ward"}),
        ("piecewise", {"group": "ward"}),
        ("exponential", {"client": True}),
        pytest.param("weibull", {"client": True}, marks=pytest.mark.nightly),
    ],
)
def test_a_row_of_a_known_ward_or_client_is_that_of_a_grid(family: str, random: dict[str, Any], tmp_path: Path) -> None:
    held = federation(each=50 if family == "piecewise" else 25)
    result = fedkern.run(job(family, random), data=held, out=tmp_path / "out")
    rows = pd.DataFrame({"age": [60.0, 60.0, 70.0], "ward": ["w0", "elsewhere", "w4"]})
    found = predicted(tmp_path / "out" / "client-bo", rows)
    names = ["survival[5]", "survival[15]", "mean"]
    values = found[names].to_numpy() / [1, 1, TAU]
    if "group" in random:
        assert list(found.group_effect) == ["known", "new", "known"]
    far = 0.0
    for k in (0, 2):
        own = held["bo"][held["bo"].ward == rows.ward[k]] if "group" in random else held["bo"]
        sd = "group_sd[intercept]" if "group" in random else "client_sd[intercept]"
        wanted = by_grid(family, result, own, sd, rows.age[k]) / [1, 1, TAU]
        np.testing.assert_allclose(values[k], wanted, atol=0.012, err_msg=str(rows.ward[k]))
        rows.drop(columns="ward").to_csv(tmp_path / "rows.csv", index=False)
        new = result.prediction(tmp_path / "rows.csv").columns
        far = max(far, float(np.abs([new[name][k] for name in names] / np.array([1, 1, TAU]) - wanted).max()))
    assert far > 0.05  # or rows of new wards, and new hospitals, would do
    ends = found[["survival[5]_q025", "survival[5]", "survival[5]_q975"]].to_numpy()
    assert (np.diff(ends, axis=1) > 0).all()


def test_a_row_of_another_ward_is_foreseen_as_the_server_does(tmp_path: Path) -> None:
    result = fedkern.run(job("weibull", {"group": "ward"}), data=federation(), out=tmp_path / "out")
    rows = pd.DataFrame({"age": [50.0, 65.0], "ward": ["elsewhere", ""]})
    found = predicted(tmp_path / "out" / "client-ada", rows)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    wanted = result.prediction(tmp_path / "rows.csv").columns
    for name in ("survival[5]", "survival[15]"):
        np.testing.assert_allclose(found[name], wanted[name], atol=2e-3)
    np.testing.assert_allclose(found["mean"], wanted["mean"], rtol=2e-3)


def test_what_cannot_be_foreseen_is_refused_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held = federation()
    fedkern.run(job("exponential", {"group": "ward"}, survival_at=None, restricted_mean=None), data=held, out=tmp_path / "out")
    held["bo"].head(2).to_csv(tmp_path / "new.csv", index=False)
    assert main(["predict", str(tmp_path / "out" / "client-bo"), str(tmp_path / "new.csv")]) == 2
    assert "the job names, and it names none: run it with output.survival_at" in capsys.readouterr().err
    tables = {"job": {"method": "likelihood"}, "data": {"time": "months", "event": "died", "ignore": ["ward"]}}
    fedkern.run({**tables, "model": {"family": "cox"}}, data=held, out=tmp_path / "cox")
    assert main(["predict", str(tmp_path / "cox" / "client-bo"), str(tmp_path / "new.csv")]) == 2
    assert "new rows have no times without a baseline hazard" in capsys.readouterr().err
