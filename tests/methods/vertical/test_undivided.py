"""Where a job gives no rho the server works one out, and what is published is the undivided model's posterior."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar, root
from scipy.special import expit, gammaln, logsumexp
from scipy.stats import poisson

import fedkern
from fedkern.data.columns import Columns
from fedkern.jobs.load import config_of
from fedkern.methods.vertical import keys, stages, undivided
from fedkern.methods.vertical.model import VerticalModel
from fedkern.models.likelihood import Likelihood
from oracles.vertical_undivided import cell, exact
from papers import vertical

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
GIVEN = {"clients": ["a.csv"], "id": "id", "response": "y", "server": "y.csv"}


def model_of(n_clients=2, **sections):
    tables = {"job": {"method": "vertical", "seed": 1}, "data": GIVEN, **sections}
    return VerticalModel(config_of(keys, tables), tuple("abcdefghij"[:n_clients]), 100)


@pytest.mark.parametrize(
    ("family", "mean", "n_clients", "rho"),
    [
        ("bernoulli", 0.5, 2, 0.3244),
        ("bernoulli", 0.5, 10, 0.1451),
        ("bernoulli", 0.02, 2, 0.3244),
        ("poisson", 1, 2, 0.1622),
        ("poisson", 100, 2, 0.0162),
        ("poisson", 300, 2, 0.01),
        ("poisson", 0.01, 2, 0.5),
    ],
)
def test_rho_keeps_95_percent_of_a_row(family, mean, n_clients, rho):
    model = model_of(n_clients, model={"family": family})
    found = undivided.work_out_rho(model.link(np.full(100, float(mean))), n_clients)
    np.testing.assert_allclose(found, rho, atol=5e-5)


def test_only_open_amortised_jobs_work_it_out():
    def listed(**sections):
        return "auxiliary-sd" in [stage.protocol.name for stage in stages.stages(model_of(**sections))]

    private = {"privacy": {"epsilon": 3.0, "delta": 1e-5}, "job": {"method": "vertical", "rounds": 100}}
    declared = {"data": {**GIVEN, "columns": {"x": {"center": 0.0, "scale": 1.0}}}}
    others = (
        {"algorithm": {"auxiliary": "mean-field"}},
        {"algorithm": {"inference": "soul"}},
        {"model": {"kind": "network"}},
        {**private, **declared},
    )
    assert listed()
    assert not listed(model={"rho": 0.3})
    for sections in others:
        assert not listed(**sections)
        assert model_of(**sections).rho == 0.5
        assert model_of(**sections).config.algorithm.until is None


@pytest.mark.parametrize(("mean", "v"), [(1.0, 0.0526), (1.0, 0.5), (5.0, 0.01), (300.0, 2e-4), (300.0, 0.1)])
def test_how_much_lower_the_intercept_of_augmented_counts_is(mean, v):
    """The intercept with the best expected density of Poisson counts under the augmented model: low by v / 2 at first."""
    y = np.arange(poisson.ppf(1e-12, mean), poisson.ppf(1 - 1e-12, mean) + 1)
    p, e = poisson.pmf(y, mean), np.linspace(-8, 8, 2001)[:, None]  # a rule of few nodes misses large counts

    def slope(b):
        eta = b + np.sqrt(v) * e
        log = y * eta - np.exp(eta) - gammaln(y + 1) - e**2 / 2
        w = np.exp(log - logsumexp(log, axis=0))
        return p @ (w * (y - np.exp(eta))).sum(axis=0)

    low = np.log(mean) - brentq(slope, np.log(mean) - 2, np.log(mean) + 2)
    np.testing.assert_allclose(undivided.lowered(v, mean), low, rtol=0.07 if mean * v < 1 else 0.5)
    if mean * v < 0.1:
        np.testing.assert_allclose(v / 2, low, rtol=0.02)
    if mean * v > 1:
        assert low < v / 8 + 2 / mean  # little of v / 2 is left where counts are large: they tell z itself


@pytest.mark.parametrize(
    ("r", "base"), [(0.3, 3.0), *(pytest.param(*case, marks=pytest.mark.nightly) for case in ((0.5, 2.0), (2.0, 1.0)))]
)
def test_how_much_lower_the_intercept_of_augmented_negative_binomials_is(r, base):
    """By the densities themselves, on a grid: at r = 0.3 v / 2 is off by most of a standard deviation of 3,000 rows."""
    random = np.random.default_rng(2)
    eta = base + 0.5 * random.standard_normal(400)
    y = random.negative_binomial(r, r / (r + np.exp(eta))).astype(float)
    v, e = (1 / 0.95 - 1) * (1 / y.mean() + 1 / r), np.linspace(-6, 6, 121)
    a, best = eta[:, None] - np.log(r), []
    for noise, w in ((np.zeros(1), np.ones(1)), (np.sqrt(v) * e, np.exp(-(e**2) / 2))):

        def loss(d, noise=noise, w=w):
            t = a + d + noise
            return -logsumexp(y[:, None] * t - (y[:, None] + r) * np.logaddexp(0, t), axis=1, b=w).sum()

        best.append(minimize_scalar(loss, bounds=(-1, 1), method="bounded").x)
    low = undivided.lowered_at(Likelihood("negative-binomial", r), y, eta + best[1], v)
    np.testing.assert_allclose(low, best[0] - best[1], atol=0.002)


def test_how_much_lower_the_intercept_of_large_negative_binomials_is():
    """Each row tells its own predictor far better than the auxiliary variables' spread: a rule of few nodes misses its peak."""
    random, r, v, t = np.random.default_rng(0), 500.0, 0.3, np.linspace(-8, 8, 4001)
    eta = 7 + 0.3 * random.standard_normal(60)
    mean = np.exp(eta + np.sqrt(v) * random.standard_normal(60))
    y = random.negative_binomial(r, r / (r + mean)).astype(float)

    def loss(d, e, w):
        at = eta[:, None] + d + e - np.log(r)
        return -logsumexp(y[:, None] * at - (y[:, None] + r) * np.logaddexp(0, at), axis=1, b=w).sum()

    rules = (np.zeros(1), np.ones(1)), (np.sqrt(v) * t, np.exp(-(t**2) / 2))
    one, other = (minimize_scalar(loss, bounds=(-2, 2), args=rule, method="bounded", options={"xatol": 1e-7}).x for rule in rules)
    assert undivided.lowered_at(Likelihood("negative-binomial", r), y, eta, v) == pytest.approx(one - other, abs=1e-4)


@pytest.mark.parametrize("centre", [0.0, -1.0, -3.0])
def test_by_how_much_augmented_logistic_coefficients_are_larger(centre):
    """Intercept and slope of a normal column with the best expected density under the augmented model, for several true slopes.
    Without the correction slopes are off by 1.1 to 4.9 %, and the intercept of rare events by 0.1."""
    v, w = 4 * (1 / 0.95 - 1), WEIGHTS / WEIGHTS.sum()
    for true in (0.3, 1.0, 2.0):
        level = expit(centre + true * NODES)

        def score(t, level=level):
            q = expit((t[0] + t[1] * NODES)[:, None] + np.sqrt(v) * NODES)
            p = q @ w
            g = w * (level - p) / (p * (1 - p)) * ((q * (1 - q)) @ w)
            return [g.sum(), (g * NODES).sum()]

        b, slope = root(score, [centre, true]).x
        np.testing.assert_allclose(slope / undivided.enlarged(v, w @ level), true, rtol=0.011)
        np.testing.assert_allclose(undivided.Undivided(spread=v).intercept(b)[0], centre, atol=0.015)


def published(folder):
    """Means and sds of the intercept and of all slopes, as a reader finds them."""
    files = [folder / "summary.json", *(folder / f"client-client-{k}" / "posterior.json" for k in (1, 2))]
    rows = [row for file in files for row in json.loads(file.read_text())["parameters"].values()]
    return np.array([[row["mean"], row["sd"]] for row in rows]).T


@pytest.mark.parametrize(
    ("family", "mean"),
    [("bernoulli", 0), ("poisson", 1), pytest.param("poisson", 300, marks=[pytest.mark.nightly, pytest.mark.timeout(600)])],
)
def test_the_default_ends_at_the_undivided_models_posterior(tmp_path, family, mean):
    data = cell(family, mean)
    tables = vertical.job(tmp_path, data, 1, 0, model={"family": family})
    del tables["job"]["rounds"]
    result = fedkern.run(tables, out=tmp_path / "run")
    assert result.summary["stop"] == "settled"
    want, sd = exact(family, data.X, data.y)
    mean_here, sd_here = published(tmp_path / "run")
    np.testing.assert_array_less(np.abs(mean_here - want) / sd, 0.1)
    np.testing.assert_array_less(np.abs(sd_here / sd - 1), 0.3)  # a product over clients
    rho = result.summary["inference"]["rho"]
    wanted = 2.0 if family == "bernoulli" else data.y.mean() ** -0.5
    np.testing.assert_allclose(rho, max(wanted * np.sqrt((1 / 0.95 - 1) / 2), 0.01))
    own = json.loads((tmp_path / "run" / "client-client-1" / "posterior.json").read_text())
    assert own["rho"] == rho
    assert f"rho = {rho:.3g}: " in own["note"]
    assert any(note.startswith(f"rho = {rho:.3g}: ") for note in result.summary["notes"])


@pytest.mark.parametrize(("family", "rho"), [("bernoulli", None), ("poisson", None), ("poisson", 0.5)])
def test_predictions_are_those_of_the_published_coefficients(tmp_path, family, rho):
    """Under every rule but the augmented one, whose coefficients are the augmented model's."""
    data = cell(family, 2)
    model = {"family": family} | ({} if rho is None else {"rho": rho})
    of = {}
    for rule in ("plug-in", "augmented"):
        (folder := tmp_path / rule).mkdir()
        tables = vertical.job(folder, data, 1, 200, model=model, output={"rule": rule})
        tables["data"]["holdout"] = 0.2
        result = fedkern.run(tables, out=folder / "run")
        with (folder / "run" / "predictions.csv").open() as file:
            of[rule] = {int(row["id"]): float(row["predictor_mean"]) for row in csv.DictReader(file)}
    rows = list(of["plug-in"])
    mean, _ = published(folder / "run")
    X = np.column_stack([np.ones(len(data.y)), *data.X])[rows]
    np.testing.assert_allclose([of["plug-in"][row] for row in rows], X @ mean, rtol=1e-9)
    augmented, v = np.array([of["augmented"][row] for row in rows]), 2 * result.summary["inference"]["rho"] ** 2
    if family == "bernoulli":
        larger = undivided.enlarged(v, np.delete(data.y, rows).mean())
        b = augmented - X[:, 1:] @ mean[1:] * larger
        np.testing.assert_allclose(b, b[0], rtol=1e-9)
        np.testing.assert_allclose(undivided.Undivided(spread=v).intercept(b[0])[0], mean[0], rtol=1e-9)
    else:
        low = X @ mean - augmented
        np.testing.assert_allclose(low, low[0], rtol=1e-6)
        np.testing.assert_allclose(low[0], v / 2, rtol=0.3)
        assert low[0] > 0


def test_an_unknown_sigma_has_the_auxiliary_variance_in_it(tmp_path):
    random = np.random.default_rng(3)
    X = tuple(random.standard_normal((400, 2)) for _ in range(2))
    y = 0.3 + np.hstack(X) @ [0.5, -0.3, 0.4, 0.2] + 0.4 * random.standard_normal(400)
    data = Columns(X, (("a", "b"), ("c", "d")), y)
    tables = vertical.job(tmp_path, data, 1, 3000, model={"family": "gaussian"})
    result = fedkern.run(tables, out=tmp_path / "run")
    design = np.column_stack([np.ones(400), *X])
    left = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    added = 2 * result.summary["inference"]["rho"] ** 2
    np.testing.assert_allclose(added, 0.1 * y.var() * (1 / 0.95 - 1))
    log_sigma = result.summary["parameters"]["log_sigma"]["mean"]
    np.testing.assert_allclose(log_sigma, 0.5 * np.log(left @ left / 395), atol=0.01)


def test_the_digest_knows_rho_and_given_rounds_stay(tmp_path):
    """The rho that was worked out, given by hand, has the same rounds and another digest: only one of them is the job's own."""
    data, ran = cell("poisson", 1), []
    for name, model in (("worked-out", {}), ("given", {"rho": float(np.sqrt((1 / 0.95 - 1) / 2 / data.y.mean()))})):
        (folder := tmp_path / name).mkdir()
        tables = vertical.job(folder, data, 1, 50, model={"family": "poisson", **model})
        ran.append(fedkern.run(tables, out=folder / "run"))
    assert ran[0].summary["rounds"] == ran[1].summary["rounds"] == 50
    np.testing.assert_allclose(*(run.summary["parameters"]["intercept"]["mean"] for run in ran), rtol=1e-6)
    assert ran[0].summary["digest"] != ran[1].summary["digest"]
