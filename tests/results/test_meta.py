"""Random-effects meta-analysis: a worked example, and what the estimator promises."""

from __future__ import annotations

import numpy as np
import pytest

from fedkern.results.meta import combine, least_squares


def test_a_worked_example() -> None:
    """Three sites, weights 100, 25, 400: every number by hand.

    fixed = (100 x 0.1 + 25 x 0.5 + 400 x 0.3) / 525 = 0.271429;
    Q = 100 (0.171429)^2 + 25 (0.228571)^2 + 400 (0.028571)^2 = 4.571429;
    C = 525 - (10,000 + 625 + 160,000) / 525 = 200; tau^2 = (4.571429 - 2) / 200 = 0.012857.
    """
    found = combine([[0.1], [0.5], [0.3]], [[0.1], [0.2], [0.05]])
    assert found.q[0] == pytest.approx(4.5714286)
    assert found.tau_sq[0] == pytest.approx(0.0128571429)
    assert found.i_sq[0] == pytest.approx(0.5625)
    weights = 1 / (np.array([0.01, 0.04, 0.0025]) + 0.0128571428571)  # 43.75, 18.918919, 65.116279
    np.testing.assert_allclose(weights, [43.75, 18.918919, 65.116279], rtol=1e-6)
    assert found.mean[0] == pytest.approx((4.375 + 9.4594595 + 19.5348837) / 127.785198, rel=1e-6)
    assert found.se[0] == pytest.approx(0.0884624, rel=1e-5)
    low, high = found.interval()
    assert (high[0] - low[0]) / 2 == pytest.approx(1.6448536 * found.se[0])


def test_sites_that_agree_give_the_fixed_average() -> None:
    found = combine([[1.0, 0.0], [1.1, 0.0], [0.9, 0.0]], [[0.5, 1.0], [0.5, 1.0], [0.5, 1.0]])
    np.testing.assert_allclose(found.mean, [1.0, 0.0])
    np.testing.assert_allclose(found.se, [0.5 / np.sqrt(3), 1 / np.sqrt(3)])
    assert found.tau_sq.tolist() == [0, 0]
    assert found.i_sq.tolist() == [0, 0]


def test_sites_without_an_estimate_do_not_count() -> None:
    nan = np.nan
    found = combine([[0.1, 2.0, nan], [nan, 3.0, nan], [0.3, nan, nan]], [[0.1, 1.0, nan], [nan, nan, nan], [0.2, nan, nan]])
    alone = combine([[0.1], [0.3]], [[0.1], [0.2]])
    assert found.sites.tolist() == [2, 1, 0]
    assert (found.mean[0], found.se[0]) == pytest.approx((alone.mean[0], alone.se[0]))
    assert (found.mean[1], found.se[1], found.tau_sq[1]) == (2.0, 1.0, 0.0)
    assert np.isnan([found.mean[2], found.se[2], found.tau_sq[2], found.q[2]]).all()


def test_the_variance_between_sites_is_found() -> None:
    random = np.random.default_rng(3)
    truth = 0.4 + 0.3 * random.normal(size=(40, 500))
    found = combine(truth + 0.2 * random.normal(size=truth.shape), np.full(truth.shape, 0.2))
    assert found.tau_sq.mean() == pytest.approx(0.09, rel=0.05)
    z = (found.mean - 0.4) / found.se
    assert 0.9 < z.std() < 1.12
    assert 1.6 < np.std((found.mean - 0.4) / (0.2 / np.sqrt(40))) < 2.0  # errors that ignore it would be too small


def test_faults() -> None:
    with pytest.raises(ValueError, match="standard errors must be > 0, got -1"):
        combine([[1.0]], [[-1.0]])
    with pytest.raises(ValueError, match="need one shape"):
        combine([1.0], [1.0])


def test_least_squares_is_that_of_the_normal_equations() -> None:
    random = np.random.default_rng(2)
    x, y = random.normal(size=(30, 3)) + 5, random.normal(size=30)
    b, se = least_squares(x, y)
    z = np.column_stack([np.ones(30), x])
    inverse = np.linalg.inv(z.T @ z)
    full = inverse @ z.T @ y
    sigma_sq = np.sum((y - z @ full) ** 2) / 26
    np.testing.assert_allclose(b, full[1:], rtol=1e-8)
    np.testing.assert_allclose(se, np.sqrt(sigma_sq * np.diag(inverse))[1:], rtol=1e-8)


def test_a_site_that_lacks_a_column_or_rows() -> None:
    random = np.random.default_rng(2)
    x, y = random.normal(size=(30, 4)), random.normal(size=30)
    x[:, 1], x[:, 2] = np.nan, 3.0  # never measured; constant
    x[0, 0], y[1] = np.nan, np.nan
    b, se = least_squares(x, y)
    expected = least_squares(x[2:][:, [0, 3]], y[2:])
    np.testing.assert_allclose([b[[0, 3]], se[[0, 3]]], expected)
    assert np.isnan([b[1:3], se[1:3]]).all()
    assert np.isnan(least_squares(x[:4], y[:4])[0]).all()  # as many coefficients as rows
    assert np.isnan(least_squares(x[:0], y[:0])[0]).all()
    twice = x[:, [0, 0]]
    assert np.isnan(least_squares(twice, y)[0]).all()
