"""Jobs whose rows vary more than Poisson or binomial counts: what is published, printed and refused."""

from __future__ import annotations

import csv
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.algorithms.nested.machine import Settings
from fedkern.api import check_job
from fedkern.cli.__main__ import main
from fedkern.errors import JobError
from fedkern.methods import load
from fedkern.transports.inprocess import InProcess
from support import sigma_artifacts as artifacts
from support.wires import checked_and_run

PRIOR: dict[str, str] = {}  # where it lies


@pytest.fixture(autouse=True)
def _fewer_draws(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of areas, and of the last question of a nested fit, whose weights are not what is looked at."""
    monkeypatch.setattr("fedkern.methods.sigma.own.DRAWS", 60)
    monkeypatch.setattr("fedkern.methods.sigma.model.NestedSettings", partial(Settings, points=40, questions=1, told=60))
    monkeypatch.setitem(PRIOR, "prior", str(built))


def job(folder: Path, sd: float = 0.6, rounds: int = 30, **model: Any) -> dict[str, Any]:
    """Four rows of each area, that vary by `sd` on the log scale."""
    random = np.random.default_rng(7)
    (folder / "rows").mkdir()
    for name, size in zip(artifacts.NAMES, artifacts.SIZES):
        effects = random.normal(0, 1, (size, 4))
        effects -= effects.mean(axis=1, keepdims=True)
        rates = 30 * np.exp(sd * effects / effects.std(axis=1, ddof=1, keepdims=True)).ravel()
        lines = [f"{name}-{k // 4},{random.poisson(rate)},30" for k, rate in enumerate(rates)]
        (folder / "rows" / f"{name}.csv").write_text("\n".join(["district,cases,expected", *lines]) + "\n")
    data = {"clients": [str(folder / "rows" / "*.csv")], "area": "district", "response": "cases", "rows_per_area": "any"}
    return {
        "job": {"method": "sigma", "rounds": rounds, "seed": 3},
        "data": data | {"exposure": "expected"},
        "model": {**PRIOR, **model},
    }


@pytest.mark.parametrize(
    ("model", "name", "line"),
    [
        ({"overdispersion": True}, "sigma_extra", "each has a further effect of its own"),
        ({"family": "negative-binomial"}, "dispersion", "their dispersion 1 / r is learnt"),
    ],
    ids=["effect", "r"],
)
def test_it_is_learnt_published_and_said(tmp_path: Path, model: dict[str, Any], name: str, line: str) -> None:
    tables = job(tmp_path, phi=0.9, spatial_scale=0.5, **model)
    result = checked_and_run(tables, tmp_path / "run")
    assert name in result.parameters
    assert set(result.summary["sigma"]["prior_of"][name]) == {"q025", "q05", "q50", "q95", "q975"}
    assert any(line in said for said in check_job(InProcess(), *load(tables)) or [])
    new = tmp_path / "new.csv"
    assert main(["predict", str(tmp_path / "run" / "client-east"), str(tmp_path / "rows" / "east.csv"), "--out", str(new)]) == 0
    row = next(csv.DictReader(new.read_text().splitlines()))
    assert float(row["new_q975"]) - float(row["new_q025"]) > 1.5 * 2 * 1.96 * float(row["mean"]) ** 0.5  # than Poisson counts
    with (tmp_path / "run" / "client-east" / "areas.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert all(float(row["rate_mean"]) > 0 and np.isfinite(float(row["elpd"])) for row in rows)
    assert all(bool(row["crude_low"]) == (name == "sigma_extra") for row in rows)  # no exact interval without r
    fit = json.loads((tmp_path / "run" / "client-east" / "fit.json").read_text())
    assert fit["pearson"]["chi_square"] < 40  # of 5 areas whose four rows each vary 3 times as much as Poisson counts


@pytest.mark.nightly
def test_what_was_drawn_is_found(tmp_path: Path) -> None:
    """.6 of 64 rows, with 30 expected cases each."""
    algorithm = {"learning_rate": 0.03}
    tables = job(tmp_path, rounds=250, overdispersion=True) | {"algorithm": algorithm}
    found = fedkern.run(tables).parameters["sigma_extra"]
    assert abs(found["mean"] - 0.6) < 0.1
    assert 0.02 < found["sd"] < 0.12


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ({"family": "negative-binomial"}, "it has r; remove it"),
        ({"family": "gaussian"}, "it has the standard deviation; remove it"),
        ({"family": "bernoulli"}, "y of 0 or 1 cannot show it; remove it"),
    ],
    ids=lambda value: value if isinstance(value, str) else value["family"],
)
def test_families_that_have_none_are_refused(tmp_path: Path, model: dict[str, Any], text: str) -> None:
    with pytest.raises(JobError, match=rf"model\.overdispersion: only family = .* have it.*{text}"):
        fedkern.run(job(tmp_path, overdispersion=True, **model))
