"""Ordered levels: densities that add up, slopes and information by differences and in many digits, and numbers that are drawn."""

import mpmath
import numpy as np
import pytest

from fedkern.kernels import rng
from fedkern.kernels.families import FAMILIES
from oracles.differences import four_point

BOTH = pytest.mark.parametrize("name", ["ordinal", "ordinal-probit"])
SCALE = np.array([-1.1, 0.4, 1.3, 0.2])  # thresholds -1.1, -.7, .6, .8
ETA = np.array([-7.0, -1.5, -0.2, 0.4, 2.5, 9.0])


def distribution(name):
    return mpmath.ncdf if name == "ordinal-probit" else lambda x: 1 / (1 + mpmath.exp(-x))


@BOTH
@pytest.mark.parametrize("y", range(5))
def test_values_have_all_digits_far_out(name, y):
    eta = np.array([-40.0, -20.0, 0.0, 3.0, 20.0, 40.0])
    with mpmath.workdps(1000):
        F, cuts = distribution(name), [mpmath.mpf(c) for c in np.cumsum(SCALE).tolist()]
        low = [F(cuts[y - 1] - e) if y else mpmath.mpf(0) for e in map(mpmath.mpf, eta.tolist())]
        high = [F(cuts[y] - e) if y < 4 else mpmath.mpf(1) for e in map(mpmath.mpf, eta.tolist())]
        exact = [float(mpmath.log(b - a)) for a, b in zip(low, high)]
    found = FAMILIES[name].value(np.full(6, float(y)), eta, SCALE[:, np.newaxis], None)
    np.testing.assert_allclose(found, exact, rtol=2e-13, atol=1e-13)


@BOTH
def test_levels_add_up_slope_and_information_are_the_derivatives(name):
    record, total = FAMILIES[name], np.zeros(len(ETA))
    for y in range(5):
        at = np.full(len(ETA), float(y))
        total += np.exp(record.value(at, ETA, SCALE[:, np.newaxis], None))
        for eta in ETA:
            one, given = np.array([eta]), (SCALE[:, np.newaxis], None)
            slope = four_point(lambda x, y=y: float(record.value(np.array([y]), x, *given)[0]), one)[0]  # noqa: B023
            assert record.slope(np.array([y]), one, *given)[0] == pytest.approx(slope, rel=1e-5, abs=1e-8)
            curve = four_point(lambda x, y=y: float(record.slope(np.array([y]), x, *given)[0]), one)[0]  # noqa: B023
            assert record.information(np.array([y]), one, *given)[0] == pytest.approx(-curve, rel=1e-5, abs=1e-8)
        below = sum(np.exp(record.value(np.full(len(ETA), float(k)), ETA, SCALE[:, np.newaxis], None)) for k in range(y + 1))
        np.testing.assert_allclose(record.cdf(at, ETA, SCALE[:, np.newaxis], None), below, rtol=1e-12)
    np.testing.assert_allclose(total, 1.0, rtol=1e-13)


@BOTH
def test_a_scale_of_each_draw_goes_with_it(name):
    record, y = FAMILIES[name], np.array([0.0, 2.0, 4.0])
    scales, eta = np.stack([SCALE, SCALE + 0.1], axis=1), np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])
    both = record.value(y, eta, scales[..., np.newaxis], None)
    for s in range(2):
        np.testing.assert_array_equal(both[s], record.value(y, eta[s], scales[:, s], None))


@BOTH
def test_levels_that_are_drawn_have_the_chances_of_the_levels(name):
    class Keyed:
        def uniform(self, n):
            return rng.uniform(n, key=3)

        def normal(self, n):
            return rng.normal(n, key=3)

    record, n = FAMILIES[name], 40_000
    drawn = record.draw(Keyed(), np.full(n, 0.3), SCALE, None)
    chances = np.exp([record.value(np.array([float(y)]), np.array([0.3]), SCALE[:, np.newaxis], None)[0] for y in range(5)])
    np.testing.assert_allclose(np.bincount(drawn.astype(int), minlength=5) / n, chances, atol=4 * np.sqrt(0.25 / n))
