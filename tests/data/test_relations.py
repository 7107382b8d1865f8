"""Sums of columns that drawn rows share, against determinants of whole numbers, one draw and one set of columns at a time."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from fedkern.data import relations


def determinant(m: list[list[int]]) -> int:
    return sum((-1) ** j * m[0][j] * determinant(without(m, 0, j)) for j in range(len(m))) if m else 1


def without(m: list[list[int]], i: int, j: int) -> list[list[int]]:
    return [row[:j] + row[j + 1 :] for row in (*m[:i], *m[i + 1 :])]


@pytest.mark.parametrize("block", [1, 200, 100_000])
@pytest.mark.parametrize("size", [2, 3])
def test_columns_that_depend_on_each_other_in_drawn_rows(size: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relations, "BLOCK", block)
    random, found = np.random.default_rng(size), 0
    for _ in range(8):
        X = random.integers(-3, 4, (12, 7)).astype(np.float64)
        X[:, 2], X[:, 5], X[3, 4] = 2.0, X[:, 0] - 2 * X[:, 1], np.nan
        many = (random.random(7) < 0.6).tolist()
        draws = np.array([random.choice(12, size + 1, replace=False) for _ in range(6)])
        expected = list[tuple[tuple[int, ...], tuple[float, ...]]]()
        for rows in draws:
            away = X[rows[1:]] - X[rows[0]]
            for at in sorted(combinations(range(7), size), key=lambda at: at[::-1]):
                if np.isnan(away[:, at]).any() or sum(many[j] for j in at) < size - 1:
                    continue
                own = [[int(x) for x in row] for row in away[:, at]]
                # (s, s) of a column left out, and of a row: the parts in a sum that stays the same, all of which are wanted
                parts = np.array([[determinant(without(own, r, j)) for r in range(size)] for j in range(size)])
                if determinant(own) == 0 and (parts != 0).all(axis=0).any():
                    expected.append((at, tuple(X[rows[0], at])))
        planes = relations._drawn(X, many, size - 1, draws)
        assert [(tuple(at), tuple(x)) for at, x in zip(planes.columns.tolist(), planes.origin.tolist())] == expected
        found += len(expected)
    assert found > 20
