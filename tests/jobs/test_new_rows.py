"""New rows that are far from all rows of a job are told of, by what its result has of the columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.cli.__main__ import main
from fedkern.errors import JobError
from fedkern.jobs import new_rows
from fedkern.models.encoding import Column, Encoding
from support import few

pd = pytest.importorskip("pandas")


def frame(seed: int, n: int = 80) -> Any:
    random = np.random.default_rng(seed)
    made = {"age": random.normal(60, 9, n).round(), "sex": random.choice(["F", "M"], n), "rare": (np.arange(n) < 2) * 1.0}
    return pd.DataFrame({**made, "y": random.integers(0, 2, n)})


def rows(**cells: Any) -> Any:
    return pd.DataFrame({"age": [60.0, 61.0], "sex": ["F", "M"], "rare": [0.0, 1.0], **cells})


@pytest.mark.parametrize("method", ["pvi", "likelihood"])
def test_far_rows_are_told_of_and_ordinary_ones_are_not(method: str) -> None:
    job = {"job": {"method": method}, "data": {"response": "y", **few.ANY}, "output": {"draws": 100}}
    result = fedkern.run(job, data={"a": frame(1), "b": frame(2)}, job={"rounds": 5} if method == "pvi" else {})
    assert not [note for note in result.prediction(rows()).notes if "column" in note]
    (note,) = (note for note in result.prediction(rows(age=[60.0, 9999.0])).notes if "column" in note)
    assert note.startswith("column 'age', row 2: more than 10 times the column's scale (")
    assert "from its center (60" in note or "from its center (59" in note
    (note,) = (note for note in result.prediction(rows(rare=[2.0, 1.0])).notes if "column" in note)
    assert note.startswith("column 'rare', row 1: neither 0 nor 1, as all rows of the job are; ")
    with pytest.raises(
        JobError, match="'X' is an unknown level; the levels are F, M; correct the cell, or leave the row"
    ) as caught:
        result.prediction(rows(sex=["F", "X"]))
    assert "data.columns" not in str(caught.value)


def test_ends_are_those_that_the_job_gives_or_none() -> None:
    columns = (
        Column("plain", "numeric", None, 0.0, 1.0),
        Column("ward", "categorical", ("a", "b")),
        Column("dose", "numeric", None, 50.0, 25.0),
        Column("given", "numeric", None, 0.0, 1.0),
    )
    encoding = Encoding(columns=columns, response="y", intercept=True, family="gaussian")
    X = np.array([[1, 1e6, 1, 0, 1.0, -10.0], [1, 0, 0, 1, 1.04, -10.1], [1, 0, 0, 1, -9.9, 0.0]])
    said = {"dose": {"lower": 25.0, "upper": 75.0}, "given": {"center": 0.0, "scale": 1.0, "lower": None}}
    dose, given = new_rows.notes(said, encoding, X)
    assert dose.startswith("column 'dose', rows 2, 3: not between lower = 25 and upper = 75 of the job; ")
    assert given.startswith("column 'given', row 2: more than 10 times")
    assert new_rows.notes(None, encoding, X[:2]) == ()
    many = np.tile(X[1], (9, 1))
    assert "rows 1, 2, 3, 4, 5, .. (9 in all): " in new_rows.notes(said, encoding, many)[0]


def test_a_client_of_a_vertical_job_is_told_of_its_own_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = frame(1).assign(id=[f"p{k}" for k in range(80)])
    parts, server = {"a": whole[["id", "age"]], "b": whole[["id", "rare"]]}, whole[["id", "y"]]
    job = {"job": {"method": "vertical", "rounds": 5}, "data": {"id": "id", "response": "y", **few.ANY}}
    result = fedkern.run(job, data=parts, server=server, out=tmp_path / "out")
    new = pd.DataFrame({"id": ["n1", "n2"], "age": [60.0, 9999.0], "rare": [0.0, 1.0]})
    (note,) = (note for note in result.prediction(new).notes if "column" in note)
    assert note.startswith("client 'a': column 'age', row 2: more than 10 times the column's scale (")
    new[["id", "age"]].to_csv(tmp_path / "new.csv", index=False)

    assert (
        main(["predict", str(tmp_path / "out"), str(tmp_path / "new.csv"), "--client", "a", "--out", str(tmp_path / "a.csv")])
        == 0
    )
    assert note in capsys.readouterr().err


def test_faults_of_new_rows_name_no_key_of_a_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = {"job": {"method": "pvi", "rounds": 2}, "data": {"response": "y", **few.ANY}}
    result = fedkern.run(job, data={"a": frame(1), "b": frame(2)}, out=tmp_path / "out")
    with pytest.raises(JobError, match=r"gone\.csv: no such file; give the path of the rows that are to be predicted"):
        result.prediction(tmp_path / "gone.csv")
    with pytest.raises(JobError, match="new rows need the columns of the job's, with the same names"):
        result.prediction(rows().rename(columns={"age": "Age"}))
    for cells in ({"age": ["60", "old"]}, {"age": ["60", ""]}, {"y": [0, 2]}):
        with pytest.raises(JobError, match=r"correct|fill in") as caught:
            result.prediction(rows(**cells))
        assert "[data" not in str(caught.value)
    rows().to_csv(tmp_path / "new.csv", index=False)
    assert main(["predict", str(tmp_path / "out" / "client-a"), str(tmp_path / "new.csv")]) == 2
    assert "is the own folder of client 'a', from which only likelihood and sigma predict" in capsys.readouterr().err
