"""Rows with a further effect, integrated out, and an r that is learnt: against brute force, and slopes against differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from fedkern.models.likelihood import Likelihood
from fedkern.models.overdispersed import Overdispersed
from fedkern.models.spatial import checks, factors
from fedkern.models.spatial.condition import Condition, Hyperprior
from fedkern.models.spatial.prior import AreaPrior
from fedkern.models.spatial.site import Layout, Rows, SigmaPrior, Site
from fedkern.models.spatial.within_site import WithinSite
from oracles.differences import four_point
from support import sigma_cases as cases
from support.maps import grid

PHI = Condition("phi", 0.0, 0.99, "log-rest", Hyperprior("logit-normal"))
Y = np.array([0.0, 1.0, 4.0, 30.0, 2500.0])
TRIALS = np.array([7.0, 5.0, 30.0, 31.0, 9000.0])
LAST = Y + np.array([4.0, 0.0, 6.0, 0.0, 3.0])
SHIFTS = np.array([[-4.0], [-1.0], [0.0], [1.0], [4.0]])  # of eta from what fits: chains and quadrature go there
GRID = np.linspace(-40, 40, 16_001)


def fitting(family: str) -> np.ndarray:
    return np.log(Y + 0.5) if family == "poisson" else np.log((Y + 0.5) / (TRIALS - Y + 0.5))


@pytest.mark.parametrize("family", ["poisson", "binomial"])
@pytest.mark.parametrize("censored", [False, True])
@pytest.mark.parametrize("tau", [1e-4, 0.2, 0.7, 2.0])
def test_values_are_those_of_a_fine_grid_and_slopes_are_differences(family: str, censored: bool, tau: float) -> None:
    like, given, eta = Overdispersed(family), Likelihood(family), fitting(family) + SHIFTS
    seen = (TRIALS if family == "binomial" else None, LAST if censored else None)
    value, slope, by_tau = like.terms(Y, eta, np.log(tau), *seen)
    if tau >= 0.2:
        inside = given.value(Y, eta[:, np.newaxis] + tau * GRID[:, np.newaxis], 0.0, *seen)
        brute = np.logaddexp.reduce(inside - 0.5 * GRID[:, np.newaxis] ** 2, axis=1)
        brute += np.log(GRID[1] - GRID[0]) - 0.5 * np.log(2 * np.pi)
        within = slice(None) if tau > 0.2 else slice(1, 4)  # other rows that are 4 off lie beyond the grid
        np.testing.assert_allclose(value[:, within], brute[:, within], atol=1e-8)
    else:
        np.testing.assert_allclose(value[1:4], given.value(Y, eta, 0.0, *seen)[1:4], rtol=1e-4)
    h = 1e-3
    by = [
        [like.value(Y, eta + a * h, np.log(tau) + b * h, *seen) for a, b in ((1, 0), (-1, 0), (2, 0), (-2, 0))],
        [like.value(Y, eta + a * h, np.log(tau) + b * h, *seen) for a, b in ((0, 1), (0, -1), (0, 2), (0, -2))],
    ]
    for found, (up, down, more, less) in zip((slope, by_tau), by):
        np.testing.assert_allclose(found, (8 * (up - down) - more + less) / (12 * h), rtol=5e-6, atol=5e-6)


def test_a_grid_that_is_too_coarse_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control of the test above."""
    monkeypatch.setattr("fedkern.models.overdispersed.NODES", (9, 0.0, 9))
    with pytest.raises(AssertionError):
        test_values_are_those_of_a_fine_grid_and_slopes_are_differences("poisson", False, 2.0)


@pytest.mark.parametrize("family", ["negative-binomial", "gaussian", "bernoulli"])
def test_others_have_no_further_effect(family: str) -> None:
    with pytest.raises(ValueError, match="counts without a dispersion of their own"):
        Overdispersed(family)


@pytest.mark.parametrize("last", [None, LAST])
def test_the_slope_in_log_r_is_a_difference(last: np.ndarray | None) -> None:
    like, eta = Likelihood("negative-binomial", None), fitting("poisson") + SHIFTS
    for w in (-2.0, 0.3, 4.0, 15.0):
        want = np.array([
            four_point(lambda x, e=e: like.value(Y, e, float(x[0]), None, last).sum(), np.array([w]))[0] for e in eta
        ])  # fmt: skip
        np.testing.assert_allclose(like.slope_scale(Y, eta, w, None, last).sum(axis=1), want, rtol=5e-6, atol=2e-5)


@pytest.mark.parametrize("like", [Likelihood("negative-binomial", None), Overdispersed("poisson")], ids=["r", "tau"])
def test_the_prior_of_a_dispersion_is_a_density(like: Likelihood) -> None:
    """1 / sqrt r, or tau, half-normal."""
    prior = like.unknown.prior
    total, _ = integrate.quad(lambda w: np.exp(prior(w)[0]), -60, 60, points=[-5, 0, 5], limit=200)
    assert total == pytest.approx(1, abs=1e-8)
    below, _ = integrate.quad(lambda w: np.exp(prior(w)[0]), -60, 0.4, points=[-5, 0], limit=200)
    half = stats.halfnorm
    assert below == pytest.approx(half.sf(np.exp(-0.2)) if like.scale is None else half.cdf(np.exp(0.4)), abs=1e-8)
    for w in (-1.5, 0.0, 2.0):
        assert prior(w)[1] == pytest.approx(four_point(lambda x: prior(float(x[0]))[0], np.array([w]))[0], abs=5e-6)


LEARNT = {
    "poisson": Overdispersed("poisson"),
    "binomial": Overdispersed("binomial"),
    "negative-binomial": Likelihood("negative-binomial", None),
}


@pytest.mark.parametrize("family", LEARNT)
@pytest.mark.parametrize("integrated", [True, False])
def test_slopes_of_a_client_are_differences(family: str, integrated: bool) -> None:
    prior = factors.tie(AreaPrior(*grid(4, 4), PHI), (9, 7), ("a", "b"), n_latents=4, nodes=9).clients[0]
    rng, n = np.random.default_rng(1), 14
    trials = np.full(n, 20.0) if family == "binomial" else None
    y = np.minimum(rng.poisson(4.0, n), 20).astype(float)
    last = np.where(y < 3, 2.0, y)
    rows = Rows(np.where(y < 3, 0.0, y), rng.integers(0, 8, n), rng.normal(size=(n, 2)), rng.normal(0.5, 0.3, n), trials, last)
    layout = Layout(True, prior.n_latents, n_beta=2, dispersed=True)
    site = WithinSite(prior, PHI, layout, LEARNT[family], rows, integrated=integrated)
    xi, u = rng.normal(0, 0.6, site.n_global), rng.normal(size=site.size)
    _, g_xi, g_u = site.log_joint_grad(xi, u)
    tight = 5e-5 if integrated else 5e-6
    np.testing.assert_allclose(g_xi, four_point(lambda x: site.log_joint_grad(x, u)[0], xi), rtol=tight, atol=tight)
    np.testing.assert_allclose(g_u, four_point(lambda x: site.log_joint_grad(xi, x)[0], u), rtol=5e-6, atol=5e-6)
    server = SigmaPrior(layout, PHI, likelihood=LEARNT[family])
    np.testing.assert_allclose(
        server.log_prior_grad(xi)[1], four_point(lambda x: server.log_prior_grad(x)[0], xi), rtol=5e-6, atol=5e-6
    )


def test_a_trained_prior_has_them_too() -> None:
    rng = np.random.default_rng(3)
    site = cases.site(rng, "amended", "poisson", "constant")
    layout = Layout(True, cases.P_G, n_beta=2, dispersed=True)
    site = Site(site.decoder, site.condition, layout, Overdispersed("poisson"), site.rows, site.auxiliary)
    xi, u = rng.normal(0, 0.6, site.n_global), rng.normal(0, 0.6, site.size)
    g_xi = site.log_joint_grad(xi, u)[1]
    np.testing.assert_allclose(g_xi, four_point(lambda x: site.log_joint_grad(x, u)[0], xi), rtol=5e-6, atol=5e-6)


@pytest.mark.parametrize("family", ["poisson", "binomial"])
def test_new_counts_vary_with_their_effects(family: str) -> None:
    """Mean, variance and distribution function against draws."""
    like, rng, m = Overdispersed(family), np.random.default_rng(5), 400_000
    eta, tau, trials = np.array([[1.3]]), 0.6, np.array([25.0]) if family == "binomial" else None
    mu = like.mean(eta + tau * rng.standard_normal((m, 1)))[:, 0]
    y = rng.poisson(mu) if trials is None else rng.binomial(25, mu)
    mean, variance = like.fitted(eta, np.full((1, 1), np.log(tau)), trials)
    assert abs(mean[0] - y.mean()) < 5 * y.std() / m**0.5
    assert variance[0] == pytest.approx(y.var(), rel=0.02)
    for k in (2.0, 5.0, 12.0):
        found = like.cdf(np.array([k]), eta, np.full((1, 1), np.log(tau)), trials)[0, 0]
        assert abs(found - (y <= k).mean()) < 5 * 0.5 / m**0.5


def test_an_area_foreseen_without_its_row_is_the_double_integral() -> None:
    """theta and the row's effect are both integrated out."""
    prior = factors.tie(AreaPrior(*grid(3, 3), PHI), (5, 4), ("a", "b"), n_latents=2, nodes=9).clients[0]
    rows = Rows(np.array([6.0]), np.array([2]), np.zeros((1, 0)), np.array([0.8]))
    layout = Layout(True, prior.n_latents, dispersed=True)
    site = WithinSite(prior, PHI, layout, Overdispersed("poisson"), rows, integrated=True)
    xi = np.zeros((1, site.n_global))
    xi[0, -1], mean, v = np.log(0.5), np.full((1, 5), 0.2), np.full((1, 5), 0.3)
    found = checks.log_density(site, xi, mean, v)[0, 2]
    x, w = np.polynomial.hermite_e.hermegauss(80)
    eta = 0.8 + 0.2 + 0.3**0.5 * x[:, None] + 0.5 * x
    want = np.log(np.einsum("i,j,ij->", w, w, stats.poisson.pmf(6, np.exp(eta))) / (2 * np.pi))
    assert found == pytest.approx(want, abs=1e-6)
