"""Predictions of a Gaussian predictor are the integrals that they stand for, however wide it is and however narrow a density."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm, poisson

from fedkern.models.likelihood import Likelihood
from fedkern.models.split import predictive


def integral(f, mean, sd, at=()):
    return quad(lambda z: f(mean + sd * z) * norm.pdf(z), -8, 8, points=sorted(at), limit=2000, epsabs=1e-13)[0]


@pytest.mark.parametrize("sd", [0.3, 2.0, 10.0, 60.0])
def test_chances_of_wide_predictors_are_integrals(sd):
    likelihood, mean = Likelihood("bernoulli"), np.linspace(-2.0, 2.0, 9) * sd
    want = [integral(expit, m, sd, [-m / sd]) for m in mean]
    found = predictive.predicted(likelihood, mean, np.full(9, sd**2))
    np.testing.assert_allclose(found, want, atol=1e-6)
    for y in (0.0, 1.0):
        density = predictive.log_density(likelihood, np.full(9, y), mean, np.full(9, sd**2))
        np.testing.assert_allclose(np.exp(density), want if y else 1 - np.array(want), atol=1e-6)


@pytest.mark.parametrize("count", [0, 3, 1000, 100_000])
def test_log_densities_of_large_counts_are_integrals(count):
    likelihood, mean, sd = Likelihood("poisson"), np.log(count + 0.5) + np.array([-0.5, 0.0, 0.7]), 0.4
    peaks = [(np.log(count + 1e-9) - m) / sd for m in mean]
    want = [integral(lambda eta: poisson.pmf(count, np.exp(eta)), m, sd, [p] if abs(p) < 8 else []) for m, p in zip(mean, peaks)]
    found = predictive.log_density(likelihood, np.full(3, float(count)), mean, np.full(3, sd**2))
    np.testing.assert_allclose(found, np.log(want), atol=1e-5)
    np.testing.assert_allclose(predictive.predicted(likelihood, mean, np.full(3, sd**2)), np.exp(mean + sd**2 / 2), rtol=1e-6)


def test_rows_in_several_blocks_and_without_a_variance():
    likelihood, random = Likelihood("bernoulli"), np.random.default_rng(1)
    mean, variance = random.normal(size=2500), random.uniform(0, 30, 2500) * (random.random(2500) < 0.5)
    found = predictive.predicted(likelihood, mean, variance)
    for i in (0, 999, 1000, 2499):
        assert found[i] == pytest.approx(predictive.predicted(likelihood, mean[[i]], variance[[i]])[0], abs=1e-6)
    np.testing.assert_allclose(predictive.predicted(likelihood, mean, np.zeros(2500)), expit(mean), rtol=1e-14)
    assert predictive.predicted(likelihood, mean[:0], variance[:0]).shape == (0,)
