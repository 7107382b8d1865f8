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


@pytest.mark.parametrize(("full", "d"), [(False, 4), (True, 4), (True, 80)])
def test_at_is_the_inverse_of_moments(full: bool, d: int) -> None:
    mean, covariance = posterior(d, 0.3)
    block = Block(d, full)
    spread = covariance if full else np.sqrt(np.diag(covariance))
    found = block.moments(block.at(mean, spread))
    np.testing.assert_allclose(found[0], mean)
    np.testing.assert_allclose(found[1], spread, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("full", "d"), [(False, 3), (True, 3), (True, 70)])
def test_gradients_are_those_of_differences(full: bool, d: int) -> None:
    mean, covariance = posterior(d, 0.7)
    block, P = Block(d, full), np.linalg.inv(covariance)
    parameters, eps = 0.4 / np.sqrt(d / 3) * SEED.standard_normal(block.n_parameters), SEED.standard_normal(d)

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


@pytest.mark.parametrize("d", [60, 300])
def test_first_steps_do_not_blow_up_a_large_covariance(d: int) -> None:
    """They are nearly of rank 1: if all elements of L moved by the rate, its norm would grow with d, and draws with it."""
    block, optimiser = Block(d, full=True), adam(0.02)
    parameters = block.initial(0.0, 0.3)
    state = optimiser.init(len(parameters))
    for _ in range(10):
        eps = SEED.standard_normal(d)
        c = -(block.sample(parameters, eps) - 1.0)
        state, step = optimiser.update(state, block.gradient(parameters, eps, c))
        parameters = parameters + step
    assert np.linalg.norm(block.scale(parameters), 2) < 1.2
