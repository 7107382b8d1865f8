"""Draws of predictions, hypotheses, means at chosen values, groups for ArviZ, and figures, beside R's numbers.

R 4.2.2 (stats) has them of the same rows: predict(lm(z ~ age * sex + stage)), averaged over stages with `tapply`, its interval
of a new observation at 55, m, II; predict(glm(y ~ age + sex, binomial)), and pnorm of a coefficient over its standard error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("formulaic", reason='formulaic is not installed: pip install "fedkern[formula]"')

import fedkern
from fedkern.errors import JobError
from fedkern.results.result import Result

I = np.arange(120)  # noqa: E741
AGE, SEX = 40 + (I * 37 % 101) / 2.5, np.where(I % 2 == 0, "f", "m")
STAGE = np.array(["I", "II", "III"])[I // 2 % 3]
ROWS = pd.DataFrame(
    {
        "age": AGE,
        "sex": SEX,
        "stage": STAGE,
        "z": 1 + 0.05 * AGE + (SEX == "m") * 0.5 + (STAGE == "II") * 0.3 + np.sin(13 * I),
        "y": (I * 29 % 97 / 97 < 1 / (1 + np.exp(-0.04 * (AGE - 60)))).astype(int),
        "k": (I * 7 % 5) // 1,
        "site": np.array(["a", "b"])[I // 60],
    }
)
GLM, P_OF_R = [0.35045408, 0.43537469, 0.46550438, 0.55450418], 0.9327828
WIDE = {"prior_sd": 30.0, "intercept_sd": 30.0}
NEW = pd.DataFrame({"age": [55.0], "sex": ["m"], "stage": ["II"]})


@pytest.fixture(scope="module")
def linear() -> Result:
    return fedkern.fit("z ~ age * sex + stage", ROWS, by="site", priors=WIDE, output={"sites": True})


def test_a_column_behind_a_logarithm_is_where_that_is_at_its_mean() -> None:
    found = fedkern.fit("z ~ log(age) + sex", ROWS, by="site", priors=WIDE)
    (low, high), at_mean = found.effects(by="sex")["mean"], float(np.exp(np.log(AGE).mean()))
    X = np.column_stack([np.ones(120), np.log(AGE), SEX == "m"])
    b = np.linalg.lstsq(X, ROWS["z"].to_numpy(), rcond=None)[0]
    np.testing.assert_allclose([low, high], [b[0] + b[1] * np.log(at_mean), b[0] + b[1] * np.log(at_mean) + b[2]], atol=0.03)


def test_survival_times_have_no_scores_and_that_is_said() -> None:
    rows = ROWS.assign(died=ROWS["y"])
    found = fedkern.fit("Surv(age, died) ~ sex", rows, "weibull", by="site", output={"survival_at": [50.0]})
    with pytest.raises(JobError, match="survival times have no scores"):
        found.scores(rows)


@pytest.fixture(scope="module")
def logistic() -> Result:
    return fedkern.fit("y ~ age + sex", ROWS, by="site", priors=WIDE)


def test_means_at_chosen_values_are_those_of_r(linear: Result, logistic: Result) -> None:
    found = linear.effects(age=[40, 60], by="sex")
    assert list(zip(found["age"], found["sex"])) == [(40, "f"), (40, "m"), (60, "f"), (60, "m")]
    np.testing.assert_allclose(found["mean"], [3.0132549, 3.4777525, 4.1129595, 4.6282747], atol=0.03)
    assert (found["q025"] < found["mean"]).all()
    chances = logistic.effects(age=[40, 60], by="sex")
    np.testing.assert_allclose(chances["mean"], GLM, atol=0.02)  # the mean of chances, and the chance at the mode
    fixed = linear.effects(age=55, sex="m", stage="II")
    assert abs(fixed["mean"][0] - 4.5446842) < 0.03


def test_a_new_observation_has_the_interval_of_r(linear: Result) -> None:
    prediction = linear.prediction(NEW)
    assert prediction.draws.shape == prediction.responses.shape == (1000, 1)
    assert abs(prediction.draws.mean() - prediction.mean[0]) < 1e-9
    np.testing.assert_allclose(prediction.interval(), [[3.0943561, 5.9950124]], atol=0.15)
    narrow = prediction.interval(0.5)
    assert prediction.interval()[0, 0] < narrow[0, 0] < narrow[0, 1] < prediction.interval()[0, 1]


def test_draws_of_rows_without_a_prediction_are_empty(linear: Result) -> None:
    rows = pd.concat([NEW, NEW.assign(age=np.nan)])
    draws = linear.prediction(rows).draws
    assert np.isnan(draws).any(axis=0).tolist() == [False, True]


def test_responses_of_every_kind_are_such_as_were_seen() -> None:
    counts = fedkern.fit("k ~ age", ROWS, by="site").prediction(NEW)
    assert (counts.responses == np.floor(counts.responses)).all()
    assert (counts.interval() == np.floor(counts.interval())).all()
    levels = fedkern.fit("stage ~ age", ROWS, by="site")
    prediction = levels.prediction(NEW)
    np.testing.assert_allclose(prediction.draws.sum(axis=2), 1)
    np.testing.assert_allclose(prediction.draws.mean(axis=0), prediction.mean)
    assert set(np.unique(prediction.responses)) == {0.0, 1.0, 2.0}
    assert list(levels.effects(age=[40, 60])["level"]) == ["I", "II", "III"] * 2
    ordered = ROWS.assign(stage=pd.Categorical(STAGE, ["III", "I", "II"], ordered=True))
    chances = fedkern.fit("stage ~ age", ordered, by="site").prediction(NEW)
    np.testing.assert_allclose(chances.draws.mean(axis=0), chances.mean)
    shares = [(chances.responses == level).mean() for level in range(3)]
    np.testing.assert_allclose(shares, chances.mean[0], atol=0.05)


@pytest.mark.parametrize(
    ("family", "more"), [("weibull", {}), ("exponential", {}), ("piecewise", {"cuts": [4.0]}), ("weibull", {"group": "stage"})]
)
def test_times_have_draws_of_their_restricted_mean_and_new_times(family: str, more: dict[str, Any]) -> None:
    times, formula = ROWS.assign(t=1 + ROWS.z), "Surv(t, y) ~ age"
    if more.pop("group", None):
        formula += " + (1 | stage)"
    asked = {"restricted_mean": 6.0, "survival_at": [3.0, 5.0]}
    result = fedkern.fit(formula, times, family, by="site", output=asked, model=more)
    prediction = result.prediction(pd.concat([NEW, NEW.assign(age=70.0), NEW.assign(age=np.nan)]))
    np.testing.assert_allclose(prediction.draws.mean(axis=0)[:2], prediction.mean[:2], rtol=1e-9)
    new = prediction.responses[:, :2]
    np.testing.assert_allclose(np.minimum(new, 6.0).mean(axis=0), prediction.mean[:2], atol=0.25)
    for t in (3.0, 5.0):
        np.testing.assert_allclose((new > t).mean(axis=0), prediction.more[f"survival[{t:g}]"][:2], atol=0.065)
    assert np.isnan(prediction.draws[:, 2]).all()
    assert list(result.effects(age=[50, 70])["age"]) == [50, 70]
    without = fedkern.fit(formula, times, family, by="site", output={"survival_at": [3.0]}, model=more)
    with pytest.raises(JobError, match="restricted_mean"):
        without.prediction(NEW).draws  # noqa: B018


def test_of_an_offset_that_is_calculated_its_column_is_asked_for() -> None:
    counts = ROWS.assign(days=1 + ROWS.z, n=np.arange(len(ROWS)) % 5)
    result = fedkern.fit("n ~ age + offset(log(days))", counts, "poisson", by="site")
    with pytest.raises(JobError, match="nothing tells at which value of days; give one, such as days=1"):
        result.effects(age=50)
    of_one, of_ten = result.effects(age=50, days=[1, 10])["mean"]
    assert of_ten == pytest.approx(10 * of_one, rel=1e-12)


def test_pvi_has_draws_too() -> None:
    clients = {name: rows[["age", "sex", "y"]] for name, rows in ROWS.groupby("site")}
    result = fedkern.run({"job": {"method": "pvi"}, "data": {"response": "y"}}, data=clients)
    prediction = result.prediction(NEW)
    assert abs(prediction.draws.mean() - prediction.mean[0]) < 0.01
    assert set(np.unique(prediction.responses)) == {0.0, 1.0}
    assert "sex[m vs f]" in result.to_arviz().posterior


def test_hypotheses_have_the_probability_of_r(logistic: Result, linear: Result) -> None:
    found = logistic.hypothesis("age > 0")
    assert abs(found["probability"] - P_OF_R) < 0.01  # a posterior is no normal about the mode
    row = logistic.parameters["theta[age]"]
    assert abs(found["mean"] - row["mean"]) < 0.05 * row["sd"]
    both = linear.hypothesis("stage[T.II] < stage[T.III]")
    assert both["probability"] == pytest.approx(1 - linear.hypothesis("stage[T.II] > stage[T.III]")["probability"])
    assert linear.hypothesis("exp(theta[age]) - 1 > 0")["probability"] == linear.hypothesis("age > 0")["probability"]
    assert linear.hypothesis("age + 10*age:sex[T.m] > -100")["probability"] == 1


@pytest.mark.parametrize("text", ["age = 0", "age == 0", "aage > 0", "age", "1 > age > 0", "__import__('os') > 0", "1 > 0"])
def test_what_is_no_hypothesis_is_refused(text: str, logistic: Result) -> None:
    with pytest.raises(JobError):
        logistic.hypothesis(text)


@pytest.mark.parametrize("asked", [{"by": "age"}, {"dose": 3}, {"by": ["sex", "ward"]}])
def test_what_is_no_column_is_refused(asked: dict[str, Any], logistic: Result) -> None:
    with pytest.raises(JobError):
        logistic.effects(**asked)


@pytest.mark.parametrize("unit", [1.0, 1000.0])
def test_arviz_has_sums_of_clients_and_new_responses(unit: float) -> None:
    rows = ROWS.assign(z=unit * ROWS.z)
    groups = fedkern.fit("z ~ age * sex + stage", rows, by="site").to_arviz(NEW)
    sums = groups.log_likelihood["client_rows"]
    assert sums.dims == ("chain", "draw", "client")
    assert [str(name) for name in sums.client.values] == ["a", "b"]
    assert groups.posterior_predictive["z"].shape == (1, 1000, 1)
    # By numpy, at the first draw. Clients told values that are rounded.
    draw = {name: groups.posterior[name].values for name in ("intercept", "theta", "sigma")}
    at = dict(zip(map(str, groups.posterior.slope.values), draw["theta"][0, 0]))
    mean = draw["intercept"][0, 0] + at["age"] * AGE + at["sex[T.m]"] * (SEX == "m") + at["stage[T.II]"] * (STAGE == "II")
    mean = mean + at["stage[T.III]"] * (STAGE == "III") + at["age:sex[T.m]"] * AGE * (SEX == "m")
    sigma = draw["sigma"][0, 0]
    own = -0.5 * ((rows.z - mean) / sigma) ** 2 - np.log(sigma) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(sums.values[0, 0], own.groupby(ROWS.site).sum(), atol=0.1)


def test_arviz_has_no_sums_that_no_client_has_told() -> None:
    many = pd.concat([ROWS] * 200).assign(z=lambda rows: rows.z + np.sin(7 * np.arange(len(rows))))
    ended = fedkern.fit("z ~ age + sex", many, by="site", priors=WIDE)
    assert ended.summary["rounds_of_draws"] == 1  # by one net, and quadratics for all other draws
    assert not hasattr(ended.to_arviz(), "log_likelihood")


def test_figures_are_those_of_the_report(linear: Result, logistic: Result) -> None:
    pytest.importorskip("matplotlib")
    assert [text.get_text() for text in linear.plot().get_yticklabels()][-1] == "age:sex[T.m]"
    assert len(linear.plot("sites")) == 6
    assert linear.plot("predictive").get_ylabel() == "share of rows"
    assert logistic.plot("predictive").get_xlabel() == "predicted probability"
    lines = logistic.plot("effects", age=[40, 50, 60], by="sex").get_lines()
    assert [line.get_label() for line in lines] == ["sex f", "sex m"]
    assert list(logistic.plot("effects", by="sex").get_xticklabels()[0].get_text()) == ["f"]


def test_curves_chains_and_test_rows_are_drawn_where_they_are() -> None:
    pytest.importorskip("matplotlib")
    job = {"algorithm": {"sampler": "hmc"}, "test": ROWS}
    chains = fedkern.fit("y ~ age + sex", ROWS, by="site", **job)
    assert len(chains.plot("trace")) == 3
    assert chains.plot("calibration").get_ylabel() == "observed frequency"
    times = ROWS.assign(t=1 + ROWS.z)
    asked = {"output": {"survival_at": [1.0, 5.0, 8.0]}}
    assert fedkern.fit("Surv(t, y) ~ age", times, "weibull", by="site", **asked).plot("survival").get_xlabel() == "time"


@pytest.mark.parametrize("kind", ["survival", "map", "trace", "calibration", "sites", "effects", "pie"])
def test_a_figure_that_is_not_there_is_refused_by_name(kind: str, logistic: Result) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(JobError) as fault:
        logistic.plot(kind)
    assert repr(kind) in str(fault.value) or f'"{kind}"' in str(fault.value)


def test_a_result_without_draws_has_none_to_ask(tmp_path: Any) -> None:
    fedkern.fit("y ~ age", ROWS, by="site", out=tmp_path / "run")
    (tmp_path / "run" / "posterior.nc").unlink()
    result = fedkern.load(tmp_path / "run")
    for ask in (lambda: result.hypothesis("age > 0"), lambda: result.plot("trace"), lambda: result.effects(age=[40, 60])):
        with pytest.raises(JobError):
            ask()
