"""A job whose rows are all in this process needs no `data.levels`: labels that have an order of their own are in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.errors import JobError


def rows(labels: list[Any], seed: int, n: int = 120) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    return pd.DataFrame({"x": random.normal(size=n), "y": random.choice(np.array(labels, dtype=object), n)})


def job(family: str, **data: Any) -> dict[str, Any]:
    return {"job": {"method": "likelihood"}, "model": {"family": family, "formula": "y ~ x"}, "data": data}


def levels(family: str, data: dict[str, pd.DataFrame], **keys: Any) -> Any:
    return fedkern.run(job(family, **keys), data=data).job["data"]["levels"]


def test_labels_are_sorted_and_numbers_stand_in_their_order() -> None:
    words = {"a": rows(["wait", "no", "yes"], 1), "b": rows(["yes", "no"], 2)}
    assert levels("multinomial", words) == ["no", "wait", "yes"]
    assert levels("multinomial", words, levels=["yes", "no", "wait"]) == ["yes", "no", "wait"]
    scores = {"a": rows([2, 10, 1], 1), "b": rows([2, 3], 2)}
    assert levels("ordinal", scores) == ["1", "2", "3", "10"]


def test_categories_that_have_an_order_keep_it_and_words_have_none() -> None:
    data = {"a": rows(["none", "mild", "severe"], 1), "b": rows(["none", "mild", "severe"], 2)}
    with pytest.raises(JobError, match=r"data\.levels is missing: .* in their order, the lowest first"):
        levels("ordinal", data)
    grades = pd.CategoricalDtype(["none", "mild", "severe"], ordered=True)
    ordered = {name: frame.astype({"y": grades}) for name, frame in data.items()}
    assert levels("ordinal", ordered) == ["none", "mild", "severe"]
    ordered["b"] = ordered["b"].assign(y=ordered["b"]["y"].cat.reorder_categories(["severe", "mild", "none"]))
    with pytest.raises(JobError, match=r"data\.levels is missing"):
        levels("ordinal", ordered)
