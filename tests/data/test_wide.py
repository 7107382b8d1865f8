"""Tables of very many columns: names are looked up, never searched for one after the other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedkern.algorithms.core.kept import PersistentMap
from fedkern.algorithms.exchanges import columns as agreement
from fedkern.algorithms.exchanges.columns import Summary
from fedkern.data import incomplete, table
from fedkern.data.cells import Text
from fedkern.data.design import check_header, describe, encode
from fedkern.data.table import Table
from fedkern.errors import JobError, OwnFault
from fedkern.jobs.secret import fingerprint
from fedkern.models.encoding import Column, Spec

WIDE = 600
SPEC = Spec("y", standardise="none")
PRIVATE = replace(SPEC, private=True, columns={f"x{j}": Column(f"x{j}") for j in range(WIDE)})


class Name(str):
    """A text that counts how often it is compared with others."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        Name.compared += 1
        return str.__ne__(self, other)

    __hash__ = str.__hash__


def names() -> tuple[str, ...]:
    return (*(Name(f"x{j}") for j in range(WIDE)), Name("y"))


def held(kind: str) -> Table:
    """A table of numbers as columns, or as a matrix, or of texts."""
    there = names()
    X = np.random.default_rng(1).normal(size=(8, WIDE))
    if kind == "texts":
        cells: list[Any] = [Text(np.arange(8, dtype=np.int32) % 2, ("a", "b")) for _ in range(WIDE)]
    else:
        cells = list(X.T)
    columns = dict(zip(there, [*cells, np.arange(8.0) % 2]))
    matrix = {"matrix": X, "matrix_names": there[:-1]} if kind == "matrix" else {}
    return Table("wide.csv", there, columns, 8, **matrix)


@pytest.fixture(autouse=True)
def from_here() -> None:
    Name.compared = 0


def few() -> bool:
    """Some comparisons a name: of a dictionary's keys, and of tuples as a whole."""
    return Name.compared < 40 * WIDE


def test_names_of_a_header() -> None:
    assert len(table._checked_names(Path("wide.csv"), names())) == WIDE + 1
    assert few()
    with pytest.raises(OwnFault, match="two columns have one name"):
        table._checked_names(Path("wide.csv"), (*names(), "x5"))


@pytest.mark.parametrize("spec", [SPEC, PRIVATE], ids=["open", "private"])
def test_a_header_against_the_job(spec: Spec) -> None:
    check_header(names(), spec, "wide.csv")
    assert few()
    with pytest.raises(OwnFault, match="column 'y' is missing" if spec is SPEC else "not what"):
        check_header(names()[:-1], spec, "wide.csv")


@pytest.mark.parametrize("kind", ["columns", "matrix", "texts"])
@pytest.mark.parametrize("standardise", ["none", "exchange"])
def test_a_table_that_is_described_encoded_and_bound(kind: str, standardise: Any) -> None:
    spec, rows = replace(SPEC, standardise=standardise), held(kind)
    summary = describe(rows, spec)
    made = spec.encoding(
        tuple(
            Column(name, kind, ("a", "b")) if kind == "categorical" else Column(name, kind, None, 0.0, 1.0)
            for name, kind in zip(summary.names, summary.kinds)
        )
    )
    assert encode(rows, made).X.shape == (8, 1 + WIDE * (2 if kind == "texts" else 1))
    without = fingerprint(rows, b"key", [*names()[:5]])
    assert (without == fingerprint(rows, b"key")) == (kind == "matrix")  # which is one whole
    assert few()


def test_columns_that_are_marked_where_they_are_empty() -> None:
    assert len(incomplete.with_marks(names(), dict.fromkeys(names(), 0.0))) == 2 * (WIDE + 1)
    assert few()


@pytest.mark.parametrize("fault", [None, "missing", "more", "order", "kind"])
def test_the_columns_of_all_clients(fault: str | None) -> None:
    """Those of most clients are the ones that all must have."""
    kinds: dict[str, Any] = dict.fromkeys(names()[:-1], "numeric")
    clients = [Summary(tuple(map(Name, kinds)), tuple(kinds.values())) for _ in range(5)]
    other = list(kinds)
    if fault == "missing":
        other.remove("x7")
    elif fault == "more":
        other.append("z")
    elif fault == "order":
        other[3:5] = other[4:2:-1]
    clients[2] = Summary(tuple(other), tuple("categorical" if fault == "kind" and name == "x9" else "numeric" for name in other))
    state, questions = agreement.start(SPEC, tuple("abcde"))
    begun = [agreement.Client(SPEC, summary) for summary in clients]

    def play() -> agreement.Server:
        now, flying = state, list(questions)
        while flying:
            k, question = flying.pop(0)
            begun[k], answers = agreement.client_receive(begun[k], question)
            for answer in answers:
                now, more = agreement.PROTOCOL.server_receive(now, k, answer)
                flying += more
        return now

    if fault in (None, "order"):
        assert len(play().columns) == WIDE
        return
    says = {
        "missing": "covariate no. 8 of client 'a' is missing",
        "more": "covariate no. 601 is not at client 'a'",
        "kind": "covariate no. 10 is categorical, at client 'a' it is numeric",
    }
    with pytest.raises(JobError, match=f"client 'c': {says[fault]}"):
        play()
    told = [{"names": tuple(map(Name, summary.names)), "kinds": summary.kinds} for summary in clients]
    Name.compared = 0
    with pytest.raises(JobError, match=f"client 'c': {says[fault]}"):
        agreement._check_columns(replace(state, replies=PersistentMap(enumerate(told))))
    assert few()
