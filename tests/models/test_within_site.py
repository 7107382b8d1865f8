"""A client's density with the exact prior inside: slopes by differences, and theta integrated out against dense algebra."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from fedkern.algorithms.hmc.moves import evaluate, finite
from fedkern.algorithms.sfvi import machine as sfvi
from fedkern.models.likelihood import Likelihood
from fedkern.models.spatial import factors
from fedkern.models.spatial.condition import Condition, Hyperprior
from fedkern.models.spatial.prior import AreaPrior, MixedPrior
from fedkern.models.spatial.site import Layout, Rows, SigmaPrior
from fedkern.models.spatial.within_site import WithinSite
from oracles.differences import four_point
from papers.car import Areas, exact_areas, exact_process
from support import chosen
from support.hierarchical import run
from support.maps import grid

PHI = Condition("phi", 0.0, 0.99, "log-rest", Hyperprior("logit-normal"))
NONE = Condition("none", 0.0, 0.0)
SIZES, NAMES = (15, 12, 9), ("a", "b", "c")


@pytest.fixture(scope="module")
def clients():
    return factors.tie(AreaPrior(*grid(6, 6), PHI), SIZES, NAMES, n_latents=14, nodes=13).clients


def site(prior, family, *, sd=None, seed=0, condition=PHI):
    """26 rows of the areas but the last two, some of one area; two covariates; sd "rows": each row has its own."""
    rng, n = np.random.default_rng(seed), 26
    y = {"gaussian": rng.normal(size=n), "poisson": rng.poisson(2.0, n), "binomial": rng.integers(0, 4, n)}[family].astype(float)
    trials = np.full(n, 5.0) if family == "binomial" else None
    own = rng.uniform(0.2, 2.0, n) if sd == "rows" else None
    rows = Rows(y, rng.integers(0, prior.size - 2, n), rng.normal(size=(n, 2)), rng.normal(0, 0.3, n), trials, sd=own)
    free = family == "gaussian" and sd is None
    layout = Layout(condition.free, prior.n_latents, n_beta=2, dispersed=free)
    return WithinSite(prior, condition, layout, Likelihood(family, sd if own is None else own), rows, family == "gaussian")


SITES = [("gaussian", None), ("gaussian", 0.6), ("gaussian", "rows"), ("poisson", 1.0), ("binomial", 1.0)]


@pytest.mark.parametrize(("family", "sd"), SITES)
@pytest.mark.parametrize("fixed", [None, 0.93])
def test_slopes_are_differences(clients, family, sd, fixed):
    condition = PHI if fixed is None else Condition("phi", 0.0, 0.99, "log-rest", Hyperprior("logit-normal"), fixed=fixed)
    s, rng = site(clients[1], family, sd=sd, condition=condition), np.random.default_rng(1)
    xi, u = rng.normal(0, 0.7, s.n_global), rng.normal(size=s.size)
    value, g_xi, g_u = s.log_joint_grad(xi, u)
    np.testing.assert_allclose(g_xi, four_point(lambda x: s.log_joint_grad(x, u)[0], xi), rtol=5e-6, atol=5e-6)
    np.testing.assert_allclose(g_u, four_point(lambda x: s.log_joint_grad(xi, x)[0], u), rtol=5e-6, atol=5e-6)
    both = s.log_joint_grads(np.stack([xi, xi + 0.1]), np.stack([u, -u]))
    assert both[0][0] == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(both[1][1], s.log_joint_grad(xi + 0.1, -u)[1], rtol=1e-10)


@pytest.mark.parametrize("sd", [None, "rows"])
def test_integrated_rows_have_the_dense_density(clients, sd):
    s, rng = site(clients[0], "gaussian", sd=sd), np.random.default_rng(2)
    xi = rng.normal(0, 0.5, s.n_global)
    ties = s.prior.ties(s.condition.at(xi[:1])[0])
    z, scale, errors = xi[s.layout.parts["z"]], float(s.layout.scale(xi)), np.exp(xi[-1]) if sd is None else s.rows.sd
    B = np.zeros((len(s.rows.y), s.n_areas))
    B[np.arange(len(B)), s.rows.area] = scale
    given = np.linalg.inv(s.prior.precision(ties))
    mean = s.fixed(xi[np.newaxis])[0] + B @ s.prior.loadings(ties) @ z
    want = multivariate_normal(mean, B @ given @ B.T + errors**2 * np.eye(len(B)))
    assert s.log_joint_grad(xi, np.zeros(0))[0] == pytest.approx(want.logpdf(s.rows.y), abs=1e-4)  # K is a spline
    many = np.repeat(xi[np.newaxis], 4000, axis=0)
    theta = s.theta_given(many, np.zeros((4000, 0)), rng.standard_normal((4000, s.n_areas)))
    gain = given @ B.T @ np.linalg.inv(want.cov)
    exact, spread = s.prior.loadings(ties) @ z + gain @ (s.rows.y - mean), given - gain @ B @ given
    assert np.abs((theta.mean(axis=0) - exact) / np.sqrt(spread.diagonal() / 4000)).max() < 4.5
    np.testing.assert_allclose(theta.var(axis=0), spread.diagonal(), rtol=0.15)


def test_clients_together_have_nearly_the_exact_posterior_with_phi_unknown(clients):
    """z is integrated out by its normal equations, phi by the quadrature of the exact posterior."""
    rng, sd = np.random.default_rng(3), 0.5
    y = rng.normal(0, 0.7, sum(SIZES))
    want = exact_areas(Areas(*grid(6, 6)), PHI, y, np.arange(len(y)), sd, variances=False)
    r, logs, means = clients[0].n_latents, [], []
    ends = np.cumsum([0, *SIZES])
    for phi in want.phi:
        P, right, kept, log = np.eye(r), np.zeros(r), [], 0.0
        for j, prior in enumerate(clients):
            own = y[ends[j] : ends[j + 1]]
            ties = prior.ties(np.array([phi]))
            A, given = prior.loadings(ties), np.linalg.inv(prior.precision(ties))
            V = given + sd**2 * np.eye(len(own))
            P += A.T @ np.linalg.solve(V, A)
            right += A.T @ np.linalg.solve(V, own)
            log += multivariate_normal(np.zeros(len(own)), V).logpdf(own)
            kept.append((A, given @ np.linalg.inv(V), own))
        z = np.linalg.solve(P, right)
        logs.append(log + 0.5 * right @ z - 0.5 * np.linalg.slogdet(P)[1])
        means.append(np.concatenate([A @ z + gain @ (own - A @ z) for A, gain, own in kept]))
    exact = [
        multivariate_normal(np.zeros(len(y)), np.linalg.inv(Areas(*grid(6, 6)).precision(phi).toarray()) + sd**2 * np.eye(len(y)))
        for phi in want.phi
    ]
    weight = want.weight * np.exp(np.array(logs) - [e.logpdf(y) for e in exact])
    mean = weight @ np.array(means) / weight.sum()
    assert np.sqrt(np.mean((mean - want.mean) ** 2)) < 0.02 * np.sqrt(np.mean(want.mean**2))


@pytest.mark.parametrize(("kind", "integrated"), [("car", True), ("car", False), ("bym2", True)])
def test_variational_inference_of_a_federation_has_nearly_the_exact_means(clients, kind, integrated):
    """By the machines as they are; phi, or rho, unknown."""
    rng, sd, ends = np.random.default_rng(4), 0.5, np.cumsum([0, *SIZES])
    model = AreaPrior(*grid(6, 6), PHI) if kind == "car" else MixedPrior(AreaPrior(*grid(6, 6), NONE, "bym2"))
    theta = np.linalg.cholesky(model.covariance(0.95)) @ rng.standard_normal(ends[-1])
    y = theta + sd * rng.standard_normal(ends[-1])
    if kind == "car":
        want = exact_areas(Areas(*grid(6, 6)), PHI, y, np.arange(len(y)), sd)
    else:
        want = exact_process(model.covariance, model.condition, y, np.arange(len(y)), sd)
        clients = factors.tie(model, SIZES, NAMES, n_latents=20, nodes=13).clients
    layout, sites = Layout(True, clients[0].n_latents, intercept=False, scaled=False), []
    for j, prior in enumerate(clients):
        own = y[ends[j] : ends[j + 1]]
        rows = Rows(own, np.arange(len(own)), np.zeros((len(own), 0)), np.zeros(len(own)))
        sites.append(WithinSite(prior, model.condition, layout, Likelihood("gaussian", sd), rows, integrated))
    settings = chosen.sfvi(rounds=1500, learning_rate=0.03, seed=1)
    server, parties = run(sites, settings, prior=SigmaPrior(layout, model.condition))
    mean, S = sfvi.posterior_moments(server)
    xi = rng.multivariate_normal(mean, S, 400)
    parts = []
    for k, s in enumerate(sites):
        c = parties[k]
        u = np.array([c.family.sample(c.parameters, x, c.centre, rng.standard_normal(s.size)) for x in xi])
        parts.append(s.theta_given(xi, u, rng.standard_normal((len(xi), s.n_areas))))
    theta = np.concatenate(parts, axis=1)
    assert np.sqrt(np.mean((theta.mean(axis=0) - want.mean) ** 2)) < 0.1 * np.sqrt(want.variance.mean())
    np.testing.assert_allclose(theta.std(axis=0), np.sqrt(want.variance), rtol=0.2)


FAMILIES = [("poisson", 1.0), ("binomial", 1.0), ("bernoulli", 1.0), ("negative-binomial", 3.0)]


def integrated(prior, family, sd):
    """As `site`, with theta integrated out."""
    y = {"negative-binomial": "poisson", "bernoulli": "binomial"}.get(family, family)
    s = site(prior, y, sd=sd)
    rows = s.rows
    if family == "bernoulli":
        rows = Rows(np.minimum(rows.y, 1), rows.area, rows.X, rows.offset)
    return WithinSite(prior, PHI, s.layout, Likelihood(family, sd), rows, integrated=True)


@pytest.mark.parametrize(("family", "sd"), FAMILIES)
def test_the_bound_is_below_the_evidence_and_near_it_and_its_slopes_are_differences(clients, family, sd):
    """The evidence by importance sampling from q."""
    s, none = integrated(clients[1], family, sd), np.zeros(0)
    for seed, spread in ((0, 0.7), (1, 1.2)):
        xi = np.random.default_rng(seed).normal(0, spread, s.n_global)
        value, g_xi, _ = s.log_joint_grad(xi, none)
        np.testing.assert_allclose(g_xi, four_point(lambda x: s.log_joint_grad(x, none)[0], xi), rtol=5e-5, atol=5e-5)
        ties = s._ties(xi[np.newaxis])
        pull = s.prior.pull(ties) @ xi[s.layout.parts["z"]]
        q = s._posterior(s.prior.precision(ties), pull, s._places(xi[np.newaxis])[0])
        e = np.random.default_rng(1).standard_normal((4000, s.n_areas))
        full = WithinSite(s.prior, PHI, s.layout, s.likelihood, s.rows)
        theta = q.mean + np.linalg.solve(q.factor.T, e.T).T
        many = np.repeat(xi[np.newaxis], len(e), axis=0)
        joint = full.log_joint_grads(many, np.linalg.solve(full.root, theta.T).T)[0] - full.log_volume
        weight = joint + 0.5 * (e * e).sum(axis=1) + 0.5 * s.n_areas * np.log(2 * np.pi) - 0.5 * q.log_det
        evidence = weight.max() + np.log(np.mean(np.exp(weight - weight.max())))
        assert evidence - 0.06 < value < evidence + 0.01
        assert s.log_marginal(xi, e) == pytest.approx(evidence, abs=1e-6)  # without the factor R, and without the prior's density


def test_slopes_are_none_where_the_fixed_point_is_left_early(clients, monkeypatch):
    """Negative control of the test above."""
    s, none = integrated(clients[1], "poisson", 1.0), np.zeros(0)
    xi = np.random.default_rng(0).normal(0, 0.7, s.n_global)
    monkeypatch.setattr("fedkern.models.spatial.within_site.MOST_STEPS", 2)
    slope = four_point(lambda x: s.log_joint_grad(x, none)[0], xi)
    assert np.abs(s.log_joint_grad(xi, none)[1] - slope).max() > 1e-2


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
@pytest.mark.parametrize("integrated", [True, False])
def test_a_client_may_have_a_single_area(family, integrated):
    """A state of one district: its only area is on the border."""
    own = factors.tie(AreaPrior(*grid(4, 4), PHI), (15, 1), NAMES[:2], n_latents=1, nodes=9).clients[1]
    rng = np.random.default_rng(4)
    rows = Rows(np.array([3.0, 1.0]), np.zeros(2, int), rng.normal(size=(2, 1)), np.zeros(2))
    layout = Layout(PHI.free, own.n_latents, n_beta=1, dispersed=family == "gaussian")
    s = WithinSite(own, PHI, layout, Likelihood(family, None if family == "gaussian" else 1.0), rows, integrated=integrated)
    xi, u = rng.normal(0, 0.5, s.n_global), rng.normal(size=s.size)
    _, g_xi, g_u = s.log_joint_grad(xi, u)
    np.testing.assert_allclose(g_xi, four_point(lambda x: s.log_joint_grad(x, u)[0], xi), rtol=5e-6, atol=5e-6)
    np.testing.assert_allclose(g_u, four_point(lambda x: s.log_joint_grad(xi, x)[0], u), rtol=5e-6, atol=5e-6)
    theta = s.theta_given(np.stack([xi] * 3), np.stack([u] * 3), rng.normal(size=(3, 1)))
    mean, variance = s.without_rows(np.stack([xi] * 3), np.stack([u] * 3), theta)
    assert theta.shape == mean.shape == variance.shape == (3, 1)
    assert np.isfinite(theta).all()
    assert (variance > 0).all()


@pytest.mark.parametrize(("what", "far"), [("error", -400.0), ("error", -360.0), ("scale", 600.0)])
def test_a_chain_that_goes_astray_leaves_the_others_alone(clients, what, far):
    """An error's variance of 0, or the next to it, or a sigma_theta whose square is no number: a trajectory may get there, and is
    refused then."""
    s, rng = site(clients[1], "gaussian"), np.random.default_rng(3)
    xi, u = rng.normal(0, 0.5, (3, s.n_global)), np.zeros((3, 0))
    xi[1, -1 if what == "error" else s.layout.parts["log_scale"]] = far
    value, g_xi, g_u = evaluate(s, xi, u)
    assert finite(value, g_xi, g_u).tolist() == [True, False, True]
    alone = s.log_joint_grad(xi[2], u[2])
    assert value[2] == pytest.approx(alone[0], rel=1e-12)
    np.testing.assert_allclose(g_xi[2], alone[1], rtol=1e-12)


@pytest.mark.parametrize(("family", "close"), [("gaussian", 2e-7), ("poisson", 0.02), ("binomial", 0.02)])
def test_curvature_is_that_of_the_integrated_density(clients, family, close):
    s = dataclasses.replace(site(clients[1], family, sd=None if family == "gaussian" else 1.0), integrated=True)
    xi, linear = np.random.default_rng(3).normal(0, 0.4, s.n_global), s.layout.linear

    def gradient(u):
        at = xi.copy()
        at[linear] = u
        return s.log_joint_grad(at, np.zeros(0))[1][linear]

    value, slope, hessian = (one[0] for one in s.curvatures(xi[np.newaxis]))
    whole = s.log_joint_grad(xi, np.zeros(0))
    assert value == pytest.approx(whole[0], abs=1e-9)
    np.testing.assert_allclose(slope, whole[1][linear], atol=1e-9)
    step = 1e-3 * np.eye(len(linear))
    found = -np.array([(gradient(xi[linear] + e) - gradient(xi[linear] - e)) / 2e-3 for e in step])
    np.testing.assert_allclose(hessian, found, atol=close * np.abs(found).max())
    assert np.linalg.eigvalsh(hessian).min() > -1e-9 * np.abs(found).max()
