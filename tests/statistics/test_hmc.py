"""Federated Hamiltonian Monte Carlo: joint tests, the exact posterior of a linear model, and NUTS on a mixed model."""

from dataclasses import replace

import numpy as np
import pytest

from fedkern.algorithms.core.messages import SERVER
from fedkern.algorithms.hmc import machine as hmc
from fedkern.algorithms.hmc import machine as hmc_client
from fedkern.algorithms.hmc.moves import Walk
from oracles import geweke
from papers.common import references
from support import chosen
from support import hamiltonian as ham
from support import hierarchical as h

# (leapfrog, step, rounds for each data set)
SCHEDULES = [(3, 0.2, 1), (1, 0.25, 2)]


def worst(seed, leapfrog=3, step=0.2, rounds=1, prior=None, chains=500, steps=25):
    joint = ham.Joint(seed % 1000, leapfrog, step, prior)
    return geweke.worst(geweke.joint_test(joint, seed, rounds=rounds, chains=chains, steps=steps))[0]


@pytest.mark.parametrize(("leapfrog", "step", "rounds"), SCHEDULES)
def test_joint_distribution(seed, leapfrog, step, rounds):
    assert worst(seed, leapfrog, step, rounds) < geweke.BOUND


@pytest.mark.nightly
@pytest.mark.parametrize(("leapfrog", "step", "rounds"), [(3, 0.2, 1), (3, 0.2, 2), (1, 0.25, 1), (1, 0.25, 2), (7, 0.15, 1)])
def test_joint_distribution_of_long_chains(seed, leapfrog, step, rounds):
    assert worst(seed, leapfrog, step, rounds, chains=2000, steps=100) < geweke.BOUND


def test_negative_control_the_jacobian_twice(seed):
    assert worst(seed, prior=ham.Normals(jacobian=2.0)) > geweke.BOUND


def test_negative_control_a_whole_kick_at_the_end(seed, monkeypatch):
    real = Walk.landed
    monkeypatch.setattr(Walk, "landed", lambda self, step: real(self, 2 * step))
    assert worst(seed) > geweke.BOUND


def test_negative_control_the_kinetic_energy_of_clients_not_counted(seed, monkeypatch):
    real = hmc_client._visit

    def forgotten(state, xi):
        state, (answer,) = real(state, xi)
        if isinstance(answer, hmc.SlopeChange):
            answer = hmc.SlopeChange(answer.gradient, state.walk.trial_value - state.walk.value)
        return state, [answer]

    monkeypatch.setattr(hmc_client, "_visit", forgotten)
    assert worst(seed) > geweke.BOUND


# The exact posterior --------------------


@pytest.mark.parametrize("leapfrog", [1, 5])
def test_the_posterior_of_a_linear_model(seed, leapfrog):
    models = ham.side_by_side(h.linear([2, 1]))
    mean, covariance = h.exact(models)
    s = chosen.hmc(draws=250, warmup=200, chains=40, leapfrog=leapfrog, seed=seed)
    starts = {"xi": s.starts(SERVER, 3), "u": [s.starts(k, m.size) for k, m in enumerate(models)]}
    draws = ham.together(*ham.run(models, s, **starts))
    assert np.abs(ham.z_scores(draws, mean)).max() < 5
    off = draws - mean
    products = np.einsum("cti,ctj->ctij", off, off)[:, :, *np.triu_indices(len(mean))]
    assert np.abs(ham.z_scores(products, covariance[np.triu_indices(len(mean))])).max() < 5


def test_negative_control_a_target_that_is_a_little_wide(seed, monkeypatch):
    """The same test sees standard deviations that are 15 % too large."""
    models = ham.side_by_side(h.linear([2, 1]))
    _, covariance = h.exact(models)
    real = hmc_client.evaluate
    monkeypatch.setattr(hmc_client, "evaluate", lambda *a: tuple(0.75 * part for part in real(*a)))
    s = chosen.hmc(draws=250, warmup=200, chains=40, leapfrog=5, seed=seed)
    draws = ham.together(*ham.run(models, s))
    assert np.abs(ham.z_scores((draws - h.exact(models)[0]) ** 2, np.diag(covariance))).max() > 5


# NUTS --------------------

NUTS = references("hierarchical")["families"]


@pytest.mark.parametrize(("family", "leapfrog"), [("poisson", 6), pytest.param("bernoulli", 1, marks=pytest.mark.nightly)])
def test_a_mixed_model_at_three_clients_agrees_with_nuts_on_all_rows(seed, family, leapfrog):
    """NUTS of another program (tools/references/hierarchical.py): first and second moments of beta, log tau and intercepts."""
    s = chosen.hmc(draws=150, warmup=150, chains=10, leapfrog=leapfrog, seed=seed)
    if leapfrog == 1:
        s = replace(s, draws=4000, warmup=1000)
    draws = ham.together(*ham.run(h.mixed(family), s))
    want = {name: np.array(values) for name, values in NUTS[family].items()}
    z = [ham.z_scores(draws, want["mean"], want["mean_error"])]
    z.append(ham.z_scores((draws - want["mean"]) ** 2, want["square"], want["square_error"]))
    assert np.abs(z).max() < 4.5
