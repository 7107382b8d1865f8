"""Counts of which an interval is known: their probability, its slope, and their mean, against sums that are written out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedkern.models.likelihood import Likelihood
from fedkern.models.spatial.site import Rows
from fedkern.models.spatial.units import fill_intervals, pooled_level, sums

FIRST, LAST = np.array([0.0, 3.0, 1.0, 7.0]), np.array([4.0, 3.0, 9.0, 7.0])
TRIALS = np.array([30.0, 12.0, 9.0, 20.0])
ETA = np.array([[0.4, 1.1, -0.3, 2.0], [-1.5, 0.2, 1.8, 0.7]])
FAMILIES = {"poisson": 1.0, "negative-binomial": 1.7, "binomial": 1.0}


def mass(family: str, scale: float, k: np.ndarray, eta: float, trials: float) -> np.ndarray:
    if family == "poisson":
        return np.asarray(stats.poisson.pmf(k, np.exp(eta)))
    if family == "binomial":
        return np.asarray(stats.binom.pmf(k, trials, 1 / (1 + np.exp(-eta))))
    return np.asarray(stats.nbinom.pmf(k, scale, scale / (scale + np.exp(eta))))


@pytest.mark.parametrize("family", FAMILIES)
def test_interval_against_written_sums_and_four_point_differences(family: str) -> None:
    like, trials = Likelihood(family, FAMILIES[family]), TRIALS if family == "binomial" else None

    def value(eta: np.ndarray) -> np.ndarray:
        return like.value(FIRST, eta, 0.0, trials, LAST)

    found, want = value(ETA), np.empty_like(ETA)
    for m in range(len(ETA)):
        for i in range(len(FIRST)):
            k = np.arange(FIRST[i], LAST[i] + 1)
            want[m, i] = np.log(mass(family, FAMILIES[family], k, ETA[m, i], TRIALS[i]).sum())
            if m == 0:
                share = mass(family, FAMILIES[family], k, ETA[0, i], TRIALS[i])
                mean = like.expected(FIRST, ETA[0], 0.0, trials, LAST)[i]
                np.testing.assert_allclose(mean, (share @ k) / share.sum(), rtol=1e-12)
    np.testing.assert_allclose(found, want, rtol=1e-11, atol=1e-13)  # terms of the sum are of order ten
    h = 1e-3
    differences = (8 * (value(ETA + h) - value(ETA - h)) - (value(ETA + 2 * h) - value(ETA - 2 * h))) / (12 * h)
    np.testing.assert_allclose(like.slope(FIRST, ETA, 0.0, trials, LAST), differences, atol=5e-6)


def test_a_count_that_is_known_has_the_bits_that_it_had() -> None:
    like = Likelihood("poisson")
    assert np.array_equal(like.value(FIRST, ETA, 0.0, None, FIRST), like.value(FIRST, ETA))
    assert np.array_equal(like.slope(FIRST, ETA, 0.0, None, FIRST), like.slope(FIRST, ETA))


def test_the_pooled_level_is_that_of_the_largest_likelihood() -> None:
    """By EM: of Poisson counts with one rate, some of which are an interval."""
    random = np.random.default_rng(5)
    exposure = random.uniform(1, 6, 4000)
    y = random.poisson(1.5 * exposure).astype(float)
    first, last = np.where(y < 5, 0.0, y), np.where(y < 5, 4.0, y)
    rows = Rows(first, np.zeros(4000, np.int64), np.zeros((4000, 0)), np.log(exposure), None, last)
    like, level = Likelihood("poisson"), pooled_level("poisson", [sums("poisson", rows)])
    assert level is not None
    for _ in range(60):
        level = pooled_level("poisson", [sums("poisson", fill_intervals(rows, like, level))])
        assert level is not None
    slope = like.slope(first, np.log(exposure) + level, 0.0, None, last).sum()
    assert abs(slope) < 1e-6
    assert abs(level - np.log(1.5)) < 0.03
