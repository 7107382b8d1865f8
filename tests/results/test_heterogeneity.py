"""Tests of sites against each other have the numbers that least squares has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from fedkern.results import heterogeneity


def sites(seed: int, b: Any = None, lacking: bool = False, levels: bool = False) -> tuple[Any, Any, Any]:
    """Shifts and precisions of four linear sites with noise of variance 1, and the designs and responses."""
    random, h, P, rows = np.random.default_rng(seed), [], [], []
    for k in range(4):
        X = np.column_stack([np.ones(60), random.normal(size=(60, 3)) * [1, 30, 0.01]])
        if lacking and k == 2:
            X[:, 3] = 0.0
        if levels:
            group = random.integers(0, 3, size=60)
            X = np.column_stack([X, group[:, None] == np.arange(3)])
        y = X[:, :4] @ (np.array([1, 0.5, 0.01, 3.0]) if b is None else b[k]) + random.normal(size=60)
        h.append(X.T @ y)
        P.append(X.T @ X)
        rows.append((X, y))
    return np.array(h), np.array(P), rows


def rss(X: Any, y: Any) -> float:
    residuals = y - X @ np.linalg.lstsq(X, y, rcond=None)[0]
    return float(residuals @ residuals)


@pytest.mark.parametrize(("lacking", "levels"), [(False, False), (True, False), (False, True), (True, True)])
def test_q_is_that_of_nested_least_squares(lacking: bool, levels: bool) -> None:
    """With known variance Q is a difference of residual sums of squares: with and without coefficients of the sites' own."""
    h, P, rows = sites(3, lacking=lacking, levels=levels)
    names = ["intercept", "x", "z", "u", *(f"g={j}" for j in range(3) if levels)]
    found = heterogeneity.compare_sites(names, True, h, P)
    assert found is not None
    assert found.intercept is not None
    y, X = np.concatenate([y for _, y in rows]), np.concatenate([X for X, _ in rows])
    site = np.repeat(np.eye(4), 60, axis=0)
    common, free = rss(X, y), sum(rss(*one) for one in rows)
    own = rss(np.column_stack([site, X[:, 1:]]), y)
    ranks = sum(np.linalg.matrix_rank(one / np.linalg.norm(one, axis=0).clip(1e-9)) for one, _ in rows)
    between = np.column_stack([site, X[:, 1:] / np.linalg.norm(X[:, 1:], axis=0)])
    assert found.intercept.Q == pytest.approx(common - own, rel=1e-6)
    assert found.intercept.df == 3
    assert found.slopes.Q == pytest.approx(own - free, rel=1e-6)
    assert found.slopes.df == ranks - np.linalg.matrix_rank(between)
    assert found.single["u"].df == (2 if lacking else 3)
    assert ("g=0" in found.single) is False


def test_a_coefficient_of_which_no_site_knows_changes_nothing() -> None:
    h, P, _ = sites(3)
    without = heterogeneity.compare_sites(["intercept", "x", "z", "u"], True, h, P)
    more = np.zeros((4, 5)), np.zeros((4, 5, 5))
    more[0][:, :4], more[1][:, :4, :4] = h, P
    found = heterogeneity.compare_sites(["intercept", "x", "z", "u", "none"], True, *more)
    assert found is not None
    assert found == without


def test_a_single_coefficient_is_cochrans() -> None:
    h, P, rows = sites(4)
    found = heterogeneity.compare_sites(["intercept", "x", "z", "u"], True, h, P)
    b = np.array([np.linalg.lstsq(X, y, rcond=None)[0][2] for X, y in rows])
    w = np.array([1 / np.linalg.inv(X.T @ X)[2, 2] for X, y in rows])
    Q = (w * (b - (w * b).sum() / w.sum()) ** 2).sum()
    assert found is not None
    assert found.single["z"].Q == pytest.approx(Q, rel=1e-6)
    assert found.single["z"].p == pytest.approx(chi2.sf(Q, 3))


def test_chance_is_rarely_named() -> None:
    """Of 300 federations; at .01 twice and with Holm's rule about 3 % name something."""
    joint, any_of_them = 0, 0
    for seed in range(300):
        found = heterogeneity.compare_sites(["intercept", "x", "z", "u"], True, *sites(seed)[:2])
        assert found is not None
        joint += found.slopes.p < 0.1
        any_of_them += bool(list(found.notes("", "")))
    assert 15 <= joint <= 48
    assert any_of_them <= 18


def test_what_is_no_likelihood_is_not_compared() -> None:
    h, P, _ = sites(1)
    P[1] *= -1
    assert heterogeneity.compare_sites(["intercept", "x", "z", "u"], True, h, P) is None
    assert heterogeneity.compare_sites(["intercept", "x", "z", "u"], True, h[:1], P[:1]) is None
