"""Random-effects meta-analysis: a worked example, and what the estimator promises."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri

from fedkern.results.meta import biased, combine, least_squares


def test_a_worked_example() -> None:
    """Three sites, weights 100, 25, 400: every number by hand.

    fixed = (100 x 0.1 + 25 x 0.5 + 400 x 0.3) / 525 = 0.271429;
    Q = 100 (0.171429)^2 + 25 (0.228571)^2 + 400 (0.028571)^2 = 4.571429. At tau^2 = 0.0177069 the weights are 36.0921, 17.3289
    and 49.4880, the average 0.2635345, and the weighted squares about it 2, as many as there are sites, less one.
    """
    found = combine([[0.1], [0.5], [0.3]], [[0.1], [0.2], [0.05]])
    assert found.q[0] == pytest.approx(4.5714286)
    assert found.tau_sq[0] == pytest.approx(0.0177069, rel=1e-5)
    assert found.i_sq[0] == pytest.approx(0.5625)
    weights = 1 / (np.array([0.01, 0.04, 0.0025]) + found.tau_sq[0])
    np.testing.assert_allclose(weights, [36.0921, 17.3289, 49.4880], rtol=1e-5)
    assert np.sum(weights * (np.array([0.1, 0.5, 0.3]) - found.mean[0]) ** 2) == pytest.approx(2, rel=1e-9)
    assert found.mean[0] == pytest.approx((3.60921 + 8.66447 + 14.84641) / 102.90905, rel=1e-5)
    assert found.se[0] == pytest.approx(0.0985764, rel=1e-5)
    low, high = found.interval()
    assert (high[0] - low[0]) / 2 == pytest.approx(2.9199856 * found.se[0])  # Student's t, two degrees


def test_a_published_example() -> None:
    """Thirteen trials of the vaccine against tuberculosis, log risk ratios (Colditz et al., 1994): metafor's tau^2 of "PM" is
    0.3181, its average -0.7150, and the error of test = "knha" 0.1809."""
    estimates = [-0.8893, -1.5854, -1.3481, -1.4416, -0.2175, -0.7861, -1.6209, 0.0120, -0.4694, -1.3713, -0.3394, 0.4459]
    estimates += [-0.0173]
    variances = [0.3256, 0.1946, 0.4154, 0.0200, 0.0512, 0.0069, 0.2230, 0.0040, 0.0564, 0.0730, 0.0124, 0.5325, 0.0714]
    found = combine(np.array(estimates)[:, None], np.sqrt(variances)[:, None])
    assert (found.tau_sq[0], found.mean[0], found.se[0]) == pytest.approx((0.3181, -0.7150, 0.1809), abs=1e-4)


@pytest.mark.parametrize("sites", [3, 5, 10])
def test_intervals_cover_where_normal_ones_do_not(sites: int) -> None:
    random = np.random.default_rng(sites)
    errors = 0.2 * np.exp(0.5 * random.normal(size=(sites, 6000)))
    found = combine(0.4 + np.hypot(0.4, errors) * random.normal(size=errors.shape), errors)
    low, high = found.interval()
    assert np.mean((low < 0.4) & (high > 0.4)) > 0.88
    normal = np.abs(found.mean - 0.4) < ndtri(0.95) * found.se
    assert np.mean(normal) < {3: 0.84, 5: 0.87, 10: 0.89}[sites]


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


def test_p_values_agree_with_the_interval() -> None:
    """An interval of level 1 - p ends at 0; of one site by the normal law."""
    found = combine([[0.3, 0.2], [0.5, np.nan], [0.1, np.nan]], [[0.1, 0.1], [0.2, np.nan], [0.05, np.nan]])
    np.testing.assert_allclose(found.p_values[1], 2 * stats.norm.sf(2.0))
    for j, p in enumerate(found.p_values):
        np.testing.assert_allclose(found.interval(1 - p)[0][j], 0, atol=1e-12)


def test_a_site_that_lacks_a_column_has_wrong_slopes_of_what_goes_with_it() -> None:
    """b goes with a, c does not: without a the slope of b moves by a's effect, and that of c stays."""
    random = np.random.default_rng(5)
    X = random.multivariate_normal(np.zeros(3), [[1, 0.8, 0], [0.8, 1, 0], [0, 0, 1]], size=20_000) * [1.0, 30.0, 0.1]
    y = X @ [1.0, 0.0, 2.0] + random.normal(size=len(X))
    psi = np.cov(X.T)
    slopes, errors = least_squares(np.column_stack([np.full(len(X), np.nan), X[:, 1:]]), y)
    wrong = np.abs(slopes - [np.nan, 0, 2]) > 6 * errors
    assert biased(psi, [False, True, True]).tolist() == wrong.tolist() == [False, True, False]
    assert not biased(psi, [True, True, True]).any()
    assert not biased(psi, [False, False, False]).any()
