"""SOUL against closed forms: the mode of z, the conditional of theta, the dispersion; and what its draws are not."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize

from fedkern.algorithms import soul
from fedkern.algorithms import soul as soul_client
from fedkern.models.likelihood import Likelihood
from fedkern.models.split.predictors import Linear
from oracles import vertical_oracle as oracle
from support import chosen, soul_runs

KIND = {"augmented": "av", "power": "pl"}


@pytest.fixture(scope="module")
def rows():
    return soul_runs.data()


def rms(a):
    return float(np.sqrt(np.mean(np.square(a))))


@pytest.mark.parametrize("form", soul_runs.FORMS[::2])  # the two forms of AV have the same bits
@pytest.mark.parametrize("rho", [0.5, pytest.param(1.0, marks=pytest.mark.nightly), 2.0])
def test_the_mode_of_z_and_the_conditional_of_theta(rows, form, rho):
    """Section 10: zhat within 0.03 rms, means of theta within 0.06, chain sd 1 to 1.16 times the conditional one (steps of finite
    length, and a z that moves), and that is far below the sd of the posterior."""
    X, y = rows
    server, clients = soul_runs.run(X, y, form, rho)
    model = oracle.Model(KIND[form[0]], X, y, 0.7, rho)
    joint, posterior = model.joint(), np.diag(np.linalg.inv(model.posterior()[1]))
    assert rms(server.averaged[0] - np.array([joint.mean[at] for at in joint.z])) < 0.03
    found = [soul.conditional(clients[j]) for j in range(3)]
    exact = [np.linalg.inv(joint.K[at, at]) for at in joint.theta]
    assert np.abs(np.concatenate([f.mean - joint.mean[at] for f, at in zip(found, joint.theta)])).max() < 0.06
    ratios = np.concatenate([np.sqrt(np.diag(f.covariance) / np.diag(C)) for f, C in zip(found, exact)])
    assert 1.0 < ratios.min()
    assert ratios.max() < 1.16
    spread = np.concatenate([np.diag(f.covariance) for f in found])
    assert np.sqrt(spread / posterior).max() < 0.75
    assert {f.label for f in found} == {"conditional"}


@pytest.mark.parametrize("planted", ["1/J forgotten", "z of the first half averaged in"])
def test_negative_control_planted_faults_miss_the_mode(rows, planted, monkeypatch):
    X, y = rows
    form, rho = ("power", "shared"), 2.0
    if planted == "1/J forgotten":
        real = soul_client._own
        monkeypatch.setattr(soul_client, "_own", lambda *given: tuple(3 * part for part in real(*given)))
    else:
        monkeypatch.setattr(soul.Settings, "first", 0)
        monkeypatch.setattr(soul.Settings, "decay", lambda self, round: 0.01)
    server, _ = soul_runs.run(X, y, form, rho, rounds=600)
    joint = oracle.Model("pl", X, y, 0.7, rho).joint()
    assert rms(server.averaged[0] - np.array([joint.mean[at] for at in joint.z])) > 0.05


@pytest.mark.parametrize("power", [False, True])
def test_langevin_steps_have_their_exact_stationary_law(rows, power):
    """Given z, for a quadratic log-density of precision A: mean exact, covariance (A - h A^2 / 2)^-1."""
    X, y = rows
    z, Z = 0.3 * y, 0.8 * y
    s = chosen.soul(3, 100, 40, 3, 0.8, "power" if power else "augmented", "shared", langevin_steps=100)
    client = soul.client("a", 0, s, Linear(X[0]), y, Likelihood("gaussian", 0.7))
    client = replace(client, round=s.first)  # so that all steps count
    event = soul.AuxiliaryTotal(0, z, Z, 0.1, np.zeros(0)) if power else None
    for _ in range(300):
        client = soul_client._sampled(client, z, event)[0]
    w = 1 / (3 * 0.7**2) if power else 0.0
    A = np.eye(2) + X[0].T @ X[0] * (1 / 0.8**2 + w)
    mean = np.linalg.solve(A, X[0].T @ (z / 0.8**2 + w * (y - 0.1 - Z + z)))
    h = client.langevin_step(0.7**-2)
    assert h == pytest.approx(0.2 / np.linalg.eigvalsh(A).max())
    exact, found = np.linalg.inv(A - h * A @ A / 2), client.total / client.count
    np.testing.assert_allclose(found, mean, atol=0.08 * np.sqrt(np.diag(exact)).max())
    np.testing.assert_allclose(client.squares / client.count - np.outer(found, found), exact, atol=0.06 * np.diag(exact).max())


@pytest.mark.parametrize("family", ["bernoulli", "poisson"])
def test_the_mode_of_z_and_b_for_other_likelihoods(family):
    """Against a general optimiser of log p(y | z, b) + log p(z) + log p(b), p(z_j) = N(0, rho^2 I + X_j X_j')."""
    X, y = soul_runs.data(family)
    rho, offset, likelihood = 0.7, np.linspace(-0.5, 0.5, len(y)), Likelihood(family)
    server, _ = soul_runs.run(X, y, soul_runs.FORMS[0], rho, family=family, intercept=True, offset=offset, langevin_steps=60)
    inverse = [np.linalg.inv(rho**2 * np.eye(len(y)) + x @ x.T) for x in X]

    def negative(v):
        z, b = v[:-1].reshape(3, -1), v[-1]
        eta = offset + z.sum(axis=0) + b
        value = likelihood.value(y, eta).sum() - 0.5 * b * b - 0.5 * sum(zj @ P @ zj for zj, P in zip(z, inverse))
        r = likelihood.slope(y, eta)
        return -value, -np.concatenate([*(r - P @ zj for zj, P in zip(z, inverse)), [r.sum() - b]])

    best = optimize.minimize(negative, np.zeros(3 * len(y) + 1), jac=True, method="L-BFGS-B", options={"maxiter": 5000}).x
    z, b, _ = server.averaged
    assert rms(z.ravel() - best[:-1]) < 0.08
    assert abs(b - best[-1]) < 0.05


@pytest.mark.parametrize("form", soul_runs.FORMS[::2])  # the two forms of AV have the same bits
def test_the_mode_of_sigma(form):
    """Of p(z, sigma | y), theta integrated out, for a rho that is small beside sigma."""
    X, y = soul_runs.data(n=120, sd=0.9)
    server, _ = soul_runs.run(X, y, form, 0.2, scale=None, rounds=1000)

    def negative(sigma):
        joint = oracle.Model(KIND[form[0]], X, y, sigma, 0.2).joint()
        value = joint.constant + 0.5 * joint.shift @ np.linalg.solve(joint.K, joint.shift) - 0.5 * sigma**2
        return -value + 0.5 * sum(np.linalg.slogdet(joint.K[at, at])[1] for at in joint.theta)

    best = optimize.minimize_scalar(negative, bounds=(0.5, 1.2), method="bounded").x
    assert np.exp(server.averaged[2]) == pytest.approx(best, rel=0.01)
