"""Federated Hamiltonian Monte Carlo: joint tests, the exact posterior of a linear model, and NUTS on a mixed model."""

import geweke
import hamiltonian as ham
import hierarchical as h
import numpy as np
import pytest

from fedkern.algorithms import hmc
from fedkern.algorithms.hmc_moves import Settings, Walk
from fedkern.algorithms.messages import SERVER, evolve

# (leapfrog, step, rounds for each data set)
SCHEDULES = [(3, 0.25, 1), (3, 0.25, 2), (1, 0.35, 2)]


@pytest.mark.parametrize(("leapfrog", "step", "rounds"), SCHEDULES)
def test_joint_distribution(seed, leapfrog, step, rounds):
    z = geweke.joint_test(ham.Joint(seed % 1000, leapfrog, step), seed, rounds=rounds, chains=600, steps=25)
    assert geweke.worst(z)[0] < geweke.BOUND


def failing(seed, prior=None):
    joint = ham.Joint(seed % 1000, 3, 0.4, prior)
    return geweke.worst(geweke.joint_test(joint, seed, rounds=2, chains=400, steps=20))[0]


def test_negative_control_the_jacobian_twice(seed):
    assert failing(seed, ham.Normals(jacobian=2.0)) > 2 * geweke.BOUND


def test_negative_control_a_whole_kick_at_the_end(seed, monkeypatch):
    real = Walk.landed
    monkeypatch.setattr(Walk, "landed", lambda self, step: real(self, 2 * step))
    assert failing(seed) > 2 * geweke.BOUND


def test_negative_control_a_client_whose_change_counts_half(seed, monkeypatch):
    real = hmc._visit

    def halved(state, xi):
        state, (answer,) = real(state, xi)
        if isinstance(answer, hmc.SlopeChange):
            answer = hmc.SlopeChange(answer.gradient, 0.5 * answer.change)
        return state, [answer]

    monkeypatch.setattr(hmc, "_visit", halved)
    assert failing(seed) > 2 * geweke.BOUND


def test_negative_control_the_gradient_of_a_place_that_was_rejected(seed, monkeypatch):
    real = Walk.settled
    monkeypatch.setattr(Walk, "settled", lambda self, accepted: evolve(real(self, accepted), slope=self.trial_slope))
    assert failing(seed) > 2 * geweke.BOUND


# The exact posterior --------------------


@pytest.mark.parametrize("leapfrog", [1, 5])
def test_the_posterior_of_a_linear_model(seed, leapfrog):
    models = ham.side_by_side(h.linear([2, 1]))
    mean, covariance = h.exact(models)
    s = Settings(draws=250, warmup=200, chains=40, leapfrog=leapfrog, seed=seed)
    starts = {"xi": s.starts(SERVER, 3), "u": [s.starts(k, m.size) for k, m in enumerate(models)]}
    draws = ham.together(*ham.run(models, s, **starts))
    assert np.abs(ham.z_scores(draws, mean)).max() < 5
    off = draws - mean
    products = np.einsum("cti,ctj->ctij", off, off)[:, :, *np.triu_indices(len(mean))]
    assert np.abs(ham.z_scores(products, covariance[np.triu_indices(len(mean))])).max() < 5


def test_negative_control_a_target_that_is_a_little_wide(seed, monkeypatch):
    """The same test sees standard deviations that are 12 % too large."""
    models = ham.side_by_side(h.linear([2, 1]))
    _, covariance = h.exact(models)
    real = hmc.evaluate
    monkeypatch.setattr(hmc, "evaluate", lambda *a: tuple(0.8 * part for part in real(*a)))
    s = Settings(draws=250, warmup=200, chains=40, leapfrog=5, seed=seed)
    draws = ham.together(*ham.run(models, s))
    assert np.abs(ham.z_scores((draws - h.exact(models)[0]) ** 2, np.diag(covariance))).max() > 7
