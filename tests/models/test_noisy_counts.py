"""Counts with two-sided geometric noise: the likelihood contains it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedkern.models.likelihood import Likelihood, Noisy
from fedkern.models.spatial.site import Rows
from fedkern.models.spatial.units import pooled_level, sums

FAMILIES = [("poisson", 1.0, None), ("negative-binomial", 2.5, None), ("binomial", 1.0, 12.0)]
ETA = {"poisson": (-3.0, 4.0), "negative-binomial": (-3.0, 4.0), "binomial": (-4.0, 3.0)}


def law(family: str, scale: float, trials: float | None, eta: float, k: np.ndarray) -> np.ndarray:
    """p(k | eta), by SciPy."""
    if family == "poisson":
        return np.asarray(stats.poisson.pmf(k, np.exp(eta)))
    if family == "binomial":
        return np.asarray(stats.binom.pmf(k, trials, 1 / (1 + np.exp(-eta))))
    return np.asarray(stats.nbinom.pmf(k, scale, scale / (scale + np.exp(eta))))


@pytest.mark.parametrize(("family", "scale", "most"), FAMILIES)
@pytest.mark.parametrize("decay", [0.3, 1.0])
def test_value_slope_and_curvature_are_those_of_the_sum(family: str, scale: float, most: float | None, decay: float) -> None:
    like, noisy = Likelihood(family, scale), Noisy(decay)
    y = np.array([-7.0, -1, 0, 1, 4, 11, 19])
    trials, k = None if most is None else np.full(len(y), most), np.arange(0.0, 2000.0)
    for eta in np.linspace(*ETA[family], 5)[1:4]:
        at = np.full(len(y), eta)
        chance = law(family, scale, most, eta, k)[:, None] * np.tanh(decay / 2) * np.exp(-decay * np.abs(y - k[:, None]))
        value, slope = like.both(y, at, 0.0, trials, noisy)
        np.testing.assert_allclose(np.exp(value), chance.sum(axis=0), rtol=1e-10, atol=2e-12)  # which is what may be left out
        likely = chance.sum(axis=0) > 1e-5
        h = 1e-3
        ends = [like.value(y, at + step * h, 0.0, trials, noisy) for step in (-2, -1, 1, 2)]
        np.testing.assert_allclose((ends[0] - 8 * ends[1] + 8 * ends[2] - ends[3]) / (12 * h), slope, rtol=5e-6, atol=5e-6)
        # l'' = E[s'] + Var[s]
        weight = chance / chance.sum(axis=0)
        s, around = (np.array([like.slope(k, np.full(len(k), eta + step), 0.0, None if most is None else np.full(len(k), most))
                               for step in steps]) for steps in ((0.0,), (-h, h)))  # fmt: skip
        s, bend = s[0][:, None], ((around[1] - around[0]) / (2 * h))[:, None]
        mean = (weight * s).sum(axis=0)
        curvature = (weight * bend).sum(axis=0) + (weight * (s - mean) ** 2).sum(axis=0)
        ends = [like.slope(y, at + step * h, 0.0, trials, noisy) for step in (-2, -1, 1, 2)]
        found = (ends[0] - 8 * ends[1] + 8 * ends[2] - ends[3]) / (12 * h)
        np.testing.assert_allclose(slope[likely], mean[likely], rtol=5e-6, atol=5e-6)
        np.testing.assert_allclose(found[likely], curvature[likely], rtol=5e-6, atol=5e-6)
        count = like.expected(y, at, 0.0, trials, noisy)
        np.testing.assert_allclose(count[likely], (weight * k[:, None]).sum(axis=0)[likely], rtol=1e-6)


@pytest.mark.parametrize(("family", "scale", "most"), FAMILIES)
def test_all_that_can_be_seen_has_probability_one(family: str, scale: float, most: float | None) -> None:
    like, y = Likelihood(family, scale), np.arange(-200.0, 3000.0)
    trials = None if most is None else np.full(len(y), most)
    for eta in ETA[family]:
        total = np.exp(like.value(y, np.full(len(y), eta), 0.0, trials, Noisy(0.4))).sum()
        assert total == pytest.approx(1.0, abs=3e-12)


def test_little_noise_is_none() -> None:
    y, eta = np.array([0.0, 3, 9]), np.array([0.2, 1.0, 2.0])
    like = Likelihood("poisson")
    for exact, noisy in zip(like.both(y, eta), like.both(y, eta, 0.0, None, Noisy(30.0))):
        np.testing.assert_allclose(noisy, exact, rtol=1e-9, atol=1e-9)


def test_the_level_is_that_of_the_counts() -> None:
    """Noise has mean 0, so that sums are not biased; and where it has eaten all cases half a case stands for them."""
    random, n = np.random.default_rng(4), 200_000
    exposure, decay = random.uniform(0.5, 3.0, n), 0.5
    y = random.poisson(0.4 * exposure) + random.geometric(1 - np.exp(-decay), n) - random.geometric(1 - np.exp(-decay), n)
    rows = Rows(y.astype(float), np.zeros(n, np.int64), np.zeros((n, 0)), np.log(exposure), None, Noisy(decay))
    assert pooled_level("poisson", [sums("poisson", rows)]) == pytest.approx(np.log(0.4), abs=0.02)
    assert not rows.known.any()
    assert not rows.censored.any()
    assert pooled_level("poisson", [(-5.0, 10.0), (2.0, 10.0)]) == pytest.approx(np.log(0.5 / 20))
    assert pooled_level("binomial", [(-5.0, 10.0)]) == pytest.approx(np.log(0.5 / 10.5))
