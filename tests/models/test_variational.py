"""Gaussian blocks: flat parameters and their gradients, and that optimisers move them by parts of their size."""

from __future__ import annotations

import numpy as np
import pytest

from fedkern.algorithms.core.optim import adam
from fedkern.models.variational import Block

SEED = np.random.default_rng(5)


def posterior(d: int, size: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of a Gaussian target with correlations."""
    A = SEED.standard_normal((d, d))
    return SEED.standard_normal(d), size**2 * (A @ A.T + np.eye(d))


@pytest.mark.parametrize("full", [False, True])
def test_at_is_the_inverse_of_moments(full: bool) -> None:
    mean, covariance = posterior(4, 0.3)
    block = Block(4, full)
    spread = covariance if full else np.sqrt(np.diag(covariance))
    found = block.moments(block.at(mean, spread))
    np.testing.assert_allclose(found[0], mean)
    np.testing.assert_allclose(found[1], spread, rtol=1e-12)


@pytest.mark.parametrize("full", [False, True])
def test_gradients_are_those_of_differences(full: bool) -> None:
    mean, covariance = posterior(3, 0.7)
    block, P = Block(3, full), np.linalg.inv(covariance)
    parameters, eps = 0.4 * SEED.standard_normal(block.n_parameters), SEED.standard_normal(3)

    def objective(p: np.ndarray) -> float:
        r = block.sample(p, eps) - mean
        return -0.5 * float(r @ P @ r) + block.entropy(p)

    c = -P @ (block.sample(parameters, eps) - mean)
    found, h = block.gradient(parameters, eps, c, path=False), 1e-3
    for k, step in enumerate(np.eye(len(parameters)) * h):
        near, far = (objective(parameters + a * step) - objective(parameters - a * step) for a in (1, 2))
        np.testing.assert_allclose(found[k], (8 * near - far) / (12 * h), rtol=5e-6, atol=5e-8)


@pytest.mark.parametrize("path", [True, False])
def test_a_posterior_much_narrower_than_the_learning_rate_is_found(path: bool) -> None:
    """With elements of L as parameters, steps of 0.01 would be many times as large as L itself."""
    mean, covariance = posterior(4, 3e-3)
    block, P = Block(4, full=True), np.linalg.inv(covariance)
    optimiser = adam(0.01)
    parameters, rounds = block.initial(0.0, 0.1), 20_000
    state = optimiser.init(len(parameters))
    for k in range(rounds):
        eps = SEED.standard_normal(4)
        c = -P @ (block.sample(parameters, eps) - mean)
        state, step = optimiser.update(state, block.gradient(parameters, eps, c, path=path))
        parameters = parameters + step * min(1.0, 4 * (1 - k / rounds) ** 2)
    found = block.moments(parameters)[1]
    assert np.abs(found - covariance).max() < 0.2 * np.abs(covariance).max()
