"""Columns that nothing can be learnt from are found, and no others."""

from __future__ import annotations

import numpy as np
import pytest

from fedkern.data import degenerate as module
from fedkern.data.degenerate import Degenerate, degenerate
from fedkern.models.encoding import Column, Encoding

FEW = ("a", "b", "c", "d")


def encoding(*columns: str | Column, intercept: bool = True, center: float = 0.0, scale: float = 1.0) -> Encoding:
    made = tuple(Column(c, "numeric", None, center, scale) if isinstance(c, str) else c for c in columns)
    return Encoding(made, None, intercept=intercept)


def found(*values: np.ndarray, **more: bool) -> Degenerate:
    return degenerate(np.column_stack([np.ones(len(values[0])), *values]), encoding(*FEW[: len(values)]), **more)


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_ordinary_columns_are_not_named(rng: np.random.Generator) -> None:
    a, b, c = rng.normal(size=(3, 300))
    years = rng.integers(1990, 2020, 300).astype(float)
    assert found(a, 1e6 + b, 0.95 * a + 0.3 * c, years) == Degenerate()


def test_columns_that_stand_well_apart_need_no_factorisation(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "qr", lambda *given, **more: pytest.fail("factorised"))
    a, b, c = rng.normal(size=(3, 300))
    assert found(a, 1e4 + b, 0.95 * a + 0.1 * c) == Degenerate()


def test_a_constant_column(rng: np.random.Generator) -> None:
    a = rng.normal(size=50)
    one = found(a, np.full(50, 0.1), np.where(np.arange(50) == 3, np.nan, 7.0))
    assert (one.constant, one.coarse, one.collinear) == (("b", "c"), (), {})
    assert found(a, np.full(50, 0.1), intercept=False).constant == ()
    assert found(np.array([1.0]), np.array([2.0])) == Degenerate(judged=(False, False))


def test_a_column_that_follows_from_others(rng: np.random.Generator) -> None:
    a, b, c = rng.normal(size=(3, 200))
    one = found(a, b, c, 2 * a - 0.5 * b + 10)
    assert one.collinear == {"d": ("a", "b")}
    assert found(a, b, 1e9 * a, c).collinear == {"c": ("a",)}
    assert found(a, b, a + 1e-5 * c).collinear == {"c": ("a",)}
    assert found(a, b, a + 0.05 * c).collinear == {}
    assert found(a, 2 * a, 3 * a, a + b).collinear == {"b": ("a",), "c": ("a",)}


def test_a_large_number_and_some_noise(rng: np.random.Generator) -> None:
    one = found(rng.normal(size=100), 1e15 + rng.normal(size=100), 1e7 + rng.normal(size=100))
    assert (one.constant, one.coarse, one.collinear) == ((), ("b",), {})
    X = np.column_stack([np.ones(100), rng.normal(size=100)])
    assert degenerate(X, encoding("a", center=1e15, scale=1.0)).coarse == ("a",)  # as it is once it is standardised
    assert degenerate(X, encoding("a", center=1e15, scale=1e15)).coarse == ()


def test_levels_belong_together(rng: np.random.Generator) -> None:
    n = 120
    ward, sex = rng.integers(0, 3, n), rng.integers(0, 2, n)
    columns = (Column("ward", "categorical", ("p", "q", "r", "unseen")), Column("sex", "categorical", ("f", "m")), "age", "male")
    X = np.column_stack([np.ones(n), np.eye(4)[ward], np.eye(2)[sex], rng.normal(size=n), sex])
    assert degenerate(X, encoding(*columns)).collinear == {"male": ("sex",)}
    X[:, 1:5] = np.eye(4)[0]
    one = degenerate(X[:, :-1], encoding(*columns[:-1]))
    assert (one.constant, one.collinear) == (("ward",), {})


def test_too_few_rows_say_nothing_and_nan_rows_do_not_count(rng: np.random.Generator) -> None:
    a, b = rng.normal(size=(2, 4))
    assert found(a, b, a + b) == Degenerate(judged=(True, False))
    a, b = rng.normal(size=(2, 60))
    a[:5] = np.nan
    assert found(a, b, a + b).collinear == {"c": ("a", "b")}
    X = np.full((6, 3), np.nan)
    assert degenerate(X, encoding("a", "b")) == Degenerate(judged=(False, False))
    assert degenerate(np.ones((0, 3)), encoding("a", "b")).judged == (False, False)


def test_many_rows_are_thinned(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedkern.data.degenerate.WORK", 2e3)
    a, b, c = rng.normal(size=(3, 5000))
    assert found(a, b, c, a + b).collinear == {"d": ("a", "b")}
    monkeypatch.setattr("fedkern.data.degenerate.WORK", 20.0)
    assert found(a, b, c, a + b) == Degenerate(judged=(True, False))


@pytest.mark.parametrize("values", [1e300, -1e308, np.inf])
def test_large_cells_end_in_no_error(rng: np.random.Generator, values: float) -> None:
    a = rng.normal(size=50)
    b = rng.normal(size=50)
    b[3] = values
    assert found(a, b).constant == ()
