"""Gaussian algebra in natural parameters, against formulas on moments."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from fedkern.errors import NumericalError
from fedkern.models.expfam import Gaussian, floored, keeps_proper, kl, pack, packed_size, unpack


def gaussian(seed, d=3, diagonal=False):
    rng = np.random.default_rng(seed)
    half = rng.standard_normal((d, d)) + 2 * np.eye(d)
    covariance = half @ half.T
    return Gaussian.from_moments(rng.standard_normal(d), np.diag(covariance) if diagonal else covariance)


@pytest.mark.parametrize("diagonal", [True, False])
def test_moments_come_back(diagonal):
    q = gaussian(0, diagonal=diagonal)
    again = Gaussian.from_moments(q.mean, q.sd**2 if diagonal else q.covariance)
    np.testing.assert_allclose(again.h, q.h, rtol=1e-12)
    np.testing.assert_allclose(again.P, q.P, rtol=1e-12)


@pytest.mark.parametrize(("a", "b"), [(True, True), (True, False), (False, True), (False, False)])
def test_kl_is_the_mean_difference_of_log_densities(a, b):
    p, q = gaussian(1, diagonal=a), gaussian(2, diagonal=b)
    draws = np.random.default_rng(3).multivariate_normal(p.mean, p.covariance, 400_000)
    difference = multivariate_normal(p.mean, p.covariance).logpdf(draws) - multivariate_normal(q.mean, q.covariance).logpdf(draws)
    error = difference.std() / np.sqrt(len(draws))
    assert abs(kl(p, q) - difference.mean()) < 4.5 * error
    assert kl(p, p) == pytest.approx(0, abs=1e-12)
    assert abs(2 * kl(p, q) - difference.mean()) > 4.5 * error  # a wrong factor would be seen


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_packing_comes_back(d, covariance):
    P = gaussian(4, d, covariance == "diagonal").P
    assert len(pack(P)) == packed_size(d, covariance)
    again = unpack(pack(P), d)
    np.testing.assert_allclose(again.ravel(), P.ravel(), rtol=1e-12)


def test_variance_of_a_linear_predictor():
    X = np.random.default_rng(5).standard_normal((4, 3))
    for diagonal in (True, False):
        q = gaussian(6, diagonal=diagonal)
        np.testing.assert_allclose(q.variance_of(X), np.diag(X @ q.covariance @ X.T), rtol=1e-12)


def test_an_improper_precision_is_an_error_that_says_so():
    with pytest.raises(NumericalError, match="not positive definite"):
        _ = Gaussian(np.zeros(2), np.array([[1.0, 2.0], [2.0, 1.0]])).mean


@pytest.mark.parametrize("matrix", [False, True])
@pytest.mark.parametrize(("dP", "keeps"), [(0.0, True), (-0.89, True), (-0.91, False), (np.nan, False), (np.inf, False)])
def test_what_keeps_q_proper(matrix, dP, keeps):
    P, change = np.ones(2), np.array([0.0, dP])
    if matrix:
        P, change = np.eye(2), np.diag(change)
    if dP == np.inf and not matrix:
        keeps = True  # a coordinate of infinite precision is caught by the bound on a delta's size
    assert keeps_proper(P, change, 1.0) is keeps


def test_the_floor_counts_and_leaves_the_rest():
    P, n = floored(np.array([1.0, -3.0, np.nan]), np.full(3, 0.01))
    assert n == 2
    np.testing.assert_array_equal(P, [1.0, 0.01, 0.01])
    values, vectors = np.array([2.0, 0.5, -1.0]), np.linalg.qr(np.random.default_rng(7).standard_normal((3, 3)))[0]
    M, n = floored((vectors * values) @ vectors.T, np.full(3, 0.01))
    assert n == 1
    np.testing.assert_allclose(np.linalg.eigvalsh(M), [0.01, 0.5, 2.0], rtol=1e-12)
