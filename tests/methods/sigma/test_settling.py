"""A job with a trained prior says whether its fit still moves: by all of xi, and in one bit of each client."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import fedkern
from support import sigma_artifacts as artifacts

SFVI = {"inference": "sfvi"}


def job(folder, rounds, model=None, output=None, **algorithm):
    artifacts.written(folder / "prior")
    rows = artifacts.counts(folder / "rows", covariate=False)
    return fedkern.run(
        {
            "job": {"method": "sigma", "seed": 3, "rounds": rounds},
            "data": {"clients": [rows], "area": "district", "response": "cases", "exposure": "expected"},
            "model": {"prior": str(folder / "prior"), **(model or {})},
            "algorithm": algorithm,
            "output": output or {},
        },
        out=folder / "run",
    )


def test_a_few_rounds_have_not_converged(tmp_path):
    result = job(tmp_path, 60)
    assert result.converged is False
    assert result.summary["verdict"].startswith("not converged: ")
    assert (tmp_path / "run" / "summary.json").exists()


def test_what_moved_most_has_a_name(tmp_path):
    """The optimiser is on its way, by steps that are small: every party says so."""
    result = job(tmp_path, 240, learning_rate=0.001)
    assert result.converged is False
    names = {"phi", "intercept", "sigma_theta", "z[1]", "z[2]", "z[3]"}
    assert result.summary["worst"] in names
    kept = json.loads((tmp_path / "run" / "client-east" / "areas.json").read_text())
    assert list(kept)[:3] == ["converged", "verdict", "worst"]
    assert all(kept[name] == result.summary[name] for name in ("converged", "verdict", "worst"))
    assert kept["own"]["converged"] is False
    assert kept["own"]["worst"].startswith(("latent ", "area east-"))


@pytest.mark.nightly
def test_what_moves_no_more_has_settled(tmp_path):
    result = job(tmp_path, 2500, model={"phi": 0.5, "spatial_scale": 0.5}, output={"reweigh": False})
    assert result.converged == "settled"
    assert 0 < result.summary["sigma"]["elbo_error"] < 1


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("how", ["train", "build"])
@pytest.mark.parametrize(("rounds", "wanted"), [(60, {False}), (1000, {False}), (5000, {False, "settled"})])
def test_a_fit_of_36_areas_is_never_said_to_be_right(tmp_path, rounds, wanted, how):
    """At 5,000 rounds the intercept's sd moves no more, a quarter below that of NUTS. Weights see it."""

    def command(*words):
        subprocess.run([sys.executable, "-m", "fedkern.cli", *words], cwd=tmp_path, check=True)

    command("simulate", "sigma", "--clients", "4", "--rows", "9", "--out", "sim")
    command("sigma", how, "sim/prior.toml", "--out", "sim/prior")
    assert fedkern.run(tmp_path / "sim" / "job.toml", job={"rounds": rounds}, algorithm=SFVI).converged in wanted
