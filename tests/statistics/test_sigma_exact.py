"""Inference with a trained prior against exact posteriors: linear decoders and Gaussian rows (sigma.md, sections 6, 7 and 12)."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from fedkern.algorithms.hmc import machine as hmc
from fedkern.algorithms.sfvi import machine as sfvi
from fedkern.algorithms.sfvi.families import Family, NestedFamily
from fedkern.models.spatial.condition import Hyperprior
from fedkern.models.spatial.site import SigmaPrior
from fedkern.models.variational import Block
from oracles import sigma_exact as exact
from support import chosen
from support import hamiltonian as ham
from support import hierarchical as h

FAST = chosen.sfvi(rounds=2500, learning_rate=0.03)


def fitted(models, prior, settings=FAST, nested=False):
    """The last states of structured federated inference."""
    clients = {}
    for k, m in enumerate(models):
        family = NestedFamily(Family(Block(m.decoder.n_local, True), m.n_global), m) if nested else None
        clients[k] = sfvi.client(f"c{k}", k, settings, m, len(models), family=family)
    started = sfvi.start(settings, prior, tuple(c.name for c in clients.values()))
    return h.play(sfvi, started, clients)


# Structured federated inference, phi known --------------------


@pytest.mark.parametrize("tau2", [None, pytest.param(0.3, marks=pytest.mark.nightly)])
def test_the_full_family_reaches_the_exact_posterior(tau2):
    """The deterministic model, and the auxiliary one with theta integrated out."""
    models, prior = exact.sites(tau2=tau2)
    server, clients = fitted(models, prior)
    assert h.kl(h.joint(server, clients), exact.given_phi(models, prior, 0.6)[1:]) < 1e-4


@pytest.mark.parametrize("narrower", [{"coupled": False}, {"local_covariance": "diagonal"}])
def test_negative_control_a_narrower_family_does_not(narrower):
    models, prior = exact.sites()
    server, clients = fitted(models, prior, replace(FAST, rounds=1000, **narrower))
    assert h.kl(h.joint(server, clients), exact.given_phi(models, prior, 0.6)[1:]) > 0.005


def test_theta_sampled_gives_the_xi_of_theta_integrated_out():
    """The nested family holds the conditional of theta: standard deviations of xi are right within 2 % (variance of y 0.05)."""
    models, prior = exact.sites(tau2=0.3, sampled=True, sd=np.sqrt(0.05))
    server, _ = fitted(models, prior, replace(FAST, rounds=2000), nested=True)
    P = prior.size
    _, mean, covariance = exact.given_phi(models, prior, 0.6)
    found_mean, found = sfvi.posterior_moments(server)
    np.testing.assert_allclose(np.sqrt(np.diag(found)), np.sqrt(np.diag(covariance)[:P]), rtol=0.02)
    assert (np.abs(found_mean - mean[:P]) / np.sqrt(np.diag(covariance)[:P])).max() < 0.05


def test_negative_control_slope_one_makes_xi_far_too_narrow(monkeypatch):
    """q(theta | xi, u) centred at thetahat + c, which moves with thetahat whatever y says."""
    models, prior = exact.sites(tau2=0.3, sampled=True, sd=np.sqrt(0.05))
    real = NestedFamily.gradient

    class SlopeOne(NestedFamily):
        def gradient(self, model, parameters, xi, centre, eps, *, path=True, bound=True):
            """With k = sigmoid(-40) and c / k for c, theta = thetahat + c + s e."""
            n, m = self.outer.n_parameters, self.n_observed
            moved = parameters.copy()
            moved[n : n + m] = -20.0
            moved[n + m : n + 2 * m] = parameters[n + m : n + 2 * m] * np.exp(20.0)
            value, G, flat = real(self, model, moved, xi, centre, eps, path=path, bound=bound)
            flat[n : n + m] = 0.0
            flat[n + m : n + 2 * m] *= np.exp(20.0)
            return value, G, flat

    clients, short = {}, replace(FAST, rounds=1200)
    for k, m in enumerate(models):
        family = SlopeOne(Family(Block(m.decoder.n_local, True), m.n_global), m)
        clients[k] = sfvi.client(f"c{k}", k, short, m, len(models), family=family)
    server, _ = h.play(sfvi, sfvi.start(short, prior, tuple(c.name for c in clients.values())), clients)
    sd = np.sqrt(np.diag(exact.given_phi(models, prior, 0.6)[2])[:3])  # of z_G
    assert (np.sqrt(np.diag(sfvi.posterior_moments(server)[1]))[:3] / sd).min() < 0.7


@pytest.mark.parametrize("path", [True, False])
def test_a_clients_gradient_is_unbiased(seed, path):
    """With a linear decoder its mean is that of the density at the means."""
    (models, prior), rng = exact.sites(tau2=0.3), np.random.default_rng(seed)
    site, block = models[0], Block(prior.size, full=True)
    family = Family(Block(site.size, True), prior.size)
    lam = block.initial(0.0, 0.5) + 0.2 * rng.standard_normal(block.n_parameters)
    own, centre = 0.3 * rng.standard_normal(family.n_parameters), 0.3 * rng.standard_normal(prior.size)
    G = np.empty((2000, prior.size))
    for k in range(len(G)):
        xi = block.sample(lam, rng.standard_normal(prior.size))
        G[k] = family.gradient(site, own, xi, centre, rng.standard_normal(site.size), path=path)[1]
    mu = lam[: prior.size]
    _, h_xi, h_u = site.log_joint_grad(mu, family.given(own, mu - centre)[: site.size])
    error = G.std(axis=0) / np.sqrt(len(G))
    assert (np.abs(G.mean(axis=0) - h_xi - family.coupling(own).T @ h_u) / error).max() < 4.5
    assert (np.abs(G.mean(axis=0) - h_xi) / error).max() > 10  # the path through u_j counts


# phi unknown --------------------


def log_joint(models, prior, xi, us):
    """As the parties of a job have it."""
    return prior.log_prior_grad(xi)[0] + sum(m.log_joint_grad(xi, u)[0] for m, u in zip(models, us))


def log_joint_of_the_model(models, prior, xi, us):
    """log p(y, u, xi) from the model's definition and SciPy's densities."""
    c = prior.condition
    phi, s = c.lo + (c.hi - c.lo) * expit(xi[0]), expit(xi[0])
    logit, sd = np.log(phi / (1 - phi)), np.sqrt(c.hyperprior.variance)
    ends = [np.log(end / (1 - end)) for end in (c.lo, c.hi)]
    value = stats.truncnorm.logpdf(logit, ends[0] / sd, ends[1] / sd, scale=sd)
    value += np.log((c.hi - c.lo) * s * (1 - s) / (phi * (1 - phi)))  # d logit phi / dx
    value += stats.norm.logpdf(xi[1:4]).sum() + stats.norm.logpdf(xi[4:], scale=5.0).sum()
    for m, u in zip(models, us):
        X, W, cov = exact.linear_parts(m, phi)
        value += stats.multivariate_normal.logpdf(m.rows.y, m.rows.offset + X @ xi + W @ u, cov) + stats.norm.logpdf(u).sum()
    return value


def farthest(models, prior, right_models=None, right_prior=None):
    """Largest difference of the two at random places, but for a constant."""
    rng, off = np.random.default_rng(3), []
    for _ in range(20):
        xi, us = rng.normal(0, 0.8, prior.size), [rng.normal(size=m.size) for m in models]
        want = log_joint_of_the_model(right_models or models, right_prior or prior, xi, us)
        off.append(log_joint(models, prior, xi, us) - want)
    return np.ptp(off), abs(off[0])


@pytest.mark.parametrize("tau2", [None, 0.3])
def test_the_joint_density_is_that_of_the_model(tau2):
    models, prior = exact.sites(condition=exact.FREE, tau2=tau2)
    assert max(farthest(models, prior)) < 1e-9


class JacobianTwice(SigmaPrior):
    def log_prior_grad(self, xi):
        value, gradient = super().log_prior_grad(xi)
        return value + np.log(expit(xi[0]) * expit(-xi[0])), gradient


@pytest.mark.parametrize(
    "planted", ["Jacobian of logit twice", "variance 2 taken for sd 2", "tau^2 taken for tau", "sd for variance"]
)
def test_negative_control_a_planted_slip_is_seen(planted):
    models, prior = exact.sites(condition=exact.FREE, tau2=0.3)
    wrong, other = models, prior
    if planted == "Jacobian of logit twice":
        other = JacobianTwice(prior.layout, prior.condition)
    elif planted == "variance 2 taken for sd 2":
        where = replace(prior.condition, hyperprior=Hyperprior("logit-normal", 0.0, 4.0))
        other = SigmaPrior(prior.layout, where)
    elif planted == "tau^2 taken for tau":
        wrong = [replace(m, auxiliary=replace(m.auxiliary, tau2=m.auxiliary.tau2**2)) for m in models]
    else:
        wrong = [replace(m, likelihood=replace(m.likelihood, scale=m.likelihood.scale**2)) for m in models]
    assert farthest(wrong, other, models, prior)[0] > 0.1


@pytest.mark.parametrize(
    ("tau2", "sampled", "chains"),
    [
        (0.3, True, 10),
        *(pytest.param(t, s, 30, marks=pytest.mark.nightly) for t, s in ((None, False), (0.3, False), (0.3, True))),
    ],
)
def test_draws_of_xi_and_u_are_from_the_exact_posterior(seed, tau2, sampled, chains):
    """Also with theta sampled beside them: the same posterior. phi is integrated by quadrature."""
    models, prior = exact.sites(condition=exact.FREE, tau2=tau2, sampled=sampled)
    s = chosen.hmc(draws=120, warmup=120, chains=chains, leapfrog=6, seed=seed)
    server, clients = ham.run(models, s, prior=prior)
    us = [hmc.local_draws(clients[k])[:, :, : m.decoder.n_local] for k, m in enumerate(models)]
    draws = np.concatenate([hmc.draws(server), *us], axis=2)
    mean, covariance = exact.over_phi(models, prior)
    z = np.concatenate([ham.z_scores(draws, mean), ham.z_scores((draws - mean) ** 2, np.diag(covariance))])
    assert np.abs(z).max() < 4.5


@pytest.mark.nightly
def test_variational_inference_of_counts_agrees_with_draws_from_the_posterior():
    """Means within 0.1 sd for xi and 0.15 sd for theta (docs/spec/sigma.md, section 8), and spreads of xi within a fifth."""
    models, prior = exact.counts()
    s = chosen.hmc(draws=500, warmup=300, chains=8, leapfrog=10, seed=1)
    server, clients = ham.run(models, s, prior=prior)
    xi = hmc.draws(server).reshape(-1, prior.size)
    fit, fitted_clients = fitted(models, prior, replace(FAST, rounds=4000, learning_rate=0.02), nested=True)
    mean, covariance = sfvi.posterior_moments(fit)
    sd = xi.std(axis=0)
    assert (np.abs(mean - xi.mean(axis=0)) / sd).max() < 0.1
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), sd, rtol=0.2)
    rng = np.random.default_rng(2)
    draws = rng.multivariate_normal(mean, covariance, 3000)
    for k, m in enumerate(models):
        none = np.zeros((1, m.decoder.size))
        theta = m.theta_given(xi, hmc.local_draws(clients[k]).reshape(len(xi), -1), none)
        c = fitted_clients[k]
        normals = rng.standard_normal((len(draws), c.family.n_normals))
        u = np.array([c.family.sample(c.parameters, x, c.centre, e) for x, e in zip(draws, normals)])
        found = m.theta_given(draws, u, none)
        assert (np.abs(found.mean(axis=0) - theta.mean(axis=0)) / theta.std(axis=0)).max() < 0.15
