"""Clients that work at once, with exact sites and a full covariance: no damping, and no more rounds than in turn."""

import numpy as np
import pytest

import fedkern


def federation(seed, clients, rows, p, family, spread):
    """Clients of other means, effects and numbers of rows, whose columns are correlated."""
    rng = np.random.default_rng(seed)
    effects, data = rng.normal(size=p), {}
    for client in range(clients):
        n = int(rows * rng.uniform(0.6, 1.6))
        X = (rng.standard_t(5, size=(n, p)) + spread * rng.normal(size=p)) @ (np.eye(p) + 0.7)
        eta = X @ (effects + 0.3 * spread * rng.normal(size=p)) / p - 0.5
        y = rng.random(n) < 1 / (1 + np.exp(-eta)) if family == "bernoulli" else rng.poisson(np.exp(np.clip(0.5 * eta, -4, 3)))
        data[f"c{client}"] = X, y.astype(float)
    return data


def run(data, family, schedule, **algorithm):
    return fedkern.run(
        {
            "job": {"method": "pvi", "rounds": "until"},
            "data": {"least_rows": 5},
            "model": {"family": family},
            "algorithm": {"schedule": schedule, "until": {"max_rounds": 48}, **algorithm},
        },
        data=data,
    )


@pytest.mark.parametrize("family", ["bernoulli", "poisson"])
@pytest.mark.parametrize(("seed", "clients", "spread"), [(0, 3, 0.5), (1, 12, 1.0), (2, 24, 2.0)])
def test_they_need_no_more_rounds_than_in_turn_and_find_the_same_posterior(family, seed, clients, spread):
    data = federation(seed, clients, 50, 4, family, spread)
    together, turns = run(data, family, "synchronous"), run(data, family, "sequential")
    assert together.summary["rounds"] <= 2 * turns.summary["rounds"]
    for name, row in turns.parameters.items():
        other = together.parameters[name]
        assert abs(other["mean"] - row["mean"]) < 0.1 * row["sd"]
        assert other["sd"] == pytest.approx(row["sd"], rel=0.02)


def test_a_step_for_each_client_takes_many_more():
    data = federation(2, 24, 50, 4, "bernoulli", 2.0)
    assert (
        run(data, "bernoulli", "synchronous", damping=1 / 24).summary["rounds"]
        > 8 * run(data, "bernoulli", "synchronous").summary["rounds"]
    )
