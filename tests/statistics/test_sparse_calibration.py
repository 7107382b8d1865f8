"""Simulation-based calibration, simulated truth, effective draws."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from oracles.sem_joint import Equations
from oracles.sparse_joint import Imputed, Logistic, Regression
from oracles.sparse_moves import MovedImputed, MovedLogistic
from support.sparse_chains import posterior

DEFAULTS = {"shape_eta": 2.0, "rate_eta": 1.0, "rho_a": 1.0, "rho_b": 1.0, "shape": 2.0, "rate": 1.0}


# ---- Simulation-based calibration: each chain has a truth and data of its own.


def quantities(model, s):
    if isinstance(model, Equations):
        rest = {"log b": np.log(s.local[0][0, :, 0])}
    else:
        rest = {"alpha": s.local[0][0]} if isinstance(model, Logistic) else {"log sigma^2": np.log(s.local[0][0])}
    if isinstance(model, Imputed):
        rest["a missing value"] = s.local[2][1][:, 0, 0]
    first = np.flatnonzero(model.indicators > -2)[:2]
    return {
        "theta_1": s.theta[:, first[0]],
        "theta_2": s.theta[:, first[1]],
        "log tau^2_1": np.log(s.tau_sq[:, first[0]]),
        "log tau^2_2": np.log(s.tau_sq[:, first[1]]),
        "log eta": np.log(s.eta[:, first[0]]),
        "rho": s.rho[:, 0],
        "log lambda^2": np.log(s.lambda_sq[0][:, first[0]]),
        "d": s.deviation[0][:, first[0]],
        "theta_k1": s.coefficients()[0][:, first[0]],
        "theta_k2": s.coefficients()[-1][:, first[1]],
    } | rest


def ranks(model, n, *, thin, seed, burn_in=20, draws=99):
    """Ranks 0 to 99 of the truth among thinned draws, of n data sets; {name: (n,)}. Chains start at a fresh draw of the prior."""
    rng = np.random.default_rng(seed)
    truth = model.prior(rng, n)
    data, state = model.simulate(rng, truth), model.prior(rng, n)
    true, below = quantities(model, truth), {}
    for number in range((burn_in + draws) * thin):
        state = model.round(state, data, number)
        if number >= burn_in * thin and number % thin == thin - 1:
            for name, value in quantities(model, state).items():
                below[name] = below.get(name, 0) + (value < true[name])
    return below


def p_values(found):
    """Chi-square tests of uniform ranks in 20 bins of 5."""
    return {name: stats.chisquare(np.bincount(r // 5, minlength=20)).pvalue for name, r in found.items()}


def regression(**options):
    return Regression(n=(12, 9, 10), q=3, n_passes=5, **options)


def other(kind):
    """Other models. The intercept of an imputed site has a flat prior: nothing that is ranked depends on its truth."""
    if kind == "sem":
        return Equations(n=12, update="row-gibbs", n_passes=5)
    size = {"n": (12, 9, 10), "n_passes": 5}
    return Logistic(centred=True, **size) if kind == "logistic" else Imputed(intercept=kind == "imputed", **size)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["regression", "sem", "logistic", "imputed", "imputed, no intercept"])
def test_ranks_are_uniform(kind, seed):
    model = regression() if kind == "regression" else other(kind)
    p = p_values(ranks(model, 1000, thin=20, seed=seed, burn_in=40))
    assert min(p.values()) > 1e-4 / len(p), p


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", [MovedLogistic, MovedImputed])
@pytest.mark.parametrize("moves", ["translate", "interweave"])
def test_ranks_are_uniform_with_moves(kind, moves, seed):
    p = p_values(ranks(kind(moves=moves, n_passes=5), 600, thin=10, seed=seed, burn_in=30))
    assert min(p.values()) > 1e-4 / len(p), p


def test_ranks_are_uniform_in_a_short_run(seed):
    p = p_values(ranks(regression(), 300, thin=4, seed=seed))
    assert min(p.values()) > 1e-5 / len(p), p


def test_negative_control_ranks_with_another_prior_are_not_uniform(seed):
    class Other(Regression):
        def server_options(self):
            return super().server_options() | {"rate_eta": 4 * self.rate_eta}

    p = p_values(ranks(Other(n=(12, 9, 10), q=3, n_passes=5), 300, thin=3, seed=seed))
    assert min(p.values()) < 1e-8, p


# ---- Simulated truth: p = 50, five effects of 0.5, four clients of 150 rows.


def inclusion_probabilities(seed, *, rounds, burn_in, chains=4, p=50):
    rng = np.random.default_rng(seed)
    theta = np.where(np.arange(p) < 5, 0.5, 0.0)
    X = [rng.standard_normal((150, p)) for _ in range(4)]
    y = [X_k @ theta + rng.standard_normal(150) for X_k in X]
    model = Regression(X=X, c0=0.01, n_passes=5, **DEFAULTS)
    size = {"chains": chains, "rounds": rounds, "burn_in": burn_in}
    return posterior(model, model.given(y), lambda s: {"q": s.inclusion}, seed=seed, **size)["q"][0]


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_effects_are_found_and_others_are_not(seed):
    q = np.stack([inclusion_probabilities(1000 * seed + i, rounds=500, burn_in=100) for i in range(60)])
    assert (q[:, :5] > 0.5).mean() >= 0.97
    assert np.quantile(q[:, 5:], 0.99) < 0.15


def test_effects_are_found_and_others_are_not_in_a_few_data_sets(seed):
    q = np.stack([inclusion_probabilities(1000 * seed + i, rounds=200, burn_in=60, chains=2) for i in range(3)])
    assert (q[:, :5] > 0.5).all()
    assert (q[:, 5:] < 0.3).all()


# ---- Mixing: the table of docs/spec/sparse.md, section 6.


@pytest.mark.nightly
@pytest.mark.parametrize("deviating", [False, True])
def test_effective_draws_of_the_default(deviating):
    path = Path(__file__).parents[2] / "benchmarks" / "sparse_ess.py"
    spec = importlib.util.spec_from_file_location("sparse_ess", path)
    table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    kept = table.draws(table.federation(deviating, 2), 2500, n_passes=5)
    ess = {name: table.effective(x).min() for name, x in kept.items()}
    assert ess["theta"] >= 85, ess
    assert ess["log tau^2"] >= 105, ess
    assert ess["q"] >= 155, ess
