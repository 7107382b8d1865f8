"""Posteriors that are known by quadrature, and the law of the draws of coefficients."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedkern.kernels import shrinkage
from oracles import sparse_quadrature as quadrature
from oracles.sem_joint import Equations
from oracles.sparse_joint import Regression
from support.sparse_chains import posterior

DEFAULTS = {"shape_eta": 2.0, "rate_eta": 1.0, "rho_a": 1.0, "rho_b": 1.0, "shape": 2.0, "rate": 1.0}


def within(found, exact, error):
    """Four Monte-Carlo errors, each at most `error` (10 times that for a logarithm: its standard deviation is about 3)."""
    for name, value in exact.items():
        mean, spread = found[name]
        assert spread < error * (10 if name.startswith("log") else 1), (name, spread)
        assert abs(mean - value) < 4 * spread, (name, mean, value, spread)


def three_sites():
    rng = np.random.default_rng(1)
    X = [rng.standard_normal((n, 1)) for n in (6, 5, 7)]
    y = [X_k @ [effect] + 0.6 * rng.standard_normal(len(X_k)) for X_k, effect in zip(X, (0.5, 0.7, 0.1))]
    return X, y


REGRESSIONS = [{"n_passes": 5}, {"moves": "interweave"}, {"order": "printed", "draw": "data"}]
SHORT_AND_LONG = [(6e-3, 1), pytest.param(1e-3, 20, marks=pytest.mark.nightly)]


@pytest.mark.parametrize(("error", "size"), SHORT_AND_LONG)
@pytest.mark.parametrize("options", REGRESSIONS)
def test_one_coefficient_at_three_sites(options, error, size, seed):
    X, y = three_sites()
    model = Regression(X=X, c0=0.05, **DEFAULTS, **options)
    data = model.given(y)
    one = [(R[0, 0], d.q[0], d.rss, len(X_k) - 1) for R, d, X_k in zip(model.R, data, X)]
    exact = quadrature.one_coefficient(one, c0=0.05, a_eta=2, b_eta=1, a_sigma=2, b_sigma=1)

    def functions(s):
        theta, log_tau = s.theta[:, 0], np.log(s.tau_sq[:, 0])
        return {"gamma": s.inclusion[:, 0], "theta": theta, "tanh^2 theta": np.tanh(theta) ** 2, "log tau^2": log_tau}

    within(posterior(model, data, functions, chains=1200, rounds=200 * size, burn_in=40, seed=seed), exact, error)


def test_quadrature_does_not_depend_on_its_grid():
    X, y = three_sites()
    model = Regression(X=X)
    one = [(R[0, 0], d.q[0], d.rss, len(X_k) - 1) for R, d, X_k in zip(model.R, model.given(y), X)]
    coarse, fine = (quadrature.one_coefficient(one, c0=0.05, a_eta=2, b_eta=1, a_sigma=2, b_sigma=1, fine=f) for f in (0.4, 0.7))
    assert all(abs(coarse[name] - fine[name]) < 1e-5 for name in fine)


# By day one of three updates: the kernel of each meets an exact posterior in kernels/test_sem.py.
@pytest.mark.parametrize(
    ("update", "error", "size"),
    [
        ("row-gibbs", 6e-3, 1),
        *(pytest.param(update, 6e-3, 1, marks=pytest.mark.nightly) for update in ("element", "row")),
        *(pytest.param(update, 1e-3, 20, marks=pytest.mark.nightly) for update in ("row-gibbs", "element", "row")),
    ],
)
def test_two_equations_at_one_site(update, error, size, seed):
    rng = np.random.default_rng(2)
    Y = np.linalg.solve(np.eye(2) - np.array([[0, 0.5], [-0.4, 0]]), rng.laplace(size=(2, 15)))
    scales = {"scale_tau": 1.0, "scale_lambda": 1.0}
    model = Equations(p=2, m=1, n=15, c0=0.05, eta_form="coordinate", n_passes=5, n_sweeps=3, update=update, **scales, **DEFAULTS)
    exact = quadrature.two_equations(Y, c0=0.05, a_eta=2, b_eta=1, a_b=2, b_b=1, fine=1.5)

    def functions(s):
        x_1, x_2 = s.coefficients()[0][:, [1, 2]].T
        return {
            "gamma_1": s.inclusion[:, 1],
            "gamma_2": s.inclusion[:, 2],
            "tanh theta_1": np.tanh(s.theta[:, 1]),
            "tanh x_1": np.tanh(x_1),
            "tanh x_2": np.tanh(x_2),
            "stable": (np.abs(x_1 * x_2) < 1).astype(float),
        }

    within(posterior(model, Y[None], functions, chains=1000, rounds=100 * size, burn_in=40, seed=seed), exact, error)


@pytest.mark.parametrize("slab", [np.inf, 0.5])
@pytest.mark.parametrize("draw", ["gram", "data"])
@pytest.mark.parametrize(("n", "p"), [(7, 3), (3, 5)])
def test_draws_of_coefficients_have_their_law(n, p, draw, slab, seed):
    """Mean and covariance of 100,000 draws against the precision and its shift, which the two forms never build."""
    c, rng = 100_000, np.random.default_rng(4)
    X, y = rng.standard_normal((n, p)), rng.standard_normal(n)
    theta, scale, sigma_sq = rng.standard_normal(p), np.exp(rng.standard_normal(p)), 0.5
    Q, R = np.linalg.qr(X)
    given = [np.broadcast_to(a, (c, p)) for a in (theta, scale)]
    d = shrinkage.gaussian_posterior_draw(R, Q.T @ y, *given, np.full(c, sigma_sq), seed=seed, draw=draw, slab=slab)
    precision = X.T @ X / sigma_sq + np.diag(1 / scale**2 + 1 / slab**2)
    whitened = (d - np.linalg.solve(precision, X.T @ (y - X @ theta) / sigma_sq)) @ np.linalg.cholesky(precision)
    assert np.abs(whitened.mean(axis=0)).max() < 4.5 / np.sqrt(c)
    assert np.abs(whitened.T @ whitened / c - np.eye(p)).max() < 4.5 * np.sqrt(2 / c)
    assert min(stats.kstest(column, "norm").pvalue for column in whitened.T) > 1e-5
