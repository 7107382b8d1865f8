"""Values that few rows share, against a count of every one; and files of any size, whose rows need not all count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedkern.data import rare as module
from fedkern.data.rare import rare
from fedkern.data.table import Table, Text
from fedkern.models.encoding import Column


def table(**columns: Any) -> Table:
    first = next(iter(columns.values()))
    return Table("a.csv", tuple(columns), columns, len(first.codes if isinstance(first, Text) else first))


def found(one: Table, least: int = 10, counted: Any = None, *texts: str) -> Any:
    columns = [Column(name, "categorical" if name in texts else "numeric", center=0.0, scale=1.0) for name in one.names]
    return rare(one, columns, least, np.ones(one.n_rows, dtype=bool) if counted is None else counted)


@pytest.mark.parametrize("block", [64, 1 << 16])
def test_a_column_against_a_count_of_every_value(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", block)
    random = np.random.default_rng(0)
    for few in (0, 1, 5, 9, 10, 30):
        x = np.full(500, 2.5)
        x[random.choice(500, few, replace=False)] = random.normal(size=few)  # all of them different
        assert found(table(x=x)) == ((("x",), few) if 0 < few < 10 else None)
        every = np.arange(500) % 2 == 0
        here = int((x[every] != 2.5).sum())
        assert found(table(x=x), counted=every) == ((("x",), here) if 0 < here < 10 else None)
    assert found(table(x=random.normal(size=500))) is None
    assert found(table(x=np.where(np.arange(500) < 3, np.nan, 1.0))) is None  # a missing cell is no value


def test_levels() -> None:
    codes = np.repeat([0, 1, 2], [250, 243, 7])
    assert found(table(x=Text(codes, ("a", "b", "c"))), 10, None, "x") == (("x",), 7)
    assert found(table(x=codes), 10, None, "x") == (("x",), 7)


def test_pairs_of_which_three_combinations_occur() -> None:
    ill, worse = np.repeat([1.0, 0.0], [30, 70]), np.repeat([1.0, 0.0], [26, 74])
    assert found(table(ill=ill, worse=worse)) == (("ill", "worse"), 4)
    apart = table(ill=ill, worse=worse[::-1].copy())  # nobody has both: three combinations, each in many rows
    assert found(apart) is None
    all_four = table(ill=ill, worse=np.roll(worse, 29))  # one is ill and worse: it is no combination of the columns
    assert found(all_four) is None
    assert found(table(ill=ill, same=3 - 2 * ill)) is None
    assert found(table(ill=ill, worse=worse), 4) is None
    assert found(table(ill=ill, worse=worse), 0) is None
