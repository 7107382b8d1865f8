"""What each client's rows say alone, against modes that are found otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import gammaln, logsumexp
from scipy.stats import norm
from scipy.stats import t as student

import fedkern
from fedkern.algorithms.exchanges.answers import SiteMode
from fedkern.cli import report
from fedkern.cli.__main__ import main


def frames(groups: int = 0) -> dict[str, pd.DataFrame]:
    rng, found = np.random.default_rng(6), {}
    for name, slope in zip(("ada", "bo", "cy"), (0.1, 0.3, 0.6)):
        x = rng.normal(2, 1, 80).round(4)
        ward = rng.permutation(np.arange(80) % groups) if groups else np.zeros(80, int)
        effect = 0.7 * rng.normal(size=max(groups, 1))[ward] if groups else 0.0
        found[name] = pd.DataFrame({"x": x, "ward": ward, "y": rng.poisson(np.exp(0.2 + slope * x + effect))})
    return found


def mode_of(frame: pd.DataFrame, grouped: bool, centre: float) -> tuple[Any, Any]:
    """Of intercept, slope and log sd of the groups, in which x has its own unit and prior N(0, 2.5^2), and sds."""
    x, y, ward = (frame.sort_values("ward")[name].to_numpy() for name in ("x", "y", "ward"))
    _, first = np.unique(ward, return_index=True)
    u = np.linspace(-8, 8, 321)

    def minus(xi: Any) -> float:
        out = norm.logpdf(xi[0], centre, 5) + norm.logpdf(xi[1], 0, 2.5)
        eta = xi[0] + xi[1] * x
        if not grouped:
            return -float(out + (y * eta - np.exp(eta) - gammaln(y + 1)).sum())
        tau = np.exp(xi[2])
        all_eta = np.minimum(eta + tau * u[:, np.newaxis], 50)
        rows = y * all_eta - np.exp(all_eta) - gammaln(y + 1)
        inner = np.add.reduceat(rows, first, axis=1) + norm.logpdf(u)[:, np.newaxis]
        return -float(out + (logsumexp(inner, axis=0) + np.log(u[1] - u[0])).sum() + student.logpdf(tau, 3, 0, 2.5) + xi[2])

    options = {"xatol": 1e-7, "fatol": 1e-10, "maxiter": 2000}
    best = minimize(minus, [0.2, 0.3, -0.4][: 2 + grouped], method="Nelder-Mead", options=options).x
    h, n = 1e-3, len(best)
    e = h * np.eye(n)
    H = [
        [(minus(best + a + b) - minus(best + a - b) - minus(best - a + b) + minus(best - a - b)) / (4 * h * h) for a in e]
        for b in e
    ]
    return best, np.sqrt(np.diagonal(np.linalg.inv(np.array(H))))


@pytest.mark.parametrize("random", [None, {"group": "ward"}, {"client": True}], ids=["rows", "groups", "clients"])
def test_each_site_is_the_mode_of_its_own_posterior(random: dict[str, Any] | None) -> None:
    grouped = bool(random and "group" in random)
    held = frames(8 if grouped else 0)
    columns = {"x": {"center": 0.0, "scale": 1.0}}
    result = fedkern.run(
        {
            "job": {"method": "likelihood"},
            "data": {"response": "y", "standardise": "public", "columns": columns, "ignore": [] if grouped else ["ward"]},
            "model": {"family": "poisson", "intercept_centre": 0.5, **({"random": random} if random else {})},
            "algorithm": {"points": 256, "effective": 50.0},
            "output": {"sites": True},
        },
        data=held,
    )
    assert list(result.summary["sites"]) == list(held)
    assert result.summary["site_counts"] == {name: {"rows": len(frame)} for name, frame in held.items()}
    for name, frame in held.items():
        mode, sd = mode_of(frame, grouped, 0.5)
        found = result.summary["sites"][name]
        for k, label in enumerate(("intercept", "theta[x]")):
            assert found[label]["mode"] == pytest.approx(mode[k], abs=6e-3 * sd[k]), (name, label)
            assert found[label]["sd"] == pytest.approx(sd[k], rel=7e-3), (name, label)


@pytest.mark.usefixtures("undrawn")
def test_a_gaussian_site_is_least_squares_on_both_scales(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a prior that says little, in the response's unit."""
    (tmp_path / "rows").mkdir()
    held = {}
    for k, name in enumerate(("ada", "bo", "cy")):
        rng = np.random.default_rng(k)
        x = rng.normal(60, 12, 400).round(2)
        held[name] = pd.DataFrame({"x": x, "y": (100 + (0.5 + 0.1 * k) * x + 5 * rng.normal(size=400)).round(2)})
        held[name].to_csv(tmp_path / "rows" / f"{name}.csv", index=False)
    (tmp_path / "job.toml").write_text(
        '[job]\nmethod = "likelihood"\n[data]\nclients = ["rows/*.csv"]\nresponse = "y"\n[model]\nfamily = "gaussian"\n'
        "prior_sd = 100\nintercept_sd = 100\n[algorithm]\npoints = 256\neffective = 50\n[output]\nsites = true\n"
    )
    assert main(["check", "--verbose", str(tmp_path / "job.toml")]) == 0
    assert "\n  SiteMode " in capsys.readouterr().out
    result = fedkern.run(tmp_path / "job.toml", out=tmp_path / "out")
    x_all = np.concatenate([frame.x for frame in held.values()])
    for name, frame in held.items():
        X = np.column_stack([np.ones(400), frame.x])
        theta, (rest,), _, _ = np.linalg.lstsq(X, frame.y, rcond=None)
        sd = np.sqrt(rest / 400 * np.diagonal(np.linalg.inv(X.T @ X)))
        found = result.summary["sites"][name]
        for k, label in enumerate(("intercept", "theta[x]")):
            assert found[label]["mode"] == pytest.approx(theta[k], abs=0.02 * sd[k]), (name, label)
            assert found[label]["sd"] == pytest.approx(sd[k], rel=0.01), (name, label)
        assert found["theta_std[x]"]["mode"] == pytest.approx(theta[1] * x_all.std(), rel=2e-3)
    assert "Sites" in report.write(tmp_path / "out").read_text()


def test_a_site_is_told_to_three_digits_of_its_standard_deviation() -> None:
    told = SiteMode(0, np.array([[1.23456789, -123.456789]]), np.array([[0.0123456, 9.87654]])).leaving()
    assert told.sd.tolist() == [[0.0123, 9.88]]
    assert told.mode.tolist() == [[1.2346, -123.46]]
    assert SiteMode(0, np.array([[98765.4]]), np.array([[12345.6]])).leaving().mode.tolist() == [[98800.0]]


def test_a_site_without_a_mode_says_so() -> None:
    assert not SiteMode(0, np.full((2, 1), np.nan), np.ones((2, 1))).leaving().sd.any()
