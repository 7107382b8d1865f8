"""Words that are labels of strata and groups, empty cells among them, arguments of Surv by name, cells that are no numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.cli.__main__ import main
from fedkern.errors import JobError, OwnFault
from support.refusal import refusal

# R 4.2.2, survival 3.5-3, lme4 1.1-31:
COX = (0.81179040, 0.09766529)  # coxph(Surv(t, b) ~ x + strata(site, g))
MIXED = (0.995982121, 0.051055489)  # lmer(y ~ x + (1 | v)), v of site and g
LABELS = np.array(["none", "NULL", "a", "b", "c", "d", "e", "f"])
SURV = "Surv(t, b) ~ x + strata(g)"


def frame(k: int) -> pd.DataFrame:
    i = np.arange(200)
    x = np.cos(i + k)
    y = x + np.sin(i * 5) + np.array([-1, 1, 0.5, 0, -0.5, 0.8, -0.7, 0.1])[i % 8]
    cells = {
        "x": np.round(x, 4),
        "t": np.round(np.exp(np.sin(i * 3.1 + k) - 0.5 * x) + 1, 3),
        "b": (i % 4 > 0).astype(int),
        "g": LABELS[i % 8],
        "y": np.round(y, 3),
        "entry": np.where(i % 10 == 0, np.nan, 0.25),
        "percent": [f"{37 * one:.2f}%" for one in x],
    }
    return pd.DataFrame(cells)


def run(frames: list[pd.DataFrame], formula: str, folder: Path, **model: Any) -> Any:
    for name, one in zip("pq", frames):
        one.to_csv(folder / f"{name}.csv", index=False)
    family = "cox" if formula.startswith("Surv") else "gaussian"
    return fedkern.run(
        {
            "job": {"method": "likelihood", "seed": 3},
            "data": {"clients": [str(folder / "*.csv")], "least_rows": 1, "least_groups": 1},
            "model": {"family": family, "formula": formula, "prior_sd": 30.0, **model},
            "algorithm": {"points": 1024, "effective": 400.0},
        }
    )


@pytest.mark.parametrize(("formula", "wanted"), [(SURV, COX), ("y ~ x + (1 | g)", MIXED)])
@pytest.mark.parametrize("missing", ["error", "drop"])
def test_none_and_null_are_labels_of_strata_and_groups(formula: str, wanted: Any, missing: str, tmp_path: Path) -> None:
    found = run([frame(0), frame(7)], formula, tmp_path, missing=missing)
    mean, sd = wanted
    assert found.parameters["theta[x]"]["mean"] == pytest.approx(mean, abs=0.15 * sd)
    assert found.parameters["theta[x]"]["sd"] == pytest.approx(sd, rel=0.12)
    assert not any(one["incomplete"] for one in found.summary.get("incomplete", {}).values())


@pytest.mark.parametrize("formula", [SURV, "y ~ x + (1 | g)"])
def test_rows_with_an_empty_stratum_or_group_are_left_out_as_it_is_said(formula: str, tmp_path: Path) -> None:
    frames = [frame(0), frame(7)]
    gaps = [one.assign(g=np.where(np.arange(200) % 20 == 3, "", one["g"])) for one in frames]
    with refusal(OwnFault, "g", "model.missing", "drop") as caught:
        run(gaps, formula, tmp_path, missing="error")
    assert "10 rows" in caught.value.own
    found = run(gaps, formula, tmp_path, missing="drop")
    wanted = run([one[one["g"] != ""] for one in gaps], formula, tmp_path)
    assert found.parameters == wanted.parameters


def test_an_empty_cell_of_the_entry_is_no_missing_column(tmp_path: Path) -> None:
    frames = [frame(0), frame(7)]
    with refusal(OwnFault, "entry", "drop") as caught:
        run(frames, "Surv(entry, t, b) ~ x", tmp_path, missing="error")
    assert "line 2, column 'entry': '' is empty; fill in the value or remove the row" in caught.value.own
    assert "(20 rows: line 2, line 12, " in caught.value.own
    assert run(frames, "Surv(entry, t, b) ~ x", tmp_path, missing="drop").summary["incomplete"]


@pytest.mark.parametrize(
    ("named", "plain"),
    [
        ("Surv(time = t, event = b) ~ x", "Surv(t, b) ~ x"),
        ("Surv(event = b, time = t) ~ x", "Surv(t, b) ~ x"),
        ("Surv(t, event = b) ~ x", "Surv(t, b) ~ x"),
        ("Surv(time = entry, time2 = t, event = b) ~ x", "Surv(entry, t, b) ~ x"),
        ("Surv(t, b, type = 'right') ~ x", "Surv(t, b) ~ x"),
        ('Surv(entry, t, b, type="counting") ~ x', "Surv(entry, t, b) ~ x"),
    ],
)
def test_arguments_of_surv_have_names(named: str, plain: str, tmp_path: Path) -> None:
    found, wanted = (run([frame(0), frame(7)], formula, tmp_path, missing="drop") for formula in (named, plain))
    assert found.parameters == wanted.parameters


# R 4.2.2, survival 3.5-3: m <- survreg(Surv(lower, upper, type = "interval2") ~ x); c(-coef(m) / m$scale, 1 / m$scale)
INTERVALS = {"intercept": -1.83526088, "theta[x]": 0.82727320, "shape": 1.53297131}


def intervals(k: int) -> pd.DataFrame:
    """Visits every two units: an event between two, one that was seen, one before the first visit, or none."""
    i = np.arange(200)
    x = np.round(np.cos(i + k), 4)
    t = np.round(3 * (-np.log((i * 0.618 + 0.1 * k) % 1 * 0.98 + 0.01) * np.exp(-0.8 * x)) ** 0.7, 3)
    first = 2 * np.floor(t / 2)
    lower = np.where(i % 4 == 0, t, np.where(first == 0, np.nan, first))
    lower, upper = (np.where(i % 5 == 0, 0.7 * t, lower), np.where(i % 5 == 0, np.nan, np.where(i % 4 == 0, t, first + 2)))
    return pd.DataFrame({"x": x, "lower": lower, "upper": upper})


def test_intervals_of_events_as_r_has_them(tmp_path: Path) -> None:
    frames = {"p": intervals(0), "q": intervals(7)}

    def fit(formula: str, data: Any) -> Any:
        model = {"family": "weibull", "formula": f"{formula} ~ x", "prior_sd": 100.0}
        return fedkern.run({"job": {"method": "likelihood", "seed": 3}, "data": data.pop("keys", {}), "model": model}, data=data)

    found = fit("Surv(lower, upper, type = 'interval2')", dict(frames))
    for name, value in INTERVALS.items():
        assert found.parameters[name]["mean"] == pytest.approx(value, abs=0.15 * found.parameters[name]["sd"])
    with_event = {name: one.assign(event=one["upper"].notna().astype(int)) for name, one in frames.items()}
    assert fit("Surv(lower, event)", {**with_event, "keys": {"time_upper": "upper"}}).parameters == found.parameters
    for name, one in frames.items():  # as R writes ends that are not there, too
        ends = one.assign(lower=one["lower"].fillna(-np.inf), upper=one["upper"].fillna(np.inf))
        ends.to_csv(tmp_path / f"{name}.csv", index=False)
    files = {"clients": [str(tmp_path / "*.csv")]}
    assert fit('Surv(time2 = upper, lower, type = "interval2")', files).parameters == found.parameters
    (tmp_path / "job.toml").write_text(
        '[job]\nmethod = "likelihood"\n[data]\nclients = ["*.csv"]\ntime = "lower"\ntime_upper = "upper"\n'
        '[model]\nfamily = "weibull"\n'
    )
    assert main(["check", str(tmp_path / "job.toml"), "--local", str(tmp_path / "p.csv")]) == 0


@pytest.mark.parametrize(
    "left", ["Surv(t, b, type = 'left')", "Surv(entry, t, b, type = 'interval')", "Surv(t)", "Surv(t, b, x, y)"]
)
def test_other_types_of_times_are_refused_with_those_that_there_are(left: str, tmp_path: Path) -> None:
    with refusal(JobError, "Surv", "interval2"):
        run([frame(0), frame(7)], f"{left} ~ x", tmp_path)


def test_cells_that_are_no_numbers_are_shown_to_the_holder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, k in (("p", 0), ("q", 7)):
        frame(k)[["y", "percent"]].to_csv(tmp_path / f"{name}.csv", index=False)
    job = '[job]\nmethod = "likelihood"\n[data]\nclients = ["*.csv"]\nresponse = "y"\n[model]\nfamily = "gaussian"\n'
    (tmp_path / "job.toml").write_text(job)
    assert main(["check", str(tmp_path / "job.toml"), "--local", str(tmp_path / "p.csv")]) == 2
    said = "".join(capsys.readouterr())
    assert "cells are no numbers, so that it is of categories: the first is '37.00%'" in said
