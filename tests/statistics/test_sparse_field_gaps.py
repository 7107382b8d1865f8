"""A random field whose rows lack values keeps its target (docs/spec/sparse.md, sections 8 and 11)."""

from __future__ import annotations

import numpy as np
import pytest

from fedkern.algorithms.gibbs.covariates import Covariates
from fedkern.algorithms.gibbs.settings import Layout
from fedkern.algorithms.gibbs.sites import OF_REGRESSION, Imputed, ImputedField, Moving
from fedkern.models.sparse import graph
from oracles.geweke import BOUND, joint_test, worst
from oracles.sparse_gaps import FieldWithGaps, NoResponseIsZero, SameNumbers, posterior
from support import chosen

FEW = {"chains": 60, "steps": 12, "draws": 20_000}  # each chain's numbers are made by themselves: a call a chain
SHORT = {"chains": 400, "steps": 60, "draws": 100_000}
KINDS = {"plain": {}, "two sweeps, slab": {"n_sweeps": 2, "slab": 0.7}}


def test_a_field_with_gaps_keeps_the_target(seed):
    z = joint_test(FieldWithGaps(), seed, rounds=2, **FEW)
    assert worst(z)[0] < BOUND, z


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("name", KINDS)
def test_a_field_with_gaps_keeps_the_target_closely(name, rounds, seed):
    z = joint_test(FieldWithGaps(**KINDS[name]), seed, rounds=rounds, **SHORT)
    assert worst(z)[0] < BOUND, z


@pytest.mark.parametrize("fault", [NoResponseIsZero, SameNumbers])
def test_negative_control_a_field_that_is_drawn_wrongly_is_seen(fault, seed):
    z = joint_test(fault(), seed, rounds=2, **FEW)
    assert worst(z)[0] > 1.5 * BOUND, z


def two_columns(n=9, seed=3):
    """Rows of two correlated columns about 0, with gaps in both, and a row that lacks both."""
    Y = np.random.default_rng(seed).multivariate_normal([0, 0], [[1.0, 0.7], [0.7, 1.0]], n)
    Y[[0, 1], 0] = Y[[2, 3, 4], 1] = np.nan
    Y[5] = np.nan
    return Y


def test_each_regression_has_the_posterior_of_quadrature(seed):
    """theta and tau known: what is left are the site's own coefficients, with scales, variance, intercept and law of rows."""
    Y, chains, sweeps, prior = two_columns(), 60, 300, chosen.prior(shape_sigma=3.0, rate_sigma=2.0)
    gaps = [Covariates(Y[:, [1 - j]], np.array([[0.8]]), 3.0) for j in range(2)]
    site = ImputedField(tuple(Imputed(gaps[j], Y[:, j], chain=j * OF_REGRESSION) for j in range(2)))
    settings = chosen.gibbs(Layout(graph(2, one_group=False)), prior, seed, chains)
    state, theta, tau_sq, drawn = site.start(settings), np.zeros((chains, 2, 2)), np.ones((chains, 2, 2)), []
    for step in range(sweeps):
        state, _ = site.sweeps(settings, state, theta, tau_sq, seed=seed, client=0, step=step)
        drawn.append([state["deviation"][:, [0, 1], [1, 0]], np.log(state["sigma_sq"])])
    each = np.array(drawn[30:]).transpose(1, 3, 2, 0)  # (2, columns, chains, sweeps)
    for j in range(2):
        exact = posterior(Y[:, 1 - j], Y[:, j], common=0.8, rows=3.0, shape=3.0, rate=2.0)
        for draws, (mean, sd) in zip(each[:, j], exact):
            error = draws.mean(axis=1).std() / np.sqrt(chains)
            assert abs(draws.mean() - mean) < 4 * error, (j, draws.mean(), mean, error)
            spread = draws.std(axis=1)
            assert abs(draws.std() - sd) < 4 * spread.std() / np.sqrt(chains) + 0.02 * sd, (j, draws.std(), sd)


def test_values_lie_as_far_apart_as_the_other_columns_leave_open(seed):
    """A draw from the product of the regressions' likelihoods would have sds of .60 / 1.28 and a slope of .98."""
    r, n = 0.8, 1000
    Y = np.random.default_rng(4).multivariate_normal([0, 0], [[1, r], [r, 1]], n)
    missing = np.arange(n) % 2 == 0
    Y[missing, 0] = np.nan
    each = [Imputed(Covariates(Y[:, [1 - j]], np.eye(1), 100.0), Y[:, j], chain=j * OF_REGRESSION) for j in range(2)]
    site, settings, found = ImputedField(tuple(each)), chosen.gibbs(Layout(graph(2, one_group=False)), seed=seed, chains=2), []
    state, none = site.start(settings), np.zeros((2, 2, 2))
    for step in range(200):
        state, _ = site.sweeps(settings, state, none, none + 1, seed=seed, client=0, step=step)
        x, y = state["completed"][:, 1, missing, 0], Y[missing, 1]
        slope = x @ y / (y @ y)
        found.append([slope.mean(), (x - slope[:, None] * y).std()])
    np.testing.assert_allclose(np.mean(found[50:], axis=0), [r, np.sqrt(1 - r**2)], atol=0.06)


def test_the_terms_of_a_move_are_those_of_the_regression():
    random, p = np.random.default_rng(5), 4
    Y = random.standard_normal((12, p))
    Y[::3, 1] = Y[1::4, 2] = np.nan
    each = [Covariates(np.delete(Y, j, axis=1), np.eye(p - 1), 2.0) for j in range(p)]
    site = ImputedField(tuple(Imputed(X, Y[:, j], chain=j * OF_REGRESSION) for j, X in enumerate(each)))
    settings = chosen.gibbs(Layout(graph(p, one_group=False)), chains=2)
    theta = random.standard_normal((2, p, p)) * ~np.eye(p, dtype=bool)
    tau_sq, counter = random.random((2, p, p)) + 0.5, {"seed": 1, "client": 0, "step": 0}
    state, _ = site.sweeps(settings, site.start(settings), theta, tau_sq, **counter)
    j, seen = 2, ~np.isnan(Y[:, 2])
    block = settings.layout.places(np.arange(2 * (p - 1)), j)
    assert set(block % p) == {0, 1, 3}
    gradient, precision = site.move_terms(Moving(theta[:, j], tau_sq[:, j], j, block, np.inf), state, **counter)
    for c in range(2):
        d = np.delete(state["deviation"][c, j], j)
        Z = np.hstack([np.eye(p - 1), np.diag(d / np.sqrt(np.delete(tau_sq[c, j], j)))])
        X = state["completed"][c, j][seen] @ Z
        rest = Y[seen, j] - state["alpha"][c, j] - state["completed"][c, j][seen] @ (np.delete(theta[c, j], j) + d)
        np.testing.assert_allclose(gradient[c], X.T @ rest / state["sigma_sq"][c, j], rtol=1e-10)
        np.testing.assert_allclose(precision[c], X.T @ X / state["sigma_sq"][c, j], rtol=1e-10)
