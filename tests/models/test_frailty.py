"""Cox rows whose groups have effects: the integral, and effects given the rows, beside sums over a cloud of effects."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm, qmc

from fedkern.models import frailty, survival
from fedkern.models.mixed import Layout

G = 4
LAYOUT = Layout(("x",), "cox", ("intercept",))
POINTS = np.array([[0.0, -1.0], [0.5, 0.0], [0.4, 0.5], [-0.3, -3.0]])


def client(n: int = 60, seed: int = 1) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    x, code = random.normal(size=n), random.integers(0, G, n)
    time = np.round(random.exponential(size=n) * np.exp(-0.5 * x - random.normal(size=G)[code]), 1) + 0.1  # with ties
    weights = random.choice([0.0, 1.0, 2.0], n)
    return {"x": x, "code": code, "time": time, "event": random.uniform(size=n) < 0.7, "weights": weights}


def rows(given: dict[str, np.ndarray], *, weighed: bool = False) -> frailty.Rows:
    weights = given["weights"] if weighed else None
    X = given["x"][:, np.newaxis]
    plain = survival.Rows.of(Layout(("x",), "cox"), X, given["time"], given["event"], None, None, weights)
    return frailty.Rows.of(LAYOUT, plain, given["code"], weights, key=5)


def efron(given: dict[str, np.ndarray], eta: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(M,) log partial likelihoods of predictors (M, n), by the definition."""
    total, r = np.zeros(len(eta)), weights * np.exp(eta)
    kept = weights > 0
    for t in np.unique(given["time"][given["event"] & kept]):
        dying, risk = given["event"] & (given["time"] == t) & kept, given["time"] >= t
        d = int(dying.sum())
        total += eta[:, dying] @ weights[dying]
        for k in range(d):
            total -= weights[dying].mean() * np.log(r[:, risk].sum(axis=1) - k / d * r[:, dying].sum(axis=1))
    return total


def prior_of_effects() -> np.ndarray:
    return norm.ppf(np.clip(qmc.Sobol(G, seed=7).random_base2(15), 1e-9, 1 - 1e-9))


def cloud(given: dict[str, np.ndarray], point: np.ndarray, weights: np.ndarray) -> tuple[float, np.ndarray]:
    """The log integral by 2^15 effects of the prior, and (G,) the effects' means given the rows."""
    u = prior_of_effects()
    log = efron(given, point[0] * given["x"] + np.exp(point[1]) * u[:, given["code"]], weights)
    share = np.exp(log - logsumexp(log))
    return float(logsumexp(log) - np.log(len(log))), np.exp(point[1]) * share @ u


@pytest.mark.parametrize("weighed", [False, True])
def test_the_integral_is_that_over_a_cloud_of_effects(weighed: bool) -> None:
    given = client()
    weights = given["weights"] if weighed else np.ones(60)
    wanted = np.array([cloud(given, point, weights)[0] for point in POINTS])
    value = rows(given, weighed=weighed).values(POINTS, 800)
    assert value - value[0] == pytest.approx(wanted - wanted[0], abs=0.02)


def test_without_draws_it_is_farther_off() -> None:
    """Laplace's approximation alone, which draws correct."""
    given, found = client(), rows(client())
    wanted = np.array([cloud(given, point, np.ones(60))[0] for point in POINTS])
    laplace = np.array([mode.value - np.log(np.diagonal(mode.root)).sum() for _, mode in found.integral._modes(POINTS) if mode])
    corrected = found.values(POINTS, 800)
    off = [np.std(values - wanted) for values in (laplace, corrected)]
    assert off[1] < off[0] / 3


def test_effects_given_the_rows() -> None:
    given = client()
    draws = np.repeat(POINTS[1:2], 50, axis=0)
    completed = rows(given).completed(draws, np.random.default_rng(2).uniform(size=(50, 40)))
    _, wanted = cloud(given, POINTS[1], np.ones(60))
    assert completed.effects.mean[:, 0] == pytest.approx(wanted, abs=0.1)
    eta = completed.rows.predictor(completed.points)
    plain = rows(given).plain.predictor(draws[:, :1]) + completed.points[:, 1:][:, rows(given).codes]
    assert eta - eta.mean(axis=1, keepdims=True) == pytest.approx(plain - plain.mean(axis=1, keepdims=True), abs=1e-10)


def test_a_group_whose_rows_weigh_nothing_has_the_prior() -> None:
    given = client()
    given["weights"] = np.where(given["code"] == 2, 0.0, 1.0)
    found = rows(given, weighed=True)
    assert found.n_groups == G
    completed = found.completed(np.repeat(POINTS[1:2], 50, axis=0), np.random.default_rng(2).uniform(size=(50, 40)))
    assert completed.effects.mean[2, 0] == pytest.approx(0.0, abs=0.1)
    assert completed.effects.sd[2, 0] == pytest.approx(1.0, abs=0.1)
