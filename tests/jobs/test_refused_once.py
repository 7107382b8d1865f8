"""All faults of a client's file come at the first try, in one list for its holder."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.errors import JobError
from support.refusal import refusal

JOB: Any = {
    "job": {"method": "likelihood"},
    "model": {"family": "bernoulli", "missing": "error"},
    "data": {"response": "y"},
    "disclosure": {"level": "standard", "rare": "refuse"},
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


# Federations whose first refusal is not the whole of it: a response with a rare level, few of whose rows are of any other; events
# that are few beside coefficients and by themselves; rows that an exposure weighs unequally; a level of one row, which is nearly
# alone in all that is asked; a level that joins, beside a 0/1 column; and groups of two rows.


def few_of_a_level(rng: np.random.Generator) -> tuple[pd.DataFrame, dict[str, Any]]:
    x, word = rng.normal(size=40), np.repeat(["no", "yes", "undecided", "never"], [18, 14, 6, 2])
    return pd.DataFrame({"x": x, "z": rng.choice(["a", "b", "c"], 40), "y": word}), {
        "family": "multinomial",
        "formula": "y ~ x + z",
    }


def few_events(rng: np.random.Generator) -> tuple[pd.DataFrame, dict[str, Any]]:
    died = np.arange(30) < 6
    frame = pd.DataFrame({"t": rng.exponential(size=30), "d": rng.permutation(died) * 1, "x": rng.normal(size=30)})
    return frame.assign(u=rng.normal(size=30)), {"family": "cox", "formula": "Surv(t, d) ~ x + u"}


def exposed(rng: np.random.Generator) -> tuple[pd.DataFrame, dict[str, Any]]:
    years = np.exp(rng.normal(size=16))
    frame = pd.DataFrame({"years": years, "x": rng.normal(size=16), "y": rng.poisson(40 * years)})
    return frame, {"family": "poisson", "formula": "y ~ x + offset(log(years))"}


def one_of_a_level(rng: np.random.Generator) -> tuple[pd.DataFrame, dict[str, Any]]:
    frame = pd.DataFrame({"z": np.repeat(["a", "b", "c"], [70, 49, 1]), "x": rng.normal(size=120)})
    return frame.assign(y=rng.gamma(9, np.exp(0.2 * frame["x"]))), {"family": "gamma", "formula": "y ~ x + z"}


def both(rng: np.random.Generator) -> tuple[pd.DataFrame, dict[str, Any]]:
    frame = pd.DataFrame({"z": np.repeat(list("abcde"), [50, 40, 35, 3, 2]), "one": rng.permutation(np.arange(130) < 3) * 1})
    return frame.assign(x=rng.normal(size=130), y=rng.integers(0, 2, 130)), {"family": "bernoulli", "formula": "y ~ x + z + one"}


def pairs(rng: np.random.Generator) -> tuple[pd.DataFrame, dict[str, Any]]:
    frame = pd.DataFrame({"ward": np.repeat([f"w{k}" for k in range(20)], [2, *[6] * 19]), "x": rng.normal(size=116)})
    return frame.assign(y=rng.normal(size=116)), {"family": "gaussian", "formula": "y ~ x + (1 | ward)"}


LOWER = re.compile(r"(lower|raise) disclosure\.(\w+) to ([\d.]*\d)")


def done(job: dict[str, dict[str, Any]], text: str) -> dict[str, dict[str, Any]]:
    """The job with what each line of a refusal proposes: levels that join, or else a number."""
    asked = dict(job["disclosure"])
    for line in text.splitlines():
        if 'set disclosure.rare = "join"' in line:
            asked["rare"] = "join"
        else:
            for verb, key, number in LOWER.findall(line):
                asked[key] = (min if verb == "lower" else max)(float(number), asked.get(key, float(number)))
    whole = {key: int(value) if key in ("rows", "rows_per_value", "groups") else value for key, value in asked.items()}
    return {**job, "disclosure": whole}


@pytest.mark.parametrize("made", [few_of_a_level, few_events, exposed, one_of_a_level, both, pairs])
def test_what_all_lines_propose_done_at_once_ends_in_an_answer(
    made: Callable[[np.random.Generator], tuple[pd.DataFrame, dict[str, Any]]],
) -> None:
    frames = [made(np.random.default_rng(seed)) for seed in range(3)]
    data, model = {name: frame for name, (frame, _) in zip("abc", frames, strict=True)}, frames[0][1]
    job = {"job": {"method": "likelihood"}, "model": model, "data": {}, "disclosure": {"level": "standard", "rare": "refuse"}}
    with pytest.raises(JobError) as fault:
        fedkern.run(job, data=data)
    assert fedkern.run(done(job, str(fault.value)), data=data).converged in (True, "approximate")


@pytest.mark.parametrize("seed", [4, 6, 7])
def test_of_few_rows_a_coefficient_questions_ask_for_no_more_than_is_proposed(seed: int) -> None:
    """At a mode that others decide one of sixteen rows of times is nearly alone, and at the fit of its client's rows none is."""
    data = {}
    for k, (name, n) in enumerate((("a", 150), ("b", 150), ("c", 16))):
        rng = np.random.default_rng([seed, k])
        x = {
            "bili": rng.standard_t(3, size=n),
            "age": rng.normal(size=n),
            "alb": rng.normal(size=n),
            "tment": rng.integers(0, 2, n),
        }
        time = rng.exponential(1 / np.exp(1.1 * x["bili"] - 0.5 * x["tment"] + 0.4 * x["age"]))
        data[name] = pd.DataFrame({**x, "t": np.minimum(time, 0.15).round(4) + 0.001, "d": (time < 0.15) * 1})
    model = {"family": "cox", "formula": "Surv(t, d) ~ tment + age + bili + alb"}
    job = {"job": {"method": "likelihood"}, "model": model, "data": {}, "disclosure": {"level": "standard"}}
    with pytest.raises(
        JobError, match=r"lower disclosure.rows_per_coefficient to \S+ and raise disclosure.leverage to 1"
    ) as fault:
        fedkern.run(job, data=data)
    assert fedkern.run(done(job, str(fault.value)), data=data).converged is True


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, frame in (("a", rows(1)), ("b", faulty())):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    job = tmp_path / "job.toml"
    job.write_text(
        '[job]\nmethod = "likelihood"\n[data]\nclients = ["?.csv"]\nresponse = "y"\n'
        '[model]\nmissing = "error"\nfamily = "bernoulli"\n[disclosure]\nlevel = "standard"\nrare = "refuse"\n'
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
        with refusal(JobError, "8", "y", "nan", "drop"):
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
