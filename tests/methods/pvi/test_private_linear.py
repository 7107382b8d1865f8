"""Private linear jobs: what intervals assume of the errors, and what is said where the response's unit is not as declared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.stats import norm

import fedkern
from fedkern.algorithms.pvi.noise_aware import Estimate
from fedkern.methods import load
from fedkern.methods.pvi import linear, linearised
from fedkern.methods.pvi.keys import Config
from fedkern.methods.pvi.model import Model
from fedkern.models.encoding import Column, Encoding
from fedkern.models.expfam import Gaussian
from support.found import ids

SLOPES, LEVEL, ERRORS = (6.0, -3.0), 120.0, 12.0  # of blood pressure on standard columns
NOISE_AWARE = {"posterior": "noise-aware"}
COLUMNS = {name: {"kind": "numeric", "center": 0.0, "scale": 1.0} for name in ("x1", "x2")}
TERMS = {"epsilon": 9.0, "delta": 1e-5, "noise_multiplier": 2.0, "sampling_rate": 0.1, "accountant": "rdp"}
TERMS |= {"noise_source": "keyed"}  # the same noise in each run of the tests
UNKNOWN = "model.scale is not given: intervals are as wide as errors with a standard deviation of 1 in the response's unit"


def frames(unit: float, errors: float) -> dict[str, pd.DataFrame]:
    """Independent columns; blood pressure in this unit, with errors that have this standard deviation in mm Hg."""
    random, found = np.random.default_rng(4), {}
    for name, n in (("a", 1200), ("b", 800)):
        X = random.standard_normal((n, 2))
        pressure = LEVEL + X @ SLOPES + errors * random.standard_normal(n)
        found[name] = pd.DataFrame({"x1": X[:, 0], "x2": X[:, 1], "y": pressure / unit})
    return found


def tables(clip: float, algorithm: dict[str, Any], seed: int = 0, **model: Any) -> dict[str, Any]:
    return {
        "job": {"method": "pvi", "rounds": 30, "seed": seed},
        "data": {"response": "y", "standardise": "public", "columns": COLUMNS},
        "privacy": TERMS | {"clip": clip},
        "algorithm": algorithm,
        "model": {"family": "gaussian", **model},
    }


def ran(clip: float, unit: float = 1.0, errors: float = ERRORS, algorithm: Any = NOISE_AWARE, seed: int = 0, **model: Any) -> Any:
    return fedkern.run(tables(clip, algorithm, seed, **model), data=frames(unit, errors))


def model_of(clip: float, **model: Any) -> Model:
    """What all parties know of the job, before any row is read."""
    job = tables(clip, NOISE_AWARE, **model)
    job["data"]["clients"] = ["a.csv", "b.csv"]
    config, _ = load(job)
    assert isinstance(config, Config)
    return Model(config, ("a", "b"), Encoding(tuple(Column(name, "numeric", None, 0.0, 1.0) for name in COLUMNS), "y"))


def test_a_job_that_does_not_say_how_large_errors_are_is_not_judged() -> None:
    result = ran(5.0, unit=12.0, errors=24.0, intercept_centre=10.0)
    assert result.converged == "not judged"
    assert UNKNOWN in result.summary["verdict"]


def test_q_without_a_scale_is_not_settled_either_and_with_one_says_what_it_stands_on() -> None:
    still = {"damping": 0.3, "learning_rate": 0.005}  # q rests
    without, given = (ran(4.0, unit=12.0, algorithm=still, intercept_centre=10.0, **scale) for scale in ({}, {"scale": 2.0}))
    assert without.converged == "not judged"
    assert UNKNOWN in without.summary["verdict"]
    assert given.converged == "settled"
    assert "errors are taken to have a standard deviation of 2 in the response's unit" in given.summary["verdict"]


# Blood pressure: each remedy is followed to its end ----


def held(result: Any, unit: float) -> bool:
    """Whether all coefficients are within three of their standard deviations of the truth."""
    truth = {"intercept": LEVEL, "theta[x1]": SLOPES[0], "theta[x2]": SLOPES[1]}
    rows = result.summary["parameters"]
    return all(abs(rows[name]["mean"] - value / unit) < 3 * rows[name]["sd"] for name, value in truth.items())


def test_the_cause_is_the_unit_and_not_the_columns_and_the_remedy_ends_in_a_right_result() -> None:
    """Columns are independent; before, the cause that was named were correlated columns, or epsilon."""
    for clip, given, cause in (
        (2.2, {}, "model.scale is not given"),
        (2.2, {"scale": 1.0}, "the intercept is far from its prior (model.intercept_centre is not given, which is 0, sd 1)"),
        (4.0, {"scale": 12.0, "intercept_centre": 120.0}, "divide the response by 12 in all files"),
        (5.0, {"scale": 1.0, "intercept_centre": 120.0}, "the clip cuts more rows than errors of model.scale = 1"),
    ):
        result = ran(clip, **given)
        assert result.converged == "not judged"
        assert cause in result.summary["verdict"]
        assert "correlated" not in result.summary["verdict"]
        assert "raise epsilon" not in result.summary["verdict"]
    told = ran(4.0, scale=12.0, intercept_centre=120.0).summary["verdict"]
    assert "give model.scale = 1, model.intercept_centre = 10 and privacy.clip = 4.3" in told
    obeyed = ran(4.3, unit=12.0, scale=1.0, intercept_centre=10.0)
    assert obeyed.converged == "settled"
    assert "errors are taken to have a standard deviation of 1 in the response's unit" in obeyed.summary["verdict"]
    assert held(obeyed, 12.0)
    assert len(obeyed.notes) == 1
    assert "nobody-compared-clients" in ids(obeyed)


def test_clips_and_units_that_make_intervals_wider_than_need_be_are_named() -> None:
    (note,) = linear.notes(model_of(60.0, scale=1.0))
    assert "clip = 60 of client 'a' is 35 times as long as a row's gradient, about 1.7 (a row) / 1 (model.scale)" in note
    assert "privacy.clip = 4.3 is enough" in note
    (note,) = linear.notes(model_of(0.1, scale=4.0))
    assert "clip = 0.1 of client 'a' cuts nearly all rows" in note
    (note,) = linear.notes(model_of(433.0, scale=0.01))
    assert "divide the response by it in all files, and give model.scale = 1 and privacy.clip = 4.3" in note
    assert linear.notes(model_of(4.3, scale=1.0)) == []


# How large errors are, by what the clip does ----


@pytest.mark.parametrize("clip", [0.1, 0.5, 1.0, 2.5, 6.0])
def test_the_share_of_the_curvature_that_is_left_is_that_of_normal_errors(clip: float) -> None:
    factor = quad(lambda z: min(1.0, clip / abs(z)) * norm.pdf(z), -10, 10, points=[-clip, 0.0, clip])[0]
    assert linear.kept(clip) == pytest.approx((2 * norm.cdf(clip) - 1) / factor, rel=1e-6)


def test_errors_that_are_larger_than_the_job_file_says_are_told_by_what_the_clip_cuts() -> None:
    model = model_of(4.33, scale=1.0)
    q = Gaussian.from_moments(np.zeros(3), np.eye(3))
    right = Estimate(q, np.zeros(3), np.zeros(3), 2.0, np.eye(3), linear.kept(2.5), 0.03)
    assert linear.of_errors(model, right) == ""
    assert "as if they were about 3 times as large" in linear.of_errors(model, replace(right, uncut=linear.kept(2.5 / 3)))
    assert linear.of_errors(model, replace(right, uncut=linear.kept(2.5 / 3), uncut_error=0.3)) == ""
    assert "over 20 times as large" in linear.of_errors(model, replace(right, uncut=0.0))
    early = np.array([0.5, 0.2, 0.1])  # points far away have larger residuals too
    assert linear.of_errors(model, replace(right, uncut=linear.kept(1.6), roamed=early)) == ""
    assert "as if they were about 3" in linearised.doubt(model, replace(right, uncut=linear.kept(2.5 / 3)), q.mean)


def test_a_run_tells_errors_of_four_times_the_scale_from_those_that_are_as_said() -> None:
    large = ran(4.3, unit=12.0, errors=4 * ERRORS, scale=1.0, intercept_centre=10.0)
    assert large.converged == "not judged"
    assert "the clip cuts more rows than errors of model.scale = 1 would have it cut" in large.summary["verdict"]
    right = ran(4.3 / 4, unit=12.0, errors=4 * ERRORS, scale=4.0, intercept_centre=10.0)
    assert right.converged == "settled"
    assert held(right, 12.0)
