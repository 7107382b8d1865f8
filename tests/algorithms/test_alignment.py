"""The alignment of rows: what a client takes of the server's answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fedkern.algorithms.core.messages import RemoteFault
from fedkern.algorithms.exchanges import rows as a

IDS = ("p1", "p2", "p3")
GOOD: dict[str, Any] = {"alone": "", "without": "", "holder": None, "new": []}


def told(**changes: Any) -> a.Client:
    content = {name: value for name, value in (GOOD | changes).items() if value is not ...}
    return a.client_receive(a.Client("c", IDS, 7), a.Aligned(0, 0, 1, json.dumps(content).encode()))[0]


def test_a_good_answer_is_taken() -> None:
    assert told(holder=1, new=[0, 2]).new == (0, 2)


BAD: dict[str, dict[str, Any]] = {
    "a field less": {"holder": ...},
    "a field more": {"rows": 3},
    "alone": {"alone": 3},
    "cut digest": {"alone": a.digests(IDS, 7)[0][:-1]},
    "digest of another": {"alone": a.digests(["p9"], 7)[0]},
    "without": {"without": ["b"]},
    "holder": {"holder": "b"},
    "holder true": {"holder": True},
    "holder below": {"holder": -1},
    "new": {"new": 1},
    "new text": {"new": ["0"]},
    "new true": {"new": [True]},
    "new beyond": {"new": [3]},
    "new twice": {"new": [1, 1]},
    "new unsorted": {"new": [2, 0]},
}


@pytest.mark.parametrize("bad", BAD)
def test_an_answer_that_cannot_be_is_refused(bad: str) -> None:
    with pytest.raises(RemoteFault, match="server: Aligned"):
        told(**BAD[bad])
