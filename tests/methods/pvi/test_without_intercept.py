"""Without an intercept columns are as they are in the files: the posterior is that of the pooled rows, through the origin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.errors import JobError
from fedkern.methods import parse
from support.refusal import refusal

SCALE = 2.0


def federation(seed: int = 1) -> dict[str, pd.DataFrame]:
    rng, found = np.random.default_rng(seed), {}
    for k, name in enumerate("abc"):
        age, dose = rng.normal(60 + 2 * k, 12, 120), rng.normal(5, 2, 120)
        kind = rng.choice(["p", "q"], 120)
        y = 10 - 0.1 * age + 0.3 * dose + (kind == "q") + rng.normal(0, SCALE, 120)
        found[name] = pd.DataFrame({"age": age, "dose": dose, "kind": kind, "y": y})
    return found


def run(data: dict[str, pd.DataFrame], **data_keys: Any) -> fedkern.Result:
    model = {"family": "gaussian", "scale": SCALE, "covariance": "full", "prior_sd": 10000.0, "intercept": False}
    tables = {"job": {"method": "pvi", "seed": 1}, "data": {"response": "y", **data_keys}, "model": model}
    return fedkern.run(tables, data=data)


@pytest.mark.parametrize("ignored", [["kind"], []])
@pytest.mark.parametrize("standardise", ["exchange", "none"])
def test_it_is_the_posterior_of_the_pooled_rows(ignored: list[str], standardise: str) -> None:
    data = federation()
    whole = pd.concat([*data.values()], ignore_index=True)
    X = whole[["age", "dose"]].to_numpy()
    names = ["theta[age]", "theta[dose]"]
    if not ignored:
        X = np.column_stack([X, whole.kind == "p", whole.kind == "q"]).astype(float)
        names += ["theta[kind=p]", "theta[kind=q]"]
    best, sds = np.linalg.lstsq(X, whole.y, rcond=None)[0], SCALE * np.sqrt(np.diag(np.linalg.inv(X.T @ X)))
    result = run(data, ignore=ignored, standardise=standardise)
    for name, mean, sd in zip(names, best, sds):
        assert result.parameters[name]["mean"] == pytest.approx(mean, abs=1e-5 * sd), name
        assert result.parameters[name]["sd"] == pytest.approx(sd, rel=1e-5), name
    new = pd.DataFrame({"age": [0.0, 60.0], "dose": [0.0, 5.0], "kind": ["p", "q"]})
    found = result.predict(new)
    at = np.column_stack([new[["age", "dose"]], new.kind == "p", new.kind == "q"]).astype(float)[:, : len(best)]
    assert [*found["mean"]] == pytest.approx([*(at @ best)], abs=1e-4)


def test_a_formula_without_an_intercept_is_the_same_model() -> None:
    pytest.importorskip("formulaic")
    data = federation()
    plain = run(data, ignore=["kind"]).parameters
    model = {"family": "gaussian", "scale": SCALE, "covariance": "full", "prior_sd": 10000.0, "formula": "y ~ 0 + age + dose"}
    by_formula = fedkern.run({"job": {"method": "pvi", "seed": 1}, "model": model}, data=data).parameters
    for name in ("theta[age]", "theta[dose]"):
        assert by_formula[name]["mean"] == pytest.approx(plain[name]["mean"], rel=1e-9)


def private(**columns: dict[str, Any]) -> None:
    parse(
        {
            "job": {"method": "pvi", "rounds": 2},
            "data": {"clients": ["a.csv"], "response": "y", "positive": "1", "columns": {"y": {"levels": ["0", "1"]}, **columns}},
            "model": {"intercept": False},
            "privacy": {"epsilon": 1.0, "delta": 1e-5, "clip": 1.0, "noise_multiplier": 2.0, "sampling_rate": 0.1},
        }
    )


def test_a_private_job_with_centres_and_no_intercept_is_refused_and_its_remedy_is_taken() -> None:
    for age in ({"center": 60, "scale": 10}, {"lower": 0, "upper": 100}):
        with refusal(JobError, "age", "0"):
            private(age={"kind": "numeric", **age})
    private(age={"kind": "numeric", "center": 0, "scale": 60})
    private(age={"kind": "numeric", "lower": -1, "upper": 1})
    private(age={"kind": "numeric", "center": 60, "scale": 10}, sex={"levels": ["f", "m"]})
