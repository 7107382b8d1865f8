"""Jobs whose errors have a standard deviation that depends on columns (`model.sigma`), beside quadrature, gls and glmmTMB."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import fedkern
from fedkern.cli.__main__ import main
from fedkern.errors import FedkernError, JobError
from fedkern.methods.likelihood import scales
from fedkern.models.mixed import Layout, predictive
from fedkern.models.mixed.conditional import density, predictor
from fedkern.models.mixed.scaled import Scaled
from support.found import said

JOB: dict[str, Any] = {
    "job": {"method": "likelihood", "seed": 4},
    "data": {"response": "y"},
    "model": {"family": "gaussian", "sigma": "~ x + s"},
}
BOTH = pytest.mark.parametrize("family", scales.FAMILIES)


def federation(rows: int = 400, df: int | None = None) -> dict[str, pd.DataFrame]:
    """Rows of three clients: log sigma is -1 + .03 x + .5 of m."""
    generator, found = np.random.default_rng(3), {}
    for name in ("ada", "bo", "cy"):
        x, z = 50 + 10 * generator.standard_normal(rows), generator.standard_normal(rows)
        s = generator.choice(["f", "m"], rows)
        errors = generator.standard_normal(rows) if df is None else generator.standard_t(df, rows)
        y = 3 + 0.2 * x - 0.5 * z + (s == "m") + np.exp(-1 + 0.03 * x + 0.5 * (s == "m")) * errors
        found[name] = pd.DataFrame({"x": x, "z": z, "s": s, "y": y})
    return found


def job(**keys: dict[str, Any]) -> dict[str, Any]:
    made = copy.deepcopy(JOB)
    for section, content in keys.items():
        made[section] = {**made.get(section, {}), **content}
    return made


@pytest.fixture(scope="module")
def whole() -> fedkern.Result:
    return fedkern.run(job(output={"loo": True, "sites": True}), data=federation())


# Rows --------------------


def rows_of(family: str, given: tuple[float, ...] = (), n: int = 30) -> Scaled:
    generator = np.random.default_rng(5)
    named = [scales.Scale(scales.name_of(f"x{k}"), k, 0.0, 1.0) for k in (1, 2)]
    shapes = scales.shapes_of(family, named)
    layout = Layout(("intercept", "x1", "x2"), family, own=shapes[: len(shapes) - len(given)], given=given)
    X = np.column_stack([np.ones(n), generator.standard_normal((n, 2))])
    return Scaled(layout, X, generator.standard_normal(n), np.array([0, n]), scales=(1, 2))


@pytest.mark.parametrize(("family", "given"), [("gaussian", ()), ("student", ()), ("student", (np.log(5.0),))])
def test_derivatives_are_those_of_the_density_of_rows_with_their_own_sigma(family: str, given: tuple[float, ...]) -> None:
    rows = rows_of(family, given)
    points = 0.4 * np.random.default_rng(6).standard_normal((3, rows.size))
    sd = np.exp(points[:, 3:6] @ np.column_stack([np.ones(len(rows)), rows.X[:, 1:]]).T)
    means = points[:, :3] @ rows.X.T
    df = np.exp(np.full((3, 1), given[0]) if given else points[:, -1:])
    law = stats.norm(means, sd) if family == "gaussian" else stats.t(df, means, sd)
    np.testing.assert_allclose(rows.values(points, 1), law.logpdf(rows.y).sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(density(rows, predictor(rows, points), points), law.logpdf(rows.y), rtol=1e-11)
    _, gradient, hessian = rows.curvature(points, 1)
    for j in range(rows.size):
        step = 1e-5 * np.eye(rows.size)[j]
        (high, slope_high, _), (low, slope_low, _) = (rows.curvature(points + sign * step, 1) for sign in (1, -1))
        np.testing.assert_allclose((high - low) / 2e-5, gradient[:, j], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose((slope_low - slope_high) / 2e-5, hessian[:, j], rtol=1e-6, atol=1e-6)


def test_parts_of_the_rows_add_up_and_responses_are_drawn_with_the_sigma_of_their_rows() -> None:
    rows = rows_of("gaussian", n=4000)
    point = np.array([[0.0, 0.0, 0.0, -1.0, 1.0, 0.5]])
    rows = replace(rows, y=np.exp(-1 + rows.X[:, 1] + 0.5 * rows.X[:, 2]) * np.random.default_rng(1).standard_normal(4000))
    halves = [rows.of_units(part) for part in (slice(0, 1500), slice(1500, 4000))]
    np.testing.assert_allclose(sum(half.values(point, 1) for half in halves), rows.values(point, 1), rtol=1e-12)
    sums = predictive.sums(rows, np.repeat(point, 200, axis=0), key=1)
    assert (abs(sums.p_values[:2] - 0.5) < 0.49).all()
    assert abs(sums.replicated[:, 1].mean() / (rows.scale(point) ** 2).sum() - 1) < 0.05
    np.testing.assert_allclose(sums.tenths[:, 0] / 4000, 0.1, atol=0.02)


# Jobs --------------------


def test_the_posterior_is_that_of_quadrature(whole: fedkern.Result) -> None:
    """Coefficients of the mean are normal given those of log sigma, over which a grid adds up: .03 sd and 3 %."""
    frame = pd.concat(federation().values())
    y, x, z = (frame[name].to_numpy(np.float64) for name in ("y", "x", "z"))
    m = (frame.s == "m").to_numpy(np.float64)
    level, unit = y.mean(), y.std()
    response, a, b = (y - level) / unit, (x - x.mean()) / x.std(), (z - z.mean()) / z.std()
    # One level each of s has a coefficient: that of f and of m, beside the intercept.
    X, prior = np.column_stack([np.ones(len(y)), a, b, 1 - m, m]), np.diag([1 / 25, *[1 / 2.5**2] * 4])
    centre = np.array([whole.parameters[name]["mean"] for name in ("sigma[x]", "sigma[s=m]")])
    sds = np.array([whole.parameters[name]["sd"] for name in ("sigma[x]", "sigma[s=m]")])
    first = whole.parameters["sigma[intercept]"]["mean"] + centre[0] * x.mean() - np.log(unit)
    grid = np.linspace(-5.5, 5.5, 17)
    numbers, logs = [], []
    for u in grid * 0.05:  # log sigma where x has its mean, of f
        for v in grid:
            for w in grid:
                g0, gx, gm = first + u, (centre[0] + v * sds[0]) * x.std(), centre[1] + w * sds[1]
                log_sd = g0 + gx * a + gm * m
                weighed = X * np.exp(-2 * log_sd)[:, None]
                precision = weighed.T @ X + prior
                mean = np.linalg.solve(precision, weighed.T @ response)
                log = -log_sd.sum() - 0.5 * np.linalg.slogdet(precision)[1]
                log += -0.5 * (response @ (response * np.exp(-2 * log_sd)) - mean @ precision @ mean)
                log += -0.5 * np.exp(2 * g0) + g0 - 0.5 * (gx**2 + gm**2) / 2.5**2
                covariance = np.linalg.inv(precision)
                slope, spread = mean[1] * unit / x.std(), np.sqrt(covariance[1, 1]) * unit / x.std()
                contrast = np.array([0, 0, 0, -1.0, 1.0])
                of_m = contrast @ mean * unit
                numbers.append([g0 + np.log(unit) - gx * x.mean() / x.std(), gx / x.std(), gm, slope, spread, of_m])
                numbers[-1].append(np.sqrt(contrast @ covariance @ contrast) * unit)
                logs.append(log)
    weights, values = np.exp(np.array(logs) - max(logs)), np.array(numbers)
    weights /= weights.sum()
    means = weights @ values[:, [0, 1, 2, 3, 5]]
    within = np.zeros((len(values), 5))
    within[:, 3:] = values[:, [4, 6]] ** 2
    found = np.sqrt(weights @ (within + (values[:, [0, 1, 2, 3, 5]] - means) ** 2))
    names = ("sigma[intercept]", "sigma[x]", "sigma[s=m]", "theta[x]")
    own = [(whole.parameters[name]["mean"], whole.parameters[name]["sd"]) for name in names]
    own.append(tuple(whole.summary["contrasts"]["s[m vs f]"][key] for key in ("mean", "sd")))
    error = max(whole.summary["monte_carlo_error"].values())
    for (mean_of, sd_of), mean, sd in zip(own, means, found, strict=True):
        assert abs(mean_of - mean) < (0.03 + 2 * error) * sd
        assert abs(sd_of / sd - 1) < 0.03 + 2 * error


def test_estimates_are_those_of_gls_and_glmmtmb(whole: fedkern.Result) -> None:
    """nlme 3.1.162: gls(y ~ x + z + s, weights = varComb(varExp(form = ~ x), varIdent(form = ~ 1 | s)), method = "ML");
    glmmTMB 1.1.5: glmmTMB(y ~ x + z + s, dispformula = ~ x + s), whose dispersion is log sigma^2; t_family() of errors t(4)."""
    ours = {"intercept": 3.06316294, "theta[x]": 0.20043956, "theta[z]": -0.51047197}
    ours |= {"sigma[intercept]": np.log(0.3820123), "sigma[x]": 0.02856027, "sigma[s=m]": np.log(1.67557187)}
    assert whole.converged
    for name, estimate in ours.items():
        assert abs(whole.parameters[name]["mean"] - estimate) < 0.15 * whole.parameters[name]["sd"], name
    assert abs(whole.parameters["sigma[x]"]["sd"] / (0.004231410 / 2) - 1) < 0.06
    robust = fedkern.run(job(model={"family": "student"}), data=federation(df=4))
    theirs = {"theta[x]": 0.1963, "sigma[intercept]": -0.95014, "sigma[x]": 0.02879, "sigma[s=m]": 0.61000}
    for name, estimate in theirs.items():  # nu, which they have at its mode, has a long tail here
        assert abs(robust.parameters[name]["mean"] - estimate) < 0.2 * robust.parameters[name]["sd"], name
    assert abs(robust.parameters["nu"]["mean"] - 4.339672) < robust.parameters["nu"]["sd"]


def test_rows_are_foreseen_with_their_own_sigma(
    whole: fedkern.Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frames = federation()
    plain = fedkern.run(job(model={"sigma": None}, output={"loo": True}), data=frames)
    assert whole.summary["loo"]["elpd"] > plain.summary["loo"]["elpd"] + 50
    rows = pd.DataFrame({"x": [30.0, 30.0, 70.0, 70.0], "z": [0.0] * 4, "s": ["f", "m"] * 2})
    low, high = whole.prediction(rows).interval().T
    sigma = np.exp(-1 + 0.03 * rows.x + 0.5 * (rows.s == "m")).to_numpy()
    np.testing.assert_allclose((high - low) / (2 * 1.96 * sigma), 1.0, atol=0.15)
    test = federation()["bo"].tail(200)
    scores = whole.prediction(test).scores
    at = {name: whole.parameters[name]["mean"] for name in ("intercept", "theta[x]", "theta[z]")}
    of_m = whole.summary["contrasts"]["s[m vs f]"]["mean"] * (test.s == "m")
    mean = at["intercept"] + at["theta[x]"] * test.x + at["theta[z]"] * test.z + of_m
    numbers = [whole.parameters[name]["mean"] for name in ("sigma[intercept]", "sigma[x]", "sigma[s=m]")]
    sd = np.exp(numbers[0] + numbers[1] * test.x + numbers[2] * (test.s == "m"))
    assert abs(scores["log_likelihood"] - stats.norm.logpdf(test.y, mean, sd).mean()) < 0.01
    held = fedkern.run(job(data={"test": None}), data=frames, test=test, out=tmp_path / "out")
    assert abs(held.metrics["log_likelihood"] - scores["log_likelihood"]) < 0.01
    rows.to_csv(tmp_path / "rows.csv", index=False)
    assert main(["predict", str(tmp_path / "out" / "client-ada"), str(tmp_path / "rows.csv")])
    assert "has no effects of its own" in capsys.readouterr().err


def test_formulas_secure_sums_chains_and_a_column_that_is_constant_at_one_client(whole: fedkern.Result) -> None:
    frames = federation()
    named = fedkern.fit("y ~ x + z + C(s)", frames, sigma="~ x + C(s)")
    hidden = fedkern.run(job(job={"sums": "secure"}), data=frames)
    for name, other in (("sigma[x]", "sigma[x]"), ("sigma[s=m]", "sigma[C(s)[T.m]]")):
        mean, sd = whole.parameters[name]["mean"], whole.parameters[name]["sd"]
        assert abs(named.parameters[other]["mean"] - mean) < 0.2 * sd
        assert abs(hidden.parameters[name]["mean"] - mean) < 0.2 * sd
    walked = fedkern.run(job(job={"rounds": 400}, algorithm={"sampler": "hmc"}), data=frames)
    assert abs(walked.parameters["sigma[x]"]["mean"] - whole.parameters["sigma[x]"]["mean"]) < 0.4 * sd
    frames["bo"] = frames["bo"][frames["bo"].s == "f"]
    result = fedkern.run(job(), data=frames)
    assert result.converged
    assert abs(result.parameters["sigma[s=m]"]["mean"] - 0.5) < 4 * result.parameters["sigma[s=m]"]["sd"]
    alike = {name: frame.assign(w=2 * frame.x + 1) for name, frame in federation().items()}
    result = fedkern.run(job(model={"sigma": "~ x + w"}), data=alike)
    assert said(result, "not-estimated")[0]["names"] == ["theta[w]"]
    assert {"sigma[x]", "sigma[w]"} <= {*said(result, "sensitive-to-the-prior")[0]["names"]}


def test_priors_of_coefficients_of_sigma_are_in_their_columns_unit() -> None:
    tight = {
        "sigma[x]": {"kind": "normal", "mean": 0.1, "sd": 1e-4},
        "sigma[intercept]": {"kind": "normal", "sd": 5, "unit": "sd"},
    }
    result = fedkern.run(job(model={"priors": tight}), data=federation())
    assert abs(result.parameters["sigma[x]"]["mean"] - 0.1) < 5e-4
    with pytest.raises(JobError, match='by unit = "sd"'):
        fedkern.run(job(model={"priors": {"sigma[intercept]": {"kind": "normal", "sd": 1}}}), data=federation(40))


BAD: dict[str, tuple[dict[str, dict[str, Any]], str]] = {
    "another family": ({"model": {"family": "gamma"}}, "model.sigma is of model.family"),
    "no term of the model": ({"model": {"sigma": "~ w"}}, "'w' is no term of the model"),
    "a left side": ({"model": {"sigma": "y ~ x"}}, "wanted a right side alone"),
    "no intercept": ({"model": {"sigma": "~ x - 1"}}, "with an intercept"),
    "an effect": ({"model": {"sigma": "~ (1 | s)"}}, "and nothing else"),
    "nothing": ({"model": {"sigma": "~ 1"}}, "wanted terms of columns"),
    "effects of clients": ({"model": {"random": {"client": True}}}, r"model.sigma with \[model.random\]"),
    "precisions": ({"data": {"weight": "z", "weight_kind": "precision"}}, "both say how far errors reach"),
}


@pytest.mark.parametrize("which", BAD)
def test_what_sigma_cannot_be_is_refused(which: str) -> None:
    keys, words = BAD[which]
    with pytest.raises(FedkernError, match=words):
        fedkern.run(job(**keys), data=federation(40))


@BOTH
def test_more_rows_are_asked_for_than_of_one_sigma(family: str) -> None:
    few = federation(40)
    with pytest.raises(FedkernError, match="each for the mean and for sigma"):
        fedkern.run(job(model={"family": family}, disclosure={"level": "standard"}), data=few)
