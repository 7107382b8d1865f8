"""SOUL's machines: equal bits of the two forms of AV, what travels, what is kept, what is refused."""

import random

import numpy as np
import pytest

from fedkern.algorithms import soul
from fedkern.algorithms.core.messages import RemoteFault, schema
from fedkern.errors import NumericalError
from fedkern.models.likelihood import Likelihood
from fedkern.models.split.predictors import Linear, Multilevel, Network
from fedkern.transports import inprocess
from fedkern.transports.codec import Codec
from support import chosen, soul_runs
from support.federations import play
from support.refusal import refusal
from support.soul_runs import FORMS

SHORT = {"rounds": 9, "langevin_steps": 3}


@pytest.fixture(scope="module")
def rows():
    return soul_runs.data("bernoulli")


def run(rows, form, **options):
    return soul_runs.run(*rows, form, 0.8, family="bernoulli", intercept=True, **(SHORT | options))


def machines(rows, form, **options):
    return soul_runs.machines(*rows, form, 0.8, family="bernoulli", intercept=True, **(SHORT | options))


def equal(a, b):
    left, right = soul.save(a), soul.save(b)
    assert left.keys() == right.keys()
    for name, value in left.items():
        np.testing.assert_array_equal(value, right[name])


def test_the_response_at_the_server_or_shared_gives_the_same_bits(rows):
    (here, theirs), (there, others) = (run(rows, form, rounds=40) for form in FORMS[:2])
    equal(here, there)
    for j in range(3):
        np.testing.assert_array_equal(theirs[j].theta, others[j].theta)
        np.testing.assert_array_equal(soul.conditional(theirs[j]).draws, soul.conditional(others[j]).draws)


def test_so_they_do_with_an_unknown_sigma():
    X, y = soul_runs.data()
    here, there = (soul_runs.run(X, y, form, 0.2, scale=None, intercept=True, rounds=30)[0] for form in FORMS[:2])
    assert here.log_scale != 0
    equal(here, there)


@pytest.mark.parametrize("form", FORMS)
def test_orders_of_arrival_and_transports_give_the_same_bits(rows, form):
    server, clients = run(rows, form)
    for seed in range(3):
        other, others = run(rows, form, order=random.Random(seed))
        equal(server, other)
        for j in clients:
            equal(clients[j], others[j])
    s, started, fresh = machines(rows, form)
    other, others = inprocess.run_protocol(soul.protocol(s), started, fresh, Codec(s.dims(), 3), order=random.Random(7))
    equal(server, other)
    for j in clients:
        equal(clients[j], others[j])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stop", [1, 4, 7])
def test_a_resumed_run_has_the_same_bits(rows, form, stop):
    want, theirs = run(rows, form)
    _, started, clients = machines(rows, form)
    server, clients, inbox = play(soul, started, clients, pause=lambda state: state.round == stop)
    saved = {j: soul.save(c) for j, c in clients.items()}
    _, (fresh, _), again = machines(rows, form)
    server = soul.load(fresh, soul.save(server))
    again = {j: soul.load(c, saved[j]) for j, c in again.items()}
    server, again = play(soul, (server, inbox), again)
    equal(server, want)
    for j in again:
        equal(again[j], theirs[j])


def test_a_step_of_the_power_likelihood_by_hand():
    """The own part of R moves no z; b goes by the slopes of all; kappa = 1/4 for logistic models."""
    X, y = soul_runs.data("bernoulli", n=6)
    _, (server, _), _ = soul_runs.machines(X, y, FORMS[2], 0.5, family="bernoulli", intercept=True)
    g, rho = np.random.default_rng(0).standard_normal((2, 3, 6))
    for j in range(3):
        server, _ = soul.server_receive(server, j, soul.Slopes(0, g[j], rho[j], np.zeros(0)))
    others = [rho[1] + rho[2], rho[0] + rho[2], rho[0] + rho[1]]
    want = np.array([(others[j] + g[j] / 0.25) / (4 + 4 / 3 / 4) for j in range(3)])
    np.testing.assert_allclose(server.z, want, rtol=1e-14)
    assert server.b == pytest.approx(np.clip(rho.sum() / (1 + 2 * 6 / 4), -1, 1), rel=1e-14)


def test_a_client_without_y_never_gets_it(rows):
    """AV with y at the server: what comes is z_j, which the client could not have made without it, and nothing else."""
    _, (_, questions), clients = machines(rows, FORMS[0])
    assert all(set(schema(type(question))) == {"round", "z"} for _, question in questions)
    assert all(client.y is None for client in clients.values())


def test_no_more_draws_are_kept_than_asked_for(rows):
    _, clients = run(rows, FORMS[0], rounds=41, keep=7)
    found = soul.conditional(clients[0])
    assert 4 <= len(found.draws) <= 7
    assert clients[0].count == 20 * 3


@pytest.mark.parametrize("form", FORMS)
def test_a_client_without_columns_and_a_single_client(rows, form):
    X, y = rows
    server, clients = run(([X[0], np.zeros((40, 0))], y), form)
    assert soul.conditional(clients[1]).mean.shape == (0,)
    assert np.isfinite(server.averaged[0]).all()
    alone, _ = run(([X[0]], y), form)
    assert np.isfinite(alone.averaged[0]).all()


def test_what_nobody_asked_for_is_refused(rows):
    s, (server, questions), clients = machines(rows, FORMS[0])
    (answer,) = soul.client_receive(clients[0], questions[0][1])[1]
    with refusal(RemoteFault, "0", "Predicted"):
        soul.server_receive(soul.server_receive(server, 0, answer)[0], 0, answer)
    with refusal(RemoteFault, "0", "Moved"):
        soul.server_receive(server, 0, soul.Moved(0, np.zeros(40)))
    with refusal(RemoteFault, "1", "Predicted"):
        soul.server_receive(server, 1, soul.Predicted(5, np.zeros(40)))
    with refusal(RemoteFault, "Auxiliary", "3"):
        soul.client_receive(clients[0], soul.Auxiliary(3, np.zeros(40)))
    with refusal(RemoteFault, "Total", "0", "Auxiliary"):
        soul.client_receive(clients[0], soul.Total(0, np.zeros(40), 0.0, np.zeros(0)))
    assert s.dims() == {"n": 40, "gamma": 0}


def test_sigma_that_falls_to_nothing_is_named():
    """z is maximised: with rho large beside sigma it fits y exactly."""
    X, y = soul_runs.data()
    with pytest.raises(NumericalError, match=r"sigma fell to 0\.\d+ in round \d+: z is maximised"):
        soul_runs.run(X, y, FORMS[0], 1.0, scale=None, rounds=400)


def test_a_chain_that_leaves_the_finite_numbers_names_client_and_round():
    X, y = soul_runs.data()
    _, (_, questions), clients = soul_runs.machines(X, y, FORMS[0], 1.0)
    with refusal(NumericalError, "a", "0"), np.errstate(all="ignore"):
        soul.client_receive(clients[0], soul.Auxiliary(0, np.full(40, 1e308)))
    assert questions


def test_models_without_a_step_size_are_refused_with_the_reason(rows):
    X, y = rows
    s = chosen.soul(0, 4, 40, 3, 1.0)
    with pytest.raises(ValueError, match="needs a linear predictor: the largest curvature"):
        soul.client("a", 0, s, Multilevel(X[0], np.zeros(40, np.int64), 1))
    with pytest.raises(ValueError, match="of a network one has no bound"):
        soul.client("a", 0, s, Network(X[0]))
    shared = chosen.soul(0, 4, 40, 3, 1.0, "power", "shared")
    with refusal(ValueError, "Langevin", "power"):
        soul.client("a", 0, shared, Linear(X[0]), y, Likelihood("poisson"))
    with pytest.raises(ValueError, match="needs y here"):
        soul.client("a", 0, shared, Linear(X[0]))
    with pytest.raises(ValueError, match="39 rows, the job has 40"):
        soul.client("a", 0, s, Linear(X[0][1:]))
    with pytest.raises(ValueError, match="the server needs y"):
        soul.start(s, Likelihood("bernoulli"), ("a", "b", "c"), None)
    with pytest.raises(ValueError, match="dispersed must be True"):
        soul.start(s, Likelihood("gaussian", None), ("a", "b", "c"), y)
    with pytest.raises(ValueError, match="before the second half"):
        soul.conditional(soul.client("a", 0, s, Linear(X[0])))
