"""All faults of a client's file come at the first try, in one list for its holder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.errors import JobError

JOB: Any = {
    "job": {"method": "likelihood"},
    "model": {"family": "bernoulli", "missing": "error"},
    "data": {"response": "y"},
    "disclosure": {"level": "standard"},
}


def rows(seed: int, n: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"age": rng.normal(60, 9, n).round(1), "site": rng.choice(["lung", "skin"], n), "dose": rng.normal(size=n)}
    )
    return frame.assign(y=np.where(rng.random(n) < 0.5, "dead", "alive"))


def faulty() -> pd.DataFrame:
    """Rows with a missing cell, a typing error, a response that is missing, a rare level, and a dose that few rows have."""
    frame = rows(2).astype({"age": str})
    frame.loc[[3, 17], "age"] = None
    frame.loc[5, "age"] = "5o.1"
    frame.loc[[9, 17], "y"] = None
    frame.loc[20, "site"] = "liver"
    return frame.assign(dose=np.where(np.arange(120) == 30, 1.0, 0.0))


SAID = (
    "row 4, column 'age': '' is missing; fill in the value or remove the row",
    "(2 rows: row 4, row 18)",
    "row 6, column 'age': '5o.1' is not a number",
    "row 10, column 'y': '' is empty; remove the row",
    'model.missing = "drop"',
    "rows that values of 'dose' have to themselves: 1",
    "(the same of 'site' (1 rows))",
    "its cell of 'dose' is farthest from the others: 1",
    "lower disclosure.rows_per_value to 1",
    "raise disclosure.leverage to 1",
)


def test_in_one_process_everything_is_shown_at_once() -> None:
    with pytest.raises(JobError) as fault:
        fedkern.run(JOB, data={"a": rows(1), "b": faulty()})
    for said in SAID:
        assert said in str(fault.value)
    assert "client 'a'" not in str(fault.value)


def test_what_is_advised_is_all_that_is_needed() -> None:
    frame = faulty()
    frame.loc[5, "age"] = "50.1"
    asked = {"level": "standard", "rows_per_value": 1, "leverage": 1.0}
    job = {**JOB, "model": {**JOB["model"], "missing": "drop"}, "disclosure": asked}
    assert fedkern.run(job, data={"a": rows(1), "b": frame}).summary["converged"] is True


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, frame in (("a", rows(1)), ("b", faulty())):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    job = tmp_path / "job.toml"
    job.write_text(
        '[job]\nmethod = "likelihood"\n[data]\nclients = ["?.csv"]\nresponse = "y"\n'
        '[model]\nmissing = "error"\nfamily = "bernoulli"\n[disclosure]\nlevel = "standard"\n'
    )
    return job


def test_the_holder_has_the_whole_list_and_others_no_cell(files: Path, fedkern: Any) -> None:
    ended = fedkern("run", files, "--out", files.parent / "out", "--quiet")
    assert ended.code == 2
    own = (files.parent / "out" / "client-b" / "holder.txt").read_text()
    for said in SAID:
        assert re.sub(r"row (\d+)(?=[,)])", lambda row: f"line {int(row[1]) + 1}", said) in own
    for cell in ("5o.1", "liver", "line 5", "line 7"):
        assert cell not in ended.err
    for told in (
        "column no. 1 is missing",
        "column no. 1 is not a number",
        "column 'y' is empty",
        "client 'b': refused by disclosure.rows_per_value",
        "client 'b': refused by disclosure.leverage",
    ):
        assert told in ended.err
    assert "dose" not in ended.err
    local = fedkern("check", files, "--local", files.parent / "b.csv")
    assert local.code == 2
    for said in (
        "is refused: 4 rows have faults",
        "rows that values of 'dose' have to themselves: 1",
        "(the same of 'site' (1 rows))",
    ):
        assert said in local.out


@pytest.mark.parametrize(("column", "cell"), [("y", None), ("age", np.nan)])
def test_a_missing_cell_names_the_key_in_response_and_covariates_alike(column: str, cell: object) -> None:
    data = {"a": rows(1), "b": rows(2)}
    data["b"].loc[7, column] = cell
    with pytest.raises(JobError, match=rf"row 8, column '{column}'.*\"drop\""):
        fedkern.run(JOB, data=data)
    numbers = {client: frame.assign(y=(frame["y"] == "dead") * 1.0) for client, frame in data.items()}
    numbers["b"].loc[7, "y"] = np.nan
    for family in ("bernoulli", "gaussian", "poisson"):
        with pytest.raises(JobError, match=r"row 8, column 'y': 'nan' is missing; .*model.missing = \"drop\""):
            fedkern.run({**JOB, "model": {"family": family, "missing": "error"}}, data=numbers)


def test_all_clients_that_live_here_are_named_at_once_and_each_reads_its_own(files: Path, fedkern: Any) -> None:
    other = rows(1)
    other.loc[11, "dose"] = np.nan
    other.to_csv(files.parent / "a.csv", index=False)
    ended = fedkern("run", files, "--out", files.parent / "out", "--quiet")
    assert ended.code == 2
    assert "client 'a'" in ended.err
    assert "client 'b'" in ended.err
    faults = {name: (files.parent / "out" / f"client-{name}" / "holder.txt").read_text() for name in "ab"}
    assert "line 13, column 'dose'" in faults["a"]
    assert "client 'b'" not in faults["a"]
    assert "'5o.1' is not a number" in faults["b"]
    assert "client 'a'" not in faults["b"]


def test_a_time_that_cannot_be_comes_with_faults_of_other_cells() -> None:
    """What a method asks for beyond columns is looked for in the rows that are left, whose numbers are the file's."""
    rng = np.random.default_rng(4)
    data = {name: rows(seed).assign(time=rng.exponential(size=120), y=rng.integers(0, 2, 120)) for seed, name in enumerate("ab")}
    data["b"].loc[[7, 20], "dose"] = np.nan
    data["b"].loc[[20, 90], "time"] = -1.0
    job = {
        "job": {"method": "likelihood"},
        "model": {"family": "cox", "missing": "error"},
        "data": {"time": "time", "event": "y"},
    }
    with pytest.raises(JobError) as fault:
        fedkern.run(job, data=data)
    assert "row 8, column 'dose'" in str(fault.value)
    assert "row 91, column 'time': '-1' is below 0" in str(fault.value)
