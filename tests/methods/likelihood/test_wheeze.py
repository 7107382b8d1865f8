"""Wheeze of 537 children in six cities against the posterior that was found by dense quadrature, one group a child."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedkern

DATA = Path(os.environ.get("FEDKERN_DATA", "?")) / "six-cities-wheeze" / "ohio.csv"
# beta ~ N(0, 2.5^2) on raw columns, tau ~ HalfNormal(1): means and sds, known to 1 % of an sd
TRUTH = {
    "intercept": (-3.094, 0.2166),
    "theta[age]": (-0.2125, 0.0863),
    "theta[smoke]": (0.4395, 0.2814),
    "theta[both]": (0.103, 0.1388),
}
LOG_TAU, EVIDENCE = (0.756, 0.0822), -813.19


@pytest.mark.skipif(not DATA.exists(), reason="needs FEDKERN_DATA")
def test_four_clients_find_the_posterior_of_all_children() -> None:
    rows = pd.read_csv(DATA)
    rows["both"] = rows.age * rows.smoke
    job = {
        "job": {"method": "likelihood", "seed": 1},
        "data": {"response": "resp", "standardise": "none"},
        "model": {
            "random": {"group": "id"},
            "intercept_sd": 2.5,
            "intercept_centre": 0.0,
            "priors": {"group_sd[intercept]": {"kind": "half-normal", "sd": 1.0}},
        },
    }
    result = fedkern.run(job, data={f"city{k}": rows[rows.id % 4 == k] for k in range(4)})
    for name, (mean, sd) in TRUTH.items():
        found = result.parameters[name]
        assert found["mean"] == pytest.approx(mean, abs=0.04 * sd), name
        assert found["sd"] == pytest.approx(sd, rel=0.04), name
    draws = np.log(result.posterior.marginal("group_sd[intercept]").draws)  # type: ignore[union-attr]
    assert draws.mean() == pytest.approx(LOG_TAU[0], abs=0.06 * LOG_TAU[1])
    assert draws.std() == pytest.approx(LOG_TAU[1], rel=0.06)
    assert result.summary["log_evidence"]["value"] == pytest.approx(EVIDENCE, abs=0.04)
    assert result.converged is True
    assert result.summary["rounds_to_mode"] + result.summary["rounds_of_draws"] <= 14
    assert sum(way["bytes"] for ways in result.summary["wire"].values() for way in ways.values()) < 2e6
