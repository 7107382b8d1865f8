"""Moments of rows that lack values, by EM, and their pooling over sites."""

from __future__ import annotations

import numpy as np
import pytest

from fedkern.models.incomplete import NeverTogether, completed, pooled

COVARIANCE = np.array([[2.0, 0.9, 0.4, -0.3], [0.9, 1.0, 0.2, 0.1], [0.4, 0.2, 0.7, 0.0], [-0.3, 0.1, 0.0, 1.2]])


def rows(n, seed=0, p=4):
    return np.random.default_rng(seed).multivariate_normal([5.0, -3.0, 100.0, 0.0][:p], COVARIANCE[:p, :p], n)


def with_gaps(values, share, seed=1):
    return np.where(np.random.default_rng(seed).random(values.shape) < share, np.nan, values)


def row_by_row(values, iterations=2000):
    """EM as the books have it, with the same ridge: nothing is sorted or inverted at once."""
    n, w = values.shape
    count = (~np.isnan(values)).sum(axis=0)
    origin, spread = np.nanmean(values, axis=0), np.nanstd(values, axis=0, ddof=1)
    Z, mean, psi, ridge = (values - origin) / spread, np.zeros(w), np.eye(w), 1 + w / 10
    for _ in range(iterations):
        filled, left = Z.copy(), np.zeros((w, w))
        for row in filled:
            u, o = np.flatnonzero(np.isnan(row)), np.flatnonzero(~np.isnan(row))
            gain = np.linalg.solve(psi[np.ix_(o, o)], psi[np.ix_(o, u)])
            row[u] = mean[u] + (row[o] - mean[o]) @ gain
            left[np.ix_(u, u)] += psi[np.ix_(u, u)] - psi[np.ix_(u, o)] @ gain
        mean = filled.mean(axis=0)
        covariance = ((filled - mean).T @ (filled - mean) + left) / n
        before, psi = psi, (n * covariance + ridge * np.eye(w)) / (n + ridge)
        if abs(psi - before).max() < 1e-12:
            break
    unit = spread * np.sqrt(count / (count - 1))
    return origin + spread * mean, unit[:, None] * covariance * unit


def test_em_of_patterns_is_em_row_by_row():
    values = with_gaps(rows(60), 0.25)
    values[3] = np.nan  # nothing is known of this row
    part, (mean, covariance) = completed(values), row_by_row(values)
    assert part.settled
    np.testing.assert_allclose(part.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(part.covariance, covariance, rtol=0, atol=1e-5)
    assert (part.rows, part.incomplete) == (60, np.isnan(values).any(axis=1).sum())
    np.testing.assert_array_equal(part.values, (~np.isnan(values)).sum(axis=0))


def test_many_rows_of_a_pattern_stand_for_the_few_with_the_same_sums():
    """Two halves of the rows are one pattern each, and far more than they have columns."""
    values = rows(200)
    values[:100, 1] = np.nan
    part, (mean, covariance) = completed(values), row_by_row(values)
    np.testing.assert_allclose(part.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(part.covariance, covariance, rtol=0, atol=1e-5)


def test_complete_rows_have_their_own_moments():
    values = rows(30)
    part = completed(values)
    np.testing.assert_allclose(part.mean, values.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(part.covariance, np.cov(values.T), rtol=1e-12)


def test_values_missing_at_random_leave_no_bias_and_what_is_there_does():
    values = rows(20_000)
    seen = values.copy()
    seen[values[:, 1] > -3.0, 0] = np.nan
    part = completed(seen)
    assert abs(part.mean[0] - 5.0) < 0.05
    assert abs(part.covariance[0, 0] - 2.0) < 0.1
    assert abs(np.nanmean(seen[:, 0]) - 5.0) > 0.5  # negative control: the mean of what is there
    assert abs(np.nanvar(seen[:, 0]) - 2.0) > 0.3


CASES = ("fewer rows than columns", "a constant column", "one value", "collinear", "an empty row", "an empty column", "one row")


@pytest.mark.parametrize("case", CASES)
def test_singular_sites_have_an_answer(case):
    values = with_gaps(rows(40), 0.2)
    if case == "fewer rows than columns":
        values = with_gaps(np.random.default_rng(0).standard_normal((8, 30)), 0.2)
    elif case == "one row":
        values = values[:1]
    elif case == "collinear":
        values[:, 3] = 2 * values[:, 0] + 1
    elif case == "an empty row":
        values[0] = np.nan
    else:
        values[:, 3] = {"a constant column": 7.1, "one value": np.nan, "an empty column": np.nan}[case]
        values[0, 3] = np.nan if case == "an empty column" else 7.1
    part = completed(values)
    assert part.settled
    assert np.isfinite(part.covariance).all()
    assert np.linalg.eigvalsh(part.covariance)[0] > -1e-9
    assert np.isnan(part.mean[3]) == (case == "an empty column" or np.isnan(values[:, 3]).all())
    if case in ("a constant column", "one value"):
        assert part.mean[3] == pytest.approx(7.1, rel=1e-14)
        assert (part.covariance[3] == 0).all()


def test_two_hundred_columns_with_a_pattern_each_row_are_no_work():
    B = np.random.default_rng(0).standard_normal((200, 10))
    values = np.random.default_rng(1).standard_normal((300, 10)) @ B.T + np.random.default_rng(2).standard_normal((300, 200))
    part = completed(with_gaps(values, 0.05))
    assert part.settled
    error = part.covariance - np.cov(values.T)
    assert (error**2).sum() < 0.02 * (np.cov(values.T) ** 2).sum()


# ---- Several sites


def test_sites_that_have_all_are_pooled_by_their_degrees_of_freedom():
    parts = [rows(n, n) for n in (20, 35)]
    want = sum(((p - p.mean(axis=0)).T @ (p - p.mean(axis=0))) for p in parts) / (19 + 34)
    np.testing.assert_allclose(pooled([completed(p) for p in parts]), want, rtol=1e-12)


def test_a_column_that_a_site_lacks_is_taken_from_the_others():
    """Monotone: the maximum is known. Regression of the column on the rest where it is, moments of the rest from all."""
    first, second = rows(40, 1), 3 * rows(60, 2)  # the second one's rows are wider: that is no matter of the regression
    second[:, 0] = np.nan
    A, B = np.cov(first.T) * 39, np.cov(second[:, 1:].T) * 59
    rest = (A[1:, 1:] + B) / 98
    slopes = np.linalg.solve(A[1:, 1:], A[1:, 0])
    left = (A[0, 0] - A[0, 1:] @ slopes) / 39
    psi = pooled([completed(first), completed(second)])
    np.testing.assert_allclose(psi[1:, 1:], rest, rtol=1e-6)
    np.testing.assert_allclose(psi[0, 1:], rest @ slopes, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(psi[0, 0], left + slopes @ rest @ slopes, rtol=1e-4)


def test_nearly_the_same_columns_stay_so_where_sites_lack_one_of_them():
    random, sites = np.random.default_rng(5), []
    for k in range(6):
        x = random.standard_normal((25, 1))
        values = np.hstack([x, x + 0.05 * random.standard_normal((25, 1))])
        values[:, k % 2] = np.nan if k > 1 else values[:, k % 2]
        sites.append(completed(values))
    psi = pooled(sites)
    ratio = sum(s.covariance * (s.rows - 1) for s in sites) / sum((s.together > 0) * (s.rows - 1) for s in sites)
    assert 0.0005 < np.linalg.eigvalsh(psi)[0] < 0.003  # 0.05^2 / 2
    assert not 0.0005 < np.linalg.eigvalsh(ratio)[0] < 0.05  # negative control: the ratio of pooled sums


def test_who_has_a_column_in_few_rows_or_never_beside_another_is_not_heard_about_it():
    few, both = rows(400, 3, p=2), rows(200, 4, p=2)
    few[3:, 0] = np.nan
    few[:2, 0] = 1000.0, -1000.0
    psi = pooled([completed(few), completed(both)])
    assert psi[0, 0] < 4  # 3 wild values of 400 are heard in the one site alone
    apart = rows(400, 5, p=2)
    apart[::2, 0], apart[1::2, 1] = np.nan, np.nan
    psi = pooled([completed(apart), completed(both)])
    np.testing.assert_allclose(psi[0, 1] / psi[0, 0], np.cov(both.T)[0, 1] / np.cov(both.T)[0, 0], rtol=1e-3)
    with pytest.raises(NeverTogether) as pair:
        pooled([completed(apart)])
    assert pair.value.args == (0, 1)
