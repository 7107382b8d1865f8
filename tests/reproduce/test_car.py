"""The true models: densities and derivatives against dense ones, and exact posteriors against brute force."""

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.special import expit
from scipy.stats import halfnorm, multivariate_normal, norm

from fedkern.data.graph import from_pairs, grid
from fedkern.kernels import spatial
from fedkern.models.likelihood import Likelihood
from fedkern.models.spatial.condition import Condition, Hyperprior
from fedkern.models.spatial.site import Layout, Rows, SigmaPrior
from oracles.differences import four_point
from papers.car import Areas, CarModel, exact_areas, exact_process

PHI = Condition("phi", 0.0, 0.99, hyperprior=Hyperprior("logit-normal", 0.3, 2.0))
LENGTH = Condition("lengthscale", 0.2, 1.0)


def areas(form, rows=4, columns=5):
    graph = grid(rows, columns)
    return Areas(graph.indptr, graph.indices, form)


def dense(a, phi):
    W = spatial.adjacency(a.indptr, a.indices).toarray()
    D = np.diag(np.maximum(W.sum(axis=1), 1))
    return D - phi * W if a.form == "car" else (1 - phi) * np.eye(len(W)) + phi * (D - W)


def model(form, family, scale=1.0, n=30, seed=0):
    rng, a = np.random.default_rng(seed), areas(form)
    layout = Layout(True, 0, intercept=True, n_beta=2, scaled=True, dispersed=family == "gaussian" and scale is None)
    y = {"gaussian": rng.normal(size=n), "poisson": rng.poisson(2.0, n), "binomial": rng.integers(0, 3, n)}[family].astype(float)
    trials = np.full(n, 4.0) if family == "binomial" else None
    data = Rows(y, rng.integers(0, a.n - 2, n), rng.normal(size=(n, 2)), rng.normal(0, 0.3, n), trials)
    return CarModel(a, PHI, layout, Likelihood(family, scale), data)


@pytest.mark.parametrize("form", ["car", "leroux"])
def test_density_and_precision_are_the_dense_ones(form):
    a, rng = areas(form), np.random.default_rng(1)
    phi, theta = np.array([1e-9, 0.3, 0.9, 0.99]), rng.normal(size=(4, a.n))
    value = a.log_density(theta, phi, a.log_det(0.0, 0.99))[0]
    for k in range(4):
        np.testing.assert_allclose(a.precision(phi[k]).toarray(), dense(a, phi[k]), rtol=1e-13)
        want = multivariate_normal(np.zeros(a.n), np.linalg.inv(dense(a, phi[k]))).logpdf(theta[k])
        assert value[k] == pytest.approx(want, rel=1e-10)


@pytest.mark.parametrize("form", ["car", "leroux"])
@pytest.mark.parametrize(("family", "scale"), [("gaussian", None), ("gaussian", 0.5), ("poisson", 1.0), ("binomial", 1.0)])
def test_gradients_and_the_value_of_the_joint_density(form, family, scale):
    m, rng = model(form, family, scale), np.random.default_rng(2)
    xi, theta = rng.normal(0, 0.5, m.n_global), rng.normal(size=m.size)
    value, g_xi, g_u = m.log_joint_grad(xi, theta)
    np.testing.assert_allclose(g_xi, four_point(lambda x: m.log_joint_grad(x, theta)[0], xi), rtol=5e-6, atol=5e-6)
    np.testing.assert_allclose(g_u, four_point(lambda x: m.log_joint_grad(xi, x)[0], theta), rtol=5e-6, atol=5e-6)
    phi = 0.99 * expit(xi[0])
    eta = m.rows.offset + xi[1] + m.rows.X @ xi[2:4] + np.exp(xi[4]) * theta[m.rows.area]
    want = multivariate_normal(np.zeros(m.size), np.linalg.inv(dense(m.areas, phi))).logpdf(theta)
    want += m.likelihood.value(m.rows.y, eta, xi[-1], m.rows.trials).sum()
    assert value == pytest.approx(want, rel=1e-10)
    assert SigmaPrior(m.layout, PHI).size == m.n_global
    both = m.log_joint_grads(np.stack([xi, xi + 0.1]), np.stack([theta, -theta]))
    np.testing.assert_allclose(both[1][0], g_xi, rtol=1e-12)
    np.testing.assert_allclose(both[0][1], m.log_joint_grad(xi + 0.1, -theta)[0], rtol=1e-12)


def test_areas_without_neighbours_are_independent_and_latent_variables_are_refused():
    graph = from_pairs(("a", "b", "c"), np.array([[0, 1]]))
    for form in ("car", "leroux"):
        a = Areas(graph.indptr, graph.indices, form)
        found = exact_areas(a, PHI, np.array([1.0]), np.array([2]), 0.5)
        np.testing.assert_allclose(found.mean, [0, 0, 0.8], atol=1e-12)
        np.testing.assert_allclose(found.variance[2], 0.2)
        value = a.log_density(np.ones((1, 3)), np.array([0.7]), a.log_det(0.0, 0.99))[0]
        want = multivariate_normal(np.zeros(3), np.linalg.inv(dense(a, 0.7))).logpdf(np.ones(3))
        np.testing.assert_allclose(value, want, rtol=1e-10)
    with pytest.raises(ValueError, match="no latent variables"):
        CarModel(areas("car"), PHI, Layout(True, 2), Likelihood("poisson"), model("car", "poisson").rows)
    with pytest.raises(ValueError, match="must not hold an area itself"):
        Areas(np.array([0, 1]), np.array([0]))


# The exact posterior --------------------


def brute_force(covariances, log_prior, y, area, sds, log_sd_prior):
    """Mean, variance, log-evidence and the 5 % points of theta by a joint Gaussian on every node of a fine grid with step 1."""
    n, logs, means, variances = len(covariances[0]), [], [], []
    A = np.zeros((len(y), n))
    A[np.arange(len(y)), area] = 1
    for K, p in zip(covariances, log_prior):
        for sd, q in zip(sds, log_sd_prior):
            S = A @ K @ A.T + sd**2 * np.eye(len(y))
            gain = K @ A.T @ np.linalg.inv(S)
            logs.append(multivariate_normal(np.zeros(len(y)), S).logpdf(y) + p + q)
            means.append(gain @ y)
            variances.append(np.diag(K - gain @ A @ K))
    logs, means, variances = np.array(logs), np.array(means), np.array(variances)
    w = np.exp(logs - logs.max())
    evidence = logs.max() + np.log(w.sum())
    w = w / w.sum()
    mean = w @ means
    return mean, w @ (variances + (means - mean) ** 2), evidence, (w, means, variances)


def rows_of(n, r=26, seed=3):
    """Some areas with several rows, some with none."""
    rng = np.random.default_rng(seed)
    return rng.normal(0, 0.8, r), rng.integers(0, n - 3, r)


@pytest.mark.parametrize("form", ["car", "leroux"])
def test_the_posterior_on_a_map_is_that_of_brute_force(form):
    a, sd = areas(form), 0.5
    y, area = rows_of(a.n)
    step = 0.05
    logit = np.arange(-14, np.log(0.99 / 0.01), step) + step / 2  # midpoints; the range ends at phi = 0.99
    logit = logit[logit < np.log(99)]
    prior = norm.logpdf(logit, 0.3, np.sqrt(2)) - norm.logcdf(np.log(99), 0.3, np.sqrt(2)) + np.log(step)
    covariances = [np.linalg.inv(dense(a, phi)) for phi in expit(logit)]
    mean, variance, evidence, mixture = brute_force(covariances, prior, y, area, [sd], [0.0])
    found = exact_areas(a, PHI, y, area, sd)
    np.testing.assert_allclose(found.mean, mean, atol=2e-4)
    np.testing.assert_allclose(found.variance, variance, rtol=5e-4)
    assert found.log_evidence == pytest.approx(evidence, abs=2e-3)
    w, means, variances = mixture
    at = found.quantile(0.05)
    np.testing.assert_allclose(w @ norm.cdf((at - means) / np.sqrt(variances)), 0.05, atol=2e-4)
    fewer = exact_areas(a, PHI, y, area, sd, n_nodes=61, variances=False)
    np.testing.assert_allclose(fewer.mean, found.mean, atol=1e-9)
    with pytest.raises(ValueError, match="without variances"):
        _ = fewer.variance


def test_the_quadrature_has_converged_and_finds_narrow_posteriors():
    graph = grid(30, 30)
    a, rng = Areas(graph.indptr, graph.indices), np.random.default_rng(5)
    theta = np.linalg.solve(np.linalg.cholesky(dense(a, 0.9)).T, rng.normal(size=a.n))
    y = theta + 0.1 * rng.normal(size=a.n)
    one, other = (exact_areas(a, PHI, y, np.arange(a.n), 0.1, n_nodes=k, variances=False) for k in (41, 61))
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-9)
    assert one.log_evidence == pytest.approx(other.log_evidence, abs=1e-8)
    assert abs(other.weight @ other.phi - 0.9) < 0.15
    assert np.sqrt(other.weight @ other.phi**2 - (other.weight @ other.phi) ** 2) < 0.06


def test_variances_of_many_areas_are_those_of_the_inverse():
    graph = grid(15, 15)
    a = Areas(graph.indptr, graph.indices)
    area = np.arange(0, a.n, 2)
    at = Condition("phi", 0.0, 0.99, fixed=0.9)
    found = exact_areas(a, at, np.ones(len(area)), area, 0.4)
    A = dense(a, 0.9)
    A[area, area] += 1 / 0.4**2
    np.testing.assert_allclose(found.variance, np.diag(np.linalg.inv(A)), rtol=1e-11)
    np.testing.assert_allclose(found.mean, np.linalg.inv(A)[:, area].sum(axis=1) / 0.4**2, rtol=1e-11)
    assert found.phi == [0.9]


X = np.linspace(0, 1, 12)


def kernel(lengthscale):
    return np.exp(-0.5 * ((X[:, None] - X) / lengthscale) ** 2) + 1e-6 * np.eye(len(X))


@pytest.mark.parametrize("sd", [0.3, None])
def test_the_posterior_of_a_process_is_that_of_brute_force(sd):
    y, area = rows_of(len(X), r=14, seed=4)
    n, step = 60, 0.12
    phi = 0.2 + 0.8 * (np.arange(n) + 0.5) / n
    log_sd = np.arange(-4.0, 2.0, step)
    sds, sd_prior = ([sd], [0.0]) if sd else (np.exp(log_sd), halfnorm.logpdf(np.exp(log_sd)) + log_sd + np.log(step))
    mean, variance, evidence, _ = brute_force([kernel(p) for p in phi], np.full(n, -np.log(n)), y, area, sds, sd_prior)
    found = exact_process(kernel, LENGTH, y, area, sd)
    np.testing.assert_allclose(found.mean, mean, atol=5e-4)
    np.testing.assert_allclose(found.variance, variance, rtol=2e-3)
    assert found.log_evidence == pytest.approx(evidence, abs=1e-3)
    more = exact_process(kernel, LENGTH, y, area, sd, n_nodes=41, n_sd_nodes=31)
    np.testing.assert_allclose(more.mean, found.mean, atol=1e-6)


@pytest.mark.parametrize("wrong", ["variance for sd", "variance 2 for sd 2"])
def test_negative_control_a_slip_of_scale_is_seen(wrong):
    """What the comparisons above would miss if their bounds were too wide."""
    a = areas("car")
    y, area = rows_of(a.n)
    right = exact_areas(a, PHI, y, area, 0.5)
    if wrong == "variance for sd":
        other = exact_areas(a, PHI, y, area, 0.25)
    else:
        other = exact_areas(a, Condition("phi", 0.0, 0.99, hyperprior=Hyperprior("logit-normal", 0.3, 4.0)), y, area, 0.5)
    assert np.abs(other.mean - right.mean).max() > 2e-3
    assert abs(other.log_evidence - right.log_evidence) > 0.02


def test_the_prior_of_x_has_mass_one():
    x = np.linspace(-30, 30, 4001)
    for condition in (PHI, LENGTH):
        assert trapezoid(np.exp([condition.log_prior_grad(v)[0] for v in x]), x) == pytest.approx(1, abs=1e-6)
