"""Optimisers: against the published recursions written out, and as what `algorithms.core.optim` uses."""

from __future__ import annotations

import numpy as np
import pytest

from fedkern.algorithms.core import optim as algorithms
from fedkern.kernels import optim
from fedkern.kernels._record import KERNELS

BACKENDS = KERNELS["optim.adam"].backends


@pytest.mark.parametrize("backend", BACKENDS)
def test_adam_for_many_iterations(backend):
    """Kingma and Ba (2015), Algorithm 1, one element at a time."""
    rng, k = np.random.default_rng(0), 11
    state, x = np.zeros((3, k)), np.zeros(k)
    m, v, want = [0.0] * k, [0.0] * k, [0.0] * k
    for t in range(1, 301):
        g = rng.standard_normal(k) * np.exp(rng.uniform(-5, 5))
        state, step = optim.adam(state, g, learning_rate=0.02, beta1=0.8, beta2=0.95, epsilon=1e-6, backend=backend)
        x = x + step
        for j in range(k):
            m[j] = 0.8 * m[j] + 0.2 * g[j]
            v[j] = 0.95 * v[j] + 0.05 * g[j] ** 2
            want[j] += 0.02 * (m[j] / (1 - 0.8**t)) / ((v[j] / (1 - 0.95**t)) ** 0.5 + 1e-6)
    np.testing.assert_allclose(x, want, rtol=1e-10)
    np.testing.assert_allclose(state, [m, v, [300] * k], rtol=1e-10)


@pytest.mark.parametrize("backend", BACKENDS)
def test_adam_counts_each_element_for_itself(backend):
    """Elements that a batch has not touched keep their count: each is as if it were alone."""
    g = np.array([0.3, -2.0, 0.3, 5.0, 0.3])
    counts = np.array([0.0, 0.0, 4.0, 9.0, 0.0])
    state = np.stack([0.1 * counts, 0.2 * counts, counts])
    new, step = optim.adam(state, g, learning_rate=0.1, backend=backend)
    for j in range(5):
        alone, alone_step = optim.adam(state[:, j : j + 1].copy(), g[j : j + 1], learning_rate=0.1, backend=backend)
        np.testing.assert_array_equal(alone[:, 0], new[:, j])
        np.testing.assert_array_equal(alone_step, step[j])
    np.testing.assert_array_equal(new[2], counts + 1)
    assert step[0] == step[4] != step[2]


@pytest.mark.parametrize("backend", BACKENDS)
def test_adagrad_for_many_iterations(backend):
    rng = np.random.default_rng(0)
    state, total = np.zeros((1, 7)), np.zeros(7)
    for _ in range(50):
        g = rng.standard_normal(7)
        total += g**2
        state, step = optim.adagrad(state, g, learning_rate=0.3, backend=backend)
        np.testing.assert_allclose(state[0], total, rtol=1e-13)
        np.testing.assert_allclose(step, 0.3 * g / np.sqrt(total), rtol=1e-8)


@pytest.mark.parametrize("backend", BACKENDS)
def test_optimisers_find_the_top_of_a_hill(backend):
    target = np.array([3.0, -1.0, 0.5])
    for function, rows, rate in ((optim.adam, 3, 0.05), (optim.adagrad, 1, 1.0)):
        state, x = np.zeros((rows, 3)), np.zeros(3)
        for _ in range(2000):
            state, step = function(state, target - x, learning_rate=rate, backend=backend)
            x = x + step
        np.testing.assert_allclose(x, target, atol=1e-3)


@pytest.mark.parametrize("name", ["adam", "adagrad"])
def test_the_optimisers_of_the_protocols_are_these(name):
    optimiser = algorithms.OPTIMISERS[name](0.01)
    state, g = optimiser.init(9), np.random.default_rng(0).standard_normal(9)
    for _ in range(3):
        want = getattr(optim, name)(state, g, learning_rate=0.01, backend="reference")
        state, step = optimiser.update(state, g)
        np.testing.assert_allclose(state, want[0], rtol=1e-13)
        np.testing.assert_allclose(step, want[1], rtol=1e-12)


@pytest.mark.parametrize("name", list(algorithms.OPTIMISERS))
def test_many_updates_are_as_one_after_the_other(name):
    rng, optimiser = np.random.default_rng(3), algorithms.OPTIMISERS[name](0.05)
    updates = optimiser.updates(9)
    one = many = optimiser.init(9)
    for _ in range(4):
        g = rng.standard_normal(9)
        one, step = optimiser.update(one, g)
        many, same = updates(many, g)
        np.testing.assert_array_equal(same, step, strict=True)
        np.testing.assert_array_equal(many, one, strict=True)
