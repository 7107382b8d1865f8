"""The pure parts of the algorithms: optimisers, the averaged trajectory, shards."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkern.algorithms.core import kept
from fedkern.algorithms.core.optim import adagrad, adam, sgd
from fedkern.algorithms.core.windows import KEPT, Trajectory
from fedkern.algorithms.pvi.scale import clipped, partition
from fedkern.privacy.accountant import Mechanism

MECHANISM = Mechanism(sampling="shards", clip=2.0, dimension=4, noise_multiplier=1.0)


def test_adagrad_by_hand():
    optimiser = adagrad(0.5)
    state = optimiser.init(2)
    state, step = optimiser.update(state, np.array([3.0, 0.0]))
    np.testing.assert_allclose(step, [0.5, 0.0])
    state, step = optimiser.update(state, np.array([4.0, 1.0]))
    np.testing.assert_allclose(step, [0.5 * 4 / 5, 0.5], rtol=1e-9)


def test_adagrad_does_not_see_a_common_scale():
    g = np.random.default_rng(0).standard_normal((5, 3))
    steps = []
    for scale in (1.0, 1e6):
        optimiser = adagrad(0.1)
        state = optimiser.init(3)
        for row in g:
            state, step = optimiser.update(state, scale * row)
        steps.append(step)
    np.testing.assert_allclose(steps[0], steps[1], rtol=1e-8)


def test_adam_first_step_is_the_learning_rate():
    optimiser = adam(0.01)
    _, step = optimiser.update(optimiser.init(3), np.array([5.0, -1e-3, 1e3]))
    np.testing.assert_allclose(step, [0.01, -0.01, 0.01], rtol=1e-4)


def test_sgd_has_no_state():
    state, step = sgd(0.1).update(sgd(0.1).init(2), np.array([1.0, -2.0]))
    assert state.size == 0
    np.testing.assert_allclose(step, [0.1, -0.2])


@pytest.mark.parametrize("n", [1, 2, 3, 10, 255, 256, 257, 1000, 5000])
def test_the_mean_of_the_second_half(n):
    points = np.random.default_rng(n).standard_normal((n, 2)) + np.arange(n)[:, None]
    trajectory = Trajectory(np.zeros(2))
    for point in points:
        trajectory = trajectory.add(point)
        assert len(trajectory.kept) <= KEPT
    means = [points[first:].mean(axis=0) for first in range(n)]
    nearest = min(range(n), key=lambda first: np.abs(means[first] - trajectory.half_mean()).max())
    np.testing.assert_allclose(trajectory.half_mean(), means[nearest], rtol=1e-9)
    assert abs(nearest - n / 2) <= 1 + n / KEPT
    again = kept.load(Trajectory(np.zeros_like(trajectory.total)), kept.save(trajectory))
    assert (again.half_mean() == trajectory.half_mean()).all()


@given(st.lists(st.integers(0, 2**64 - 1), unique=True, min_size=1, max_size=50), st.integers(1, 7))
def test_adding_a_row_moves_no_other_between_shards(ids, n):
    ids = np.array(ids, np.uint64)
    before, after = partition(ids[:-1], n), partition(ids, n)
    assert sum(map(len, after)) == len(ids)
    for old, new in zip(before, after):
        assert set(old) <= set(new)


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=4, max_size=4))
def test_a_shards_change_never_exceeds_the_clip(change):
    integer, factor = clipped(np.array(change), MECHANISM)
    assert np.linalg.norm(integer * MECHANISM.grid) <= MECHANISM.clip
    assert 0 <= factor <= 1


def test_negative_control_without_the_factor_the_clip_is_exceeded():
    change = np.full(4, 10.0)
    assert np.linalg.norm(change) > MECHANISM.clip
    integer, factor = clipped(change, MECHANISM)
    np.testing.assert_allclose(integer * MECHANISM.grid, change * factor, atol=2 * MECHANISM.grid)
