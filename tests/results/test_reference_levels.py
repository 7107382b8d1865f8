"""Intercepts and thresholds at reference levels and at 0 of numeric columns, as tables of R have them.

Reference: glm and lm of R 4.2.2, polr of MASS 7.3-58.2 and multinom of nnet, of the 918 rows of heart-failure-prediction.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern as package
from fedkern.cli.report import write
from fedkern.methods.likelihood.predictive import Predictive
from fedkern.models.encoding import Encoding
from fedkern.results.released import Group
from fedkern.results.result import Result
from support import few
from support.found import ids

HEART = Path(os.environ.get("FEDKERN_DATA", ".")) / "heart-failure-prediction" / "heart.csv"
needs_heart = pytest.mark.skipif(not HEART.exists(), reason="needs heart-failure-prediction in the folder FEDKERN_DATA")

ONE = {"intercept": (-4.634893, 0.4811852), "theta[Age]": (0.06653121, 0.008165056), "Sex[M vs F]": (1.641195, 0.1893449)}
TWO = {
    "intercept": (-3.00647, 0.548),
    "theta[Age]": (0.05769157, 0.009347663),
    "Sex[M vs F]": (1.519077, 0.215081),
    "ChestPainType[ATA vs ASY]": (-2.911599, 0.2567612),
    "ChestPainType[NAP vs ASY]": (-1.906406, 0.19668),
    "ChestPainType[TA vs ASY]": (-1.689827, 0.3432567),
}
PRODUCT = {
    "intercept": (-4.204532, 1.04975),
    "theta[Age]": (0.05870555, 0.01888554),
    "theta[Sex[T.M]]": (1.118744, 1.155355),
    "theta[Age:Sex[T.M]]": (0.009578145, 0.02094473),
}
OF_LABELS = {
    "intercept": (-1.708693, 0.2266104),
    "theta[Sex[T.M]]": (1.409246, 0.2483051),
    "theta[ExerciseAngina[T.Y]]": (2.231941, 0.3884447),
    "theta[Sex[T.M]:ExerciseAngina[T.Y]]": (0.07037094, 0.436226),
}
LINEAR = {
    "intercept": (183.4513, 4.729864),
    "theta[Age]": (-0.8838934, 0.07952421),
    "Sex[M vs F]": (-7.445846, 1.828066),
    "ChestPainType[ATA vs ASY]": (15.14559, 2.038301),
    "ChestPainType[NAP vs ASY]": (12.40763, 1.859588),
    "ChestPainType[TA vs ASY]": (18.72756, 3.410523),
}
ORDERED = {
    "theta[Age]": (-0.04598105, 0.007764681),
    "Sex[M vs F]": (-0.3953796, 0.1759221),
    "ExerciseAngina[Y vs N]": (-1.779818, 0.1559217),
    "threshold[Down|Flat]": (-6.600541, 0.4869937),
    "threshold[Flat|Up]": (-3.129741, 0.4388876),
}
NOMINAL = {
    "theta[Normal:intercept]": (3.79475, 0.552819),
    "theta[Normal:Age]": (-0.0541745, 0.0096945),
    "Normal:Sex[M vs F]": (0.271737, 0.202435),
    "theta[ST:intercept]": (-0.387679, 0.695703),
    "theta[ST:Age]": (-0.00235757, 0.0118292),
    "ST:Sex[M vs F]": (0.582559, 0.266357),
}


def run(columns: list[str], response: str, family: str, *, method: str = "likelihood", **keys: Any) -> Result:
    """Three sites of heart.csv; the job's `keys` are tables of it."""
    frame = pd.read_csv(HEART)[[*columns, response]]
    priors = {"prior_sd": 30.0, "intercept_sd": 100.0}
    job: dict[str, Any] = {
        "job": {"method": method},
        "data": {"response": response, **few.ANY, **keys.get("data", {})},
        "model": {"family": family, **priors, **keys.get("model", {})},
        "algorithm": {"effective": 3000} if method == "likelihood" else {},
        "output": keys.get("output", {}),
    }
    return package.run(job, data={f"site-{k}": frame.iloc[k::3] for k in range(3)}, **keys.get("more", {}))


def agree(result: Result, wanted: dict[str, tuple[float, float]], part: float = 0.1, **asked: Any) -> None:
    rows = {row["parameter"]: row for row in result.rows(**asked)}
    for name, (estimate, error) in wanted.items():
        assert rows[name]["mean"] == pytest.approx(estimate, abs=part * error), name
        assert rows[name]["sd"] == pytest.approx(error, rel=0.08), name


@needs_heart
@pytest.mark.parametrize("method", ["likelihood", "pvi"])
def test_a_logistic_table_is_that_of_glm(method: str) -> None:
    priors = {} if method == "likelihood" else {"covariance": "full"}
    for columns, wanted in ((["Age", "Sex"], ONE), (["Age", "Sex", "ChestPainType"], TWO)):
        result = run(columns, "HeartDisease", "bernoulli", method=method, model=priors)
        agree(result, wanted, part=0.12)
        assert [row["parameter"] for row in result.rows()] == [*wanted]
        assert not ids(result) & {"sensitive-to-the-prior", "prior-of-the-model"}


@needs_heart
def test_constants_of_a_column_move_no_intercept_of_the_table() -> None:
    """`intercept` is at 0 of numeric columns, whatever they are centred at, and `intercept_std` at their centres."""
    columns = {"Age": {"center": 40.0, "scale": 10.0}}
    centred = run(["Age", "Sex"], "HeartDisease", "bernoulli", data={"columns": columns})
    agree(centred, ONE, part=0.12)
    at_40 = ONE["intercept"][0] + 40 * ONE["theta[Age]"][0]
    assert centred.parameters["intercept_std"]["mean"] == pytest.approx(at_40, abs=0.05)


@needs_heart
def test_interactions_by_formula_have_glm_s_intercept() -> None:
    for formula, wanted in (("HeartDisease ~ Age * Sex", PRODUCT), ("HeartDisease ~ Sex * ExerciseAngina", OF_LABELS)):
        columns = ["Age", "Sex", "ExerciseAngina"]
        agree(run(columns, "HeartDisease", "bernoulli", model={"formula": formula}), wanted, part=0.15)


@needs_heart
def test_a_linear_table_is_that_of_lm() -> None:
    agree(run(["Age", "Sex", "ChestPainType"], "MaxHR", "gaussian"), LINEAR, part=0.12)


@needs_heart
def test_thresholds_are_those_of_polr_and_intercepts_those_of_multinom() -> None:
    levels = {"levels": ["Down", "Flat", "Up"]}
    ordered = run(["Age", "Sex", "ExerciseAngina"], "ST_Slope", "ordinal", data=levels)
    agree(ordered, ORDERED, part=0.12)
    moved = {row["parameter"]: row["mean"] for row in ordered.rows(reference={"Sex": "M"})}
    there = ORDERED["threshold[Flat|Up]"][0] - ORDERED["Sex[M vs F]"][0]
    assert moved["threshold[Flat|Up]"] == pytest.approx(there, abs=0.06)
    agree(run(["Age", "Sex"], "RestingECG", "multinomial", data={"levels": ["LVH", "Normal", "ST"]}), NOMINAL, part=0.15)


@needs_heart
def test_another_reference_moves_the_intercept_with_the_contrasts(tmp_path: Path) -> None:
    result = run(["Age", "Sex"], "HeartDisease", "bernoulli", more={"out": tmp_path / "out"})
    before, after = ({row["parameter"]: row["mean"] for row in result.rows(reference={"Sex": one})} for one in "FM")
    assert after["Sex[F vs M]"] == -before["Sex[M vs F]"]
    assert after["intercept"] == pytest.approx(before["intercept"] + before["Sex[M vs F]"], abs=0.02)
    assert after["theta[Age]"] == before["theta[Age]"]
    given = run(["Age", "Sex"], "HeartDisease", "bernoulli", data={"columns": {"Sex": {"reference": "M"}}})
    assert {row["parameter"]: row["mean"] for row in given.rows()} == pytest.approx(after, abs=0.05)
    loaded = package.load(tmp_path / "out")
    for again, row in zip(loaded.rows(reference={"Sex": "M"}), result.rows(reference={"Sex": "M"}), strict=True):
        assert again.keys() == row.keys()
        assert all(again[key] == (one if isinstance(one, str) else pytest.approx(one, rel=1e-12)) for key, one in row.items())


@needs_heart
@pytest.mark.parametrize("method", ["likelihood", "pvi"])
def test_draws_predictions_and_pages_have_the_same_coding(method: str, tmp_path: Path) -> None:
    output = {"sites": True} if method == "likelihood" else {}
    covariance = {"covariance": "full"} if method == "pvi" else {}
    columns = ["Age", "Sex", "ChestPainType"]
    result = run(columns, "HeartDisease", "bernoulli", method=method, output=output, model=covariance, more={"out": tmp_path})
    posterior = result.to_arviz()["posterior"]
    slopes = ["Age", "Sex=M", "ChestPainType=ATA", "ChestPainType=NAP", "ChestPainType=TA"]
    assert [str(one) for one in posterior["slope"].values] == slopes
    rows = {row["parameter"]: row for row in result.rows()}
    assert float(posterior["intercept"].mean()) == pytest.approx(rows["intercept"]["mean"], abs=0.05)
    of_men = posterior["theta"].sel(slope="Sex=M")
    assert float(of_men.mean()) == pytest.approx(rows["Sex[M vs F]"]["mean"], abs=0.05)
    # A prediction is that of these coefficients.
    new = pd.DataFrame({"Age": [50, 60], "Sex": ["F", "M"], "ChestPainType": ["ASY", "TA"]})
    linear = result.prediction(new).linear_mean
    theta = {name: row["mean"] for name, row in rows.items()}
    by_hand = [
        theta["intercept"] + 50 * theta["theta[Age]"],
        theta["intercept"] + 60 * theta["theta[Age]"] + theta["Sex[M vs F]"] + theta["ChestPainType[TA vs ASY]"],
    ]
    np.testing.assert_allclose(linear, by_hand, atol=0.03)
    loaded = package.load(tmp_path)
    assert loaded.prediction(new).linear_mean.tolist() == linear.tolist()
    pd.testing.assert_frame_equal(loaded.table(), result.table(), rtol=0, atol=0)
    page = write(tmp_path).read_text(encoding="utf-8")
    assert "Sex[M vs F]" in page
    assert "Sex=F" not in page.partition("The job")[0]
    if method == "likelihood":
        site = result.summary["sites"]["site-0"]
        assert [name for name in site if "_std" not in name] == [*TWO]
        frame = pd.read_csv(HEART).iloc[0::3]
        assert len(frame) == 306
        assert site["intercept"]["sd"] < 3 * TWO["intercept"][1], "its rows tell it, and not the prior"


@needs_heart
def test_a_result_of_all_levels_is_read_as_before() -> None:
    """A posterior.nc that was written with a coefficient of each level predicts what its draws say."""
    encoding = Encoding.from_dict(run(["Age", "Sex"], "HeartDisease", "bernoulli").summary["encoding"])
    theta = np.arange(6.0).reshape(1, 2, 3)
    variables = {"theta": (("chain", "draw", "slope"), theta), "intercept": (("chain", "draw"), np.ones((1, 2)))}
    every = Predictive.of(Group(variables, {"slope": ["Age", "Sex=F", "Sex=M"]}), encoding, "bernoulli", {})
    np.testing.assert_array_equal(every.theta, [[1, 0, 1, 2], [1, 3, 4, 5]])
    fewer = {**variables, "theta": (variables["theta"][0], theta[..., [0, 2]])}
    coded = Predictive.of(Group(fewer, {"slope": ["Age", "Sex=M"]}), encoding, "bernoulli", {})
    np.testing.assert_array_equal(coded.theta, [[1, 0, 0, 2], [1, 3, 0, 5]])
