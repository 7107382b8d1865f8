"""Whether an optimiser still moves, and the bound over the last fifth: on trajectories whose movement is known."""

from __future__ import annotations

import numpy as np
import pytest

from fedkern.algorithms.core import kept
from fedkern.algorithms.core.windows import LEAST, LastFifth, Windows, reach

SD = 0.3


def watched(mean, sd, steady=None):
    """Windows that saw these trajectories (t,) or (t, d)."""
    mean, sd = (np.asarray(x, float).reshape(len(mean), -1) for x in (mean, sd))
    windows = Windows.of(steady or len(mean), mean.shape[1])
    for round, moments in enumerate(zip(mean, sd)):
        windows = windows.add(round, *moments)
    return windows


def noise(rounds, seed=0, memory=0.9):
    """A stationary first-order autoregression of variance 1."""
    e, x = np.random.default_rng(seed).standard_normal(rounds), np.zeros(rounds)
    x[0] = e[0]
    for t in range(1, rounds):
        x[t] = memory * x[t - 1] + np.sqrt(1 - memory**2) * e[t]
    return x


def test_the_stretches_are_where_they_should_be():
    windows = Windows.of(1000, 1)
    where = [windows.place(round) for round in range(1100)]
    assert where.index((0, 0)) == 650
    assert where.index((1, 4)) == 980
    assert [round for round, at in enumerate(where) if at] == [*range(650, 750), *range(900, 1000)]
    assert [where.count((k, b)) for k in (0, 1) for b in range(5)] == [20] * 10


def test_movement_is_in_sds_of_the_last_stretch():
    rounds = np.arange(400)
    found = watched(np.column_stack([SD * rounds / 400, 0 * rounds]), np.column_stack([0 * rounds + SD, np.exp(rounds / 400)]))
    movement = found.movement
    np.testing.assert_allclose(movement.mean, [0.25, 0], atol=1e-12)
    np.testing.assert_allclose(movement.sd, [0, np.exp(0.25) - 1], rtol=1e-3, atol=1e-12)


@pytest.mark.parametrize(("drift", "growth"), [(1.2, 0.0), (-1.2, 0.0), (0.0, 0.4), (0.0, -0.4)])
def test_what_moves_has_not_settled(drift, growth):
    """1.2 sds in all rounds are 0.3 between the stretches."""
    t = np.linspace(0, 1, 2000)
    mean, sd = SD * (drift * t + 0.05 * noise(2000)), SD * np.exp(growth * t + 0.02 * noise(2000, 1))
    movement = watched(np.column_stack([noise(2000, 2) * 0.1, mean]), np.column_stack([np.ones(2000), sd])).movement
    assert not movement.settled
    assert movement.worst == 1


@pytest.mark.parametrize("seed", range(5))
def test_noise_alone_settles_in_enough_rounds(seed):
    mean, sd = SD * 0.2 * noise(3000, seed), SD * np.exp(0.05 * noise(3000, seed + 9))
    assert watched(mean, sd).movement.settled


def test_too_much_noise_says_nothing():
    """Averages that are known to half a sd only would hide any movement."""
    mean = SD * 8 * noise(3000)
    movement = watched(mean, np.full(3000, SD)).movement
    assert movement.mean_error[0] > 0.1
    assert not movement.settled


@pytest.mark.parametrize(("rate", "seen"), [(0.01, True), (0.001, False)])
def test_steps_that_are_small_do_not_pass_for_none(rate, seen):
    """1,000 steps of Adam at 0.001 can't move a log sd by a half between the stretches, whatever is the matter."""
    windows, still = Windows.of(1000, 1, reach("adam", rate, 1000)), np.ones(1)
    for round in range(1000):
        windows = windows.add(round, still, still)
    assert windows.movement.settled is seen
    assert reach("adam", 0.01, 1000) == pytest.approx(2.5)
    assert reach("adagrad", 0.5, 400) == pytest.approx(0.5 * 2 * (np.sqrt(380) - np.sqrt(280)))
    assert reach("sgd", 1e-9, 10) == np.inf


def test_few_rounds_and_numbers_that_are_none_do_not_settle():
    still = np.ones(LEAST)
    assert watched(still, still).movement.settled
    assert not watched(still[1:], still[1:]).movement.settled
    assert watched(still[:30], still[:30]).movement is None
    assert watched(still, still, steady=2 * LEAST).movement is None  # the run ended before its last stretch
    for wrong in (np.nan, np.inf):
        assert not watched(np.where(np.arange(LEAST) == 95, wrong, 1.0), still).movement.settled


@pytest.mark.parametrize("every", [1, 10])
def test_the_last_fifth_of_the_bound(every):
    bounds, found = -100 + noise(1000, memory=0.5), LastFifth.of(1000)
    for round in range(0, 1000, every):
        found = found.add(round, bounds[round])
        found = kept.load(LastFifth.of(1000), kept.save(found)) if round == 900 else found
    mean, error = found.moments
    np.testing.assert_allclose(mean, bounds[800::every].mean())
    batches = bounds[800::every].reshape(10, -1).mean(axis=1)
    np.testing.assert_allclose(error, batches.std(ddof=1) / np.sqrt(10))
    assert LastFifth.of(10).moments is None
    assert np.isnan(LastFifth.of(1).add(0, -3.0).moments[1])
