"""Locations of structural equations (docs/spec/sparse.md, section 9): the law of their draws, and the posterior with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedkern.algorithms.gibbs.covariates import drawn, laplace_centres
from fedkern.algorithms.gibbs.settings import Layout
from fedkern.algorithms.gibbs.sites import StructuralEquations
from oracles import sparse_quadrature as quadrature
from oracles.sem_joint import Equations
from support import chosen
from support.sparse_chains import posterior

DEFAULTS: dict[str, Any] = {"shape_eta": 2.0, "rate_eta": 1.0, "rho_a": 1.0, "rho_b": 1.0, "shape": 2.0, "rate": 1.0}
SWEEPS, N = 3, 15


class Located(Equations):
    """Sites of a job, whose columns' locations are drawn; `fault`: they are left where they began."""

    fault = False

    def client(self, k: int, state: Any, data: Any, number: int) -> tuple[Any, Any, Any]:
        c, p = state.theta.shape[0], self.p
        prior = chosen.prior(shape_sigma=self.shape, rate_sigma=self.rate, **self.prior_options)
        settings = chosen.gibbs(Layout(self.indicators[None]), prior, seed=self.seed, chains=c, local_sweeps=SWEEPS, burn_in=0)
        site = StructuralEquations(data[k], self.kernel["update"], locate=not self.fault)
        before = {"deviation": state.deviation[k][:, None], "lambda_sq": state.lambda_sq[k][:, None], "b": state.local[0][k]}
        before |= {"log_step": np.full((c, p, p), np.log(0.5)), "temperature": np.ones(c), "loglik": np.zeros(c)}
        given = state.theta[:, None], state.tau_sq[:, None]
        after, _ = site.sweeps(settings, before, *given, seed=self.seed, client=k, step=SWEEPS * number)
        return after["deviation"][:, 0], after["lambda_sq"][:, 0], after["b"]


def rows() -> Any:
    """Two equations whose errors are far from symmetric in these rows: where a mean is no good centre."""
    random = np.random.default_rng(5)
    Y = np.linalg.solve(np.eye(2) - np.array([[0, 0.5], [-0.4, 0]]), random.laplace(size=(2, N)) ** 3 / 6)
    return Y - Y.mean(axis=1, keepdims=True)


def functions(s: Any) -> dict[str, Any]:
    x_1, x_2 = s.coefficients()[0][:, [1, 2]].T
    return {
        "gamma_1": s.inclusion[:, 1],
        "gamma_2": s.inclusion[:, 2],
        "tanh theta_1": np.tanh(s.theta[:, 1]),
        "tanh x_1": np.tanh(x_1),
        "tanh x_2": np.tanh(x_2),
        "stable": (np.abs(x_1 * x_2) < 1).astype(float),
    }


# Chains that begin in the prior take hundreds of rounds to find the modes' shares: more are left out where errors are small.
SHORT_AND_LONG = [(0.02, 60, 60, 500), pytest.param(5e-3, 1200, 300, 1000, marks=pytest.mark.nightly)]


@pytest.mark.parametrize(("error", "rounds", "burn_in", "chains"), SHORT_AND_LONG)
def test_the_posterior_with_drawn_locations_is_that_of_quadrature(error, rounds, burn_in, chains, seed):
    options = DEFAULTS | {"eta_form": "coordinate", "n_passes": 5, "scale_tau": 1.0, "scale_lambda": 1.0}
    model = Located(update="row-gibbs", p=2, m=1, n=N, c0=0.05, **options)
    exact = quadrature.two_equations(rows(), c0=0.05, a_eta=2, b_eta=1, a_b=2, b_b=1, fine=1.2, located=True)
    found = posterior(model, rows()[None], functions, chains=chains, rounds=rounds, burn_in=burn_in, seed=seed)
    for name, value in exact.items():
        mean, spread = found[name]
        assert spread < error, (name, spread)
        assert abs(mean - value) < 4 * spread, (name, mean, value, spread)
    model.fault = True
    wrong = posterior(model, rows()[None], functions, chains=500, rounds=30, burn_in=60, seed=seed)
    assert max(abs(wrong[name][0] - value) / wrong[name][1] for name, value in exact.items()) > 6


def test_the_oracle_s_integral_over_centres() -> None:
    errors = np.random.default_rng(1).normal(size=(3, 5))
    at = np.linspace(-40, 40, 800_001)
    for row, found in zip(errors, quadrature.log_over_centres(errors, 7.0, 1.0)):
        size = 1.0 + np.abs(row[:, None] - at).sum(axis=0)
        assert found == pytest.approx(np.log(np.sum(size**-7.0) * (at[1] - at[0])), abs=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3, 6, 7])
@pytest.mark.parametrize("rate", [0.3, 2.0, 400.0])
def test_a_centre_has_its_law(n: int, rate: float) -> None:
    random = np.random.default_rng(n)
    values = random.normal(size=n)
    values[-1] = values[0] if n > 3 else values[-1]  # a piece without a width
    x = laplace_centres(np.broadcast_to(values, (20_000, n)), np.full(20_000, rate), random.random((20_000, 2)))
    inside, tail = np.linspace(values.min(), values.max(), 40_001), np.geomspace(1e-6, 80, 20_000) / rate
    at = np.unique(np.concatenate([values.min() - tail, inside, values.max() + tail]))
    logs = -rate * np.abs(at[:, None] - values).sum(axis=1)
    mass = np.exp(logs - logs.max())
    below = np.concatenate([[0.0], np.cumsum((mass[1:] + mass[:-1]) / 2 * np.diff(at))])
    assert stats.kstest(x, lambda v: np.interp(v, at, below / below[-1])).pvalue > 1e-4
    assert stats.kstest(x + 0.1 * x.std(), lambda v: np.interp(v, at, below / below[-1])).pvalue < 1e-4


def test_locations_move_with_the_columns() -> None:
    random = np.random.default_rng(2)
    Y, u = random.laplace(size=(3, 9)), random.random((4, 3, 2))
    theta = 0.3 * random.normal(size=(4, 3, 3)) * ~np.eye(3, dtype=bool)
    by = np.array([5.0, -2.0, 0.25])
    there, here = (drawn(y, theta, np.ones((4, 3)), u) for y in (Y + by[:, None], Y))
    np.testing.assert_allclose(there - here, np.tile(by, (4, 1)), atol=1e-12)
