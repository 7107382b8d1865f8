"""The exchange of collinear pairs: against dense algebra, joint tests (Geweke), planted faults, and a planted pair."""

from __future__ import annotations

import numpy as np
import pytest

from fedkern.algorithms.gibbs import pooled
from fedkern.algorithms.gibbs import pooled as exchange
from fedkern.algorithms.gibbs.settings import Layout
from fedkern.algorithms.gibbs.sites import Factor
from fedkern.transports.codec import Codec
from fedkern.transports.inprocess import run_protocol
from oracles.geweke import BOUND, joint_test, worst
from oracles.sparse_exchange import Exchanging, WithoutRatio, WithoutRefit
from support import chosen

SHORT = {"chains": 300, "steps": 40, "draws": 50_000}
FULL = {"chains": 2000, "steps": 100, "draws": 400_000}
VARIANTS = {"default": {}, "an eta for each": {"eta_form": "coordinate"}, "slab, five passes": {"slab": 0.7, "n_passes": 5}}


def test_the_integrated_likelihood_and_the_draw_are_those_of_dense_algebra():
    """theta_s and all theta_ks are one Gaussian: its normalising constant, mean and covariance."""
    random, m = np.random.default_rng(5), 3
    half = random.standard_normal((m, 2, 2))
    H, g = half @ half.swapaxes(1, 2), random.standard_normal((m, 2))
    V, D = random.gamma(1.0, size=2), random.gamma(1.0, size=(m, 2))
    parts = tuple(H[:, i, j, None, None] for i, j in ((0, 0), (0, 1), (1, 1)))
    score = g[:, None, None]
    found = exchange.integrated(parts, score, exchange.Scales(V[None, None], D[:, None, None]))
    size = 2 + 2 * m  # (theta_s, d_1s, d_2s, d_3s)
    Q, L = np.diag(np.concatenate([1 / V, *(1 / D)])), np.zeros(size)
    for k in range(m):
        Z = np.zeros((2, size))
        Z[:, :2] = Z[:, 2 + 2 * k : 4 + 2 * k] = np.eye(2)
        Q, L = Q + Z.T @ H[k] @ Z, L + Z.T @ g[k]
    wanted = 0.5 * (L @ np.linalg.solve(Q, L) - np.linalg.slogdet(Q)[1] - np.log(V).sum() - np.log(D).sum())
    np.testing.assert_allclose(found.log_m, wanted, rtol=1e-10)
    normal = np.vstack([np.zeros(size), np.eye(size)])  # the mean, then the columns of a root of the covariance
    theta, d = zip(*(exchange.drawn(found, parts, score, z[None, None]) for z in normal))
    rows = np.concatenate([np.stack(theta)[:, 0, 0], np.stack(d)[:, :, 0, 0].reshape(len(normal), -1)], axis=1)
    np.testing.assert_allclose(rows[0], np.linalg.solve(Q, L), rtol=1e-9)
    root = rows[1:] - rows[0]
    np.testing.assert_allclose(root.T @ root, np.linalg.inv(Q), rtol=1e-9, atol=1e-12)


def test_an_exchange_keeps_the_target(seed):
    z = joint_test(Exchanging(), seed, rounds=2, **SHORT)
    assert worst(z)[0] < BOUND, z


@pytest.mark.nightly
@pytest.mark.parametrize("name", VARIANTS)
def test_an_exchange_keeps_the_target_closely(name, seed):
    z = joint_test(Exchanging(**VARIANTS[name]), seed, rounds=2, **FULL)
    assert worst(z)[0] < BOUND, z


@pytest.mark.parametrize("fault", [WithoutRatio, WithoutRefit])
def test_negative_control_a_planted_fault_is_seen(fault, seed):
    z = joint_test(fault(), seed, rounds=2, **SHORT)
    assert worst(z)[0] > BOUND, z


def crossings(*, exchanges, rounds=1000):
    """How often each chain goes from one of a pair of correlation .95 to the other; the data cannot tell which has the effect."""
    random, p = np.random.default_rng(6), 20
    clients = {}
    for k in range(4):
        X = random.standard_normal((40, p))
        X[:, 1] = 0.95 * X[:, 0] + np.sqrt(1 - 0.95**2) * X[:, 1]
        clients[k] = pooled.Client(Factor.of(X, 0.4 * (X[:, 0] + X[:, 1]) + random.standard_normal(40)), 40)
    options = {"seed": 3, "chains": 2, "rounds": rounds, "burn_in": 0, "moves": ("interweave",), "exchange": exchanges}
    s = chosen.gibbs(Layout(np.arange(p)[None]), **options)
    asked = pooled.start(pooled.Server(s, "regression", len(clients)))
    q = run_protocol(pooled.PROTOCOL, asked, clients, Codec(s.dims(), len(clients)))[0].sampled.trace["inclusion"]
    apart = q[..., 0] - q[..., 1]
    return [int((np.diff(np.sign(chain[np.abs(chain) > 0.5])) != 0).sum()) for chain in apart]


def test_a_planted_pair_is_crossed():
    """60 to 120 times in 1,000 rounds."""
    assert min(crossings(exchanges=True, rounds=400)) >= 16


@pytest.mark.nightly
def test_a_planted_pair_is_crossed_more_often_than_without():
    """6 to 18 times without the exchange."""
    with_it, without = crossings(exchanges=True), crossings(exchanges=False)
    assert min(with_it) >= 20
    assert min(with_it) > 3 * min(without)
