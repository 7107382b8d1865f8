"""Structured federated inference without any transport: gradients, what travels, and what is kept."""

import random
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fedkern.algorithms.core.messages import RemoteFault
from fedkern.algorithms.sfvi import machine as sfvi
from fedkern.algorithms.sfvi.families import barycentre
from fedkern.errors import NumericalError
from fedkern.models.variational import Block
from fedkern.transports import inprocess
from fedkern.transports.codec import Codec
from oracles.differences import four_point
from support import chosen
from support import hierarchical as h
from support.federations import play
from support.mixed_model import MixedModel
from support.refusal import refusal

SHORT = chosen.sfvi(rounds=7, centre_every=3, learning_rate=0.05)


# One step: the gradient --------------------


class Step:
    """One joint draw of a federation in which all parameters are away from their start."""

    def __init__(self, models, settings, seed=3):
        rng = np.random.default_rng(seed)
        self.models, self.path, P = models, settings.path, models[0].n_global
        self.prior, self.block = h.prior_of(models[0]), settings.block(P)
        self.families = [settings.family(m) for m in models]
        self.lam = self.block.initial(0.0, 0.5) + 0.2 * rng.standard_normal(self.block.n_parameters)
        self.own = [0.3 * rng.standard_normal(f.n_parameters) for f in self.families]
        self.e, self.eps = rng.standard_normal(P), [rng.standard_normal(m.size) for m in models]
        self.centre = 0.1 * rng.standard_normal(P)

    def gradients(self):
        """As the machines compute them: of q(xi), and of each q(u_j | xi)."""
        xi = self.block.sample(self.lam, self.e)
        total, flat = np.zeros(len(xi)), []
        for model, family, own, eps in zip(self.models, self.families, self.own, self.eps):
            _, G, g = family.gradient(model, own, xi, self.centre, eps, path=self.path)
            total += G
            flat.append(g)
        slope = self.prior.log_prior_grad(xi)[1]
        return np.concatenate([self.block.gradient(self.lam, self.e, total + slope, path=self.path), *flat])

    def objective(self, flat):
        """What they are the gradient of: the bound at frozen noise; with `path`, log q has the parameters of now."""
        ends = np.cumsum([self.block.n_parameters, *(f.n_parameters for f in self.families)])
        lam, *own = np.split(flat, ends[:-1])
        xi = self.block.sample(lam, self.e)
        value = self.prior.log_prior_grad(xi)[0]
        value += -log_normal(self.block, self.lam, xi) if self.path else self.block.entropy(lam)
        for j, (model, family) in enumerate(zip(self.models, self.families)):
            u = family.block.sample(family.given(own[j], xi - self.centre), self.eps[j])
            value += model.log_joint_grad(xi, u)[0]
            frozen = family.given(self.own[j], xi - self.centre)
            value += (
                -log_normal(family.block, frozen, u) if self.path else family.block.entropy(own[j][: family.block.n_parameters])
            )
        return value

    @property
    def point(self):
        return np.concatenate([self.lam, *self.own])


def log_normal(block, parameters, x):
    mean, spread = block.moments(parameters)
    return stats.multivariate_normal.logpdf(x, mean, spread if spread.ndim == 2 else np.diag(spread**2))


def variants():
    yield h.linear([2, 3]), chosen.sfvi()
    yield h.linear([2, 1]), chosen.sfvi(path=False)
    yield h.linear([2, 1]), chosen.sfvi(covariance="diagonal", local_covariance="diagonal")
    yield h.linear([2, 1]), chosen.sfvi(coupled=False)
    for family in ("bernoulli", "poisson", "gaussian"):
        yield h.mixed(family), chosen.sfvi()
    yield h.mixed("gaussian", scale=None), chosen.sfvi(local_covariance="diagonal")
    yield h.mixed("bernoulli", centred=True), chosen.sfvi(path=False)


def relative(a, b):
    return np.abs(a - b).max() / np.abs(b).max()


@pytest.mark.parametrize(("models", "settings"), list(variants()))
def test_four_point_gradients(models, settings):
    step = Step(models, settings)
    assert relative(step.gradients(), four_point(step.objective, step.point)) < 1e-8


@pytest.mark.parametrize("planted", ["B_j' g_u dropped", "J + 1 Jacobians"])
def test_negative_control_a_planted_fault_fails_the_four_point_test(planted, monkeypatch):
    step = Step(h.mixed("bernoulli"), chosen.sfvi())
    if planted == "J + 1 Jacobians":  # each client adds that of log tau, as the server does
        real = MixedModel.log_joint_grad

        def once_more(self, xi, u):
            value, g_xi, g_u = real(self, xi, u)
            return value, g_xi + np.eye(len(g_xi))[2], g_u

        monkeypatch.setattr(MixedModel, "log_joint_grad", once_more)
        wrong = step.gradients()
        monkeypatch.setattr(MixedModel, "log_joint_grad", real)
        assert relative(wrong, four_point(step.objective, step.point)) > 1e-3
        return
    real = sfvi.Family.gradient

    def dropped(self, model, parameters, xi, centre, eps, *, path=True, bound=True):
        value, _, flat = real(self, model, parameters, xi, centre, eps, path=path)
        own = self.given(parameters, xi - centre)
        return value, model.log_joint_grad(xi, self.block.sample(own, eps))[1], flat

    monkeypatch.setattr(sfvi.Family, "gradient", dropped)
    assert relative(step.gradients(), four_point(step.objective, step.point)) > 1e-3


@pytest.mark.parametrize("family", ["bernoulli", "poisson", "gaussian"])
@pytest.mark.parametrize("path", [True, False])
def test_federated_gradient_is_the_pooled_one(family, path):
    models, settings = h.mixed(family), chosen.sfvi(local_covariance="diagonal", path=path)
    step = Step(models, settings)
    one = Step([h.pooled(models)], settings)
    one.lam, one.e, one.centre, one.eps = step.lam, step.e, step.centre, [np.concatenate(step.eps)]
    means, scales, B = zip(*((p[:4], p[4:8], p[8:]) for p in step.own))
    one.own = [np.concatenate([*means, *scales, *B])]
    k = step.block.n_parameters
    theirs = [(g[:4], g[4:8], g[8:]) for g in np.split(step.gradients()[k:], 3)]
    together = np.concatenate([part for parts in zip(*theirs) for part in parts])
    assert relative(step.gradients()[:k], one.gradients()[:k]) < 1e-12
    assert relative(together, one.gradients()[k:]) < 1e-12


@pytest.mark.parametrize("n_clients", [1, 3])
@pytest.mark.parametrize("scale", [1.0, None])
def test_the_density_of_a_mixed_model_has_each_term_once(n_clients, scale):
    models = h.mixed("gaussian", n_clients, scale=scale)
    prior, rng = h.prior_of(models[0]), np.random.default_rng(0)
    prior = replace(prior, sd=2.0, scale=0.7)
    xi, us = rng.standard_normal(prior.size), [rng.standard_normal(m.size) for m in models]
    ours = prior.log_prior_grad(xi)[0] + sum(m.log_joint_grad(xi, u)[0] for m, u in zip(models, us))
    tau, sigma = np.exp(xi[2]), 1.0 if scale else np.exp(xi[3])
    want = stats.norm.logpdf(xi[:2], 0, 2.0).sum() + stats.halfnorm.logpdf(tau, scale=0.7) + xi[2]
    want += 0.0 if scale else stats.halfnorm.logpdf(sigma) + xi[3]
    for m, u in zip(models, us):
        eta = m.offset + m.X @ xi[:2] + tau * u[m.group]
        want += stats.norm.logpdf(u).sum() + stats.norm.logpdf(m.y, eta, sigma).sum()
    assert ours == pytest.approx(want, rel=1e-13)


def test_moving_the_centre_changes_no_draw():
    model = h.linear([3])[0]
    family, rng = chosen.sfvi().family(model), np.random.default_rng(0)
    parameters, xi, old, new = rng.standard_normal(family.n_parameters), *rng.standard_normal((3, 3))
    eps = rng.standard_normal(3)
    before = family.gradient(model, parameters, xi, old, eps)
    after = family.gradient(model, family.moved(parameters, new - old), xi, new, eps)
    np.testing.assert_allclose(after[0], before[0], rtol=1e-12)
    np.testing.assert_allclose(after[1], before[1], rtol=1e-10)


# Barycentres --------------------


def test_the_barycentre_of_diagonal_gaussians_averages_means_and_standard_deviations():
    block, rng = Block(3), np.random.default_rng(1)
    rows, w = rng.standard_normal((4, 6)), np.array([0.1, 0.2, 0.3, 0.4])
    mean, sd = block.moments(barycentre(block, rows, w))
    np.testing.assert_allclose(mean, w @ rows[:, :3])
    np.testing.assert_allclose(sd, w @ np.exp(rows[:, 3:]))


def test_the_full_barycentre_is_the_diagonal_one_in_common_axes_and_a_fixed_point_elsewhere():
    rng = np.random.default_rng(2)
    U, sds, w = np.linalg.qr(rng.standard_normal((3, 3)))[0], np.exp(rng.standard_normal((4, 3))), np.full(4, 0.25)
    block = Block(3, full=True)
    rows = np.array([block.at(np.zeros(3), (U * sd**2) @ U.T) for sd in sds])
    np.testing.assert_allclose(block.moments(barycentre(block, rows, w))[1], (U * (w @ sds) ** 2) @ U.T, rtol=1e-9, atol=1e-12)
    covariances = [A @ A.T + np.eye(3) for A in rng.standard_normal((4, 3, 3))]
    rows = np.array([block.at(np.zeros(3), C) for C in covariances])
    S = block.moments(barycentre(block, rows, w))[1]

    def distance(S):  # the mean squared Wasserstein distance, which the barycentre minimises
        root = np.linalg.cholesky(S)
        cross = [np.sqrt(np.linalg.eigvalsh(root.T @ C @ root)).sum() for C in covariances]
        return np.mean([np.trace(S) + np.trace(C) - 2 * x for C, x in zip(covariances, cross)])

    for D in rng.standard_normal((10, 3, 3)):
        assert distance(S + 0.01 * (D + D.T)) > distance(S)


# Runs --------------------


def sent(models, settings):
    """Every message to the server."""
    messages = []

    class Watched:
        client_receive, finished = sfvi.client_receive, sfvi.finished

        @staticmethod
        def server_receive(state, sender, event):
            messages.append(event)
            return sfvi.server_receive(state, sender, event)

    started, clients = h.machines(models, settings)
    server, clients = play(Watched, started, clients)
    return server, clients, messages


def test_the_bound_leaves_only_where_it_is_asked_for():
    models = h.linear([2, 1])
    assert {type(m) for m in sent(models, SHORT)[2]} == {sfvi.GlobalGradient}
    server, _, messages = sent(models, replace(SHORT, rounds=200, bound=True))
    assert {type(m) for m in messages} == {sfvi.GlobalGradientBound}
    assert len(server.trace) == 2
    assert server.trace[1] > server.trace[0]


def equal(a, b):
    left, right = sfvi.save(a), sfvi.save(b)
    assert left.keys() == right.keys()
    for name, value in left.items():
        np.testing.assert_array_equal(value, right[name])


SETTINGS = [
    SHORT,
    replace(SHORT, draws=3, bound=True),
    replace(SHORT, local_steps=4),
    replace(SHORT, covariance="diagonal", local_steps=2),
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_orders_of_arrival_and_transports_give_the_same_bits(settings):
    models = h.mixed("bernoulli")
    server, clients = h.run(models, settings)
    for seed in range(4):
        other, others = h.run(models, settings, random.Random(seed))
        equal(server, other)
        for k in clients:
            equal(clients[k], others[k])
    started, fresh = h.machines(models, settings)
    codec = Codec(settings.sizes(models[0].n_global), len(models))
    other, others = inprocess.run_protocol(sfvi.protocol(settings), started, fresh, codec, order=random.Random(9))
    equal(server, other)
    for k in clients:
        equal(clients[k], others[k])
        np.testing.assert_array_equal(others[k].fitted, server.parameters)


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("stop", [1, 3, 6])
def test_a_resumed_run_has_the_same_bits(settings, stop):
    models = h.mixed("poisson")
    want, their = h.run(models, settings)
    started, clients = h.machines(models, settings)
    server, clients, inbox = play(sfvi, started, clients, pause=lambda s: s.round == stop)
    (fresh, _), again = h.machines(models, settings)
    server = sfvi.load(fresh, sfvi.save(server))
    again = {k: sfvi.load(c, sfvi.save(clients[k])) for k, c in again.items()}
    server, again = play(sfvi, (server, inbox), again)
    equal(server, want)
    for k in again:
        equal(again[k], their[k])


def test_what_nobody_asked_for_is_refused():
    models = h.linear([1, 1])
    (server, effects), clients = h.machines(models, SHORT)
    answer = sfvi.client_receive(clients[0], effects[0][1])[1][0]
    server = sfvi.server_receive(server, 0, answer)[0]
    with refusal(RemoteFault, "0", "GlobalGradient"):
        sfvi.server_receive(server, 0, answer)
    with refusal(RemoteFault, "1", "Reached"):
        sfvi.server_receive(server, 1, sfvi.Reached(0, server.parameters))
    with refusal(RemoteFault, "Start"):
        sfvi.client_receive(clients[0], sfvi.Start(0, server.parameters))


def test_a_gradient_that_is_not_finite_names_client_and_round():
    class Broken(h.Linear):
        def log_joint_grad(self, xi, u):
            value, g_xi, g_u = super().log_joint_grad(xi, u)
            return value, g_xi * np.nan, g_u

    good, bad = h.linear([1, 1])
    with refusal(NumericalError, "c1", "0"):
        h.run([good, Broken(**vars(bad))], SHORT)


def test_weights_need_one_number_a_client_and_averaging_needs_the_prior():
    with pytest.raises(ValueError, match="one number for each of 3 clients"):
        sfvi.start(chosen.sfvi(weights=(0.5, 0.5)), h.Standard(2), ("a", "b", "c"))
    with pytest.raises(ValueError, match="needs the prior of xi"):
        sfvi.client("a", 0, chosen.sfvi(local_steps=2), h.linear([1])[0], 1)


def test_a_client_without_rows_and_one_without_local_unknowns_take_part():
    rows = h.mixed("bernoulli", 1)[0]
    none = MixedModel(np.zeros((0, 2)), np.zeros(0), np.zeros(0, np.int64), 0, rows.likelihood, np.zeros(0))
    server, clients = h.run([rows, none], SHORT)
    assert np.isfinite(sfvi.posterior_moments(server)[0]).all()
    assert sfvi.local_posterior(clients[1])[0].shape == (0,)
    alone, _ = h.run([rows], SHORT)
    np.testing.assert_array_equal(alone.parameters, server.parameters)
