"""A column of labels of which some are numbers (0, 1, 2, 3+) is one of categories at all clients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.errors import JobError
from support.refusal import refusal

JOBS: dict[str, Any] = {
    "file": {"job": {"method": "likelihood"}, "model": {"family": "gaussian"}, "data": {"response": "y"}},
    "formula": {"job": {"method": "likelihood"}, "model": {"family": "gaussian", "formula": "y ~ children + x"}},
    "secure": {"job": {"method": "likelihood", "sums": "secure"}, "model": {"family": "gaussian"}, "data": {"response": "y"}},
    "pvi": {"job": {"rounds": 2}, "model": {"family": "gaussian"}, "data": {"response": "y"}},
}
CHILDREN = ("0", "1", "2", "3+")


def dealt(levels: dict[str, int], rows: int = 120) -> dict[str, pd.DataFrame]:
    """Rows of clients, of which each has the first so many numbers of children; a client without a word has numbers."""
    rng, data = np.random.default_rng(1), {}
    for client, many in levels.items():
        codes, x = np.arange(rows) % many, rng.normal(size=rows)
        cells = np.array(CHILDREN)[codes]
        y = x + np.array([0.0, 1.0, 0.5, -1.0])[codes] + rng.normal(size=rows)
        data[client] = pd.DataFrame({"children": cells if many == 4 else codes, "x": x, "y": y})
    return data


def as_text(data: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    return {client: frame.assign(children=frame["children"].astype(str)) for client, frame in data.items()}


@pytest.mark.parametrize("job", JOBS)
def test_numbers_are_levels_where_another_client_has_words(job: str) -> None:
    data = dealt({"a": 4, "b": 3, "c": 4})
    declared = {"children": {"kind": "categorical"}}
    wanted = fedkern.run({**JOBS[job], "data": {**JOBS[job].get("data", {}), "columns": declared}}, data=as_text(data))
    result = fedkern.run(JOBS[job], data=data)
    assert result.digest == wanted.digest
    assert any("3+" in name for name in result.summary["parameters"])


def test_numbers_alone_are_numbers() -> None:
    result = fedkern.run(JOBS["file"], data=dealt({"a": 3, "b": 3}))
    assert "theta[children]" in result.summary["parameters"]


def test_a_mistake_among_many_numbers_is_a_fault() -> None:
    data = dealt({"a": 3, "b": 3})
    ages = np.arange(120) % 60
    data = {client: frame.assign(children=ages) for client, frame in data.items()}
    data["b"] = data["b"].astype({"children": str})
    data["b"].loc[7, "children"] = "12a"
    with refusal(JobError, "b", "8", "children", "12a"):
        fedkern.run(JOBS["file"], data=data)


def test_many_numbers_are_no_levels() -> None:
    data = dealt({"a": 4, "b": 3})
    data["b"] = data["b"].assign(children=np.arange(120) % 40)
    with refusal(JobError, "b", "1"):
        fedkern.run(JOBS["file"], data=data)
    data["b"] = data["b"].assign(children=np.where(np.arange(120) < 2, 7, np.arange(120) % 3))
    with refusal(JobError, "b", "children", "50", "3"):
        fedkern.run({**JOBS["file"], "disclosure": {"level": "standard"}}, data=data)


def test_words_and_codes_are_not_one_column() -> None:
    data = dealt({"a": 3, "b": 3})
    data["a"] = data["a"].assign(children=np.array(["none", "one", "two"])[data["a"]["children"]])
    with pytest.raises(JobError, match="is numeric, at client 'a' it is categorical"):
        fedkern.run(JOBS["file"], data=data)
