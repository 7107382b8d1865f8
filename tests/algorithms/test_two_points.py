"""Points in which logistic gradients are lines where columns are declared as binary, against means computed otherwise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from fedkern.algorithms.pvi.noise_aware import Design, TwoPoints

D = 4
SHARES = {1: 0.1, 3: 0.7}
WITH = TwoPoints.of(np.ones(D), SHARES, intercept=True)


def drawn(n: int) -> np.ndarray:
    """Rows: the intercept, a binary column, a normal one, a binary one; all have mean square 1."""
    random = np.random.default_rng(0)
    X = random.standard_normal((n, D))
    X[:, 0] = 1
    for at, share in SHARES.items():
        X[:, at] = ((random.random(n) < share) - share) / np.sqrt(share * (1 - share))
    return X


def test_points_are_means_of_gradients_over_rows_and_q() -> None:
    """Over 400,000 rows, with another theta of q for each."""
    X, random = drawn(400_000), np.random.default_rng(1)
    for mu in ([-1.0, 0.8, -0.5, 0.5], [0.5, -0.6, 1.0, 0.3]):
        variances = np.array([0.02, 0.3, 0.1, 0.05])
        theta = mu + np.sqrt(variances) * random.standard_normal(X.shape)
        mean = ((expit((X * theta).sum(axis=1)) - 0.5)[:, None] * X).mean(axis=0)
        points = WITH.points(np.array([mu]), variances[None])[0][0] / 4
        np.testing.assert_allclose(points, mean, atol=0.006)  # of the probit approximation, and 0.0015 of the draws


def test_a_rare_binary_column_is_none_that_counts_as_normal() -> None:
    X, mu = drawn(400_000), np.array([-1.0, 0.8, -0.5, 0.5])
    mean = ((expit(X @ mu) - 0.5)[:, None] * X).mean(axis=0)
    plain = Design("bernoulli", np.ones(D), 1).points(mu[None], np.zeros((1, D)))[0][0] / 4
    assert np.abs(plain - mean).max() > 0.015  # more than twice what the others are off at most


def test_derivatives_are_those_of_the_points() -> None:
    random = np.random.default_rng(2)
    mu, variances, h = random.normal(size=(6, D)), random.uniform(0, 0.5, (6, D)), 1e-5
    factor = WITH.points(mu, variances)[1]
    for j in range(D):
        to = h * np.eye(D)[j]
        by = (WITH.points(mu + to, variances)[0] - WITH.points(mu - to, variances)[0]) / (2 * h)
        np.testing.assert_allclose(factor[:, j], variances[:, j] * by[:, j], atol=1e-9)
    for row in mu:
        at = WITH.points(row[None], np.zeros((1, D)))[0][0]
        theta, slope = WITH.at(at)
        np.testing.assert_allclose(theta, row, atol=1e-9)
        for j in range(D):
            to = h * np.eye(D)[j]
            by = (WITH.points((row + to)[None], np.zeros((1, D)))[0] - WITH.points((row - to)[None], np.zeros((1, D)))[0]) / (
                2 * h
            )
            np.testing.assert_allclose(slope[:, j], by[0], atol=1e-8)


def test_no_point_is_farther_than_the_farthest() -> None:
    random = np.random.default_rng(3)
    mu = random.normal(size=(2000, D)) * 10.0 ** random.uniform(-1, 6, (2000, 1))
    assert (np.abs(WITH.points(mu, random.uniform(0, 9, (2000, D)))[0]) <= WITH.farthest * (1 + 1e-12)).all()


def test_points_of_nothing_are_refused() -> None:
    with pytest.raises((ArithmeticError, np.linalg.LinAlgError)):
        WITH.at(1.2 * WITH.farthest)
