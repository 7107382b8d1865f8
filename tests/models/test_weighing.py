"""How few rows a curvature is about: the weights by which models add up their rows, and what is asked of these at a point."""

from __future__ import annotations

import numpy as np
import pytest

from fedkern.arrays import Array
from fedkern.models import levels, survival
from fedkern.models.mixed import Layout, Rows
from fedkern.models.survival_parametric import Lifetimes
from fedkern.models.weighing import Least, few, levered
from support.rounded_jobs import drawn

N = 60
NAMES = ("intercept", "a", "b")


def columns(seed: int = 0) -> Array:
    return np.column_stack([np.ones(N), np.random.default_rng(seed).normal(size=(N, 2))])


@pytest.mark.parametrize(
    "family", ["bernoulli", "poisson", "negative-binomial", "student", "gamma", "beta", "zero-inflated-poisson"]
)
def test_weights_are_those_of_the_curvature(family: str) -> None:
    X, random = columns(), np.random.default_rng(1)
    rows = Rows(Layout(NAMES, family), X, drawn(random, family, X @ [0.2, 0.5, -0.3]), np.array([0, N]))
    point = rows.layout.start + 0.1
    hessian = rows.curvature(point[np.newaxis], 1)[2][0]
    if family in ("student", "zero-inflated-poisson"):  # some rows curve the other way: weights are sizes
        assert (rows.weighed(point) >= 0).all()
        return
    np.testing.assert_allclose((X.T * rows.weighed(point)[0]) @ X, hessian[:3, :3], rtol=1e-6)


def test_offsets_and_trials_weigh() -> None:
    X, offset, trials = columns(), np.linspace(-1, 1, N), np.arange(1.0, N + 1)
    y = np.floor(trials / 2)
    rows = Rows(Layout(NAMES, "binomial"), X, y, np.array([0, N]), trials, offset)
    point = np.array([0.1, 0.5, -0.2])
    np.testing.assert_allclose((X.T * rows.weighed(point)[0]) @ X, rows.curvature(point[np.newaxis], 1)[2][0], rtol=1e-6)


def test_each_level_has_weights_of_its_own() -> None:
    X, random = columns(), np.random.default_rng(2)
    layout = Layout(levels.block_names(("x", "y", "z"), NAMES), "multinomial")
    rows = levels.Rows(layout, X, random.integers(0, 3, N).astype(float), 3)
    point = random.normal(size=6)
    hessian = rows.curvature(point[np.newaxis], 1)[2][0]
    for k, weights in enumerate(rows.weighed(point)):
        np.testing.assert_allclose((X.T * weights) @ X, hessian[3 * k : 3 * k + 3, 3 * k : 3 * k + 3], rtol=1e-9)


def test_lifetimes_weigh_by_their_hazards() -> None:
    X, random = columns(), np.random.default_rng(3)
    time = random.exponential(size=N)
    upper = np.where(random.random(N) < 0.5, time, np.inf)
    rows = Lifetimes.of(Layout(NAMES, "weibull"), X, time, upper, np.array([0, N]), time * random.random(N))
    point = rows.layout.start + 0.1
    hessian = rows.curvature(point[np.newaxis], 1)[2][0]
    np.testing.assert_allclose((rows.X.T * rows.weighed(point)[0]) @ rows.X, hessian[:3, :3], rtol=1e-6)


def test_rows_of_a_cox_model_weigh_by_the_events_that_are_expected_of_them() -> None:
    X, random = columns()[:, 1:], np.random.default_rng(4)
    time, event = random.exponential(size=N), random.random(N) < 0.6
    entry, strata, beta = time * random.random(N) * 0.5, random.integers(0, 2, N), np.array([0.3, -0.4])
    rows = survival.Rows.of(Layout(("a", "b"), "cox"), X, time, event, entry, strata)
    each, expected, began = np.exp(rows.predictor(beta[np.newaxis])[0]), np.zeros(N), entry[rows.sets.order]
    for at in np.flatnonzero(rows.event):
        risk = (rows.strata == rows.strata[at]) & (rows.time >= rows.time[at]) & (began < rows.time[at])
        expected[risk] += each[risk] / each[risk].sum()
    np.testing.assert_allclose(rows.weighed(beta)[0], expected, rtol=1e-9)
    none = survival.Rows.of(Layout(("a", "b"), "cox"), X, time, np.zeros(N, bool))
    assert not none.weighed(beta).any()


def test_units_of_columns_decide_nothing() -> None:
    X, scale, prior = columns(), np.array([1.0, 1e6, 1e-6]), np.diag([0.04, 0.16, 0.16])
    X[0, 1] = 30.0
    found = [levered(X * own, np.ones(len(X)), prior * np.outer(own, own), 0.0) for own in (scale, np.ones(3))]
    assert found[0] == pytest.approx(found[1], rel=1e-6)
    assert Least.of(X * scale, 0, 2, 0.9).rows == 6


def test_coefficients_that_follow_from_others_are_not_counted() -> None:
    place = np.arange(N) % 3
    X = np.column_stack([np.ones(N), *(place == k for k in range(3))]).astype(float)
    assert Least.of(X, 0, 2, 0.9) == Least(6, 0.9)
    assert Least.of(X, 10, 2, 0.9) == Least(10, 0.9)


def test_a_point_at_which_few_rows_weigh_is_found() -> None:
    X = columns()
    rows = Rows(Layout(NAMES, "bernoulli"), X, (X[:, 1] > 0).astype(float), np.array([0, N]))
    prior, least = np.diag([0.04, 0.16, 0.16]), Least(10, 0.9)
    assert not few(rows, np.zeros(3), prior, least)
    assert few(rows, np.array([0.0, 60.0, 0.0]), prior, least)  # the rows beside the threshold
    assert not few(rows, np.array([0.0, 60.0, 0.0]), prior, Least(0, 1.0))


def test_a_row_that_has_nearly_all_of_a_sum_is_found() -> None:
    X, least = columns(), Least(10, 0.9)
    X[0, 1] = 40.0
    rows = Rows(Layout(NAMES, "poisson"), X, np.ones(N), np.array([0, N]))
    prior = np.diag([0.04, 0.16, 0.16])
    assert few(rows, np.zeros(3), prior, least)
    assert not few(rows, np.array([0.0, -0.1, 0.0]), prior, least)  # where its mean is e^-4


@pytest.mark.parametrize("n", [30, 5_000])
def test_the_row_of_the_highest_leverage_is_found_where_that_is_above_the_number(n: int) -> None:
    """Few rows: by the largest share of a column's squares; many: by x_i' (X'WX + P)^-1 x_i, here with all digits."""
    random = np.random.default_rng(n)
    X, weights, prior = np.column_stack([np.ones(n), random.normal(size=(n, 5))]), random.random(n), np.eye(6)
    X[n // 2, 1:3], weights[n // 2] = 400.0, 0.5
    squares = (X.T * weights) @ X + prior
    leverage = weights * np.einsum("ni,ij,nj->n", X, np.linalg.inv(squares), X)
    if n <= 36:
        leverage = weights * (X**2 / np.diag(squares)).max(axis=1)
    assert levered(X, weights, prior, 0.9) == pytest.approx((n // 2, leverage[n // 2]), rel=1e-9)
    assert levered(X, weights, prior, float(leverage[n // 2]) + 1e-9) is None
    assert levered(np.delete(X, n // 2, axis=0), np.delete(weights, n // 2), prior, 0.9) is None
