"""Kernels of multinomial models: against JAX, a complex step in many digits, and a logistic regression."""

import mpmath
import numpy as np
import pytest

from fedkern.kernels import mixed, multinomial

BACKENDS = ["cpp", "reference"]


def rows(n=150, p=4, levels=5, seed=0):
    rng = np.random.default_rng(seed)
    return {"X": rng.standard_normal((n, p)), "y": rng.integers(0, levels, n).astype(float), "levels": levels}


def point(p=4, levels=5, seed=1, scale=0.7):
    return scale * np.random.default_rng(seed).standard_normal((1, (levels - 1) * p))


@pytest.mark.parametrize("levels", [2, 4])
def test_value_gradient_and_minus_hessian_are_those_of_jax(levels):
    jax = pytest.importorskip("jax")
    given, beta = rows(levels=levels), point(levels=levels)

    def log_likelihood(flat):
        eta = given["X"] @ flat.reshape(levels - 1, 4).T
        eta = jax.numpy.concatenate([jax.numpy.zeros((len(eta), 1)), eta], axis=1)
        return jax.nn.log_softmax(eta)[np.arange(len(eta)), given["y"].astype(int)].sum()

    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        exact = [f(beta[0]) for f in (log_likelihood, jax.grad(log_likelihood), jax.hessian(log_likelihood))]
        exact = [np.asarray(one) for one in exact]
    for backend in BACKENDS:
        value, gradient, lower = multinomial.curvature(beta, **given, backend=backend)
        np.testing.assert_allclose(value[0], exact[0], rtol=1e-13)
        np.testing.assert_allclose(gradient[0], exact[1], rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(lower[0], -exact[2][np.tril_indices(len(exact[2]))], rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(multinomial.values(beta, **given, backend=backend), value, rtol=1e-13)


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_levels_are_a_logistic_regression(backend):
    given, beta = rows(levels=2), point(levels=2)
    X, y, n = given["X"], given["y"], len(given["y"])
    other = mixed.curvature(beta, X, np.empty((n, 0)), y, None, None, np.array([0, n]), family="bernoulli", nodes=1)
    for mine, theirs in zip(multinomial.curvature(beta, **given, backend=backend), other):
        np.testing.assert_allclose(mine, theirs, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("backend", BACKENDS)
def test_predictors_that_differ_by_thousands_have_all_digits(backend):
    """e^1000 is no number, and 1 - p of a level that is nearly certain has no digit left: held against 50 digits."""
    given = rows(n=9, p=2, levels=3)
    beta = np.array([[300.0, -900.0, 40.0, 700.0]])
    with mpmath.workdps(50):
        value = information = mpmath.mpf(0)
        for x, y in zip(given["X"], given["y"]):
            eta = [
                mpmath.mpf(0),
                *(sum(mpmath.mpf(float(b)) * float(a) for a, b in zip(x, block)) for block in beta.reshape(2, 2)),
            ]
            total = sum(mpmath.exp(one) for one in eta)
            value += eta[int(y)] - mpmath.log(total)
            chance = mpmath.exp(eta[1]) / total
            information += chance * (1 - chance) * float(x[0]) ** 2
    found = multinomial.curvature(beta, **given, backend=backend)
    assert abs(found[0][0] - float(value)) <= 1e-13 * abs(float(value))
    assert abs(found[2][0, 0] - float(information)) <= 1e-11 * float(information)
    assert abs(multinomial.values(beta, **given, backend=backend)[0] - float(value)) <= 1e-13 * abs(float(value))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_value_does_not_depend_on_the_points_beside_it(backend):
    given = rows(n=301, levels=3)
    points = np.concatenate([point(levels=3, seed=seed) for seed in range(37)])
    alone = np.concatenate([multinomial.values(one[np.newaxis], **given, backend=backend) for one in points])
    points[5, 2] = np.nan
    found = multinomial.values(points, **given, backend=backend)
    assert np.array_equal(np.isnan(found), np.arange(37) == 5)
    assert np.array_equal(np.delete(found, 5), np.delete(alone, 5))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("wrong", [-1.0, 0.5, 3.0, np.nan, np.inf, 1e300])
def test_a_response_that_is_no_level_makes_all_of_it_nan(backend, wrong):
    given, beta = rows(levels=3), point(levels=3)
    given["y"][7] = wrong
    assert all(np.isnan(one).all() for one in multinomial.curvature(beta, **given, backend=backend))
    assert np.isnan(multinomial.values(beta, **given, backend=backend)).all()
