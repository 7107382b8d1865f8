"""Exchanges of temperatures keep every tempered posterior: a Gaussian case with known moments, and what a wrong sign would do."""

import numpy as np
import pytest

from fedkern.algorithms.gibbs.sweeps import exchange_temperatures, ladder

LADDERS, K, ROUNDS = 1500, 3, 12
PRECISION = 10.0  # log-likelihood -10 x^2 / 2, prior N(0, 1): at power beta the posterior is N(0, 1 / (1 + 10 beta))


def cold_moment(sign):
    """Mean of 11 x^2 over the cold chains right after exchanges, and its standard error: 1 if the target is kept."""
    random = np.random.default_rng(5)
    state = ladder(LADDERS * K, K)
    seen = []
    for t in range(ROUNDS):
        x = random.standard_normal(LADDERS * K) / np.sqrt(1 + PRECISION * state.temperature)
        state = exchange_temperatures(state, -sign * PRECISION * x**2 / 2, seed=1, round=t, adapt=False)
        seen.append((1 + PRECISION) * x[state.cold] ** 2)
    values = np.concatenate(seen)
    return values.mean(), values.std() / np.sqrt(len(values)), state


def test_exchanges_keep_the_target():
    mean, error, state = cold_moment(+1)
    assert abs(mean - 1) < 4.5 * error
    assert (state.exchanged > 0.2 * state.tried).all()


def test_negative_control_a_wrong_sign_is_noticed():
    mean, error, _ = cold_moment(-1)
    assert abs(mean - 1) > 10 * error


def test_every_ladder_has_each_temperature_once_and_one_cold_chain():
    _, _, state = cold_moment(+1)
    assert (np.sort(state.place.reshape(LADDERS, K), axis=1) == np.arange(K)).all()
    assert len(state.cold) == LADDERS
    assert (state.temperature[state.cold] == 1).all()


@pytest.mark.parametrize("beta_gap", [0.01, 3.0])
def test_the_ladder_adapts_towards_its_acceptance(beta_gap):
    random = np.random.default_rng(2)
    state = ladder(300 * K, K)
    object.__setattr__(state, "log_gap", np.full(K - 1, np.log(beta_gap)))
    for t in range(400):
        x = random.standard_normal((300 * K, 20)) / np.sqrt(1 + PRECISION * state.temperature)[:, None]
        state = exchange_temperatures(state, -PRECISION * (x**2).sum(axis=1) / 2, seed=1, round=t, adapt=True)
    for t in range(400, 440):
        x = random.standard_normal((300 * K, 20)) / np.sqrt(1 + PRECISION * state.temperature)[:, None]
        state = exchange_temperatures(state, -PRECISION * (x**2).sum(axis=1) / 2, seed=1, round=t, adapt=False)
    rates = state.exchanged / state.tried
    np.testing.assert_allclose(rates, 0.3, atol=0.08)
