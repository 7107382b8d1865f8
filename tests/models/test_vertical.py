"""The gradient that the parties make out of messages is that of the whole ELBO (vertical.md, sections 5, 7 and 13)."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from fedkern.models.split.site import Likelihood
from fedkern.models.variational import Block
from oracles import vertical_elbo as pooled
from support import vertical_cases as cases
from support.vertical_cases import AUXILIARIES, KINDS, LIKELIHOODS, PREDICTORS, federated

CLOSE = 1e-12
ALL = list(itertools.product(KINDS, AUXILIARIES, (False, True), PREDICTORS, LIKELIHOODS))


def chosen(number, model):
    """A quarter: every predictor with every family of both models, the likelihoods in turn."""
    kind, auxiliary, full, predictor, _ = model
    turn = KINDS.index(kind) + 2 * AUXILIARIES.index(auxiliary) + full + PREDICTORS.index(predictor)
    return number % 4 == turn % 4


MODELS = [
    pytest.param(*model, marks=() if chosen(number, model) else pytest.mark.nightly, id="-".join(map(str, model)))
    for number, model in enumerate(ALL)
]


def flat(gradients):
    clients, server = gradients
    return np.concatenate([*clients, server])


def distance(got, want):
    """Largest difference, in units of the largest of the same party's numbers."""
    parties = zip([*got[0], got[1]], [*want[0], want[1]])
    return max(np.abs(a - b).max() / np.abs(b).max() for a, b in parties if len(b))


def check(c, fault=None):
    """Federated is pooled, in the estimator of the case; the pooled value."""
    value, *want = pooled.gradients(c, frozen=c.shared.path)
    found = distance(federated(c, fault=fault), want)
    assert found < CLOSE, found
    return value


@pytest.mark.parametrize(("kind", "auxiliary", "full", "predictor", "likelihood"), MODELS)
def test_federated_is_pooled(kind, auxiliary, full, predictor, likelihood):
    c = cases.case(kind, auxiliary, full, predictor, likelihood, sizes=(2, 2, 2))  # one size: compiled once
    np.testing.assert_allclose(cases.value(c), check(c), rtol=1e-12)
    check(c.with_path(False))


@pytest.mark.parametrize("kind", KINDS)
def test_every_client_may_have_another_predictor(kind):
    check(cases.case(kind, "amortised", True, ("network", "linear", "multilevel"), "bernoulli"))
    check(cases.case(kind, "mean-field", False, ("linear", "network", "centred"), "dispersed", intercept=False))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(3,), (2, 0, 1)])
@pytest.mark.parametrize("auxiliary", AUXILIARIES)
def test_one_client_and_clients_without_columns(auxiliary, sizes, kind):
    check(cases.case(kind, auxiliary, True, "linear", "dispersed", sizes=sizes))
    check(cases.case(kind, auxiliary, False, "linear", "bernoulli", sizes=sizes, n=1))


def test_the_exact_model_is_power_likelihood_with_one_client():
    """J = 1: z enters nothing but its own prior, so the gradient of theta does not depend on rho."""
    one, other = (cases.case("pl", "mean-field", True, sizes=(3,), rho=rho, path=False) for rho in (0.1, 2.0))
    z = one.sites[0].parts["theta"].stop
    exact = [federated(replace(c, parameters=[at_the_prior(c)]))[0][0][:z] for c in (one, other)]
    np.testing.assert_allclose(*exact, rtol=1e-10)


def at_the_prior(c):
    """Mean-field z at g: what is left is the likelihood."""
    site, parameters, eps, tau = c.sites[0], c.parameters[0].copy(), c.eps[0], c.tau[0]
    g = site.draw(parameters, eps, tau, c.extra[0]).g
    parameters[site.parts["mean"]] = g - np.exp(parameters[site.parts["log_sd"]]) * tau
    return parameters


@pytest.mark.parametrize("predictor", PREDICTORS)
@pytest.mark.parametrize("kind", KINDS)
def test_four_point_differences_of_the_packages_own_value(kind, predictor):
    """With the noise frozen, the value is that of the total form up to a constant."""
    for auxiliary, likelihood in (("mean-field", "dispersed"), ("amortised", "poisson")):
        c = cases.case(kind, auxiliary, True, predictor, likelihood, sizes=(2, 1), n=7, path=False)
        got, server = federated(c)
        arrays, want = [*c.parameters, c.server], [*got, server]
        for place, (values, gradient) in enumerate(zip(arrays, want)):
            found = np.empty(len(values))
            for i in range(len(values)):
                found[i] = slope(lambda moved: cases.value(with_array(c, place, moved)), values, i)  # noqa: B023
            np.testing.assert_allclose(found, gradient, atol=5e-6 * np.abs(gradient).max())


def with_array(c, place, values):
    if place == c.J:
        return replace(c, server=values)
    return replace(c, parameters=[*c.parameters[:place], values, *c.parameters[place + 1 :]])


def slope(function, values, i, h=2e-4):
    out = 0.0
    for step, weight in ((-2, 1), (-1, -8), (1, 8), (2, -1)):
        moved = values.copy()
        moved[i] += step * h
        out += weight * function(moved)
    return out / (12 * h)


# ---- mini-batches


@pytest.mark.parametrize("likelihood", ["bernoulli", "dispersed"])
@pytest.mark.parametrize("path", [False, True])
@pytest.mark.parametrize("auxiliary", AUXILIARIES)
@pytest.mark.parametrize("kind", KINDS)
def test_batches_of_an_epoch_average_to_all_rows(kind, auxiliary, path, likelihood):
    c = cases.case(kind, auxiliary, True, ("linear", "multilevel", "network"), likelihood, path=path)
    size = cases.N // 4
    batches = np.random.default_rng(3).permutation(cases.N).reshape(-1, size)
    want, want_server = federated(c)
    total = [np.zeros(site.n_parameters) for site in c.sites]
    server = 0.0
    for index in batches:
        got, part = federated(c, index)
        server = server + part / len(batches)
        for site, gradient, summed in zip(c.sites, got, total):
            head = site.parts["mean"].start if auxiliary == "mean-field" else site.n_parameters
            summed[:head] += gradient[:head] / len(batches)
            if auxiliary == "mean-field":  # rows of a batch are updated without the factor
                summed[site.columns(index)[head:]] += gradient[head:]
    assert distance((total, server), (want, want_server)) < 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_the_pooled_gradient_with_weighted_rows(kind):
    c = cases.case(kind, "amortised", True, ("linear", "multilevel", "network"), "dispersed")
    index = np.array([3, 17, 4, 0, 11, 9])
    weight = np.zeros(cases.N)
    weight[index] = cases.N / len(index)
    _, *want = pooled.gradients(c, frozen=True, weight=weight)
    assert distance(federated(c, index), want) < CLOSE


# ---- one mean for both estimators


@pytest.mark.parametrize(
    ("kind", "auxiliary", "predictor"),
    [
        ("av", "mean-field", "linear"),
        ("av", "amortised", "network"),
        ("pl", "mean-field", "multilevel"),
        ("pl", "amortised", "linear"),
    ],
)
def test_both_estimators_have_one_mean(kind, auxiliary, predictor, seed):
    """Of paired draws: no mean difference beyond 5.5 errors in any of some hundred coordinates; and each is noisy."""
    n_draws = 4000
    total = cases.case(kind, auxiliary, True, predictor, "bernoulli", n=5, sizes=(2, 1), hidden=(3,), path=False)
    path, random = total.with_path(True), np.random.default_rng(seed)
    differences = np.empty((n_draws, len(flat(federated(total)))))
    for row in differences:
        noisy = total.with_noise(random)
        row[:] = flat(federated(noisy)) - flat(
            federated(replace(path, eps=noisy.eps, tau=noisy.tau, eps_server=noisy.eps_server))
        )
    spread = differences.std(axis=0, ddof=1)
    moving = spread > 1e-9
    assert moving.mean() > 0.3  # a network's own weights have no term of q
    assert np.abs(differences[:, ~moving]).max(initial=0.0) < 1e-9
    assert (np.abs(differences.mean(axis=0)) < 5.5 * spread / np.sqrt(n_draws) + 1e-12).all()


# ---- the slips of section 12 are noticed


@pytest.mark.parametrize(("fault", "kinds"), [("fresh theta", KINDS), ("no 1/J", ("pl",)), ("own z stays", ("pl",))])
def test_negative_control_of_the_messages(fault, kinds):
    for kind in kinds:
        c = cases.case(kind, "amortised", True)
        check(c)
        with pytest.raises(AssertionError):
            check(c, fault)


@pytest.mark.parametrize("full", [False, True])
def test_negative_control_a_covariance_for_its_factor(full, monkeypatch):
    def sample(block, parameters, eps):
        scale = block.scale(parameters)
        return parameters[: block.size] + (scale @ scale.T @ eps if block.full else scale**2 * eps)

    monkeypatch.setattr(Block, "sample", sample)
    with pytest.raises(AssertionError):
        check(cases.case("av", "mean-field", full))


def test_negative_control_the_jacobian_of_log_sigma_counted_by_everybody(monkeypatch):
    right = Likelihood("gaussian", None).unknown
    wrong = replace(right, prior=lambda w: (right.prior(w)[0] + 3 * w, right.prior(w)[1] + 3))
    monkeypatch.setattr(Likelihood, "unknown", wrong)
    for kind in KINDS:
        with pytest.raises(AssertionError):
            check(cases.case(kind, "mean-field", likelihood="dispersed"))


def test_negative_control_power_likelihood_without_its_dispersion_correction():
    c = cases.case("pl", "mean-field", likelihood="dispersed")
    with pytest.raises(AssertionError):
        check(replace(c, shared=replace(c.shared, power_rho=None)))


# ---- blocks and likelihoods


@pytest.mark.parametrize("full", [False, True])
def test_a_blocks_draws_have_its_moments(full, seed):
    block, random = Block(3, full), np.random.default_rng(seed)
    parameters = 0.5 * random.standard_normal(block.n_parameters)
    draws = np.array([block.sample(parameters, e) for e in random.standard_normal((40_000, 3))])
    mean, spread = block.moments(parameters)
    covariance = spread if full else np.diag(spread**2)
    white = np.linalg.solve(np.linalg.cholesky(covariance), (draws - mean).T)
    assert np.abs(white.mean(axis=1)).max() < 5 / 200
    assert np.abs(white @ white.T / 40_000 - np.eye(3)).max() < 5 * np.sqrt(2) / 200
    np.testing.assert_allclose(block.at(mean, spread), parameters, rtol=1e-12)
    np.testing.assert_allclose(block.sd(parameters), np.sqrt(np.diag(covariance)), rtol=1e-12)
    entropy = 0.5 * np.linalg.slogdet(2 * np.pi * np.e * covariance)[1]
    np.testing.assert_allclose(block.entropy(parameters), entropy, rtol=1e-12)


@pytest.mark.parametrize("likelihood", [Likelihood("bernoulli"), Likelihood("gaussian", 0.4)], ids=["bernoulli", "gaussian"])
def test_curvature_is_bounded(likelihood):
    eta = np.linspace(-8, 8, 1601)
    curvature = -np.diff(likelihood.slope(np.ones(1601), eta)) / np.diff(eta)
    assert curvature.max() <= likelihood.curvature_bound * (1 + 1e-9)
    assert curvature.max() > likelihood.curvature_bound * (1 - 1e-3)


def test_likelihoods_are_normalised():
    eta = np.array([-1.5, 0.3, 2.0])
    for likelihood, y, step in (
        (Likelihood("bernoulli"), np.arange(2.0), 1.0),
        (Likelihood("poisson"), np.arange(80.0), 1.0),
        (Likelihood("gaussian", 0.4), np.linspace(-9, 9, 6001), 18 / 6000),
    ):
        mass = np.exp(likelihood.value(y[:, None], eta, 0.0)).sum(axis=0) * step
        np.testing.assert_allclose(mass, 1, rtol=1e-9)
