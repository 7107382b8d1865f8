"""The sampler as it runs in a job: joint tests (Geweke) of its rounds, and equality with a plain sampler that holds all rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedkern.algorithms.gibbs import machine as gibbs
from fedkern.algorithms.gibbs import sweeps
from fedkern.algorithms.gibbs.settings import Layout
from fedkern.algorithms.gibbs.sites import Factor, Regression
from fedkern.transports.codec import Codec
from fedkern.transports.inprocess import run_protocol
from oracles import plain_sampler
from oracles.geweke import BOUND, ROUNDS, joint_test, worst
from support import chosen
from support.sparse_protocol import Federated

SCHEDULES = {
    "default": {"n_passes": 5},
    "five local sweeps": {"n_sweeps": 5},
    "participation": {"participation": 0.5, "n_passes": 2},
    "sums": {"aggregate": "sums"},
    "sums, slab, expanded scales": {"aggregate": "sums", "slab": 0.7, "scales": "expanded"},
    "translate": {"moves": "translate"},
    "interweave": {"moves": "interweave", "n_passes": 2},
    "translate one of two": {"moves": "translate", "block": 1},
    "translate, and interweave two of four every other round": {"moves": ("translate", "interweave"), "block": 2},
    "interweave two of four, slab": {"moves": "interweave", "block": 2, "slab": 0.7},
}


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("name", SCHEDULES)
def test_prior_and_chain_agree(name, rounds, seed):
    z = joint_test(Federated(**SCHEDULES[name]), seed, rounds=rounds, chains=400, steps=50, draws=100_000)
    assert worst(z)[0] < BOUND, z


@pytest.mark.nightly
@pytest.mark.parametrize("name", SCHEDULES)
def test_prior_and_chain_agree_closely(name, seed):
    z = joint_test(Federated(**SCHEDULES[name]), seed, rounds=2, chains=2000, steps=100, draws=400_000)
    assert worst(z)[0] < BOUND, z


class Stale(Federated):
    """Clients are told the theta of the round before."""

    def round(self, state, data, number):
        if number == 0:
            self.begin(state, data)
            self.older = self.questions
        fresh = self.questions
        self.questions = [(k, replace(old, round=new.round)) for (k, old), (_, new) in zip(self.older, fresh)]
        self.older = fresh
        return super().round(state, data, number + 1)


def test_negative_control_a_stale_theta_is_seen(seed):
    z = joint_test(Stale(), seed, rounds=2, chains=400, steps=50, draws=100_000)
    assert worst(z)[0] > 2 * BOUND, z


@pytest.mark.parametrize("m", [1, 4])
@pytest.mark.parametrize("options", [{}, {"local_sweeps": 3}, {"prior": chosen.prior(c0=0.1, scale_tau=0.5, scale_lambda=2.0)}])
def test_a_federated_run_is_the_plain_sampler_with_all_rows(m, options):
    """With the same streams, within 1e-9. Few rounds: the difference of two such chains grows about threefold in each."""
    random, p = np.random.default_rng(m), 5
    X = [random.standard_normal((n, p)) for n in (25, 31, 4, 40)[:m]]
    y = [X_k @ [1.0, -0.7, 0, 0, 0.3] + random.standard_normal(len(X_k)) + 2 for X_k in X]
    default = {"layout": Layout(np.arange(p)[None]), "seed": 77, "chains": 2, "rounds": 5, "burn_in": 0, "draw": "gram"}
    s = chosen.gibbs(**(default | options))
    sites = [Regression(Factor.of(X_k, y_k)) for X_k, y_k in zip(X, y)]
    clients = {k: gibbs.client(f"c{k}", k, s, site) for k, site in enumerate(sites)}
    server, clients = run_protocol(gibbs.protocol(s), gibbs.start(s, m), clients, Codec(s.dims(), m))[:2]
    starts, first = [site.start(s) for site in sites], sweeps.first(s)
    passes = {"local_sweeps": s.local_sweeps, "server_sweeps": s.server_sweeps}
    own = plain_sampler.Settings(c0=s.prior.c0, s_tau=s.prior.scale_tau, s_lambda=s.prior.scale_lambda, **passes)
    for chain in range(2):
        start = {"theta": np.zeros(p), "tau_sq": np.ones(p), "eta": first.eta[chain, 0, 0], "rho": first.rho[chain, 0]}
        start |= {"d": [a["deviation"][chain, 0] for a in starts], "lambda_sq": np.ones((m, p)), "sigma_sq": np.ones(m)}
        plain = plain_sampler.sample(X, y, own, rounds=5, seed=77, chain=chain, start=start)
        trace = server.trace
        pairs = {"theta": "theta", "tau_sq": "tau_sq", "inclusion": "q", "eta": "eta", "rho": "rho"}
        found = {theirs: trace[name][chain].reshape(plain[theirs].shape) for name, theirs in pairs.items()}
        found["sigma_sq"] = np.stack([clients[k].trace["sigma_sq"][chain, :, 0] for k in range(m)], axis=1)
        average = trace["average"][chain] - trace["theta"][chain]
        np.testing.assert_allclose(average, plain["d"].mean(axis=1), rtol=1e-9, atol=1e-10)
        for name, value in found.items():
            np.testing.assert_allclose(value, plain[name], rtol=1e-9, atol=1e-10, err_msg=name)
