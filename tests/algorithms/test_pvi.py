"""Partitioned variational inference without any transport: what it converges to, and what it refuses."""

import random
from dataclasses import fields, replace

import numpy as np
import pytest
from scipy.optimize import minimize

from fedkern.algorithms.core.messages import Charge, Charged, ChargeFailed, ClientLost, Refused, RemoteFault
from fedkern.algorithms.pvi import global_vi
from fedkern.algorithms.pvi import machine as pvi
from fedkern.algorithms.pvi.local import NEAR, Local, exact
from fedkern.algorithms.pvi.machine import BLOCK, Sites
from fedkern.algorithms.pvi.messages import QUpdate, SiteApplied, SiteDelta
from fedkern.kernels import glm
from fedkern.models.expfam import Gaussian, kl, pack
from fedkern.models.glm import Rows, prior
from fedkern.privacy.accountant import Mechanism
from fedkern.privacy.noise import KeyedSource
from support.federations import deal, make_rows, play, run, settings

# Conjugate models: closed forms --------------------


def pooled_posterior(rows, scale, precision=1.0):
    P = precision * np.eye(rows.X.shape[1]) + rows.X.T @ rows.X / scale**2
    return Gaussian(rows.X.T @ rows.y / scale**2, P)


@pytest.mark.parametrize("n_clients", [1, 2, 3, 7, 16])
@pytest.mark.parametrize("seed", range(4))
def test_conjugate_full_covariance_is_the_pooled_posterior_after_one_pass(n_clients, seed):
    rows = make_rows("gaussian")
    server, _ = run(deal(rows, n_clients, seed), settings(family="gaussian", scale=0.7, covariance="full"))
    want = pooled_posterior(rows, 0.7)
    np.testing.assert_allclose(server.q.mean, want.mean, rtol=1e-9)
    np.testing.assert_allclose(server.q.P, want.P, rtol=1e-9, atol=1e-9)


def test_conjugate_diagonal_is_the_mean_field_optimum():
    rows = make_rows("gaussian")
    server, _ = run([rows], settings(family="gaussian", scale=0.7))
    want = pooled_posterior(rows, 0.7)
    np.testing.assert_allclose(server.q.mean, want.mean, rtol=1e-9)
    np.testing.assert_allclose(server.q.P, np.diag(want.P), rtol=1e-9)


def test_several_clients_reach_the_one_client_mean_field_optimum():
    rows = make_rows("gaussian")
    one, _ = run([rows], settings(family="gaussian", scale=0.7))
    four, _ = run(deal(rows, 4), settings(family="gaussian", scale=0.7, rounds=200))
    np.testing.assert_allclose(four.q.mean, one.q.mean, rtol=1e-9)
    np.testing.assert_allclose(four.q.P, one.q.P, rtol=1e-9)


# S6: the fixed point is the global optimum, found by an optimiser that shares no code --------------------


def independent_optimum(rows, family, covariance, scale=0.7):
    """Maximises the ELBO over (mu, log diagonal, lower triangle) with Gauss-Hermite quadrature in the linear predictor and
    BFGS."""
    X, y = rows.X, rows.y
    d = X.shape[1]
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    below = np.tril_indices(d, -1) if covariance == "full" else (np.zeros(0, int), np.zeros(0, int))

    def unpack(t):
        L = np.diag(np.exp(t[d : 2 * d]))
        L[below] = t[2 * d :]
        return t[:d], L

    def negative_elbo(t):
        mu, L = unpack(t)
        U = X @ L
        s = np.sqrt((U * U).sum(axis=1))
        a = (X @ mu)[:, None] + s[:, None] * nodes
        if family == "bernoulli":
            value, slope = y[:, None] * a - np.logaddexp(0, a), y[:, None] - 1 / (1 + np.exp(-a))
        elif family == "poisson":
            value, slope = y[:, None] * a - np.exp(a), y[:, None] - np.exp(a)
        else:
            value, slope = -((y[:, None] - a) ** 2) / (2 * scale**2), (y[:, None] - a) / scale**2
        expected = (value @ weights).sum()
        r, c = slope @ weights, (slope * nodes) @ weights / s
        grad_L = X.T @ (c[:, None] * U) - L
        grad_mu = X.T @ r - mu
        elbo = expected - 0.5 * (mu @ mu + (L * L).sum()) + t[d : 2 * d].sum()
        g = np.concatenate([grad_mu, np.diag(grad_L) * np.diag(L) + 1, grad_L[below]])
        return -elbo, -g

    start = np.zeros(2 * d + len(below[0]))
    start[d : 2 * d] = -1
    found = minimize(negative_elbo, start, jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 2000})
    mu, L = unpack(found.x)
    return Gaussian.from_moments(mu, np.diag(L @ L.T) if covariance == "diagonal" else L @ L.T)


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
@pytest.mark.parametrize("family", ["bernoulli", "poisson", "gaussian"])
def test_fixed_point_is_the_global_optimum(family, covariance):
    rows = make_rows(family)
    scale = 0.7 if family == "gaussian" else 1.0
    server, _ = run(deal(rows, 3), settings(family=family, scale=scale, covariance=covariance, rounds=40))
    assert kl(server.q, independent_optimum(rows, family, covariance)) < 1e-8


def test_negative_control_an_unfinished_run_is_not_the_optimum():
    rows = make_rows("bernoulli")
    server, _ = run(deal(rows, 3), settings(rounds=5, damping=0.2))
    assert kl(server.q, independent_optimum(rows, "bernoulli", "diagonal")) > 1e-4


@pytest.mark.parametrize("form", ["natural", "moment"])
@pytest.mark.parametrize("schedule", ["sequential", "random", "synchronous", "asynchronous"])
def test_every_schedule_and_damping_reaches_the_same_point(schedule, form):
    rows = make_rows("bernoulli")
    damped, _ = run(deal(rows, 3), settings(schedule=schedule, damping=0.3, damping_form=form, rounds=200))
    one, _ = run([rows], settings())
    assert kl(damped.q, one.q) < 1e-8


# S5 and order --------------------


def test_federated_equals_pooled_for_any_partition():
    rows = make_rows("bernoulli")
    want, _ = run([rows], settings(rounds=3))
    for n_clients in (2, 7, 16):
        for seed in range(2):
            got, _ = run(deal(rows, n_clients, seed), settings(rounds=60))
            np.testing.assert_allclose(got.q.mean, want.q.mean, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(got.q.P, want.q.P, rtol=1e-9)


def test_order_of_arrival_changes_no_bit():
    parts = deal(make_rows("bernoulli"), 5)
    s = settings(schedule="synchronous", damping=0.2, rounds=5, optimiser="adagrad", local_steps=4)
    want, _ = run(parts, s)
    for seed in range(5):
        got, _ = run(parts, s, order=random.Random(seed))
        assert (got.q.h == want.q.h).all()
        assert (got.q.P == want.q.P).all()


def multiplied(prior, site_h, site_P):
    """(h, packed P) of the prior times all sites, multiplied in client order."""
    total = np.concatenate([prior.h, pack(prior.P)])
    for site in np.concatenate([site_h, site_P], axis=1):
        total = total + site
    return total


def test_q_is_always_the_product_of_its_sites():
    server, clients = run(deal(make_rows("bernoulli"), 4), settings(rounds=3, damping=0.5))
    again = multiplied(server.prior, server.site_h, server.site_P)
    assert (again == np.concatenate([server.q.h, pack(server.q.P)])).all()
    for k, c in clients.items():
        assert (c.site_h == server.site_h[k]).all()
        assert (c.site_P == server.site_P[k]).all()


@pytest.mark.parametrize("n_clients", [1, BLOCK, BLOCK + 1, 3 * BLOCK + 7])
@pytest.mark.parametrize("d", [1, 2])
def test_sites_of_many_clients_are_a_function_of_their_values(n_clients, d):
    """Whatever changed first, and after a checkpoint too: bit for bit."""
    random = np.random.default_rng(n_clients)
    start = Gaussian(np.zeros(d), np.ones(d))
    fresh = Sites.of(start, np.zeros((n_clients, d)), np.zeros((n_clients, d)))
    changed = {k: (random.normal(size=d), random.random(d)) for k in range(n_clients)}
    sites = fresh
    for k in random.permutation(n_clients):
        sites = sites.moved({int(k): changed[int(k)]}, 0.5)
    assert (sites.h == [0.5 * changed[k][0] for k in range(n_clients)]).all()
    assert (fresh.h == 0).all()  # nothing is written to
    q = sites.product()
    for same in (fresh.moved(changed, 0.5), Sites.of(start, sites.h, sites.P)):
        assert (same.product().h == q.h).all()
        assert (same.product().P == q.P).all()
    want = multiplied(start, sites.h, sites.P)
    np.testing.assert_allclose(np.concatenate([q.h, pack(q.P)]), want, rtol=1e-12 if n_clients > BLOCK else 0)


@pytest.mark.parametrize("optimiser", ["adagrad", "adam", "sgd"])
@pytest.mark.parametrize("estimator", ["analytic", "weight-mc", "activation-mc", "stl", "total"])
def test_stochastic_optimisers_come_near_the_optimum(optimiser, estimator):
    rows = make_rows("bernoulli", n=300)
    rate = {"adagrad": 0.3, "adam": 0.02, "sgd": 0.003}[optimiser]
    s = settings(
        optimiser=optimiser,
        estimator=estimator,
        learning_rate=rate,
        local_steps=40,
        rounds=40,
        damping=0.5,
        draws=8,
        average="half",
    )
    server, _ = run(deal(rows, 3), s)
    one, _ = run([rows], settings())
    assert kl(pvi.released(server), one.q) < 0.1


def test_full_covariance_gradient_steps_come_near_the_optimum():
    rows = make_rows("bernoulli", n=300)
    s = settings(covariance="full", optimiser="adam", learning_rate=0.02, local_steps=60, rounds=40, damping=0.5, average="half")
    server, _ = run(deal(rows, 2), s)
    one, _ = run([rows], settings(covariance="full"))
    assert kl(pvi.released(server), one.q) < 0.05


def test_mini_batches_are_drawn_at_their_rate():
    rows = make_rows("bernoulli", n=2000)
    s = settings(optimiser="adagrad", learning_rate=0.5, batch_rate=0.1, local_steps=50, rounds=60, damping=0.3, average="half")
    server, _ = run(deal(rows, 2), s)
    one, _ = run([rows], settings())
    assert kl(pvi.released(server), one.q) < 0.2


# Baselines --------------------


def test_one_shot_combination_of_conjugate_fits():
    """Every client gets the M-th part of the prior, so the product is the pooled posterior."""
    rows = make_rows("gaussian")
    s = settings(family="gaussian", scale=0.7, covariance="full", variant="bcm-split", schedule="synchronous")
    server, _ = run(deal(rows, 4), s)
    want = pooled_posterior(rows, 0.7)
    np.testing.assert_allclose(server.q.mean, want.mean, rtol=1e-8)


def test_global_vi_comes_near_the_optimum():
    rows = make_rows("bernoulli")
    s = settings(optimiser="adagrad", learning_rate=0.1, rounds=1500, variant="global-vi")
    server, _ = run(deal(rows, 3), s, algorithm=global_vi)
    one, _ = run([rows], settings())
    assert kl(server.q, one.q) < 1e-3


# Guards --------------------


def asked(schedule="synchronous", n_clients=2, **changes):
    return pvi.start(settings(schedule=schedule, rounds=3, **changes), prior(3), n_clients)


def delta(dh=0.0, dP=1.0, round=0, version=0, d=3):
    return SiteDelta(round, version, 0, np.full(d, dh), np.full(d, dP))


def test_the_guard_halves_until_q_is_proper():
    server, effects = asked("sequential", 1)
    server, effects = pvi.server_receive(server, 0, delta(dP=-3.0))
    (k, applied), *_ = effects
    assert (k, applied.alpha) == (0, 0.25)  # 1 - 3/4 = 0.25 >= 0.1
    np.testing.assert_allclose(server.q.P, 0.25)
    assert server.halvings == 2


def test_a_hopeless_delta_is_refused_and_changes_nothing():
    server, _ = asked("sequential", 1)
    after, effects = pvi.server_receive(server, 0, delta(dP=-1e6))
    assert effects[0] == (0, SiteApplied(0, 0.0))
    assert dict(after.dropped) == {0: 1}
    assert (after.site_P == 0).all()


@pytest.mark.parametrize(
    ("sender", "event", "says"),
    [
        (0, delta(round=7), "client 0: SiteDelta.round is 7, expected 0"),
        (0, delta(version=3), "client 0: SiteDelta.version is 3, asked was 0"),
        (1, delta(dh=np.nan), "client 1: SiteDelta.dh has a number of size nan"),
        (1, delta(dP=np.inf), "client 1: SiteDelta.dP has a number of size inf"),
        (1, delta(dP=1e13), "client 1: SiteDelta.dP has a number of size 1e"),
        (5, delta(), "client 5: SiteDelta in round 0, but nothing was asked of it"),
        (0, SiteApplied(0, 1.0), "client 0: SiteApplied is no answer"),
    ],
)
def test_a_bad_update_is_refused_by_name_and_changes_nothing(sender, event, says):
    server, _ = asked()
    before = pvi.save(server)
    with pytest.raises(RemoteFault, match=says):
        pvi.server_receive(server, sender, event)
    after = pvi.save(server)
    assert all(np.array_equal(before[k], after[k]) for k in before)


def test_a_delta_counts_once():
    server, _ = asked()
    server, _ = pvi.server_receive(server, 0, delta())
    with pytest.raises(RemoteFault, match="nothing was asked"):
        pvi.server_receive(server, 0, delta())


def test_a_lost_client_leaves_its_site_and_the_job_goes_on():
    server, _ = asked()
    server, _ = pvi.server_receive(server, 0, delta())
    server, effects = pvi.server_receive(server, 1, ClientLost(1))
    assert server.round == 1
    assert [k for k, m in effects if isinstance(m, QUpdate)] == [0]
    assert (server.q.P == 2).all()


def test_all_lost_ends_the_job():
    server, _ = asked()
    for k in (0, 1):
        server, _ = pvi.server_receive(server, k, ClientLost(k))
    assert pvi.finished(server)
    assert server.stop == "lost"


def test_a_client_takes_no_answer_that_is_about_another_of_its_deltas():
    client = pvi.client("c", Local(make_rows("bernoulli", d=3), settings(optimiser="adagrad", local_steps=1), 0), prior(3))
    client, (sent,) = pvi.client_receive(client, QUpdate(0, 0, np.zeros(3), np.ones(3)))
    with pytest.raises(RemoteFault, match="SiteApplied of delta 1, but this client waits for that of 0"):
        pvi.client_receive(client, SiteApplied(1, 1.0))
    client, _ = pvi.client_receive(client, SiteApplied(sent.delta_id, 1.0))
    assert client.outstanding is None


def test_the_cavity_is_floored_and_counted():
    rows = make_rows("bernoulli", d=3)
    s = settings(optimiser="adagrad", local_steps=1)
    c = replace(pvi.client("c", Local(rows, s, 0), prior(3)), site_P=np.array([2.0, 0.0, 0.0]))
    c, _ = pvi.client_receive(c, QUpdate(0, 0, np.zeros(3), np.ones(3)))
    assert c.floors == 1


# A private client --------------------


class Recorder:
    """Stands where rows would be read: fails the test if anything touches it."""

    def __getattr__(self, name):
        raise AssertionError("rows were read before the charge was on disk")


MECHANISM = Mechanism(sampling="full", clip=1.0, dimension=6, noise_multiplier=1.0, secure=False)  # never draws


def private_client(mechanism=MECHANISM):
    s = settings(optimiser="adagrad", local_steps=25)
    return pvi.client("c", Local(Recorder(), s, 0, mechanism=mechanism, source=KeyedSource(0, 0)), prior(3))


def question(round=0):
    return QUpdate(round, 0, np.zeros(3), np.ones(3))


def test_a_private_client_charges_before_it_reads_a_row():
    c, effects = pvi.client_receive(private_client(), question())
    assert effects == [Charge(25, 0)]
    with pytest.raises(AssertionError, match="rows were read"):
        pvi.client_receive(c, Charged(25))


@pytest.mark.parametrize("allowed", [100, 110, 124])  # what other jobs have left of the holder's own budget
def test_a_refusal_is_final_and_tells_nothing_of_other_jobs(allowed):
    c, _ = pvi.client_receive(private_client(), question())
    c, effects = pvi.client_receive(c, ChargeFailed(25, 100, allowed))
    assert effects == [Refused(0, 100)]
    assert {field.name for field in fields(Refused)} == {"round", "spent"}
    with pytest.raises(RemoteFault, match="has spent its budget"):
        pvi.client_receive(c, question(1))


def test_the_server_goes_on_without_a_client_that_refused():
    server, _ = asked("sequential", 2)
    server, effects = pvi.server_receive(server, 0, Refused(0, 100))
    assert [k for k, m in effects if isinstance(m, QUpdate)] == [1]
    server, _ = pvi.server_receive(server, 1, Refused(0, 100))
    assert server.stop == "budget"


# Keeping states --------------------


@pytest.mark.parametrize("schedule", ["sequential", "random", "synchronous"])
def test_a_resumed_run_equals_the_uninterrupted_one(schedule):
    parts = deal(make_rows("bernoulli"), 3)
    common = {
        "schedule": schedule,
        "optimiser": "adam",
        "learning_rate": 0.05,
        "local_steps": 3,
        "damping": 0.3,
        "average": "half",
    }
    s, p = settings(rounds=6, **common), prior(4)
    whole, _ = run(parts, s)
    fresh = {k: pvi.client(f"c{k}", Local(part, s, k), p) for k, part in enumerate(parts)}
    server, clients, open_messages = play(pvi, pvi.start(s, p, 3), dict(fresh), pause=lambda server: server.round == 3)
    assert pvi.save(server)["schedule.waiting"].max() >= 0

    server = pvi.load(pvi.start(s, p, 3)[0], pvi.save(server))
    clients = {k: pvi.load(fresh[k], pvi.save(c)) for k, c in clients.items()}
    resumed, _ = play(pvi, (server, open_messages), clients)
    assert (pvi.released(resumed).h == pvi.released(whole).h).all()
    assert (resumed.q.P == whole.q.P).all()


def test_an_exact_update_ends_where_rounding_does(monkeypatch, seed):
    """An intercept beside all levels of two categories: only a weak prior tells them apart, and F is right to few digits."""
    random, calls, n = np.random.default_rng(seed), 0, 8000
    X = np.column_stack(
        [np.ones(n), np.eye(3)[random.integers(0, 3, n)], np.eye(2)[random.integers(0, 2, n)], random.standard_normal(n)]
    )
    y = (random.random(n) < 1 / (1 + np.exp(0.4 - 0.5 * X[:, 6]))).astype(float)
    once = glm.expectations

    def counted(*arguments, **options):
        nonlocal calls
        calls += 1
        return once(*arguments, **options)

    monkeypatch.setattr(glm, "expectations", counted)
    cavity = Gaussian(np.zeros(7), 1e-4 * np.eye(7))
    q = exact(Rows(X, y, None, None), settings(covariance="full"), cavity, cavity)
    assert calls < 200
    mean, P = q.mean, q.P
    _, r, k = once(X, y, mean, np.linalg.cholesky(np.linalg.inv(P)), family="bernoulli")
    gradient, H = X.T @ r - cavity.P @ mean, cavity.P + X.T @ (-k[:, None] * X)
    assert np.sqrt(gradient @ np.linalg.solve(H, gradient)) < NEAR
    assert abs(H - P).max() < NEAR * abs(P).max()
