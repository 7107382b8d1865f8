"""The clip rule of float32 rows, in exact arithmetic: no part of a sum is longer than the bound (docs/spec/pvi.md, section 4)."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from fedkern.kernels import glm, privacy

SEED, CLIP = 5, 1.0
GREATEST = np.float32(1 + 2**-12 + 2**-23)  # its square is rounded by nearly half a unit


def square(values):
    """The exact squared length."""
    return sum(Fraction(float(v)) ** 2 for v in values)


def rows(d):
    """Rows of float32 that lose most to rounding, and those beyond its range."""
    r = np.random.default_rng(d)
    yield np.full(d, GREATEST)
    for scale in (1e-30, 1e-20, 1e-8, 1.0, 1e8, 1e20, 1e30):
        yield (r.standard_normal(d) * scale).astype("f4")
    first = np.full(d, 2.0**-13, "f4")  # each later square is just less than half a unit of the sum
    first[:16] = 1
    yield first
    yield first[::-1].copy()


@pytest.mark.parametrize("d", [1, 2, 15, 16, 17, 108, 2049, pytest.param(9001, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("grid", [None, 2.0**-20])
def test_no_float32_row_is_longer_than_the_bound(d, grid):
    mu, omega = np.zeros(d), np.full(d, -1.0)
    for x in rows(d):
        # The response is far off, so that every row but those near 0 is clipped.
        call = {"family": "gaussian", "clip": CLIP, "estimator": "weight-mc", "seed": SEED, "grid": grid}
        total, skipped = glm.clipped_grad_sum(x[None], np.array([1e36]), mu, omega, **call)
        assert skipped == 0
        units = Fraction(1 if grid is None else grid) ** 2
        assert square(total) * units <= Fraction(CLIP) ** 2
        assert square(total) * units >= Fraction(CLIP * (1 - 4e-5)) ** 2 or grid


def test_rows_that_are_not_finite_weigh_nothing():
    d = 40
    X = np.random.default_rng(0).standard_normal((6, d)).astype("f4")
    X[1, 3], X[2, 39], X[4, 0] = np.nan, np.inf, -np.inf
    call = {"family": "bernoulli", "clip": CLIP, "estimator": "weight-mc", "seed": SEED}
    y, mu, omega = np.ones(6), np.zeros(d), np.zeros(d)
    total, skipped = glm.clipped_grad_sum(X, y, mu, omega, **call)
    assert skipped == 3
    want, _ = glm.clipped_grad_sum(X, y, mu, omega, rows=np.array([0, 3, 5]), **call)
    np.testing.assert_allclose(total, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("bound", [1.0, 1e-25, 1e-42])
@pytest.mark.parametrize("d", [1, 2, 15, 16, 17, 108, 2049])
def test_no_row_of_a_plain_clipped_sum_is_longer_than_the_bound(d, bound):
    for x in rows(d):
        total = privacy.clip_sum(x[None], bound)
        length, most = square(x), Fraction(bound) ** 2
        assert square(total) <= most
        assert square(total) >= min(length, most) * (1 - Fraction(1, 10**5)) ** 8


@pytest.mark.parametrize("n", [1, 7, 8, 9, 63, 64, 65, 200])
def test_a_sum_in_float32_is_off_by_no_more_than_its_bound(n):
    """Rows that lose most, beside rows beyond the range of sums in float32, which are taken in float64, or not at all."""
    r = np.random.default_rng(n)
    for X in (
        np.tile(GREATEST, (n, 17)),
        r.standard_normal((n, 17)).astype("f4"),
        np.abs(r.standard_normal((n, 17))).astype("f4"),
    ):
        X[n // 2] *= np.float32(1e30)
        X[n // 5] *= np.float32(1e-25)
        X[:: max(n // 4, 2), 0] = 0
        X[n // 3, 2] = np.nan
        terms = np.zeros((1, 17))
        for x in X[np.isfinite(X).all(axis=1)].astype("f8"):
            norm = math.sqrt(math.fsum(x * x))
            terms = np.vstack([terms, x * min(1.0, 2.5 * (1 - 2e-5) / norm)])
        want = [float(sum(map(Fraction, column))) for column in terms.T]
        for x in (X, X[::-1], np.asfortranarray(X)):
            assert (np.abs(privacy.clip_sum(x, 2.5) - want) <= 5e-6 * np.abs(terms).sum(axis=0)).all()


def test_a_sum_in_float32_has_the_same_bits_with_any_number_of_threads():
    X = np.random.default_rng(0).standard_normal((5000, 70)).astype("f4")
    X[17, 3] = np.inf
    one = privacy.clip_sum(X, 2.5)
    for n_threads in (2, 3):
        np.testing.assert_array_equal(privacy.clip_sum(X, 2.5, n_threads=n_threads), one)


@pytest.mark.parametrize("n", [1, 8, 9, 64, 65, 200])
@pytest.mark.parametrize("d", [3, 40, 600])
def test_gradients_of_float32_rows_are_the_reference(n, d):
    """Beside rows of zeros, rows beyond the range of sums in float32, and coefficients beyond it."""
    r = np.random.default_rng(n + d)
    X, y = r.standard_normal((n, d)).astype("f4"), r.standard_normal(n)
    X[:: max(n // 3, 2)] = 0
    call = {"family": "gaussian", "estimator": "weight-mc", "seed": SEED, "mu": np.zeros(d), "log_sigma": np.full(d, -1.0)}
    for row, clip in ((1.0, 2.5), (1e20, 2.5), (1e-20, 2.5), (1.0, 1e-30), (1.0, np.inf)):
        rows_ = X.copy()
        rows_[n // 2] *= np.float32(row)
        got, want = (glm.clipped_grad_sum(rows_, y, clip=clip, backend=b, **call)[0] for b in ("cpp", "reference"))
        each = [glm.clipped_grad_sum(rows_, y, clip=clip, rows=np.array([i]), backend="reference", **call)[0] for i in range(n)]
        assert (np.abs(got - want) <= 2e-6 * np.abs(each).sum(axis=0) + 1e-6 * np.abs(each).max()).all()


# Rows made of two numbers of which the square of one is 0: (family, size of x, offset).
TINY_SLOPE, HUGE_SLOPE = "bernoulli", "poisson"
EXTREME = [
    *((TINY_SLOPE, x, a) for x, a in ((1e120, -390.0), (1e150, -500.0), (1e152, -700.0), (1e80, -300.0), (1e70, -350.0))),
    *((HUGE_SLOPE, x, a) for x, a in ((1e-163, 345.0), (3e-162, 354.0), (1e-150, 225.0), (1e-200, 350.0), (1e-163, 230.0))),
]


@pytest.mark.parametrize("backend", ["cpp", "numba", "reference"])
@pytest.mark.parametrize(("family", "x", "offset"), EXTREME)
@pytest.mark.parametrize("estimator", ["analytic", "weight-mc", "several", "activation-mc", "full"])
def test_no_row_of_extreme_numbers_is_longer_than_the_bound(backend, family, x, offset, estimator):
    d = 9
    X, y = np.full((1, d), x) * np.linspace(0.5, 1.5, d), np.zeros(1)
    spread = np.diag(np.full(d, 1e-170)) if estimator == "full" else np.full(d, -400.0)
    call = {
        "family": family,
        "offset": np.full(1, offset),
        "mu": np.zeros(d),
        "log_sigma": spread,
        "seed": SEED,
        "backend": backend,
    }
    call["draws"] = 3 if estimator == "several" else 1
    call["estimator"] = {"several": "weight-mc", "full": "analytic"}.get(estimator, estimator)
    for clip in (1e-50, 1e-30, 1e-9, 1e-3, 1.0):
        total, skipped = glm.clipped_grad_sum(X, y, clip=clip, **call)
        assert np.isfinite(total).all()
        assert square(total) <= Fraction(clip) ** 2
        # Where a slope is tiny, its row counts with its full weight, as others do.
        if family == TINY_SLOPE:
            assert skipped == 0
            length = min(square(glm.clipped_grad_sum(X, y, clip=np.inf, **call)[0]), Fraction(clip) ** 2)
            assert square(total) >= length * (1 - Fraction(1, 10**8))
        else:
            assert skipped == (np.exp(offset) > 1e100)
