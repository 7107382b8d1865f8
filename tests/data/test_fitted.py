"""What rows weigh where a model fits them: the curvature at the posterior mode."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import xlogy

from fedkern.data import fitted
from fedkern.kernels.families import FAMILIES
from oracles.mixed_rows import chance


@pytest.mark.parametrize("family", ["poisson", "binomial", "binomial-probit", "binomial-cloglog"])
def test_weights_are_the_expected_curvature_at_the_mode(family: str) -> None:
    random = np.random.default_rng(5)
    n, d = 200, 4
    X = np.column_stack([np.ones(n), random.normal(size=(n, d - 1))])
    offset, weight, trials = random.normal(size=n) / 2, random.uniform(0.5, 2, n), random.integers(1, 5, n) * 1.0
    eta, precision = X @ random.normal(size=d) / 2 + offset, np.array([0.04, 1, 1, 2])
    counts = family == "poisson"
    y = (random.poisson(np.exp(eta)) if counts else random.binomial(trials.astype(int), chance(family, eta))) * 1.0

    def objective(b: np.ndarray) -> float:
        at = X @ b + offset
        p = np.clip(chance(family, at), 1e-12, 1 - 1e-12)  # far from where it ends
        log = y * at - np.exp(at) if counts else xlogy(y, p) + xlogy(trials - y, 1 - p)
        return float(-(weight @ log) + precision @ b**2 / 2)

    at = X @ minimize(objective, np.zeros(d), tol=1e-12).x + offset
    p, slope = chance(family, at), (chance(family, at + 1e-5) - chance(family, at - 1e-5)) / 2e-5
    wanted = weight * (np.exp(at) if counts else trials * slope**2 / (p * (1 - p)))
    found = fitted.weights(X, y, trials, offset, weight, precision, FAMILIES[family])
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-7)


def test_counts_far_from_their_mean_are_fitted_too() -> None:
    days = np.where(np.arange(300) < 25, 10.0, 2000.0)
    X = np.column_stack([np.ones(300), (np.log(days) - np.log(days).mean()) / np.log(days).std()])
    y = np.random.default_rng(1).poisson(days / 5) * 1.0
    found = fitted.weights(X, y, np.ones(300), np.zeros(300), np.ones(300), np.array([0.04, 1]), FAMILIES["poisson"])
    np.testing.assert_allclose(found, days / 5, rtol=0.4)
