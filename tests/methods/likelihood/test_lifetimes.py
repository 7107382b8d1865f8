"""Jobs of survival times whose baseline hazard all share: against long chains, and who is refused."""

from __future__ import annotations

import json
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.cli.__main__ import main
from fedkern.errors import FedkernError, JobError
from fedkern.methods import load
from support.command import mpirun

ROOT = Path(__file__).parents[3]
REFERENCE = ROOT / "benchmarks" / "results" / "survival_reference.json"
MADE = runpy.run_path(str(ROOT / "benchmarks" / "survival_reference.py"))
federation = MADE["federation"]
JOB = """
[job]
method = "likelihood"
seed = 4
[data]
clients = ["rows/*.csv"]
time = "months"
event = "died"
least_rows = 10
{data}
[model]
family = "{family}"
{model}
"""
SMALL = "[algorithm]\npoints = 1024\neffective = 300\n[output]\ndraws = 100\nchains = 2\n"
KEYS = {
    "weibull": {"data": 'time_upper = "until"', "model": '[model.random]\ngroup = "ward"'},
    "exponential": {"model": '[model.random]\ngroup = "ward"'},
    "piecewise": {"model": "cuts = [6, 12, 24, 48]"},
    "cox": {},
}


def text(family: str, more: str = "", **keys: str) -> str:
    return JOB.format(family=family, **({"data": "", "model": ""} | KEYS[family] | keys)) + more


def written(folder: Path, frames: Mapping[str, pd.DataFrame], job: str) -> Path:
    (folder / "rows").mkdir(parents=True, exist_ok=True)
    for name, frame in frames.items():
        frame.to_csv(folder / "rows" / f"{name}.csv", index=False)
    (folder / "job.toml").write_text(job)
    return folder / "job.toml"


def standard(result: fedkern.Result, kind: str, unit: float) -> dict[str, np.ndarray]:
    """Draws by the reference's names: of standardised columns, and in the model's unit of time."""
    flat = {k: np.asarray(v[1]).ravel() if v[1].ndim == 2 else v[1] for k, v in _posterior(result).items()}
    found = {f"beta[{k}]": flat["theta_std"].reshape(-1, 2)[:, k] for k in range(2)}
    if kind == "cox":
        return found
    shape = flat.get("shape", np.ones(1))
    found["intercept"] = flat["intercept_std"] + shape * np.log(unit)
    if kind == "weibull":
        found["log_shape"] = np.log(shape)
    if "group_sd[intercept]" in flat:
        found["log_group_sd"] = np.log(flat["group_sd[intercept]"])
    if kind == "piecewise":
        hazards = [values for name, values in flat.items() if name.startswith("log_hazard")]
        found |= {f"log_hazard[{k}]": one - flat["intercept"] for k, one in enumerate(hazards, start=1)}
        found["log_walk_sd"] = np.log(flat["walk_sd"])
    return found


def _posterior(result: fedkern.Result) -> dict[str, Any]:
    from fedkern.results.released import Drawing

    return dict(result.posterior.groups(Drawing(result.seed, result.chains, result.n_draws))["posterior"].variables)


ALL = [pytest.param(kind, seed, marks=[] if seed == 1 else pytest.mark.nightly) for kind in KEYS for seed in (1, 2)]


@pytest.mark.parametrize(("kind", "seed"), ALL)
def test_the_posterior_is_that_of_long_chains_over_the_pooled_rows(kind: str, seed: int, tmp_path: Path) -> None:
    """Means within .03 sd and sds within 3 %, and Monte-Carlo errors of both."""
    frames = federation(kind, seed)
    more = "[output]\ndraws = 8000\nchains = 2\n"
    result = fedkern.run(written(tmp_path, frames, text(kind, more)))
    assert result.converged is True, result.summary["why"]
    wanted, found = json.loads(REFERENCE.read_text())[f"{kind} {seed}"], standard(result, kind, MADE["pooled"](frames)["unit"])
    assert set(found) == set(wanted)
    for name, row in wanted.items():
        mean, sd = found[name].mean(), found[name].std()
        error = (1 / row["ess"] + 1 / result.summary["ess"]) ** 0.5
        assert abs(mean - row["mean"]) < (0.03 + 3 * error) * row["sd"], (name, (mean - row["mean"]) / row["sd"])
        assert abs(sd / row["sd"] - 1) < 0.03 + 3 * error, (name, sd / row["sd"])
