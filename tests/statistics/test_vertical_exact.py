"""Closed forms of the Gaussian vertical models against each other, a Gibbs sampler and brute force (vertical.md, section 3)."""

from __future__ import annotations

import numpy as np
import pytest

from oracles.vertical_oracle import Model, gibbs, logistic_log_normaliser

KINDS = ("av", "pl")
BAR = 5.2  # a score among 300: 6e-5 in all
RHO = (1e-3, 0.1, 0.5, 1.0, 2.0)


def data(n=40, sizes=(2, 1, 2), sigma=0.7, seed=0):
    random = np.random.default_rng(seed)
    X = [random.standard_normal((n, p)) for p in sizes]
    return X, np.hstack(X) @ random.standard_normal(sum(sizes)) + sigma * random.standard_normal(n)


def model(kind, rho=0.5, sigma=0.7, **options):
    X, y = data(sigma=sigma, **options)
    return Model(kind, X, y, sigma, rho)


def with_priors(kind, rho):
    """An intercept at the server, an offset, and a prior of each client's own."""
    X, y = data()
    random = np.random.default_rng(5)
    roots = [random.standard_normal((p, p)) + 2 * np.eye(p) for p in (1, 2, 1, 2)]
    priors = {"mean0": [random.standard_normal(len(r)) for r in roots], "precision0": [r @ r.T for r in roots]}
    return Model(kind, X, y + 1.3, 0.7, rho, X0=np.ones((len(y), 1)), offset=random.standard_normal(len(y)), **priors)


@pytest.mark.parametrize("make", [model, with_priors])
@pytest.mark.parametrize("rho", RHO)
@pytest.mark.parametrize("kind", KINDS)
def test_the_regression_with_more_noise_is_the_joint_model_without_z(kind, rho, make):
    m = make(kind, rho)
    joint = m.joint()
    mean, precision = m.posterior()
    p = len(mean)
    # At rho = 1e-3 the joint precision has a condition number of 1e7: that is what its inverse costs.
    tight = 1e-9 * max(1.0, 1e-2 / rho)
    np.testing.assert_allclose(joint.mean[:p], mean, atol=tight)
    np.testing.assert_allclose(joint.covariance[:p, :p], np.linalg.inv(precision), atol=tight)
    np.testing.assert_allclose(joint.log_normaliser, m.log_normaliser(), rtol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_the_sum_of_squares_is_the_density_of_section_2(kind):
    m = with_priors(kind, 0.4)
    joint = m.joint()
    v = np.random.default_rng(1).standard_normal((5, len(joint.mean)))
    squares = joint.constant + v @ joint.shift - 0.5 * np.einsum("ki,ij,kj->k", v, joint.K, v)
    np.testing.assert_allclose(squares, m.log_joint(v), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_normaliser_is_the_integral(kind):
    """N = 1, two clients of one column: a sum over a grid of four dimensions, exponentially exact for these integrands."""
    m = Model(kind, [np.array([[0.8]]), np.array([[-1.1]])], np.array([0.9]), 0.6, 0.5)
    t, step = np.linspace(-7, 7, 45, retstep=True)
    total = 0.0
    rest = np.stack(np.meshgrid(t, t, t, indexing="ij"), axis=-1).reshape(-1, 3)
    for value in t:
        v = np.column_stack([np.full(len(rest), value), rest])
        total += np.exp(m.log_joint(v)).sum()
    np.testing.assert_allclose(np.log(total * step**4), m.log_normaliser(), rtol=1e-6)
    np.testing.assert_allclose(m.joint().log_normaliser, m.log_normaliser(), rtol=1e-12)


def test_one_client_is_a_noisy_copy_or_the_exact_model():
    X, y = data(sizes=(3,))
    true = Model("pl", X, y, 0.7, 1e-9).posterior()
    for rho in RHO:
        np.testing.assert_array_equal(Model("pl", X, y, 0.7, rho).posterior()[1], true[1])
        copy = Model("pl", X, y, np.hypot(0.7, rho), rho)
        np.testing.assert_allclose(Model("av", X, y, 0.7, rho).posterior()[0], copy.posterior()[0], rtol=1e-12)
        np.testing.assert_allclose(Model("av", X, y, 0.7, rho).log_normaliser(), copy.log_normaliser(), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_rho_to_zero_is_the_true_posterior_at_the_rate_of_its_square(kind):
    X, y = data()
    P_0 = np.eye(5) + np.hstack(X).T @ np.hstack(X) / 0.7**2
    true = np.linalg.solve(P_0, np.hstack(X).T @ y / 0.7**2)
    errors = [np.abs(Model(kind, X, y, 0.7, rho).joint().mean[:5] - true).max() for rho in (0.04, 0.02, 0.01)]
    np.testing.assert_allclose([errors[0] / errors[1], errors[1] / errors[2]], 4, rtol=0.02)
    assert errors[2] < 1e-4


def test_the_power_likelihood_loses_less():
    for sizes, ratio in (((2, 2), 1 / 4), ((1,) * 10, 0.81)):
        av, pl = (model(kind, 0.8, sizes=sizes) for kind in KINDS)
        np.testing.assert_allclose((pl.s2 - 0.49) / (av.s2 - 0.49), ratio, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_without_columns_only_adds_noise(kind):
    X, y = data()
    with_nothing = Model(kind, [*X, np.zeros((len(y), 0))], y, 0.7, 0.5)
    mean, _ = with_nothing.posterior()
    joint = with_nothing.joint()
    np.testing.assert_allclose(joint.mean[:5], mean, atol=1e-10)
    assert with_nothing.s2 == 0.49 + 0.25 * (4 if kind == "av" else 9 / 4)
    np.testing.assert_allclose(joint.log_normaliser, with_nothing.log_normaliser(), rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_one_row(kind):
    m = model(kind, n=1)
    np.testing.assert_allclose(m.joint().mean[:5], m.posterior()[0], atol=1e-10)
    np.testing.assert_allclose(m.joint().log_normaliser, m.log_normaliser(), rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_clients_does_not_matter(kind):
    X, y = data()
    one, two = Model(kind, X, y, 0.7, 0.5).joint(), Model(kind, [X[2], X[0], X[1]], y, 0.7, 0.5).joint()
    np.testing.assert_allclose(one.log_normaliser, two.log_normaliser, rtol=1e-12)
    for j, k in enumerate((1, 2, 0)):
        np.testing.assert_allclose(one.mean[one.theta[j]], two.mean[two.theta[k]], rtol=1e-8)


def test_two_clients_with_the_same_columns_add_one_auxiliary_variance():
    """theta_2 = theta_a + theta_b, each with half of the prior: AV's s2 grows by rho^2 and nothing else changes."""
    X, y = data()
    half = {"mean0": [np.zeros(p) for p in (0, 2, 1, 2, 2)]}
    half["precision0"] = [np.eye(p) * scale for p, scale in ((0, 1), (2, 1), (1, 1), (2, 2), (2, 2))]
    split = Model("av", [*X, X[2]], y, 0.7, 0.5, **half)
    one = Model("av", X, y, 0.7, 0.5)
    np.testing.assert_allclose(split.s2 - one.s2, 0.25, rtol=1e-14)
    wider = Model("av", X, y, np.sqrt(0.49 + 0.25), 0.5)  # the same three clients, rho^2 more at y
    joint, want = split.joint(), wider.joint()
    np.testing.assert_allclose(joint.mean[3:5] + joint.mean[5:7], want.mean[3:5], rtol=1e-9)
    both = np.vstack([np.eye(2), np.eye(2)])
    np.testing.assert_allclose(both.T @ joint.covariance[3:7, 3:7] @ both, want.covariance[3:5, 3:5], rtol=1e-9)
    np.testing.assert_allclose(joint.log_normaliser, want.log_normaliser, rtol=1e-10)


# ---- variational optima


@pytest.mark.parametrize("rho", RHO[1:])
@pytest.mark.parametrize("kind", KINDS)
def test_covariances_of_the_optima(kind, rho):
    m = model(kind, rho)
    joint = m.joint()
    mean_field, structured = (joint.optimum(family) for family in ("mean-field", "structured"))
    for theta, x in zip(joint.theta, m.X):
        own = 1 / rho**2 + (0 if kind == "av" else 1 / (m.J * m.sigma**2))
        covariance = mean_field[theta, theta] @ mean_field[theta, theta].T
        np.testing.assert_allclose(covariance, np.linalg.inv(np.eye(x.shape[1]) + own * x.T @ x), rtol=1e-9)
        if kind == "av":
            covariance = structured[theta, theta] @ structured[theta, theta].T
            want = np.linalg.inv(np.eye(x.shape[1]) + x.T @ x / (m.sigma**2 + rho**2))
            np.testing.assert_allclose(covariance, want, rtol=1e-9)


@pytest.mark.parametrize("moves", [40, pytest.param(200, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("kind", KINDS)
def test_optima_are_optima(kind, moves, seed):
    """Below the normaliser, ordered by the families' sizes, and no small change of a family's own kind raises the ELBO."""
    joint = model(kind, 0.5).joint()
    values = [joint.elbo(joint.mean, joint.optimum(f, full)) for f in ("mean-field", "structured") for full in (False, True)]
    assert values[0] < values[1] < values[3] < joint.log_normaliser
    assert values[0] < values[2] < values[3]
    np.testing.assert_allclose(joint.elbo(joint.mean, np.linalg.cholesky(joint.covariance)), joint.log_normaliser, rtol=1e-12)
    random = np.random.default_rng(seed)
    for family in ("mean-field", "structured"):
        for full in (False, True):
            root = joint.optimum(family, full)
            best = joint.elbo(joint.mean, root)
            allowed = np.eye(len(root))
            for theta, z in zip(joint.theta, joint.z):
                allowed[theta, theta] = np.tri(theta.stop - theta.start) if full else np.eye(theta.stop - theta.start)
                allowed[z, theta] = family == "structured"
            for _ in range(moves):
                move = 1e-3 * random.standard_normal(root.shape) * allowed
                assert joint.elbo(joint.mean, root + move) < best
                assert joint.elbo(joint.mean + 1e-3 * random.standard_normal(len(root)), root) < best


def test_the_table_of_section_3():
    """Mean-field collapses as rho -> 0, structured does not; the gaps are those of any N = 40, p = (2, 1, 2), sigma = 0.7."""
    for kind in KINDS:
        for rho, low, high in ((0.05, 0.04, 0.16), (2.0, 0.3, 0.8)):
            joint = model(kind, rho).joint()
            exact = np.sqrt(np.diag(joint.covariance)[:5])
            mean_field, structured = (
                np.sqrt((joint.optimum(family) ** 2).sum(axis=1)[:5]) / exact for family in ("mean-field", "structured")
            )
            assert low < mean_field.min()
            assert mean_field.max() < high
            assert (structured >= mean_field - 1e-12).all()
            if rho < 0.1:
                assert structured.min() > 0.6


# ---- the sampler


@pytest.mark.parametrize("rho", [0.5, 1.5])
@pytest.mark.parametrize("kind", KINDS)
def test_gibbs_has_the_closed_form(kind, rho, seed):
    """Conditionals that never see the joint precision; errors from independent chains."""
    X, y = data(n=12, sizes=(2, 1, 0))
    m = Model(kind, X, y, 0.7, rho, mean0=[np.zeros(0), np.array([0.5, -0.2]), np.array([1.0]), np.zeros(0)],
              precision0=[np.zeros((0, 0)), np.array([[2.0, 0.3], [0.3, 1.0]]), np.array([[0.5]]), np.zeros((0, 0))])  # fmt: skip
    joint, chains = m.joint(), 1500
    theta, z = gibbs(m, chains, 150, 150, np.random.default_rng(seed))
    v = np.concatenate([theta, z.reshape(*z.shape[:2], -1)], axis=2)
    error = v.mean(axis=0) - joint.mean
    score = error.mean(axis=0) / (error.std(axis=0, ddof=1) / np.sqrt(chains))
    assert np.abs(score).max() < BAR
    squares = ((v - joint.mean) ** 2).mean(axis=0)
    score = (squares.mean(axis=0) - np.diag(joint.covariance)) / (squares.std(axis=0, ddof=1) / np.sqrt(chains))
    assert np.abs(score).max() < BAR
    assert (squares.std(axis=0) / squares.mean(axis=0) / np.sqrt(chains)).max() < 0.02  # or the scores say nothing


def test_a_wrong_variance_is_noticed_by_gibbs(seed):
    """Negative control: rho read as a variance (section 12, item 1)."""
    X, y = data(n=12, sizes=(2, 1))
    wrong = Model("av", X, y, 0.7, np.sqrt(0.5)).joint()
    theta, _ = gibbs(Model("av", X, y, 0.7, 0.5), 800, 80, 80, np.random.default_rng(seed))
    squares = ((theta - wrong.mean[:3]) ** 2).mean(axis=0)
    score = (squares.mean(axis=0) - np.diag(wrong.covariance)[:3]) / (squares.std(axis=0) / np.sqrt(800))
    assert np.abs(score).max() > BAR


# ---- logistic


@pytest.mark.parametrize("kind", KINDS)
def test_logistic_normaliser_by_quadrature_and_by_simulation(kind, seed):
    X, _ = data(n=8, sizes=(1, 1))
    y, rho = np.array([1.0, 0, 1, 1, 0, 1, 0, 0]), 0.7
    exact = logistic_log_normaliser(kind, X, y, rho)
    np.testing.assert_allclose(logistic_log_normaliser(kind, X, y, rho, nodes=41), exact, atol=1e-8)
    random, n = np.random.default_rng(seed), 400_000
    theta, e = random.standard_normal((2, n, 1)), rho * random.standard_normal((2, n, 8))
    g = [t * x[:, 0] for t, x in zip(theta, X)]
    z = [a + b for a, b in zip(g, e)]

    def likelihood(eta):
        return -np.logaddexp(0, -(2 * y - 1) * eta).sum(axis=1)

    log_p = likelihood(z[0] + z[1]) if kind == "av" else (likelihood(g[0] + z[1]) + likelihood(g[1] + z[0])) / 2
    p = np.exp(log_p)
    assert abs(p.mean() - np.exp(exact)) < 4.5 * p.std() / np.sqrt(n)
    assert p.std() / p.mean() / np.sqrt(n) < 0.01
