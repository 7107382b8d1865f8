"""The SIGMA models: derivatives by four-point differences, and identities that the formulas must meet."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import multivariate_normal

from fedkern.algorithms.sfvi.families import Family, NestedFamily
from fedkern.models.likelihood import Likelihood
from fedkern.models.spatial.condition import Condition
from fedkern.models.spatial.site import Layout, SigmaPrior
from fedkern.models.variational import Block
from oracles.differences import four_point
from support import sigma_cases as cases
from support.refusal import refusal

SITES = [
    ("printed", "poisson", None, {}),
    ("amended", "poisson", "constant", {}),
    ("amended", "binomial", "phi", {"transform": "log-unit"}),
    ("multiplicative", "bernoulli", "constant", {}),
    ("multiplicative", "poisson", "phi", {}),
    ("amended", "negative-binomial", "phi", {"scale": 1.7}),
    ("amended", "gaussian", None, {"scale": None}),
    ("amended", "gaussian", "phi", {"scale": None, "integrated": True}),
    ("printed", "gaussian", "constant", {"scale": 0.4, "integrated": True}),
    ("amended", "gaussian", "phi", {"scale": None}),
    ("multiplicative", "gaussian", "constant", {"scale": None, "integrated": True, "mixing": True}),
    ("multiplicative", "poisson", "constant", {"mixing": True}),
]
LABELS = ["-".join(map(str, (*case[:3], *case[3]))) for case in SITES]


def made(case, seed=1):
    variant, family, tau, more = case
    rng = np.random.default_rng(seed)
    site = cases.site(rng, variant, family, tau, **more)
    return rng, site, rng.normal(0, 0.7, site.n_global), rng.normal(0, 0.7, site.size)


@pytest.mark.parametrize("case", SITES, ids=LABELS)
def test_gradients_of_the_log_joint_density(case):
    _, site, xi, u = made(case)
    _, g_xi, g_u = site.log_joint_grad(xi, u)
    np.testing.assert_allclose(g_xi, four_point(lambda x: site.log_joint_grad(x, u)[0], xi), rtol=5e-6, atol=5e-6)
    np.testing.assert_allclose(g_u, four_point(lambda x: site.log_joint_grad(xi, x)[0], u), rtol=5e-6, atol=5e-6)


@pytest.mark.parametrize("case", [c for c, name in zip(SITES, LABELS) if c[2] and not c[3].get("integrated")])
def test_gradients_of_the_nested_family(case):
    """With the closed-form entropy the gradient is that of the bound at fixed normals."""
    rng, site, xi, _ = made(case, 2)
    for coupled in (True, False):
        family = NestedFamily(Family(Block(site.decoder.n_local, True), site.n_global, coupled), site)
        parameters = family.initial(0.5) + rng.normal(0, 0.2, family.n_parameters)
        centre, eps = rng.normal(size=site.n_global), rng.normal(size=family.n_normals)

        def bound(parameters, xi, family=family, centre=centre, eps=eps):
            """The value with entropies instead of -log q."""
            value, _, _ = family.gradient(site, parameters, xi, centre, eps, path=False)
            outer = family.outer.block
            own = parameters[: outer.n_parameters]
            return value + outer.log_density(own, eps[: outer.size]) + outer.entropy(own) - 0.5 * np.sum(eps[outer.size :] ** 2)

        _, G, flat = family.gradient(site, parameters, xi, centre, eps, path=False)
        by_xi = four_point(lambda x, p=parameters, f=bound: f(p, x), xi)
        np.testing.assert_allclose(flat, four_point(lambda p, f=bound: f(p, xi), parameters), rtol=5e-6, atol=5e-6)
        np.testing.assert_allclose(G, by_xi, rtol=5e-6, atol=5e-6)


@pytest.mark.parametrize("family", ["poisson", "gaussian", "binomial"])
def test_both_estimators_have_one_mean(family):
    rng, site, xi, _ = made(("amended", family, "constant", {}), 3)
    nested = NestedFamily(Family(Block(site.decoder.n_local, True), site.n_global), site)
    parameters, centre = nested.initial(0.3), xi - 0.1
    draws = np.array([
        [nested.gradient(site, parameters, xi, centre, eps, path=path)[2] for path in (True, False)]
        for eps in rng.normal(size=(4000, nested.n_normals))
    ])  # fmt: skip
    difference = draws[:, 0] - draws[:, 1]
    z = difference.mean(axis=0) / (difference.std(axis=0) / np.sqrt(len(draws)) + 1e-12)
    assert np.abs(z).max() < 4.5


def test_nested_draws_are_those_of_its_gradient():
    """The model's own density at a draw, less log q, is the family's bound."""
    rng, site, xi, _ = made(("multiplicative", "poisson", "phi", {}), 4)
    nested = NestedFamily(Family(Block(site.decoder.n_local, True), site.n_global), site)
    parameters = nested.initial(0.4) + rng.normal(0, 0.1, nested.n_parameters)
    eps, centre = rng.normal(size=nested.n_normals), xi + 0.2
    value, _, _ = nested.gradient(site, parameters, xi, centre, eps)
    u = nested.sample(parameters, xi, centre, eps)
    outer = nested.outer.block
    own = nested.outer.given(parameters[: nested.outer.n_parameters], xi - centre)
    v = site.spatial(xi[np.newaxis], u[np.newaxis, : outer.size]).v[0]
    _, _, sd = nested.inner(parameters, xi, v[site.observed])
    e = eps[outer.size :]
    unseen = np.setdiff1d(np.arange(cases.D), site.observed)
    log_q = outer.log_density(own, eps[: outer.size]) - np.sum(0.5 * e**2 + np.log(sd) - 0.5 * np.log(v[site.observed]))
    log_q -= 0.5 * len(e) * np.log(2 * np.pi)
    joint, _, _ = site.log_joint_grad(xi, u)  # residuals without rows stand at 0, where only their constant is left
    assert len(unseen)
    np.testing.assert_allclose(joint + 0.5 * len(unseen) * np.log(2 * np.pi) - log_q, value, rtol=1e-12)


@pytest.mark.parametrize("known", [False, True], ids=["one-error", "errors-of-rows"])
def test_theta_integrated_out_is_the_multivariate_normal(known):
    rng, site, xi, u = made(("amended", "gaussian", "constant", {"scale": 0.4, "integrated": True}))
    sd = np.full(len(site.rows.y), 0.4)
    if known:
        sd = rng.uniform(0.1, 1.5, len(sd))
        site = replace(site, rows=replace(site.rows, sd=sd), likelihood=Likelihood("gaussian", sd))
        _, g_xi, g_u = site.log_joint_grad(xi, u)
        np.testing.assert_allclose(g_xi, four_point(lambda x: site.log_joint_grad(x, u)[0], xi), rtol=5e-6, atol=5e-6)
        np.testing.assert_allclose(g_u, four_point(lambda x: site.log_joint_grad(xi, x)[0], u), rtol=5e-6, atol=5e-6)
    s, scale = site.spatial(xi[np.newaxis], u[np.newaxis]), float(site.layout.scale(xi))
    mean, v, fixed = s.mean[0], s.v[0], site.fixed(xi[np.newaxis])[0]
    A = np.zeros((len(site.rows.y), cases.D))
    A[np.arange(len(A)), site.rows.area] = 1
    cov = scale**2 * A @ np.diag(v) @ A.T + np.diag(sd**2)
    expected = multivariate_normal(fixed + scale * A @ mean, cov).logpdf(site.rows.y)
    expected += multivariate_normal(np.zeros(len(u)), np.eye(len(u))).logpdf(u)
    np.testing.assert_allclose(site.log_joint_grad(xi, u)[0], expected, rtol=1e-12)
    # and the conditional of theta
    n = 20_000
    many = [np.broadcast_to(x, (n, len(x))) for x in (xi, u)]
    draws = site.theta_given(*many, rng.normal(size=(n, cases.D)))
    gain = scale * np.diag(v) @ A.T @ np.linalg.inv(cov)
    wanted = mean + gain @ (site.rows.y - fixed - scale * A @ mean)
    left = np.diag(v) - gain @ (scale * A @ np.diag(v))
    assert (np.abs(draws.mean(axis=0) - wanted) < 4.5 * np.sqrt(np.diag(left) / n)).all()
    np.testing.assert_allclose(draws.var(axis=0), np.diag(left), rtol=0.06)


@pytest.mark.parametrize("case", SITES, ids=LABELS)
def test_many_places_at_once_are_each_alone(case):
    rng, site, _, _ = made(case, 6)
    xi, u = rng.normal(size=(3, site.n_global)), rng.normal(size=(3, site.size))
    together = site.log_joint_grads(xi, u)
    for i in range(3):
        for many, one in zip(together, site.log_joint_grad(xi[i], u[i])):
            np.testing.assert_allclose(many[i], one, rtol=1e-12, atol=1e-12)


def test_theta_sampled_and_integrated_out_are_one_model():
    """exp(log p with residuals) integrated over one area's residual is the other density."""
    rng, site, xi, _ = made(("amended", "gaussian", "constant", {"scale": 0.4}), 5)
    lonely = replace(site.rows, **{name: getattr(site.rows, name)[:1] for name in ("y", "area", "X", "offset")})
    sampled = replace(site, rows=lonely)
    local, area = rng.normal(size=cases.P_L), int(lonely.area[0])

    def density(e):
        residual = np.zeros(cases.D)
        residual[area] = e
        return np.exp(sampled.log_joint_grad(xi, np.concatenate([local, residual]))[0])

    others = 0.5 * (cases.D - 1) * np.log(2 * np.pi)
    total = quad(density, -12, 12, epsabs=0, epsrel=1e-10, limit=200)[0]
    expected, _, _ = replace(sampled, integrated=True).log_joint_grad(xi, local)
    np.testing.assert_allclose(np.log(total) + others, expected, rtol=1e-9)


@pytest.mark.parametrize("mixing", [False, True])
def test_gradient_of_the_prior_of_xi(mixing):
    layout = Layout(not mixing, 3, mixing, True, 2, True, True)
    prior = SigmaPrior(layout, Condition("none", 0.0, 0.0) if mixing else cases.condition())
    xi = np.random.default_rng(5).normal(size=prior.size)
    value, gradient = prior.log_prior_grad(xi)
    assert np.isfinite(value)
    np.testing.assert_allclose(gradient, four_point(lambda x: prior.log_prior_grad(x)[0], xi), rtol=5e-6, atol=1e-7)


def test_refusals():
    rng = np.random.default_rng(1)
    with refusal(ValueError, "Gaussian"):
        cases.site(rng, family="poisson", integrated=True)
    with pytest.raises(ValueError, match="BYM2 mixes in unstructured variation"):
        cases.site(rng, tau=None, mixing=True)
    with pytest.raises(ValueError, match="the layout says otherwise"):
        SigmaPrior(Layout(False, 2), cases.condition())
