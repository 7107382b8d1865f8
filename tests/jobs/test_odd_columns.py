"""Columns of lists, complex numbers, lengths of time or other odd things end no job that does not name them."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.errors import JobError

N = 60
ODD: dict[str, Any] = {
    "list": [[1, 2]] * N,
    "array": [np.ones(3)] * N,
    "dict": [{"a": 1}] * N,
    "complex": np.ones(N) * 1j,
    "length": pd.to_timedelta(np.arange(N), "D"),
    "object": [datetime.timedelta(days=1)] * N,
    "period": pd.period_range("2020-01", periods=N, freq="M"),
}


def rows(**more: Any) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    x = rng.normal(size=N)
    return pd.DataFrame({"x": x, "y": x + rng.normal(size=N)}).assign(**more)


def ran(frame: Any, formula: str | None, **data: Any) -> fedkern.Result:
    model = {"family": "gaussian", **({"formula": formula} if formula else {})}
    about = {} if formula else {"response": "y", **data}
    halves = {name: frame.iloc[k::2] for k, name in enumerate("ab")} if isinstance(frame, pd.DataFrame) else {"a": frame}
    return fedkern.run({"job": {"method": "likelihood"}, "data": about, "model": model}, data=halves)


def test_columns_that_no_job_names_do_not_matter() -> None:
    plain = ran(rows(), "y ~ x")
    found = ran(rows(**ODD), "y ~ x")
    assert found.parameters == plain.parameters
    assert ran(rows(**ODD), None, ignore=[*ODD]).parameters == ran(rows(), None).parameters
    assert len(found.predict(rows(**ODD))) == N
    held = {name: list(cells) for name, cells in rows().items()} | {"complex": ODD["complex"], "list": ODD["list"]}
    assert ran({name: np.array(cells) for name, cells in held.items()}, "y ~ x").parameters


@pytest.mark.parametrize("name", ODD)
def test_one_that_is_named_is_refused_with_the_remedy(name: str) -> None:
    frame = rows(**{name: ODD[name]})
    for formula in (f"y ~ x + {name}", None):
        with pytest.raises(JobError, match=f"column '{name}'.*leave (it|others) out"):
            ran(frame, formula)
