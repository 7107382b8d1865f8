"""The Monte Carlo error of leave-one-out sums: it covers how they vary with the draws, and is less once chance is taken back."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fedkern
from fedkern.results import loo

DRAWS = 200


@pytest.mark.parametrize(("n", "p"), [(80, 3), (200, 10), pytest.param(400, 25, marks=pytest.mark.nightly)])
def test_it_covers_how_sums_vary_with_draws(n: int, p: int) -> None:
    """A linear model of known error, whose leave-one-out densities are known: y_i given the others is normal."""
    random = np.random.default_rng(n)
    X, sd = random.normal(size=(n, p)), 1.3
    y = X @ random.normal(size=p) + sd * random.normal(size=n)
    precision = np.eye(p) / 25 + X.T @ X / sd**2
    covariance = np.linalg.inv(precision)
    mean = covariance @ X.T @ y / sd**2
    h = np.einsum("ij,jk,ik->i", X, covariance, X) / sd**2
    residual, variance = (y - X @ mean) / (1 - h), sd**2 / (1 - h)
    exact = float((-(residual**2) / (2 * variance) - np.log(2 * np.pi * variance) / 2).sum())

    def densities(draws: np.ndarray) -> np.ndarray:
        return -((y - draws @ X.T) ** 2) / (2 * sd**2) - math.log(2 * math.pi * sd**2) / 2

    total = densities(random.multivariate_normal(mean, covariance, 20_000)).sum(axis=1)
    raw, better = [], []
    for _ in range(30):
        at = densities(random.multivariate_normal(mean, covariance, DRAWS))
        content = loo.summary([loo.sums(n, lambda part, at=at: at[:, part])], draws=DRAWS)
        raw.append(content)
        better.append(loo.corrected(content, float(at.sum(axis=1).mean()), float(total.mean()), float(total.var())))
    for told in (raw, better):
        off = np.array([one["elpd"] - exact for one in told])
        error = np.mean([one["monte_carlo_error"] for one in told])
        assert np.mean(np.abs(off) <= 2 * error) >= 0.9
    spread = [np.std([one["elpd"] for one in told], ddof=1) for told in (raw, better)]
    assert 0.6 < spread[0] / np.mean([one["monte_carlo_error"] for one in raw]) < 1.4
    assert spread[1] < 0.5 * spread[0]
    assert np.std([one["p_loo"] for one in better]) < 0.6 * np.std([one["p_loo"] for one in raw])
    differences = np.subtract(*([one["elpd"] for one in better[k::2]] for k in (0, 1)))
    allowed = np.array([loo.error_of_difference(*pair) for pair in zip(better[::2], better[1::2])])
    assert np.mean(np.abs(differences) <= 2 * allowed) >= 0.9


def test_sums_of_draws_that_are_not_independent_have_none() -> None:
    at = np.random.default_rng(1).normal(size=(50, 20))
    content = loo.summary([loo.sums(20, lambda part: at[:, part])])
    assert "monte_carlo_error" not in content
    assert math.isnan(loo.error_of_difference(content, content))
    assert loo.corrected({}, 0.0, 0.0, 1.0) == {}


def test_results_of_several_seeds_differ_by_less_than_their_draws_do() -> None:
    random, data = np.random.default_rng(6), {}
    for name in ("ay", "bo"):
        X = random.normal(size=(150, 8))
        data[name] = (X, (random.random(150) < 1 / (1 + np.exp(-X[:, 0]))).astype(float))
    job = {"job": {"method": "likelihood"}, "model": {"family": "bernoulli"}, "output": {"loo": True}}
    told = [fedkern.run(job, data=data, job={"seed": seed}).summary["loo"] for seed in range(5)]
    of_draws = math.sqrt(2 * told[0]["p_loo"] / DRAWS)
    assert np.std([one["elpd"] for one in told], ddof=1) < 0.4 * of_draws
    assert np.std([one["p_loo"] for one in told], ddof=1) < 0.4 * of_draws
    assert all(one["monte_carlo_error"] < 0.8 * of_draws for one in told)
