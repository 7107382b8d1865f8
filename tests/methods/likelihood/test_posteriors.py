"""Jobs of each family against posteriors that are computed otherwise: on dense grids, or with coefficients integrated exactly."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp
from scipy.stats import binom, gamma, halfcauchy, nbinom, norm, poisson
from scipy.stats import t as student

import fedkern
from fedkern.arrays import Array
from fedkern.methods.likelihood.keys import Config

FAST = {"points": 1024, "effective": 400.0}
CLIENTS, ROWS = ("ada", "bo", "cy"), 36


DRAWN: dict[str, Callable[[np.random.Generator, Array], Any]] = {
    "bernoulli": lambda rng, eta: rng.random(ROWS) < 1 / (1 + np.exp(-eta)),
    "binomial": lambda rng, eta: rng.binomial(6, 1 / (1 + np.exp(-eta))),
    "poisson": lambda rng, eta: rng.poisson(np.exp(eta)),
    "negative-binomial": lambda rng, eta: rng.negative_binomial(2, 2 / (2 + np.exp(eta))),
    "gaussian": lambda rng, eta: np.round(100 + 20 * eta + 8 * rng.normal(size=ROWS), 2),
}


@cache
def rows(family: str) -> dict[str, dict[str, Array]]:
    """A column x and a response of three clients."""
    rng = np.random.default_rng(4)
    found = {}
    for name in CLIENTS:
        x = np.round(rng.normal(10, 3, ROWS), 3)
        eta = 0.4 + 0.25 * (x - 10) / 3
        found[name] = {"x": x, "y": np.asarray(DRAWN[family](rng, eta), np.float64)}
        if family == "binomial":
            found[name]["n"] = np.full(ROWS, 6.0)
    return found


def run(family: str, held: dict[str, dict[str, Any]], /, **more: Any) -> fedkern.Result:
    import pandas as pd

    tables = {"job": {"method": "likelihood", "seed": 3}, "data": {"response": "y"}, "model": {"family": family}}
    tables["data"] |= {"trials": "n"} if family == "binomial" else {}
    tables["algorithm"] = dict(FAST)
    for section, keys in more.items():
        tables[section] = {**tables.get(section, {}), **keys}
    return fedkern.run(tables, data={name: pd.DataFrame(one) for name, one in held.items()})


def pooled(data: dict[str, dict[str, Array]], name: str) -> Array:
    return np.concatenate([one[name] for one in data.values()])


class Grid:
    """A posterior on a grid: (K, d) points, and (K,) log densities times the volume of a cell."""

    def __init__(self, axes: list[Array], log_joint: Callable[[Array], Array]) -> None:
        self.points = np.array(list(product(*axes)))
        self.log = log_joint(self.points) + np.log([axis[1] - axis[0] for axis in axes]).sum()
        self.evidence = float(logsumexp(self.log))
        self.weights = np.exp(self.log - self.evidence)

    def moments(self, values: Array) -> tuple[float, float]:
        mean = float(self.weights @ values)
        return mean, float(np.sqrt(self.weights @ (values - mean) ** 2))


def agree(result: fedkern.Result, name: str, mean: float, sd: float) -> None:
    found = result.parameters[name]
    assert found["mean"] == pytest.approx(mean, abs=0.04 * sd), name
    assert found["sd"] == pytest.approx(sd, rel=0.04), name


LOG = {
    "bernoulli": lambda y, eta, phi: binom.logpmf(y, 1, 1 / (1 + np.exp(-eta))),
    "binomial": lambda y, eta, phi: binom.logpmf(y, 6, 1 / (1 + np.exp(-eta))),
    "poisson": lambda y, eta, phi: poisson.logpmf(y, np.exp(eta)),
    "negative-binomial": lambda y, eta, phi: nbinom.logpmf(y, phi**-2, 1 / (1 + phi**2 * np.exp(eta))),
}
LEVEL = {
    "bernoulli": lambda y: np.log(y.mean() / (1 - y.mean())),
    "binomial": lambda y: np.log(y.mean() / (6 - y.mean())),
    "poisson": lambda y: np.log(y.mean()),
    "negative-binomial": lambda y: np.log(y.mean()),
}


@pytest.mark.parametrize("family", LOG)
def test_two_coefficients_are_those_of_a_grid(family: str) -> None:
    data = rows(family)
    x, y = pooled(data, "x"), pooled(data, "y")
    z, level = (x - x.mean()) / x.std(), float(LEVEL[family](y))
    dispersed = family == "negative-binomial"

    def log_joint(points: Array) -> Array:
        out = norm.logpdf(points[:, 0], level, 5) + norm.logpdf(points[:, 1], 0, 2.5)
        phi = points[:, 2] if dispersed else np.ones(len(points))
        out = out + (halfcauchy.logpdf(phi) if dispersed else 0.0)
        for at in range(0, len(points), 4096):
            some = slice(at, at + 4096)
            eta = points[some, :1] + points[some, 1:2] * z
            out[some] += LOG[family](y, eta, phi[some, np.newaxis]).sum(axis=1)
        return out

    result = run(family, data, **({"data": {"least_rows": 19}} if dispersed else {}))
    width = [8 * result.parameters[f"{name}_std"]["sd"] for name in ("intercept",)] + [
        8 * result.parameters["theta_std[x]"]["sd"]
    ]
    middle = [result.parameters["intercept_std"]["mean"], result.parameters["theta_std[x]"]["mean"]]
    axes = [np.linspace(m - w / 1.4, m + w / 1.4, 41) for m, w in zip(middle, width)]
    if dispersed:
        axes = [axis[::1] for axis in axes] + [np.linspace(0.01, 2.5, 40)]
    grid = Grid(axes, log_joint)
    agree(result, "theta_std[x]", *grid.moments(grid.points[:, 1]))
    agree(result, "theta[x]", *grid.moments(grid.points[:, 1] / x.std()))
    agree(result, "intercept", *grid.moments(grid.points[:, 0] - grid.points[:, 1] * x.mean() / x.std()))
    if dispersed:
        agree(result, "dispersion", *grid.moments(grid.points[:, 2] ** 2))
    assert result.summary["log_evidence"]["value"] == pytest.approx(grid.evidence, abs=0.03)
    assert result.converged is True
    assert result.summary["k_hat"] <= 0.7


def test_a_linear_one_is_that_with_its_coefficients_integrated_out() -> None:
    data = rows("gaussian")
    x, y = pooled(data, "x"), pooled(data, "y")
    means, sds, sigma, evidence = linear(x[:, np.newaxis], y)
    result = run("gaussian", data)
    agree(result, "theta_std[x]", means[1], sds[1])
    agree(result, "intercept_std", means[0], sds[0])
    agree(result, "sigma", *sigma)
    assert result.summary["log_evidence"]["value"] == pytest.approx(evidence, abs=0.03)


def linear(columns: Array, y: Array) -> tuple[Array, Array, tuple[float, float], float]:
    """Means and sds of intercept and coefficients of standardised columns, those of sigma, and the log evidence."""
    unit, n = y.std(), len(y)
    X = np.column_stack([np.ones(n), (columns - columns.mean(axis=0)) / columns.std(axis=0)])
    precision = np.r_[5.0, np.full(columns.shape[1], 2.5)] ** -2 / unit**2
    products, cross, square = X.T @ X, X.T @ (y - y.mean()), ((y - y.mean()) ** 2).sum()
    found, logs = [], []
    grid = np.linspace(np.log(unit) - 2.5, np.log(unit) + 1, 400)
    for w in grid:
        s = np.exp(w)
        C = np.linalg.inv(np.diag(precision) + products / s**2)
        mean = C @ cross / s**2
        logdet = 2 * n * w - np.linalg.slogdet(C)[1] - np.log(precision).sum()
        quadratic = square / s**2 - mean @ cross / s**2
        logs.append(-0.5 * (logdet + quadratic + n * np.log(2 * np.pi)) + norm.logpdf(s / unit) + np.log(2 / unit) + w)
        found.append((mean, np.diag(C) + mean**2, s))
    log_density = np.array(logs) + np.log(grid[1] - grid[0])
    weights = np.exp(log_density - logsumexp(log_density))
    mean, second = (weights @ np.array(part) for part in list(zip(*found))[:2])
    s = np.array([one for *_, one in found])
    sigma = float(weights @ s), float(np.sqrt(weights @ (s - weights @ s) ** 2))
    return mean + np.r_[y.mean(), np.zeros(columns.shape[1])], np.sqrt(second - mean**2), sigma, float(logsumexp(log_density))


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("P", [40, 60])
def test_many_coefficients_are_as_near_as_is_promised_in_eighteen_rounds(P: int) -> None:
    rng = np.random.default_rng(P)
    names, truth = [f"x{j:02d}" for j in range(P)], 0.3 * rng.normal(size=P)
    data, columns = dict[str, dict[str, Any]](), []
    for client in CLIENTS:
        X = rng.normal(size=(int(2.5 * P), P))
        columns.append(X)
        data[client] = dict(zip(names, X.T)) | {"y": 100 + 10 * (X @ truth + rng.normal(size=len(X)))}
    means, sds, sigma, _ = linear(np.vstack(columns), pooled(data, "y"))
    result = run("gaussian", data, algorithm={"points": 4096, "effective": 2000.0})
    assert result.converged is True
    assert result.summary["rounds_to_mode"] + result.summary["rounds_of_draws"] <= 18
    said = result.summary["monte_carlo_error"]
    assert max(said.values()) <= 0.03
    found = [result.parameters[name] for name in ("intercept_std", *(f"theta_std[{name}]" for name in names))]
    assert (np.abs([one["mean"] for one in found] - means) < 0.03 * sds).all()
    np.testing.assert_allclose([one["sd"] for one in found], sds, rtol=0.03)
    # A t follows the draws that it was made from, and those of much weight get less: of 60 coefficients sigma is .03 sd small.
    assert result.parameters["sigma"]["mean"] == pytest.approx(sigma[0], abs=0.06 * sigma[1])
    assert result.parameters["sigma"]["sd"] == pytest.approx(sigma[1], rel=0.04)


def grouped(n_groups: int = 8, each: int = 6) -> dict[str, dict[str, Any]]:
    rng = np.random.default_rng(8)
    found = {}
    for name in CLIENTS:
        effects = np.repeat(0.8 * rng.normal(size=n_groups), each)
        y = rng.poisson(np.exp(0.6 + effects))
        found[name] = {"y": y.astype(float), "ward": np.repeat([f"w{g}" for g in range(n_groups)], each)}
    return found


@pytest.mark.parametrize("given", ["", "half-normal", "gamma"])
def test_random_intercepts_are_those_of_a_grid(given: str) -> None:
    """With the default prior of their standard deviation, and with one that the job gives."""
    of_sd = {
        "": lambda sd: student.logpdf(sd, 3, 0, 2.5) + np.log(2),
        "half-normal": lambda sd: norm.logpdf(sd, 0, 0.4) + np.log(2),
        "gamma": lambda sd: gamma.logpdf(sd, 4, scale=1 / 8),
    }[given]
    keys = {"half-normal": {"sd": 0.4}, "gamma": {"shape": 4.0, "rate": 8.0}}
    own = {"priors": {"group_sd[intercept]": {"kind": given, **keys[given]}}} if given else {}
    data = grouped()
    level = float(np.log(pooled(data, "y").mean()))
    u = np.linspace(-8, 8, 401)
    sums = [(y.sum(), len(y), gammaln(y + 1).sum()) for one in data.values() for y in np.split(one["y"], 8)]

    def log_joint(points: Array) -> Array:
        out = norm.logpdf(points[:, 0], level, 5) + of_sd(np.exp(points[:, 1])) + points[:, 1]
        eta = points[:, :1] + np.exp(points[:, 1:]) * u
        for total, n, ways in sums:
            inner = total * eta - n * np.exp(eta) - ways + norm.logpdf(u)
            out += logsumexp(inner, axis=1) + np.log(u[1] - u[0])
        return out

    result = run("poisson", data, model={"random": {"group": "ward"}, **own})
    grid = Grid([np.linspace(level - 1.2, level + 0.8, 45), np.linspace(-1.6, 0.9, 45)], log_joint)
    agree(result, "intercept", *grid.moments(grid.points[:, 0]))
    agree(result, "group_sd[intercept]", *grid.moments(np.exp(grid.points[:, 1])))
    assert result.summary["log_evidence"]["value"] == pytest.approx(grid.evidence, abs=0.03)


@pytest.mark.parametrize("random", [None, pytest.param({"group": "ward", "slopes": ["x"]}, marks=pytest.mark.nightly)])
def test_rows_of_several_clients_are_those_of_one(random: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for what clients round: with all digits at the same draws."""
    monkeypatch.setattr(Config, "rounds_messages", False)
    rng = np.random.default_rng(9)
    data = grouped()
    for k, one in enumerate(data.values()):
        one["x"] = np.round(rng.normal(5, 2, len(one["y"])), 4)
        one["ward"] = np.array([f"{k}{ward}" for ward in one["ward"]])
    whole = {"all": {name: pooled(data, name) for name in data["ada"]}}
    more = {"model": {"random": random}, "data": {"least_rows": 19}} if random else {"data": {"ignore": ["ward"]}}
    several, one = run("poisson", data, **more), run("poisson", whole, **more)
    assert several.parameters.keys() == one.parameters.keys()
    for name, found in several.parameters.items():
        assert found["mean"] == pytest.approx(one.parameters[name]["mean"], abs=1e-3 * found["sd"]), name
        assert found["sd"] == pytest.approx(one.parameters[name]["sd"], rel=2e-3), name
    assert several.summary["log_evidence"]["value"] == pytest.approx(one.summary["log_evidence"]["value"], abs=0.01)


def test_effects_of_clients_are_those_of_groups_at_one_client() -> None:
    rng = np.random.default_rng(12)
    data = {}
    for name in "abcdef":
        y = rng.poisson(np.exp(0.5 + 0.6 * rng.normal()), 36).astype(float)
        data[name] = {"x": np.round(rng.normal(size=36), 4), "site": np.full(36, name), "y": y}
    whole = {"all": {name: pooled(data, name) for name in data["a"]}}
    several = run("poisson", data, data={"ignore": ["site"]}, model={"random": {"client": True}})
    one = run("poisson", whole, model={"random": {"group": "site"}})
    for name, found in several.parameters.items():
        other = one.parameters[name.replace("client_sd", "group_sd")]
        assert found["mean"] == pytest.approx(other["mean"], abs=0.05 * found["sd"]), name
        assert found["sd"] == pytest.approx(other["sd"], rel=0.05), name
    assert several.summary["log_evidence"]["value"] == pytest.approx(one.summary["log_evidence"]["value"], abs=0.05)
