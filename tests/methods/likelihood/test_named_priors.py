"""Priors of single numbers, by their names: against sums over grids of the posterior with that prior, and bad input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import logsumexp

import fedkern
from fedkern.arrays import Array
from fedkern.errors import JobError
from fedkern.jobs.load import config_of
from fedkern.methods import load_method
from fedkern.methods.likelihood import named_priors
from fedkern.methods.likelihood.models import model_of
from fedkern.models.encoding import Column, Encoding
from fedkern.models.spatial.units import Units
from support.found import said

Priors = dict[str, dict[str, Any]]

CLIENTS, ROWS = ("ada", "bo", "cy"), 30


def frames(response: Callable[[np.random.Generator, Array], Any], seed: int = 3) -> dict[str, pd.DataFrame]:
    """A column in a unit of its own, one of two labels, and a response of three clients."""
    rng, found = np.random.default_rng(seed), {}
    for name in CLIENTS:
        x, sex = rng.normal(50, 8, ROWS).round(2), rng.choice(["F", "M"], ROWS)
        eta = 0.2 + 0.6 * (x - 50) / 8 + 0.5 * (sex == "M")
        found[name] = pd.DataFrame({"x": x, "sex": sex, "y": response(rng, eta)})
    return found


def run(family: str, data: dict[str, pd.DataFrame], priors: Priors, /, **more: Any) -> fedkern.Result:
    tables: dict[str, Any] = {"job": {"method": "likelihood", "seed": 3}, "data": {"response": "y", "least_rows": 1}}
    tables["model"] = {"family": family, "priors": priors}
    for section, keys in more.items():
        tables[section] = {**tables.get(section, {}), **keys}
    return fedkern.run(tables, data=data)


def moments(axes: list[Array], log_joint: Callable[[Array], Array]) -> Callable[[Array], tuple[float, float]]:
    """The mean and sd of values at the points of a grid."""
    points = np.array(list(product(*axes)))
    log = np.concatenate([log_joint(part) for part in np.array_split(points, 40)])
    weights = np.exp(log - logsumexp(log))

    def of(values: Array) -> tuple[float, float]:
        mean = float(weights @ values)
        return mean, float(np.sqrt(weights @ (values - mean) ** 2))

    of.points = points  # type: ignore[attr-defined]
    return of


def axis(result: fedkern.Result, name: str, n: int = 41) -> Array:
    one = result.parameters[name]
    return np.linspace(one["mean"] - 6 * one["sd"], one["mean"] + 6 * one["sd"], n)


def agree(result: fedkern.Result, wanted: Mapping[str, tuple[float, float]]) -> None:
    assert result.converged is True, result.summary["verdict"]
    for name, (mean, sd) in wanted.items():
        found = result.parameters[name]
        assert found["mean"] == pytest.approx(mean, abs=0.04 * sd), name
        assert found["sd"] == pytest.approx(sd, rel=0.04), name


def pooled(data: dict[str, pd.DataFrame]) -> tuple[Array, Array, Array, float, float]:
    whole = pd.concat(data.values())
    x = whole.x.to_numpy()
    return (x - x.mean()) / x.std(), (whole.sex == "M").to_numpy(float), whole.y.to_numpy(), float(x.mean()), float(x.std())


OF_X = {"kind": "normal", "mean": 0.02, "sd": 0.02}
OF_SEX = {"kind": "student", "df": 3.0, "mean": -1.0, "scale": 0.4}
OF_INTERCEPT = {"kind": "normal", "mean": -1.5, "sd": 0.5}
CASES: dict[str, Priors] = {
    "a slope and a level": {"x": OF_X, "sex=M": OF_SEX},
    "by the other names": {"theta[x]": OF_X, "sex[M vs F]": OF_SEX},
    "as printed at 0": {"intercept": OF_INTERCEPT},
    "at the means": {"intercept": {**OF_INTERCEPT, "unit": "sd"}, "x": {"kind": "normal", "sd": 0.3, "unit": "sd"}},
}


@pytest.mark.parametrize("case", CASES)
def test_coefficients_are_those_of_a_grid_with_that_prior(case: str) -> None:
    """What is not named keeps the prior that it had: with a column for each level, an intercept is N(level, 5^2 + 2.5^2)."""
    data = frames(lambda rng, eta: (rng.random(ROWS) < 1 / (1 + np.exp(-eta))).astype(int))
    z, male, y, centre, scale = pooled(data)
    level, named = np.log(y.mean() / (1 - y.mean())), CASES[case]
    result = run("bernoulli", data, named)

    def log_joint(points: Array) -> Array:
        at_means, b, c = points.T
        of_x = stats.norm.logpdf(b / scale, 0.02, 0.02) if "level" in case or "other" in case else stats.norm.logpdf(b, 0, 2.5)
        of_x = stats.norm.logpdf(b, 0, 0.3) if "means" in case else of_x
        of_sex = (
            stats.t.logpdf(c, 3, -1.0, 0.4)
            if len(named.keys() & {"sex=M", "sex[M vs F]"})
            else stats.norm.logpdf(c, 0, 12.5**0.5)
        )
        of_intercept = stats.norm.logpdf(at_means, level, 31.25**0.5)
        if "intercept" in named:
            at = at_means if "means" in case else at_means - b * centre / scale
            of_intercept = stats.norm.logpdf(at, -1.5, 0.5)
        if not named.keys() & {"sex=M", "sex[M vs F]", "intercept"}:
            raise AssertionError(case)
        eta = at_means[:, np.newaxis] + b[:, np.newaxis] * z + c[:, np.newaxis] * male
        return np.asarray((y * eta - np.logaddexp(0, eta)).sum(axis=1) + of_x + of_sex + of_intercept)

    of = moments([axis(result, "intercept_std"), axis(result, "theta_std[x]"), axis(result, "theta[sex=M]")], log_joint)
    a, b, c = of.points.T  # type: ignore[attr-defined]
    agree(result, {"theta[x]": of(b / scale), "theta[sex=M]": of(c), "intercept": of(a - b * centre / scale)})


def test_a_level_without_a_prior_keeps_its_own_beside_a_named_intercept() -> None:
    """The default of a level less its reference is N(0, 2 * 2.5^2), and a named intercept is independent of it."""
    model = model_at("bernoulli", {"intercept": OF_INTERCEPT})
    prior = model.prior
    numbers = np.vstack([model.coding.matrix @ model.affine])
    covariance = numbers @ np.linalg.inv(prior.curvature(np.zeros(model.size))[2]) @ numbers.T
    np.testing.assert_allclose(covariance[0], [0.25, 0, 0], atol=1e-12)
    np.testing.assert_allclose(covariance[2, 2], 12.5)
    np.testing.assert_allclose(numbers @ prior.mean, [-1.5, 0, 0], atol=1e-12)


def test_a_gaussian_response_has_its_unit_in_named_priors() -> None:
    data = frames(lambda rng, eta: np.round(100 + 15 * eta + 10 * rng.normal(size=ROWS), 2))
    for one in data.values():
        del one["sex"]
    x, y = (np.concatenate([one[name] for one in data.values()]) for name in ("x", "y"))
    z, unit = (x - x.mean()) / x.std(), y.std()
    priors: Priors = {
        "x": {"kind": "student", "df": 4.0, "mean": 0.5, "scale": 0.1},
        "sigma": {"kind": "gamma", "shape": 40.0, "rate": 5.0},
    }
    result = run("gaussian", data, priors)

    def log_joint(points: Array) -> Array:
        a, b, w = points.T
        prior = stats.norm.logpdf(a, y.mean(), 5 * unit) + stats.t.logpdf(b / x.std(), 4, 0.5, 0.1)
        prior += stats.gamma.logpdf(np.exp(w), 40, scale=1 / 5) + w
        eta = a[:, np.newaxis] + b[:, np.newaxis] * z
        return np.asarray(prior + stats.norm.logpdf(y, eta, np.exp(w)[:, np.newaxis]).sum(axis=1))

    sigma = result.parameters["sigma"]
    logs = np.log(sigma["mean"]) + np.linspace(-6, 6, 41) * sigma["sd"] / sigma["mean"]
    of = moments([axis(result, "intercept_std"), axis(result, "theta_std[x]"), logs], log_joint)
    _, b, w = of.points.T  # type: ignore[attr-defined]
    agree(result, {"theta[x]": of(b / x.std()), "sigma": of(np.exp(w))})


def test_a_dispersion_has_its_prior_as_it_is_printed() -> None:
    data = frames(lambda rng, eta: rng.negative_binomial(2, 2 / (2 + np.exp(1 + eta))).astype(float))
    for one in data.values():
        del one["sex"], one["x"]
    y = np.concatenate([one.y for one in data.values()])
    result = run("negative-binomial", data, {"dispersion": {"kind": "gamma", "shape": 3.0, "rate": 12.0}})

    def log_joint(points: Array) -> Array:
        a, log_d = points.T
        r = np.exp(-log_d)[:, np.newaxis]
        prior = stats.norm.logpdf(a, np.log(y.mean()), 5) + stats.gamma.logpdf(np.exp(log_d), 3, scale=1 / 12) + log_d
        return np.asarray(prior + stats.nbinom.logpmf(y, r, r / (r + np.exp(a)[:, np.newaxis])).sum(axis=1))

    of = moments([axis(result, "intercept", 81), np.linspace(-4, 1.0, 121)], log_joint)
    agree(result, {"dispersion": of(np.exp(of.points[:, 1])), "intercept": of(of.points[:, 0])})  # type: ignore[attr-defined]


def test_a_coefficient_of_cox_and_an_intercept_of_hazards_have_theirs() -> None:
    rng, data = np.random.default_rng(4), {}
    for name in CLIENTS:
        x = rng.normal(50, 8, ROWS).round(2)
        life, seen = rng.exponential(30 * np.exp(-0.5 * (x - 50) / 8)), rng.uniform(5, 60, ROWS)
        data[name] = pd.DataFrame({"x": x, "time": np.minimum(life, seen), "died": (life <= seen).astype(int)})
    times = {"data": {"response": None, "time": "time", "event": "died"}}
    whole = pd.concat(data.values())
    scale, centre, log = whole.x.std(ddof=0), whole.x.mean(), []
    result = run("cox", data, {"x": {"kind": "student", "df": 2.0, "mean": 0.0, "scale": 0.02}}, **times)
    beta = np.linspace(-0.06, 0.2, 400)
    for b in beta:
        total = stats.t.logpdf(b, 2, 0, 0.02)
        for one in data.values():
            risk = np.exp(b * (one.x.to_numpy() - centre))
            at_risk = (one.time.to_numpy()[np.newaxis] >= one.time.to_numpy()[:, np.newaxis]) @ risk
            total += (one.died * (np.log(risk) - np.log(at_risk))).sum()
        log.append(total)
    weights = np.exp(np.array(log) - logsumexp(log))
    mean = weights @ beta
    agree(result, {"theta[x]": (mean, float(np.sqrt(weights @ (beta - mean) ** 2)))})

    of_level = {"intercept": {"kind": "normal", "mean": -6.5, "sd": 0.4}}  # in the data's unit of time, where x is 0
    result = run("exponential", data, of_level, **times)
    z = (whole.x.to_numpy() - centre) / scale

    def log_joint(points: Array) -> Array:
        a, b = points.T
        eta = a[:, np.newaxis] + b[:, np.newaxis] * z
        prior = stats.norm.logpdf(a - b * centre / scale, -6.5, 0.4) + stats.norm.logpdf(b, 0, 2.5)
        return np.asarray(prior + (whole.died.to_numpy() * eta - whole.time.to_numpy() * np.exp(eta)).sum(axis=1))

    of = moments([np.linspace(-5, -2, 121), axis(result, "theta_std[x]", 81)], log_joint)
    a, b = of.points.T  # type: ignore[attr-defined]
    agree(result, {"theta[x]": of(b / scale), "intercept": of(a - b * centre / scale)})


@pytest.mark.parametrize("unit", ["own", "sd"])
def test_the_mean_of_thresholds_has_its_prior_as_it_is_printed(unit: str) -> None:
    data = frames(lambda rng, eta: np.digitize(eta + rng.logistic(size=ROWS), [-0.5, 1.0]))
    for one in data.values():
        del one["sex"]
        one["y"] = np.array(["low", "mid", "high"])[one.y]
    whole = pd.concat(data.values())
    centre, scale, y = whole.x.mean(), whole.x.std(ddof=0), whole.y.map({"low": 0, "mid": 1, "high": 2}).to_numpy()
    z = (whole.x.to_numpy() - centre) / scale
    own = {"threshold": {"kind": "normal", "mean": 3.0 if unit == "own" else 1.0, "sd": 0.3, "unit": unit}}
    result = run("ordinal", data, own, data={"levels": ["low", "mid", "high"]})

    def log_joint(points: Array) -> Array:
        first, log_gap, b = points.T
        mean = first + np.exp(log_gap) / 2
        prior = stats.norm.logpdf(mean + b * centre / scale, 3.0, 0.3) if unit == "own" else stats.norm.logpdf(mean, 1.0, 0.3)
        prior += stats.norm.logpdf(log_gap, 0, 1.5) + stats.norm.logpdf(b, 0, 2.5)
        cuts = np.column_stack([np.full(len(first), -np.inf), first, first + np.exp(log_gap), np.full(len(first), np.inf)])
        eta = b[:, np.newaxis] * z
        below, above = (1 / (1 + np.exp(eta - cuts[:, y + k])) for k in (0, 1))
        return np.asarray(prior + np.log(np.maximum(above - below, 1e-300)).sum(axis=1))

    axes = [np.linspace(-2.5, 2.5, 61), np.linspace(-0.9, 1.3, 31), axis(result, "theta_std[x]", 51)]
    of = moments(axes, log_joint)
    first, _, b = of.points.T  # type: ignore[attr-defined]
    agree(result, {"theta[x]": of(b / scale), "threshold[low|mid]": of(first + b * centre / scale)})


def test_a_level_of_several_has_a_prior_of_its_own() -> None:
    """Two levels without an order are a logistic regression."""
    data = frames(lambda rng, eta: np.where(rng.random(ROWS) < 1 / (1 + np.exp(-eta)), "ill", "well"))
    for one in data.values():
        del one["sex"]
    priors: Priors = {"ill:x": OF_X}
    named = run("multinomial", data, priors, data={"levels": ["well", "ill"]})
    logistic = run("bernoulli", data, {"x": OF_X}, data={"positive": "ill"}, model={"intercept_sd": 5.0, "prior_sd": 2.5})
    for name in ("mean", "sd"):
        sd = logistic.parameters["theta[x]"]["sd"]
        assert named.parameters["theta[ill:x]"][name] == pytest.approx(logistic.parameters["theta[x]"][name], abs=0.05 * sd)


def with_wards(sd: float, seed: int = 5) -> dict[str, pd.DataFrame]:
    rng, found = np.random.default_rng(seed), {}
    for name in CLIENTS:
        ward, x = np.repeat(np.arange(8), 8), rng.normal(50, 8, 64).round(2)
        z = (x - 50) / 8
        eta = 0.6 + 0.3 * z + 0.6 * rng.normal(size=8)[ward] + sd * rng.normal(size=8)[ward] * z
        found[name] = pd.DataFrame({"x": x, "ward": [f"w{k}" for k in ward], "y": rng.poisson(np.exp(eta)).astype(float)})
    return found


OF_SLOPES: dict[str, tuple[dict[str, float], Callable[[Array], Array]]] = {
    "half-normal": ({"sd": 0.02}, lambda s: np.asarray(stats.norm.logpdf(s, 0, 0.02))),
    "half-student": ({"df": 3.0, "scale": 0.03}, lambda s: np.asarray(stats.t.logpdf(s, 3, 0, 0.03))),
    "gamma": ({"shape": 1.0, "rate": 40.0}, lambda s: np.asarray(stats.expon.logpdf(s, scale=1 / 40))),
}


@pytest.mark.parametrize("sd", [0.0, 0.5])
@pytest.mark.parametrize("kind", OF_SLOPES)
def test_the_sd_of_slopes_has_its_prior_as_it_is_printed(kind: str, sd: float) -> None:
    """Draws of a job with the default prior, weighted to that of the sd that is printed, whose direction stays uniform."""
    data, random = with_wards(sd), {"group": "ward", "slopes": ["x"]}
    fine = {"algorithm": {"effective": 12_000.0, "points": 8192}, "output": {"draws": 8000, "chains": 4}}
    usual = run("poisson", data, {}, model={"random": random}, **fine)
    keys, log_density = OF_SLOPES[kind]
    given = run("poisson", data, {"group_sd[x]": {"kind": kind, **keys}}, model={"random": random})
    draws = {
        name: np.asarray(usual.posterior.marginal(name).draws).ravel()  # type: ignore[union-attr]
        for name in ("group_sd[x]", "theta[x]", "group_sd[intercept]")
    }
    s, scale = draws["group_sd[x]"], pd.concat(data.values()).x.std(ddof=0)
    new = log_density(s)
    # The length of two entries of a multivariate Student distribution: s^2 / (2 * 2.5^2) ~ F(2, 3).
    old = stats.f.logpdf((s * scale / 2.5) ** 2 / 2, 2, 3) + np.log(s)
    weights = np.exp(new - old - (new - old).max())
    weights /= weights.sum()
    assert given.converged is True, given.summary["verdict"]
    ess = 1 / (weights**2).sum()
    assert ess > 500
    for name, values in draws.items():
        mean = weights @ values
        spread = np.sqrt(weights @ (values - mean) ** 2)
        error = 0.05 + 4 / np.sqrt(ess)
        assert given.parameters[name]["mean"] == pytest.approx(mean, abs=error * spread), name
        assert given.parameters[name]["sd"] == pytest.approx(spread, rel=error), name


# The model's units --------------------


def model_at(family: str, priors: Priors, **model: Any) -> Any:
    """A model of agreed columns: x with a centre and a scale, and two labels."""
    columns = (Column("x", center=50.0, scale=8.0), Column("sex", "categorical", ("F", "M")))
    raw = {
        "job": {"method": "likelihood"},
        "data": {"clients": ["a.csv"], "response": "y"},
        "model": {"family": family, "priors": priors, **model},
    }
    made = model_of(config_of(load_method("likelihood").keys, raw), ("a", "b"), Encoding(columns, "y", family))
    return made.with_units(Units(120.0, 15.0)) if family == "gaussian" else made


@pytest.mark.parametrize("family", ["bernoulli", "gaussian"])
def test_own_units_are_converted_to_the_last_digits(family: str) -> None:
    unit, zero = (15.0, 120.0) if family == "gaussian" else (1.0, 0.0)
    random = {"group": "ward", "slopes": ["x"]}
    own: Priors = {
        "x": {"kind": "normal", "mean": 0.3, "sd": 0.1},
        "sex=M": {"kind": "student", "df": 3.0, "mean": 2.0, "scale": 0.7},
        "group_sd[x]": {"kind": "gamma", "shape": 3.0, "rate": 4.0},
    }
    in_sds: Priors = {
        "x": {"kind": "normal", "mean": 0.3 * 8 / unit, "sd": 0.1 * 8 / unit},
        "sex=M": {"kind": "student", "df": 3.0, "mean": 2.0 / unit, "scale": 0.7 / unit},
        "group_sd[x]": {"kind": "gamma", "shape": 3.0, "rate": 4.0 * unit / 8},
    }
    if family == "gaussian":
        own["sigma"], in_sds["sigma"] = ({"kind": "half-student", "df": 3.0, "scale": s} for s in (9.0, 0.6))
    others = {name: {**one, "unit": "sd"} for name, one in in_sds.items()}
    models = model_at(family, own, random=random), model_at(family, others, random=random)
    points = np.random.default_rng(2).normal(size=(6, models[0].size))
    values = [one.prior.values(points) for one in models]
    np.testing.assert_allclose(values[0], values[1], rtol=1e-10)
    # As printed, an intercept is where x is 0 and of the reference.
    at = model_at(family, {"intercept": {"kind": "normal", "mean": 1.0, "sd": 0.5}})
    printed = at.at_references(points[:, : at.size])[0][:, 0]
    without = model_at(family, {"intercept": {"kind": "normal", "mean": 1.0, "sd": 50.0}})
    change = at.prior.values(points[:, : at.size]) - without.prior.values(points[:, : at.size])
    wanted = stats.norm.logpdf(printed, 1.0, 0.5) - stats.norm.logpdf(printed, 1.0, 50.0)
    np.testing.assert_allclose(change, wanted, rtol=1e-10)
    assert at.prior.mean @ (at.coding.matrix @ at.affine)[0] * unit + zero == pytest.approx(1.0, abs=1e-9)


def test_rows_of_several_clients_are_those_of_one() -> None:
    data, priors = (
        with_wards(0.3),
        {"x": {"kind": "student", "df": 3.0, "scale": 0.01}, "group_sd[intercept]": {"kind": "half-normal", "sd": 0.3}},
    )
    whole = pd.concat([one.assign(ward=name + one.ward) for name, one in data.items()])
    fine = {"algorithm": {"effective": 8000.0}}
    several = run("poisson", data, priors, model={"random": {"group": "ward"}}, **fine)
    one = run("poisson", {"all": whole}, priors, model={"random": {"group": "ward"}}, **fine)
    for name, other in one.parameters.items():
        assert several.parameters[name]["mean"] == pytest.approx(other["mean"], abs=0.04 * other["sd"]), name
        assert several.parameters[name]["sd"] == pytest.approx(other["sd"], rel=0.04), name
    assert several.summary["log_evidence"]["value"] == pytest.approx(one.summary["log_evidence"]["value"], abs=0.03)


def test_secure_sums_have_the_same_posterior() -> None:
    data = frames(lambda rng, eta: (rng.random(ROWS) < 1 / (1 + np.exp(-eta))).astype(int))
    named = CASES["a slope and a level"]
    open_job, secure = (run("bernoulli", data, named, job={"sums": sums}) for sums in (None, "secure"))
    assert secure.converged is True
    for name, other in open_job.parameters.items():
        assert secure.parameters[name]["mean"] == pytest.approx(other["mean"], abs=0.06 * other["sd"]), name
        assert secure.parameters[name]["sd"] == pytest.approx(other["sd"], rel=0.05), name


# Beside the default priors --------------------


def test_a_named_prior_is_not_widened_and_the_others_are() -> None:
    rng, data = np.random.default_rng(6), {}
    for name in CLIENTS:
        a, c = rng.normal(size=(2, 80))
        b = a + 0.01 * rng.normal(size=80)
        data[name] = pd.DataFrame({"a": a, "b": b, "c": c, "y": 10 * (a - b) + c + 0.05 * rng.normal(size=80)})
    named = run("gaussian", data, {"c": {"kind": "normal", "mean": 0.0, "sd": 0.002}})
    assert named.summary["priors"]["prior_sd"] > 2.5
    assert named.parameters["theta[a]"]["mean"] == pytest.approx(10, abs=1)
    whole = pd.concat(data.values())
    X = np.column_stack([np.ones(len(whole)), whole[["a", "b"]]])
    left = [one - X @ np.linalg.lstsq(X, one, rcond=None)[0] for one in (whole.y.to_numpy(), whole.c.to_numpy())]
    sigma = named.parameters["sigma"]["mean"]
    information = (left[1] @ left[1]) / sigma**2
    mean = (left[0] @ left[1]) / sigma**2 / (information + 0.002**-2)
    found = named.parameters["theta[c]"]
    assert found["mean"] == pytest.approx(mean, rel=0.02)
    assert found["sd"] == pytest.approx((information + 0.002**-2) ** -0.5, rel=0.05)


def test_what_rows_say_nothing_of_has_its_named_prior() -> None:
    data = frames(lambda rng, eta: rng.poisson(np.exp(eta)).astype(float))
    data = {name: one.drop(columns="sex").assign(same=1 + one.x) for name, one in data.items()}
    blank = run("poisson", data, {})
    assert blank.summary["not_estimated"] == ["theta[same]"]
    named = run("poisson", data, {"same": {"kind": "normal", "mean": 0.01, "sd": 0.05}})
    assert "not_estimated" not in named.summary
    assert named.parameters["theta[same]"]["mean"] == pytest.approx(0.01, abs=0.004)
    assert named.parameters["theta[same]"]["sd"] == pytest.approx(0.05, rel=0.06)


def test_notes_print_and_check_name_the_key(capsys: pytest.CaptureFixture[str]) -> None:
    data = frames(lambda rng, eta: rng.poisson(np.exp(eta)).astype(float))
    result = fedkern.fit(
        "y ~ x + sex", data, "poisson", priors={"prior_sd": 1.0, "x": {"kind": "normal", "mean": -0.2, "sd": 0.02}}
    )
    (own,) = [one for one in said(result, "sensitive-to-the-prior") if "theta[x]" in one["names"]]
    assert "model.priors.x" in own["why"]
    assert "x normal(-0.2, 0.02)" in str(result)
    job = {"job": {"method": "likelihood"}, "data": {"response": "y"}, "model": {"family": "poisson", "priors": {"x": OF_X}}}
    assert "x normal(0.02, 0.02)" in "\n".join(fedkern.check(job, data=data, verbose=True))
    level = {"sex=M": NORMAL}  # which a check without rows cannot know
    assert fedkern.check({**job, "model": {"family": "poisson", "priors": level}}, data=data)
    with pytest.raises(JobError, match="did you mean"):
        fedkern.check({**job, "model": {"family": "poisson", "priors": {"theta[xx]": NORMAL}}}, data=data)


# Bad input --------------------

NORMAL = {"kind": "normal", "sd": 1.0}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "of a reference": ({"priors": {"sex=F": NORMAL}}, "level 'F' of 'sex' is what the others are compared with"),
    "sd of 0": ({"priors": {"x": {"kind": "normal", "sd": 0}}}, "sd = 0: wanted a number greater than 0"),
    "without an sd": ({"priors": {"theta[x]": {"kind": "normal"}}}, r'model.priors."theta\[x\]".sd is missing'),
    "two names of one": ({"priors": {"x": NORMAL, "theta[x]": NORMAL}}, "are of one number, 'theta.x.'; remove one"),
    "of nothing": ({"priors": {"xx": NORMAL}}, r"has this name; did you mean 'theta\[x\]'"),
    "of a level that is none": ({"priors": {"sex=W": NORMAL}}, r"did you mean 'theta\[sex=M\]'"),
    "half of a coefficient": ({"priors": {"x": {"kind": "half-normal", "sd": 1.0}}}, 'may have any sign.*"normal" or "student"'),
    "of several": ({"priors": {"x": {**NORMAL, "size": 2}}}, "is one number: wanted kind"),
    "a matrix": ({"priors": {"x": {"kind": "lkj", "eta": 1.0, "size": 2}}}, "is one number: wanted kind"),
    "two of the intercept": ({"priors": {"intercept": NORMAL}, "intercept_sd": 2.0}, "model.intercept_sd and .* of one number"),
    "normal of an sd": ({"priors": {"group_sd[intercept]": NORMAL}, "random": {"group": "ward"}}, 'is above 0.*"half-normal"'),
    "no group": ({"priors": {"group_sd[intercept]": {"kind": "half-normal", "sd": 1.0}}}, "no number of the result"),
    "at the columns' zero": (
        {"priors": {"group_sd[intercept]": {"kind": "half-normal", "sd": 1.0}}, "random": {"group": "ward", "slopes": ["x"]}},
        'where they have their means, by unit = "sd"',
    ),
    "narrow": ({"priors": {"x": {"kind": "normal", "sd": 1e-4}}}, '0.0008 wide.*give it by unit = "sd"'),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_in_one_sentence(case: str) -> None:
    model, words = REFUSED[case]

    def prior() -> Any:
        made = model_at("bernoulli", **model)
        named_priors.check(made)
        return made.prior

    with pytest.raises(JobError, match=words):
        prior()


@pytest.mark.parametrize("method", ["pvi", "sparse", "sigma"])
def test_methods_without_priors_of_single_numbers_say_so(method: str) -> None:
    raw = {"job": {"method": method}, "data": {"clients": ["a.csv"], "response": "y"}, "model": {"priors": {"x": NORMAL}}}
    with pytest.raises(JobError, match=r'model\.priors: priors of single numbers are of method = "likelihood"'):
        config_of(load_method(method).keys, raw)


def test_an_intercept_of_a_weibull_hazard_has_no_unit_of_its_own() -> None:
    data = {name: pd.DataFrame({"x": [1.0, 2, 3] * 10, "time": np.arange(1.0, 31), "died": [1, 0, 1] * 10}) for name in CLIENTS}
    times = {"data": {"response": None, "time": "time", "event": "died"}}
    with pytest.raises(JobError, match=r'hangs on the shape; .* by unit = "sd"'):
        run("weibull", data, {"intercept": NORMAL}, **times)
    result = run(
        "weibull", data, {"intercept": {**NORMAL, "unit": "sd"}, "shape": {"kind": "gamma", "shape": 9.0, "rate": 9.0}}, **times
    )
    assert result.converged is True


def test_a_reference_of_a_formula_is_named() -> None:
    data = frames(lambda rng, eta: rng.poisson(np.exp(eta)).astype(float))
    with pytest.raises(JobError, match="level 'F' of 'sex' is what the others are compared with"):
        fedkern.fit("y ~ x + sex", data, "poisson", priors={"sex[T.F]": NORMAL})


@pytest.mark.parametrize(("sd", "tells"), [(0.005, True), (0.05, False)])
def test_holders_are_told_of_a_prior_that_holds_a_coefficient(sd: float, tells: bool) -> None:
    config = model_at("bernoulli", {"x": {"kind": "normal", "sd": sd, "unit": "sd"}}).config
    assert [one.id for one in config.tells_rows] == ["narrow-prior-tells-rows"] * tells
    assert not model_at("gaussian", {"x": {"kind": "normal", "sd": sd, "unit": "sd"}}).config.tells_rows
