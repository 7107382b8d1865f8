"""Polya-Gamma numbers against their moments, their Laplace transform and their density."""

import numpy as np
import pytest
from scipy import integrate, stats

from fedkern.kernels import rng

N = 100_000
FALSE_ALARM = 1e-6
TILTS = (0.0, 0.3, 1.0, 3.0, 3.2, 8.0, 40.0, 1000.0)


def density(x, z):
    """Of PG(1, z): the tilted series of J*(1) / 4, each side of the cut with the terms that fall there."""
    n, y = np.arange(30)[:, None] + 0.5, 4 * x
    left = np.pi * n * (2 / (np.pi * y)) ** 1.5 * np.exp(-2 * n**2 / y)
    right = np.pi * n * np.exp(-(n**2) * np.pi**2 * y / 2)
    series = ((-1) ** np.arange(30)[:, None] * np.where(y < 0.64, left, right)).sum(axis=0)
    return 4 * np.cosh(z / 2) * np.exp(-(z**2) * x / 2) * series


def cdf(z):
    x = np.linspace(1e-4, 8, 200_001)
    mass = integrate.cumulative_simpson(density(x, z), x=x, initial=0)
    np.testing.assert_allclose(mass[-1], 1, rtol=1e-5)
    return lambda values: np.interp(values, x, mass / mass[-1])


def moments(z):
    """Mean and variance of PG(1, z)."""
    if z == 0:
        return 1 / 4, 1 / 24
    return np.tanh(z / 2) / (2 * z), (np.sinh(z) - z) / (4 * z**3 * np.cosh(z / 2) ** 2) if z < 500 else 1 / (2 * z**3)


@pytest.mark.parametrize("z", TILTS)
def test_moments(z, seed):
    x = rng.polya_gamma(z, size=N, key=rng.key(seed))
    assert (x > 0).all()
    mean, variance = moments(z)
    assert abs(x.mean() - mean) < 5 * np.sqrt(variance / N)
    spread = (x - mean) ** 2
    assert abs(spread.mean() - variance) < 5 * spread.std() / np.sqrt(N)
    s = 2 / mean  # where the Laplace transform is neither 0 nor 1
    want = np.exp(np.logaddexp(z / 2, -z / 2) - np.logaddexp(*(np.sqrt((z**2 / 2 + s) / 2) * np.array([1, -1]))))
    laplace = np.exp(-s * x)
    assert abs(laplace.mean() - want) < 5 * laplace.std() / np.sqrt(N)


@pytest.mark.parametrize("z", [z for z in TILTS if z < 30])
def test_distribution(z, seed):
    x = rng.polya_gamma(z, size=N, key=rng.key(seed))
    assert stats.kstest(cdf(z)(x), "uniform").pvalue > FALSE_ALARM
    assert stats.kstest(cdf(1.3 * z + 1)(x), "uniform").pvalue < FALSE_ALARM  # control


def test_the_sign_does_not_matter_and_what_is_not_finite_gives_nan():
    key = rng.key(3)
    np.testing.assert_array_equal(rng.polya_gamma(-2.5, size=100, key=key), rng.polya_gamma(2.5, size=100, key=key))
    assert np.isnan(rng.polya_gamma(np.array([np.inf, -np.inf, np.nan]), key=key)).all()
    x = rng.polya_gamma(np.array([1e5, 1e100, 1e200]), key=key)
    np.testing.assert_allclose(x, 0.5 / np.array([1e5, 1e100, 1e200]), rtol=0.05)


@pytest.mark.parametrize("backend", ["cpp", "numba", "reference"])
def test_a_number_does_not_depend_on_its_neighbours(backend):
    key, z = rng.key(1), np.linspace(-9, 9, 40)
    whole = rng.polya_gamma(z, key=key, backend=backend)
    np.testing.assert_array_equal(whole[7:], rng.polya_gamma(z[7:], key=key, first_item=7, backend=backend))
