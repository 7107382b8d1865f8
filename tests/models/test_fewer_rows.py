"""Log-likelihoods of fewer rows: triangular factors of gaussian ones, and rows with equal covariates added up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedkern.models.mixed import Layout, Rows
from oracles.mixed_rows import chance

INTERCEPT = ("intercept",)


def made(family: str, *, offset: bool = False, client: tuple[str, ...] = (), seed: int = 0, n: int = 400) -> Rows:
    random = np.random.default_rng(seed)
    layout = Layout(("intercept", "x0", "x1"), family, client=client)
    X = np.column_stack([np.ones(n), random.integers(0, 3, n), random.integers(0, 2, n)]).astype(float)
    known = random.choice([0.0, 0.5], n) if offset else None
    eta = X @ [0.2, 0.3, -0.4] + (0 if known is None else known)
    trials = random.integers(1, 5, n).astype(float) if family.startswith("binomial") else None
    p = chance(family, eta)
    drawn = {
        "gaussian": lambda: eta + random.standard_normal(n),
        "poisson": lambda: random.poisson(np.exp(eta)),
        "bernoulli": lambda: random.random(n) < p,
        "binomial": lambda: random.binomial(np.ones(n, int) if trials is None else trials.astype(int), p),
    }
    y = np.asarray(drawn[family.removesuffix("-probit").removesuffix("-cloglog")](), float)
    return Rows(layout, X, y, np.array([0, n]), trials, known)


@pytest.mark.parametrize("client", [(), INTERCEPT])
@pytest.mark.parametrize("offset", [False, True])
@pytest.mark.parametrize("family", ["gaussian", "poisson", "bernoulli", "binomial", "bernoulli-probit", "binomial-cloglog"])
def test_fewer_rows_say_the_same(family: str, offset: bool, client: tuple[str, ...]) -> None:
    rows = made(family, offset=offset, client=client)
    assert rows.fewer is not None
    assert len(rows.fewer[0]) <= (4 if family == "gaussian" else 12)
    all_rows = replace(rows, whole=True)
    points = 0.4 * np.random.default_rng(1).standard_normal((5, rows.size))
    np.testing.assert_allclose(rows.values(points, 9), all_rows.values(points, 9), rtol=1e-11)
    for one, other in zip(rows.curvature(points, 9), all_rows.curvature(points, 9), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-7)


def test_a_given_sd_of_a_gaussian_response() -> None:
    rows = made("gaussian")
    rows = replace(rows, layout=replace(rows.layout, given=(np.log(0.7),)))
    points = np.random.default_rng(1).standard_normal((4, rows.size))
    np.testing.assert_allclose(rows.values(points, 1), replace(rows, whole=True).values(points, 1), rtol=1e-12)
    for one, other in zip(rows.curvature(points, 1), replace(rows, whole=True).curvature(points, 1), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_years_and_a_response_far_from_0_keep_their_digits() -> None:
    """Residuals of 1e-9 of the response, in a column that is nearly the constant; sums of squares would have no digit of them."""
    random = np.random.default_rng(2)
    X = np.column_stack([np.ones(5000), 2000 + random.random(5000), random.standard_normal(5000)])
    off = random.standard_normal(5000)
    off -= X @ np.linalg.lstsq(X, off, rcond=None)[0]
    beta = np.array([1e6, 3.0, 0.5])
    rows = Rows(Layout(("intercept", "x0", "x1"), "gaussian"), X, X @ beta + 1e-3 * off, np.array([0, 5000]))
    point = np.array([[*beta, np.log(1e-3)]])
    expected = -5000 * (np.log(1e-3) + 0.5 * np.log(2 * np.pi)) - 0.5 * (off**2).sum()
    assert rows.values(point, 1)[0] == pytest.approx(expected, rel=1e-6)


def test_rows_that_are_few_or_all_differ_stay() -> None:
    rows = made("poisson")
    other = replace(rows, X=np.column_stack([rows.X[:, :2], np.random.default_rng(0).standard_normal(400)]))
    assert other.fewer is None
    assert made("gaussian", n=5).fewer is None
    grouped = replace(rows, layout=replace(rows.layout, group=INTERCEPT))
    assert grouped.fewer is None
