"""The hyperparameter's range, its prior there, and what the networks see of it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from fedkern.models.spatial.condition import Condition, Hyperprior
from oracles.differences import four_point

CAR = Condition("phi", 0.0, 0.99, "identity", Hyperprior("logit-normal", 0.0, 2.0))
GP = Condition("lengthscale", 0.2, 1.0, "log-unit")


def density(phi: float) -> float:
    """Of CAR's prior before truncation, with 2 as the variance."""
    return stats.norm.pdf(np.log(phi / (1 - phi)), 0, np.sqrt(2)) / (phi * (1 - phi))


@pytest.mark.parametrize("function", [lambda phi: 1 / (1 - phi), lambda phi: np.sqrt(phi), lambda phi: np.cos(3 * phi)])
def test_quadrature_is_the_average_over_the_truncated_prior(function) -> None:
    mass = quad(density, 0, 0.99, epsabs=1e-12)[0]
    exact = quad(lambda phi: function(phi) * density(phi), 0, 0.99, epsabs=1e-12)[0] / mass
    phi, weight = CAR.quadrature()
    assert abs(weight @ function(phi) - exact) < 1e-8
    phi, weight = GP.quadrature()
    assert abs(weight @ phi**2 - (1 - 0.2**3) / 3 / 0.8) < 1e-12
    wrong = Condition("phi", 0.0, 0.99, "identity", Hyperprior("logit-normal", 0.0, 4.0)).quadrature()  # sd 2
    assert abs(wrong[1] @ function(wrong[0]) - exact) > 1e-3  # and 2 taken for a standard deviation would be noticed


def test_the_mass_outside_is_that_of_the_specification() -> None:
    assert abs(1 - CAR.inside - 6e-4) < 0.5e-4
    assert GP.inside == 1.0


def test_quantiles_are_draws() -> None:
    u = (np.arange(20_000) + 0.5) / 20_000
    phi = CAR.quantile(u)
    assert phi.min() >= 0
    assert phi.max() <= 0.99
    logit = np.log(phi / (1 - phi))
    inside = logit[(u > 0.001) & (u < 0.99)]
    assert abs(np.median(logit)) < 2e-3
    assert stats.kstest(inside, lambda x: (stats.norm.cdf(x, 0, np.sqrt(2)) / CAR.inside - 0.001) / 0.989).statistic < 2e-3
    assert np.allclose(GP.quantile(u), 0.2 + 0.8 * u)


@pytest.mark.parametrize("transform", ["identity", "unit", "log-unit"])
def test_what_networks_see(transform) -> None:
    c = Condition("lengthscale", 0.2, 1.0, transform)
    phi = np.array([0.2, 0.3, 0.7, 1.0])
    if transform != "identity":
        assert np.allclose(c.network(phi)[[0, -1]], [-1, 1])
    h = 1e-6
    assert np.allclose(c.slope(phi), (c.network(phi + h) - c.network(phi - h)) / (2 * h), rtol=1e-7)


def test_log_rest_stretches_the_end_near_one() -> None:
    c = Condition("phi", 0.1, 0.99, "log-rest")
    phi = np.array([0.1, 0.5, 0.9, 0.99])
    assert np.allclose(c.network(phi)[[0, -1]], [-1, 1])
    h = 1e-7
    assert np.allclose(c.slope(phi), (c.network(phi + h) - c.network(phi - h)) / (2 * h), rtol=1e-6)
    assert c.slope(phi)[-1] > 50 * c.slope(phi)[0]


@pytest.mark.parametrize("transform", ["identity", "unit", "log-unit", "log-rest"])
def test_equal_steps_of_what_networks_see(transform) -> None:
    c = Condition("phi", 0.1, 0.95, transform)
    phi = c.along(np.linspace(0, 1, 7))
    assert np.allclose(phi[[0, -1]], [0.1, 0.95])
    assert np.allclose(np.diff(c.network(phi)), np.diff(c.network(phi))[0])


def test_values_outside_are_refused_with_the_range() -> None:
    CAR.check(np.array([[0.0], [0.99]]))
    for wrong in (-0.01, 0.995, np.nan, np.inf):
        with pytest.raises(ValueError, match=r"outside of \[0, 0.99\], the range of this prior"):
            CAR.check(np.array([[0.5], [wrong]]))


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (lambda: Condition("phi", 0.0, 1.0), "a CAR prior is proper below 1"),
        (lambda: Condition("phi", 0.5, 0.5), "wanted 0 <= lo < hi"),
        (lambda: Condition("phi", -0.1, 0.5), "wanted 0 <= lo < hi"),
        (lambda: Condition("phi", 0.1, np.nan), "finite"),
        (lambda: Condition("phi", 0.0, 0.9, "log-unit"), "wanted lo > 0"),
        (lambda: Condition("lengthscale", 0.0, 0.9), "wanted lo > 0"),
        (lambda: Condition("lengthscale", 0.1, 0.9, "log-rest"), "is for phi in"),
        (lambda: Condition("lengthscale", 0.1, 0.9, hyperprior=Hyperprior("logit-normal")), "for phi in"),
        (lambda: Condition("phi", 0.98, 0.99, hyperprior=Hyperprior("logit-normal", -20.0, 1.0)), "has mass"),
        (lambda: Condition("none", 0.0, 0.9), "lo and hi are 0"),
        (lambda: Hyperprior("logit-normal", 0.0, 0.0), "variance > 0"),
        (lambda: Hyperprior("normal"), "wanted 'uniform' or 'logit-normal'"),
        (lambda: Condition("alpha", 0.0, 0.9), "not both known"),
    ],
)
def test_bad_ranges(made, text) -> None:
    with pytest.raises(ValueError, match=text):
        made()


def test_a_prior_without_a_parameter() -> None:
    none = Condition("none", 0.0, 0.0)
    phi, weight = none.quadrature()
    assert phi.tolist() == [0.0]
    assert weight.tolist() == [1.0]
    assert none.quantile(np.array([0.2, 0.9])).tolist() == [0.0, 0.0]
    none.check(np.zeros((3, 1)))


@pytest.mark.parametrize("kind", ["uniform", "logit-normal"])
@pytest.mark.parametrize(("lo", "hi"), [(0.0, 0.99), (0.2, 0.9), (0.3, 0.999)])
def test_the_hyperprior_of_x_is_normalised_and_its_slope_right(kind, lo, hi):
    prior = Condition("phi", lo, hi, hyperprior=Hyperprior(kind, 0.3, 2.0))
    total = quad(lambda x: np.exp(prior.log_prior_grad(x)[0]), -60, 60, points=[-5, 0, 5], limit=300)[0]
    np.testing.assert_allclose(total, 1.0, rtol=1e-7)
    for x in (-30.0, -3.0, 0.2, 2.0, 20.0):
        slope = four_point(lambda v: prior.log_prior_grad(v[0])[0], np.array([x]))
        np.testing.assert_allclose(prior.log_prior_grad(x)[1], slope[0], rtol=5e-6, atol=1e-7)


def test_negative_control_a_jacobian_twice_or_a_standard_deviation_for_a_variance():
    """N(0, 2) with sd 2, and the logit's Jacobian added twice, are seen by the same integrals."""
    lo, hi = 0.0, 0.99

    def moment(extra, variance):
        law = Condition("phi", lo, hi, hyperprior=Hyperprior("logit-normal", 0.0, variance))

        def weight(x):
            s = 1 / (1 + np.exp(-x))
            return np.exp(law.log_prior_grad(x)[0] + extra * np.log(s * (1 - s)))

        phi = lambda x: hi / (1 + np.exp(-x))  # noqa: E731
        top = quad(lambda x: weight(x) * np.log(phi(x) / (1 - phi(x))) ** 2, -30, 30, points=[0], limit=300)[0]
        return top / quad(weight, -30, 30, points=[0], limit=300)[0]

    top = np.log(hi / (1 - hi)) / np.sqrt(2)
    truth = 2 * (stats.truncnorm(-np.inf, top).var() + stats.truncnorm(-np.inf, top).mean() ** 2)
    assert stats.norm.sf(top) < 6e-4
    np.testing.assert_allclose(moment(0, 2.0), truth, rtol=1e-6)
    assert abs(moment(1, 2.0) - truth) > 0.3
    assert abs(moment(0, 4.0) - truth) > 0.5
