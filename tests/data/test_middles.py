"""Middles and ends of columns of many numbers, which are found without sorting them."""

from __future__ import annotations

import numpy as np
import pytest

from fedkern.algorithms.exchanges.columns import Abreast, Summary, moments
from fedkern.data.isolated import FAR, distances, has_far, robust
from fedkern.data.standardised import MANY, middle, smallest
from fedkern.models.mixed.fewer import fewer

COLUMNS = {
    "normal": lambda random, n: random.normal(size=n),
    "few values": lambda random, n: random.integers(0, 5, n).astype(float),
    "in order": lambda random, n: np.sort(random.normal(size=n)),
    "a long tail": lambda random, n: np.exp(3 * random.normal(size=n)),
    "half of them 0": lambda random, n: np.where(random.random(n) < 0.6, 0.0, random.normal(size=n)),
    "two halves": lambda random, n: np.where(np.arange(n) < n // 2, -1.0, 1.0) + 1e-3 * random.normal(size=n),
    "a wave beside the sample": lambda random, n: np.arange(n) % (n // 1000) + random.random(n),
}


@pytest.mark.parametrize("n", [1, 2, 7, 100, MANY, MANY + 1, 3 * MANY, 3 * MANY + 1])
@pytest.mark.parametrize("kind", COLUMNS)
def test_a_middle_and_ends_are_those_of_all_numbers_in_order(kind: str, n: int) -> None:
    random = np.random.default_rng(n)
    values = COLUMNS[kind](random, n) if n >= 1000 else COLUMNS["normal"](random, n)
    given = values.copy()
    assert middle(values) == np.median(values)
    assert middle(np.concatenate([values, [np.nan] * 3])) == np.median(values)
    few = min(5, n)
    assert np.array_equal(np.sort(smallest(values, few)), np.sort(values)[:few])
    centre, sd = robust(values)
    for away in (0.0, 0.9 * FAR, 1.1 * FAR):
        beside = np.append(values, centre + away * sd)
        assert has_far(beside) == (distances(beside).max() > FAR)
    assert np.array_equal(values, given)


def test_columns_abreast_have_the_sums_of_one_array() -> None:
    random = np.random.default_rng(0)
    X, centre = random.normal(size=(9000, 3)), np.array([0.5, -1.0, 0.0])
    one, other = (
        moments(Summary(("a", "b", "c"), ("numeric",) * 3, numeric=numeric), centre)
        for numeric in (X, Abreast(tuple(np.ascontiguousarray(column) for column in X.T), len(X)))
    )
    assert np.array_equal(one, other)
    assert np.array_equal(np.asarray(Abreast((), 4)), np.empty((4, 0)))


@pytest.mark.parametrize(("different", "found"), [(3, True), (5_000, True), (9_500, True), (20_000, False)])
def test_equal_rows_are_found_where_they_are_worth_it(different: int, found: bool) -> None:
    random = np.random.default_rng(1)
    X = np.repeat(random.normal(size=(different, 2)), -(-20_000 // different), axis=0)[:20_000]
    fewest = fewer("bernoulli", X, (random.random(20_000) < 0.5).astype(float), None, None)
    assert (fewest is not None) == found
    assert fewest is None or len(fewest.y) == len(np.unique(X[:, 0]))
