"""An open linear job whose `model.scale` is not its residuals' standard deviation says so before anything else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedkern


def rows(n: int, seed: int, sd: float) -> Any:
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, 3)) * [1, 5, 0.1]
    return X, 10 + X @ [2.0, 0.4, -3.0] + sd * random.standard_normal(n)


def fitted(sd: float, covariance: str, **model: Any) -> Any:
    tables = {"job": {"method": "pvi", "rounds": 25}, "data": {"response": "y"}}
    tables["model"] = {"family": "gaussian", "covariance": covariance, "prior_precision": 1e-6, **model}
    return fedkern.run(tables, data={"a": rows(120, 1, sd), "b": rows(60, 2, sd)})


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("sd", [468.0, 5.0, 0.2])
def test_residuals_of_another_size_are_named_with_the_scale_to_set(sd: float, covariance: str) -> None:
    result = fitted(sd, covariance, scale=1.0)
    assert result.converged is False
    assert result.summary["verdict"].endswith('set model.scale = "learn"')
    said = float(result.summary["verdict"].split("standard deviation of about ")[1].split(",")[0])
    pooled = np.concatenate([rows(120, 1, sd)[0], rows(60, 2, sd)[0]]), np.concatenate([rows(120, 1, sd)[1], rows(60, 2, sd)[1]])
    X = np.column_stack([np.ones(180), pooled[0]])
    residuals = pooled[1] - X @ np.linalg.lstsq(X, pooled[1], rcond=None)[0]
    assert said == pytest.approx(residuals.std(), rel=0.03)
    again = fitted(sd, covariance, scale=said)
    assert "model.scale" not in again.summary["verdict"]
    learnt = fitted(sd, covariance)
    assert learnt.summary["scale"] == pytest.approx(said, rel=0.03)
    assert "model.scale" not in learnt.summary["verdict"]


def test_the_right_scale_and_other_families_have_nothing_to_say() -> None:
    assert fitted(1.0, "full", scale=1.0).converged == "settled"
    assert "model.scale" not in fitted(1.0, "diagonal", scale=1.0).summary["verdict"]


@pytest.mark.parametrize("algorithm", [{"schedule": "synchronous"}, {"damping": 0.5}])
@pytest.mark.parametrize("reweigh", [True, False])
def test_sites_on_their_way_do_not_make_residuals_look_larger(algorithm: dict[str, Any], reweigh: bool) -> None:
    """They lack a part of the rows' precision, from which nobody may tell how many rows there are."""
    tables = {"job": {"method": "pvi"}, "data": {"response": "y"}, "model": {"family": "gaussian"}, "algorithm": algorithm}
    tables["output"] = {"reweigh": reweigh}
    data = {"a": rows(120, 1, 12.0), "b": rows(60, 2, 12.0)}
    result = fedkern.run(tables, data=data)
    assert result.converged == "settled", result.summary["verdict"]
    wrong = fedkern.run({**tables, "model": {"family": "gaussian", "scale": 8.0}}, data=data)
    assert "residuals have a standard deviation of about 1" in wrong.summary["verdict"]
