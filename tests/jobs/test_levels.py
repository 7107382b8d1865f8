"""Levels of disclosure control: none in one process, standard, strict; of a job and of a holder the stricter one."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.data.table import Table
from fedkern.disclosure import look
from fedkern.disclosure.few import find_few
from fedkern.disclosure.rules import LEVELS, Rules, of_old_keys, with_keys
from fedkern.errors import FedkernError, HolderError, JobError
from fedkern.jobs import admitted
from fedkern.jobs.holding import policy
from fedkern.methods import parse as checked
from fedkern.models.encoding import Spec
from support.command import mpirun
from support.refusal import refusal

STANDARD, STRICT = LEVELS["standard"], LEVELS["strict"]
JOB: dict[str, Any] = {"job": {"method": "likelihood"}, "model": {"family": "bernoulli"}, "data": {"response": "y"}}


def parse(tables: dict[str, Any]) -> Any:
    return checked({**tables, "data": {"clients": ["a.csv"], **tables["data"]}})


def people(n: int, seed: int, **columns: Any) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    return pd.DataFrame({"x": random.normal(size=n), "y": random.integers(0, 2, n), **columns})


def refused(job: dict[str, Any], **tables: pd.DataFrame) -> str:
    with pytest.raises(FedkernError) as caught:
        fedkern.run(job, data={"a": people(200, 0), **tables})
    return str(caught.value)


def at(level: str, **keys: Any) -> dict[str, Any]:
    return {**JOB, "disclosure": {"level": level, **keys}}


def test_of_each_rule_the_next_level_asks_for_more() -> None:
    for less, more in itertools.pairwise([LEVELS["none"], STANDARD, STRICT]):
        assert more.with_strictest(less) == more != less


def test_rows_in_one_process_are_taken_and_the_record_says_who_would_be_refused() -> None:
    small = people(7, 1, ward=["a"] * 6 + ["b"])
    data = {"a": people(200, 0, ward=["a", "b"] * 100), "b": small}
    result = fedkern.run(JOB, data=data)
    said = result.summary["disclosure"]
    assert said["level"] == "none"
    assert [*said["apart"]] == ["b"]
    assert said["apart"]["b"] == "rows = 7, rows_per_coefficient = 1.7, rows_per_value = 1"
    with pytest.raises(JobError, match="7 rows that count"):
        fedkern.check(JOB, data=data, apart=True)
    assert "level    none: all rows are in this process" in "\n".join(fedkern.check(JOB, data=data))


def test_a_job_in_one_process_that_names_a_level_has_it() -> None:
    assert "7 rows that count; 20 are asked for" in refused(at("standard"), b=people(7, 1))  # of one column
    assert "7 rows that count; 10 are asked for" in refused(
        at("standard"), b=people(7, 1, z=range(7)), a=people(90, 1, z=range(90))
    )
    assert "15 rows that count; 20 are asked for" in refused(at("strict"), b=people(15, 1))
    assert fedkern.run(at("standard"), data={"a": people(200, 0), "b": people(60, 1)}).summary["disclosure"] == {
        "level": "standard"
    }


def test_none_is_refused_where_parties_are_apart(tmp_path: Path) -> None:
    for name, n in (("a", 60), ("b", 7)):
        people(n, n).to_csv(tmp_path / f"{name}.csv", index=False)
    job = '[job]\nmethod = "likelihood"\n[data]\nclients = ["a.csv", "b.csv"]\nresponse = "y"\n'
    (tmp_path / "job.toml").write_text(job)
    ended = mpirun(3, "run", tmp_path / "job.toml", "--out", tmp_path / "run")
    assert ended.code == 2
    assert "client 'b': refused by a disclosure rule" in ended.err
    (tmp_path / "job.toml").write_text(job + '[disclosure]\nlevel = "none"\n')
    ended = mpirun(3, "run", tmp_path / "job.toml", "--out", tmp_path / "run")
    assert ended.code == 2
    assert 'disclosure.level = "none" is for jobs whose rows are all in one process' in ended.err


def test_a_policy_binds_in_one_process_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home" / ".fedkern"
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    data = {"a": people(200, 0), "b": people(51, 1)}
    (home / "policy.toml").write_text("open = true\n[data.b]\n")
    with refusal(JobError, "disclosure.level", "none"):
        fedkern.run(at("none"), data=data)
    assert fedkern.run(JOB, data=data).summary["disclosure"] == {"level": "standard"}
    (home / "policy.toml").write_text("open = true\n[data.b]\n[data.b.disclosure]\nrows = 60\n")
    assert "60 are asked for" in refused(JOB, b=data["b"])
    # As the fit weighs them the 51 rows count as 50.97, and so would questions be refused.
    assert "lower rows in [disclosure] of its policy to 50" in refused(JOB, b=data["b"])
    (home / "policy.toml").write_text('open = true\n[disclosure]\nlevel = "strict"\nlower = false\n[data.b]\n')
    assert "19 rows that count; 20 are asked for" in refused(JOB, b=people(19, 1))
    with pytest.raises(HolderError, match="numbers of \\[disclosure\\] lower what a client must have"):
        fedkern.run(at("standard", rows=5), data=data)


OLD = [
    {"least_rows": 50},
    {"least_rows": 5},
    {"least_rows": 20, "lower": False},
    {"least_groups": 12},
    {"least_groups": 3},
    {"least_rows": 100, "least_groups": 30},
    {"lower": False},
    {"least_rows": 19},
    {"least_rows": 21},
    {"least_rows": 1000},
]


@pytest.mark.parametrize("old", OLD, ids=str)
@pytest.mark.parametrize("job", [{}, {"disclosure": {"level": "strict"}}], ids=["default", "strict"])
def test_an_old_policy_refuses_at_least_all_that_it_refused(old: dict[str, Any], job: dict[str, Any], tmp_path: Path) -> None:
    """At the default of old jobs: 20 rows, half of them for a value, 5 groups, or more by the policy."""
    lines = "\n".join(f"{key} = {str(value).lower()}" for key, value in old.items())
    (tmp_path / "policy.toml").write_text(f"open = true\n[disclosure]\n{lines}\n[data.b]\n")
    (held,) = policy.read_policies(tmp_path / "policy.toml").policies
    rules = parse({**JOB, **job}).requirement.bound_by(held.rules).rules
    least = max(20, old.get("least_rows", 0))
    before = STRICT._replace(rows=least, rows_per_value=least // 2, groups=max(5, old.get("least_groups", 0)))
    assert rules.with_strictest(before._replace(rows_of_one_column=least)) == rules


def test_old_keys_of_jobs_are_taken_and_named() -> None:
    config = parse({**JOB, "data": {"response": "y", "least_rows": 1, "small": "leave-out"}})
    assert config.rules == Rules(rows=1, rows_of_one_column=1, groups=5, slopes=50, sloped_groups=60, search=True)
    (line,) = admitted.renamed(config)
    job = {**JOB, "data": {"response": "y", "least_rows": 1}}
    assert "data.least_rows: the table [disclosure] has these now" in fedkern.run(job, data={"a": people(60, 0)}).notes[0]
    assert line.startswith("data.least_rows, data.small: the table [disclosure] has these now (")
    assert 'small = "leave-out"' in line
    assert with_keys(STRICT, of_old_keys({"least_rows": 20})) == STRICT._replace(groups=10)


@pytest.mark.parametrize(
    "key", ["level", "rows", "rows_per_coefficient", "rows_per_value", "groups", "combinations", "leverage", "small"]
)
def test_a_private_job_counts_nobody(key: str) -> None:
    value: Any = {"level": "strict", "small": "refuse", "leverage": 0.5}.get(key, 3)
    private = {
        "data": {"response": "y", "columns": {"x": {"center": 0, "scale": 1}}},
        "privacy": {"epsilon": 8.0, "delta": 1e-3, "clip": 2.5, "noise_multiplier": 3.0, "sampling_rate": 0.2},
        "algorithm": {"local_steps": 2},
    }
    assert parse(private).rules == Rules()
    with pytest.raises(JobError, match=f"disclosure.{key} is of jobs without noise"):
        parse({**private, "disclosure": {key: value}})


def test_all_rules_that_rows_break_are_said_at_once() -> None:
    n = 9
    b = people(n, 3, ward=["a"] * 8 + ["b"]).assign(y=[1] + [0] * 8)
    said = refused(at("standard"), a=people(200, 0, ward=["a", "b"] * 100), b=b)
    for found in (
        "9 rows that count; 10 are asked for",
        "more than 54 rows are asked for",
        "rows that values of 'ward' have to themselves: 1",
        "lower disclosure.rows to 9",
        "lower disclosure.rows_per_coefficient to",
        "lower disclosure.rows_per_value to 1",
    ):
        assert found in said
    keys = {
        key: float(number) if "coefficient" in key else int(number)
        for key, number in re.findall(r"disclosure.(\w+) to ([\d.]+)", said)
    }
    assert fedkern.run(at("standard", **keys), data={"a": people(200, 0, ward=["a", "b"] * 100), "b": b})


NOBODY = pd.DataFrame({"x": np.zeros(0), "y": np.zeros(0)})
ONE, ALIKE = people(1, 1), pd.concat([people(1, 1)] * 200, ignore_index=True)
WEIGHTLESS, ONE_WEIGHS = people(200, 1, w=0.0), people(200, 1, w=[1.0] + [0.0] * 199)


@pytest.mark.parametrize(
    ("rows", "rules"),
    [
        (NOBODY, {"few-rows"}),
        (ONE, {"few-rows", "few-rows-for-coefficients", "rare-values"}),
        (ALIKE, set()),  # nothing singles out a row that is as all others
        (WEIGHTLESS, {"few-rows"}),
        (ONE_WEIGHS, {"few-rows", "few-rows-for-coefficients", "rare-values", "rows-by-fit"}),
    ],
    ids=["none", "one", "alike", "weights of 0", "one with a weight"],
)
def test_rows_that_are_hardly_any(rows: pd.DataFrame, rules: set[str]) -> None:
    job = at("standard")
    if "w" in rows:
        job |= {"job": {"method": "pvi"}, "data": {**job["data"], "weight": "w"}}
    table = Table("b.csv", tuple(rows), {name: rows[name].to_numpy(np.float64) for name in rows}, len(rows))
    spec = Spec("y", weight=job["data"].get("weight"), family="bernoulli")
    found = find_few(parse(job).requirement, table, spec, "b")
    broken = () if found is None else found.broken
    assert {one.id for one in broken} == rules


@pytest.mark.parametrize(
    ("family", "beside", "keys", "least"),
    [
        ("bernoulli", {}, {}, 3),
        ("poisson", {}, {}, 3),
        ("bernoulli", {}, {"rows_per_value": 4}, 4),
        ("bernoulli", {"z": np.random.default_rng(1).normal(size=400)}, {}, 5),
        ("negative-binomial", {}, {}, 5),
    ],
)
def test_rows_without_measurements_are_asked_for_by_their_counts(family: str, beside: Any, keys: Any, least: int) -> None:
    """Of sums over rows of 0 and 1 it is known how many rows have which; a measurement, or a number of the family, tells more."""
    job = {**JOB, "model": {"family": family}, "disclosure": {"level": "standard", **keys}}
    for rows in (least - 1, least):
        ill, y = np.arange(400) < rows, np.arange(400) % 2
        columns = {name: np.asarray(cells, float) for name, cells in {"ill": ill, **beside, "y": y}.items()}
        found = find_few(parse(job).requirement, Table("b.csv", tuple(columns), columns, 400), Spec("y", family=family), "b")
        assert {one.id for one in (found.broken if found else ())} == ({"rare-values"} if rows < least else set())


def test_a_row_far_from_all_others_is_refused_by_its_leverage() -> None:
    far = people(100, 1)
    far.loc[17, "x"] = 400.0
    said = refused(at("standard"), b=far)
    assert re.search(r"row 18 has leverage (?:0.99|1.00) .*its cell of 'x' is farthest from the others: 400", said)
    assert "raise disclosure.leverage to 1" in said
    assert fedkern.run(at("standard", leverage=1.0), data={"a": people(200, 0), "b": far})


@pytest.mark.parametrize("seed", range(6))
def test_no_more_leverage_is_proposed_than_a_row_can_have(seed: int) -> None:
    """A row that is alone has 1 and, of six of these, some a last digit more."""
    rng = np.random.default_rng(seed)
    data = {}
    for client in ("a", "b"):
        x, z = rng.normal(size=80).round(3), rng.normal(size=80)
        if client == "a":
            x[3] = 1e9 * (1 + seed)
        data[client] = {"x": x, "z": z, "y": z + rng.normal(size=80)}
    with pytest.raises(FedkernError) as error:
        fedkern.fit("y ~ x + z", data, disclosure={"level": "standard"})
    assert "disclosure.leverage" in str(error.value)
    assert not re.search(r"disclosure.leverage to 1\.\d", str(error.value))


def test_strict_alone_searches_for_sums_of_columns() -> None:
    """Given less planned is 0 in all rows but one."""
    planned = np.random.default_rng(5).normal(size=200)
    given = planned + np.where(np.arange(200) == 7, 2.0, 0.0)
    data = {"b": people(200, 1, planned=planned, given=given), "a": people(200, 0, planned=planned, given=planned * 1.1)}
    assert "'planned' and 'given'" in refused(at("strict"), **data) or "'given' and 'planned'" in refused(at("strict"), **data)


def test_a_lowered_number_is_said_first() -> None:
    text = admitted.lowered(parse(at("standard", rows=7, rows_per_coefficient=1)))
    assert text is not None
    assert "disclosure.rows, disclosure.rows_per_coefficient" in text
    assert admitted.lowered(parse(at("strict"))) is None
    assert admitted.lowered(parse(at("standard", rows=50))) is None
    assert admitted.lowered(parse({**JOB, "model": {"family": "gaussian"}, "disclosure": {"rows_per_coefficient": 3}})) is None


def test_a_client_with_few_rows_a_coefficient_takes_part_by_a_summary() -> None:
    """Three hospitals of 49, 106 and 216 patients, four covariates: at "standard" the first is no refusal."""
    random = np.random.default_rng(0)
    X = pd.DataFrame(random.normal(size=(371, 3)), columns=list("xyz")).assign(sex=random.choice(["f", "m"], 371))
    X["died"] = (random.random(371) < 1 / (1 + np.exp(1 - 0.8 * X.x + 0.5 * (X.sex == "m")))).astype(int)
    data = {"a": X[:49], "b": X[49:155], "c": X[155:]}
    job = {**JOB, "data": {"response": "died"}}
    whole, small = (fedkern.run({**job, "disclosure": {"level": level}}, data=data) for level in ("none", "standard"))
    assert small.summary["summaries"]["clients"] == {"a": {"rows": 49}}
    assert small.converged is True
    assert whole.summary["disclosure"]["apart"] == {}
    for name in ("theta[x]", "theta[y]", "theta[z]"):
        one, two = (run.summary["parameters"][name] for run in (whole, small))
        assert abs(one["mean"] - two["mean"]) < 0.1 * one["sd"]
        assert two["sd"] == pytest.approx(one["sd"], rel=0.05)
    with refusal(JobError, "a", "90"):
        fedkern.run({**job, "disclosure": {"level": "strict"}}, data=data)
    with refusal(JobError, "a", "60"):
        fedkern.run({**job, "data": {"response": "died"}, "disclosure": {"level": "standard"}}, data={**data, "a": X[:14]})


def test_where_all_rows_are_in_one_process_no_sums_of_columns_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what the fit makes of rows is looked at with one standardised design of each client."""
    made = list[int]()

    def counted(*given: Any) -> Any:
        made.append(1)
        return standardised(*given)

    standardised = look.standardised
    monkeypatch.setattr(look, "standardised", counted)
    monkeypatch.setattr("fedkern.data.rare.search_directions", lambda *given: pytest.fail("searched"))
    tables = {name: people(200, seed, z=np.arange(200) % 7) for seed, name in enumerate("abc")}
    assert fedkern.run(JOB, data=tables).summary["converged"]
    assert len(made) == len(tables)


# Numbers of few values --------------------


@pytest.mark.parametrize(
    ("score", "ill", "taken"),
    [
        (np.arange(60) % 4 * 1.0, 3, True),  # of five values, each in many rows
        (np.arange(60) % 4 * 1.0, 2, False),
        (np.arange(60) * 1.0, 3, False),  # a measurement
        (np.where(np.arange(60) < 2, 9.0, np.arange(60) % 4), 3, False),  # one value in two rows
    ],
)
def test_numbers_of_few_values_count_as_levels_do(score: np.ndarray, ill: int, taken: bool) -> None:
    """What is sent of them is what is sent where each value is a level, at fewer points: how often each combination occurs."""
    y = np.arange(60) // 4 % 2 * 1.0
    table = Table("a.csv", ("score", "ill", "y"), {"score": score, "ill": (np.arange(60) >= 60 - ill) * 1.0, "y": y}, 60)
    requirement = parse({**JOB, "disclosure": {"level": "standard"}}).requirement
    found = find_few(requirement, table, Spec("y"), "a")
    assert (found is None) == taken
    assert found is None or "rare-values" in [rule.id for rule in found.broken]


def test_a_value_in_three_rows_takes_part_by_a_summary() -> None:
    n = 100
    for rows, numbers in ((2, False), (3, True), (4, True)):
        data = people(n, 0, ill=(np.arange(n) < rows) * 1.0)
        columns = {name: data[name].to_numpy(float) for name in ("x", "ill", "y")}
        found = find_few(parse(at("standard")).requirement, Table("a.csv", ("x", "ill", "y"), columns, n), Spec("y"), "a")
        assert found is not None
        assert bool(found.by_summary) == numbers


def test_a_label_may_be_a_number() -> None:
    assert parse({**JOB, "data": {"response": "y", "positive": 2}}).data.positive == "2"
    assert parse({**JOB, "data": {"response": "y", "positive": 2.5}}).data.positive == "2.5"
    with pytest.raises(JobError, match=r"data\.positive = true: wanted a text"):
        parse({**JOB, "data": {"response": "y", "positive": True}})
