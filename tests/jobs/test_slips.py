"""Slips of the pen in files that fit the model without an error: they are noted, by who can see them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.algorithms.exchanges.compare import Facts, compare, find_twins, of_levels, spellings
from fedkern.cli.__main__ import main
from fedkern.data.far import any_thousandths, coded
from fedkern.errors import JobError
from fedkern.models.encoding import Column
from support import few
from support.found import clients as names_of
from support.found import ids, said
from support.refusal import refusal

OTHER, CODES = "column-of-other-values", {"column-of-other-values", "column-coded-otherwise"}
PVI: dict[str, Any] = {"data": {"response": "y", **few.ANY}}


def frame(seed: int, n: int = 60, **columns: Any) -> Any:
    pd = pytest.importorskip("pandas")
    random = np.random.default_rng(seed)
    made = {"age": random.normal(60, 9, n).round(1), "smoker": random.integers(0, 2, n), "sex": random.choice(["F", "M"], n)}
    return pd.DataFrame({**made, **columns, "y": random.integers(0, 2, n)})


def notes_of(job: dict[str, Any], clients: dict[str, Any], out: Path | None = None) -> str:
    return "\n".join(fedkern.run(job, data=clients, out=out).summary["notes"])


@pytest.mark.parametrize("job", [PVI, {"job": {"method": "likelihood"}, **PVI}])
def test_a_column_that_a_site_codes_otherwise_lets_no_result_stand_and_the_remedy_ends_it(job: dict[str, Any]) -> None:
    clients = {"a": frame(1), "b": frame(2), "c": frame(3).assign(smoker=lambda f: f["smoker"] + 1)}
    wrong = fedkern.run(job, data=clients)
    assert wrong.converged is False
    ((codes, column),) = [(one["codes"], one["column"]) for one in said(wrong, "column-coded-otherwise")]
    assert (column, list(codes)) == ("column 'smoker'", ["0 and 1 at a, b", "1 and 2 at c"])
    columns = {"columns": {"smoker": {"center": 0.0, "scale": 1.0}}}
    meant = fedkern.run({**job, "data": {**job["data"], **columns}}, data=clients)
    assert not ids(meant) & CODES
    assert meant.converged is not False
    clients["c"]["smoker"] -= 1
    right = fedkern.run(job, data=clients)
    assert right.converged is not False
    assert not ids(right) & CODES


def test_a_grade_of_which_few_rows_have_two_is_none() -> None:
    """As ph.ecog of R's lung at hospitals of a handful of patients."""
    clients = {
        "a": frame(1).iloc[:12],
        "b": frame(2).assign(smoker=lambda f: f["smoker"] + 1).iloc[:15],
        "c": frame(3, smoker=np.arange(60) % 3),
    }
    assert said(fedkern.run(PVI, data=clients), OTHER) == []


def test_a_grade_that_some_sites_see_two_of_is_noted() -> None:
    clients = {"a": frame(1), "b": frame(2).assign(smoker=lambda f: f["smoker"] + 1), "c": frame(3, smoker=np.arange(60) % 3)}
    assert [list(one["codes"]) for one in said(fedkern.run(PVI, data=clients), OTHER)] == [["0 and 1 at a", "1 and 2 at b"]]
    small = {"a": frame(1), "b": frame(2), "c": frame(3, 18, smoker=1 + np.arange(18) % 2, sex=np.tile(["F", "F", "M"], 6))}
    assert [list(one["codes"]) for one in said(fedkern.run(PVI, data=small), OTHER)] == [["0 and 1 at a, b", "1 and 2 at c"]]


@pytest.mark.parametrize("m", [2, 3, 6])
@pytest.mark.parametrize("kind", ["binary", "counted", "graded"])
def test_columns_of_few_whole_numbers_are_rarely_taken_for_another_code(kind: str, m: int) -> None:
    random, found = np.random.default_rng(m), 0
    for _ in range(200):
        clients = []
        for _ in range(m):
            n = int(random.choice([15, 30, 100]))
            chances = np.cumsum(random.dirichlet([1, 1, 1]))
            values = {
                "binary": random.random(n) < random.uniform(0.02, 0.9),
                "counted": random.poisson(random.lognormal(-1.2, 0.7), n),
                "graded": np.searchsorted(chances[:2], random.random(n)),
            }[kind]
            clients.append(np.asarray(values, np.float64))
        centre = np.concatenate(clients).mean()
        sums, squares = (np.array([[((own - centre) ** power).sum()] for own in clients]) for power in (1, 2))
        sizes = np.array([float(len(own)) for own in clients])
        told = Facts(tuple("abcdef"[:m]), (Column("x", "numeric"),), sizes, np.array([centre]), sums, squares)
        found += any(one.id == "column-coded-otherwise" for one in compare(told))
    assert found <= (2 if kind == "graded" else 0)


def test_neither_shares_nor_whole_numbers_nor_one_value_look_like_another_code() -> None:
    clients = {"a": frame(1), "b": frame(2, smoker=np.ones(60)), "c": frame(3, smoker=np.arange(60) % 3)}
    clients["d"] = frame(4, smoker=np.random.default_rng(5).random(60))
    assert not ids(fedkern.run(PVI, data=clients)) & CODES


def test_levels_that_differ_in_capitals_alone_are_noted() -> None:
    clients = {"a": frame(1), "b": frame(2, sex=np.array(["F", "M", "f "])[np.arange(60) % 3])}
    assert [list(one["levels"]) for one in said(fedkern.run(PVI, data=clients), "levels-spelled")] == [["F", "f"]]
    assert "levels-spelled" not in ids(fedkern.run(PVI, data={"a": frame(1), "b": frame(2)}))
    assert spellings(["Köln", "KÖLN", "Kö ln", "Bonn"]) == [["Köln", "KÖLN", "Kö ln"]]


def test_levels_that_are_one_number_let_no_result_stand() -> None:
    levels = (["1", "2", "3"], ["01", "2", "3"])
    one, other = (frame(k, sex=np.array(own)[np.arange(60) % 3]) for k, own in enumerate(levels))
    job = {"data": {**PVI["data"], "columns": {"sex": {"kind": "categorical"}}}}
    result = fedkern.run(job, data={"a": one, "b": other})
    assert result.summary["converged"] is False
    assert [list(one["levels"]) for one in said(result, "levels-of-one-number")] == [["01", "1"]]
    assert spellings(["01", "1", "1e0", "inf", "Infinity", "1_0"]) == [["01", "1", "1e0"]]


def test_a_client_none_of_whose_levels_another_has_is_noted() -> None:
    levels = {"a": ["f", "m"], "b": ["female", "male"]}
    clients = {name: frame(k, sex=np.array(own)[np.arange(60) % 2]) for k, (name, own) in enumerate(levels.items())}
    assert names_of(fedkern.run(PVI, data=clients), "levels-of-nobody-else") == ["a", "b"]
    clients["b"].loc[:9, "sex"] = "f"
    assert "levels-of-nobody-else" not in ids(fedkern.run(PVI, data=clients))
    blocks = Column("block", "categorical", levels=("1", "2", "3", "4"))
    assert not [*of_levels(blocks, (("1", "3"), ("2", "4")), ("a", "b"))], "odd and even numbers are no names"


def test_points_of_thousands_are_told_to_their_holder() -> None:
    random = np.random.default_rng(2)
    lab = random.lognormal(6.5, 0.5, 200).round()
    assert not any_thousandths(lab)
    assert any_thousandths(np.where(lab > 999, lab / 1000, lab))
    for other in (random.normal(5, 2, 200).round(3), np.append(lab[lab < 1000], 0.125), np.append(lab[lab < 1000], 650.5)):
        assert not any_thousandths(other)


def test_a_code_for_a_missing_value_is_told_to_its_holder_alone(tmp_path: Path) -> None:
    odd = frame(1)
    odd.loc[[3, 17], "age"] = -9
    said = notes_of(PVI, {"a": odd, "b": frame(2)}, tmp_path / "out")
    assert "-9" not in said
    own = {name: json.loads((tmp_path / "out" / f"client-{name}" / "rows.json").read_text())["notes"] for name in "ab"}
    assert any("column 'age': -9 stands in 2 rows, far from all other cells" in line for line in own["a"])
    assert not any("far from all" in line for line in own["b"])


def test_a_holder_sees_them_in_its_own_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = frame(1, sex=np.array(["F", "M", "f"])[np.arange(60) % 3])
    odd.loc[[3, 17], "age"] = -9
    odd.to_csv(tmp_path / "a.csv", index=False)
    (tmp_path / "job.toml").write_text('[data]\nclients = ["a.csv"]\nresponse = "y"\n')
    assert main(["check", str(tmp_path / "job.toml"), "--local", str(tmp_path / "a.csv")]) == 0
    said = capsys.readouterr().out
    assert "note: column 'age': -9 stands in 2 rows, far from all other cells" in said
    assert "note: column 'sex': the levels 'F', 'f' differ in capitals or blanks alone" in said


def test_what_looks_like_a_code() -> None:
    random = np.random.default_rng(1)
    pressure, age = random.normal(135, 15, 200).round(), random.integers(18, 98, 200).astype(float)
    binary = random.integers(0, 2, 200).astype(float)
    for values, code in ((pressure, 999.0), (pressure, -9.0), (age, 999.0), (age, -99.0), (binary, 9.0)):
        assert coded(np.concatenate([values, [code, code]])) == [code]
    assert not coded(pressure)
    assert not coded(np.concatenate([age, [99.0]])), "somebody is as old as that"
    assert not coded(np.concatenate([binary, np.full(100, 9.0)])), "a third of the cells"
    assert not coded(np.concatenate([random.normal(0, 10, 200), [-9.0]])), "among the others"
    assert not coded(np.array([1.0, 2.0, 3.0, 999.0])), "too few others"


@pytest.mark.parametrize("order", ["as it is", "sorted", "shuffled"])
def test_one_file_at_two_clients_is_found_in_whatever_order_its_rows_are(order: str) -> None:
    random = np.random.default_rng(3)
    clients = {name: frame(k, lab=np.random.default_rng(k).normal(50, 10, 60)) for k, name in enumerate("ab")}
    turned = {"as it is": np.arange(60), "sorted": np.argsort(clients["a"]["lab"]), "shuffled": random.permutation(60)}[order]
    clients["copy"] = clients["a"].iloc[turned].reset_index(drop=True)
    result = fedkern.run(PVI, data=clients)
    assert result.converged is False
    assert names_of(result, "one-file-twice") == ["a", "copy"]
    clients["copy"].loc[7, "lab"] += 1e-6  # another file
    assert "one-file-twice" not in ids(fedkern.run(PVI, data=clients))


@pytest.mark.parametrize("method", ["likelihood", "pvi"])
def test_one_design_with_responses_of_their_own_is_no_file_twice(method: str) -> None:
    """As the days of R's lme4::sleepstudy, which every subject had."""
    pd, random = pytest.importorskip("pandas"), np.random.default_rng(4)
    clients = {}
    for name in "abc":
        days, subject = np.tile(np.arange(10.0), 6), np.repeat(np.arange(6), 10)
        reaction = 250 + random.normal(0, 30, 6)[subject] + 10 * days + random.normal(0, 25, 60)
        clients[name] = pd.DataFrame({"days": days, "age": 31.0 + 7 * subject, "y": reaction.round(4)})
    job = {"job": {"method": method}, "data": {"response": "y"}, "model": {"family": "gaussian"}}
    assert "one-file-twice" not in ids(fedkern.run(job, data=clients))
    clients["c"] = clients["a"].iloc[::-1].reset_index(drop=True)
    assert names_of(fedkern.run(job, data=clients), "one-file-twice") == ["a", "c"]


def told_sums(tables: list[np.ndarray], names: Sequence[str] = ()) -> Facts:
    """What clients tell of these columns."""
    rows = np.concatenate(tables)
    centre, columns = rows.mean(axis=0), tuple(map(Column, names or [f"x{j}" for j in range(rows.shape[1])]))
    sums, squares = (np.array([((one - centre) ** power).sum(axis=0) for one in tables]) for power in (1, 2))
    sizes = np.array([float(len(one)) for one in tables])
    return Facts(tuple(map(str, range(len(tables)))), columns, sizes, centre, sums, squares)


def test_shares_and_scores_that_are_the_same_by_chance_are_no_file_twice() -> None:
    """Six clients of 60 rows; with sums alone one federation in three or more has two clients that are alike."""
    random, found, alike = np.random.default_rng(2), 0, 0
    for draw in [
        lambda: random.integers(0, 2, (60, 2)).astype(float),
        lambda: 10.0 * (random.random((60, 1)) < 0.1),
        lambda: random.binomial(2, 0.2, (60, 1)) / 2,
    ] * 200:
        tables = [draw() for _ in range(6)]
        alike += len({(*one.sum(axis=0), *(one**2).sum(axis=0)) for one in tables}) < len(tables)
        found += bool(find_twins(told_sums(tables)))
    assert alike > 60
    assert found == 0


def test_a_product_is_no_further_sign_of_a_file_twice() -> None:
    """A panel as geepack's `ohio`: 180 children at four ages, and whether their mothers smoke."""
    random, age = np.random.default_rng(3), np.arange(-2.0, 2.0)

    def told(names: Sequence[str]) -> Facts:
        smoke = (random.random((3, 180)) < 0.35).astype(float)
        smoke[1] = random.permutation(smoke[0])  # by chance as many
        tables = [np.array([(a, s, a * s) for s in of_client for a in age]) for of_client in smoke]
        return told_sums(tables, names)

    assert not find_twins(told(("age", "smoke", "age:smoke")))
    assert find_twins(told(("age", "smoke", "dose")))


@pytest.mark.parametrize("unit", [1e-5, 1.0, 1e6])
def test_files_twice_are_found_in_any_unit(unit: float) -> None:
    random = np.random.default_rng(2)
    ages, labs = (random.normal(60, 12, (5, 5000, 1)).round(), unit * random.normal(50, 10, (5, 5000, 1)))
    for values in (ages, labs):
        tables = list(values)
        assert not find_twins(told_sums(tables))
        told = told_sums([*tables, random.permutation(tables[3]), np.sort(tables[3], axis=0)])
        (group,) = find_twins(told)
        assert group == (3, 5, 6)


def test_an_ignored_column_that_no_file_has_ends_the_job(tmp_path: Path) -> None:
    clients, said = {"a": frame(1), "b": frame(2)}, "data.ignore names 'Smokr', and no client's file has such a column; "
    job = {"data": {**PVI["data"], "ignore": ["Smokr", "sex"]}}
    for act in (fedkern.check, fedkern.run):
        with pytest.raises(JobError, match=re.escape(said + "did you mean 'smoker' (at 'a', 'b')? It is not left out now")):
            act(job, data=clients)
    with pytest.raises(JobError, match="'weight', and no client's file has such a column; correct the name, or take it out"):
        fedkern.check({"data": {**PVI["data"], "ignore": ["weight"]}}, data=clients)


def test_an_ignored_column_that_one_file_has_is_told_to_the_holder_of_another(tmp_path: Path) -> None:
    clients = {"a": frame(1), "b": frame(2, smokr=np.arange(60))}
    fedkern.run({"data": {**PVI["data"], "ignore": ["smokr", "sex"]}}, data=clients, out=tmp_path / "out")
    notes = {name: json.loads((tmp_path / "out" / f"client-{name}" / "rows.json").read_text())["notes"] for name in "ab"}
    assert "data.ignore names 'smokr', and this file has no such column" in notes["a"]
    assert "data.ignore" not in str(notes["b"])
    assert "'sex'" not in str(notes)


def test_of_a_vertical_job_any_party_may_have_the_ignored_column() -> None:
    whole = frame(1, id=[f"p{k}" for k in range(60)])
    parts = {"a": whole[["id", "age"]], "b": whole[["id", "smoker"]]}
    job = {"job": {"method": "vertical", "rounds": 5}, "data": {"id": "id", "response": "y", **few.ANY}}
    with refusal(JobError, "agee", "age", "a"):
        fedkern.check({**job, "data": {**job["data"], "ignore": ["agee"]}}, data=parts, server=whole[["id", "y"]])
    parts["a"]["more"] = parts["a"]["age"]
    for ignored in ("more", "sex"):
        fedkern.check({**job, "data": {**job["data"], "ignore": [ignored]}}, data=parts, server=whole[["id", "y", "sex"]])


def test_a_covariate_that_is_called_as_what_names_rows_is_noted() -> None:
    clients = {name: frame(k, patient_id=1000.0 * k + np.arange(60)) for k, name in enumerate("ab")}
    said = "column 'patient_id' is taken for a covariate"
    assert said in notes_of(PVI, clients)
    for data in ({"ignore": ["patient_id"]}, {"columns": {"patient_id": {"kind": "numeric"}}}):
        assert said not in notes_of({"data": {**PVI["data"], **data}}, clients)
    assert said not in notes_of(PVI, {"a": frame(1), "b": frame(2)})


@pytest.mark.parametrize("method", ["likelihood", "pvi"])
def test_a_misspelt_column_of_the_job_is_answered_with_the_nearest(method: str) -> None:
    clients = {"a": frame(1).rename(columns={"y": "died"}), "b": frame(2).rename(columns={"y": "died"})}
    job = {"job": {"method": method}, "data": {**few.ANY, "response": "Dyed"}, "model": {"family": "bernoulli"}}
    with refusal(JobError, "Dyed", "died"):
        fedkern.run(job, data=clients)
    job["data"] |= {"response": "outcome"}
    with pytest.raises(JobError, match=r"column 'outcome' is missing; there are age"):
        fedkern.run(job, data=clients)


@pytest.mark.parametrize("method", ["likelihood", "pvi"])
def test_names_of_rows_that_repeat_are_told_to_their_holder(method: str, tmp_path: Path) -> None:
    clients = {name: frame(k, number=[f"p{i}" for i in range(60)]) for k, name in enumerate("ab")}
    clients["b"].loc[[7, 20], "number"] = "p3"
    job = {"job": {"method": method}, "data": {**PVI["data"], "row_id": "number"}}
    fedkern.run(job, data=clients, out=tmp_path)
    a, b = (str(json.loads((tmp_path / f"client-{name}" / "rows.json").read_text())["notes"]) for name in "ab")
    assert "1 name stands in 3 rows, the first in row 4" in b
    assert "is to name rows" not in a


def test_columns_by_client_are_one_table_with_a_flag_where_something_is_found() -> None:
    clients = {"a": frame(1), "b": frame(2), "c": frame(3).assign(age=lambda f: f["age"] * 365.25)}
    result = fedkern.run(PVI, data=clients)
    assert {(row["column"], row["client"]) for row in result.columns} == {(x, k) for x in ("age", "smoker") for k in "abc"}
    assert [(row["client"], row["flag"]) for row in result.columns if row["flag"]] == [("c", "column-in-another-unit")]
    (row,) = (row for row in result.columns if (row["column"], row["client"]) == ("age", "b"))
    assert row["rows"] == 60
    assert row["mean"] == float(f"{clients['b']['age'].mean():.4g}")
    assert row["sd"] == float(f"{clients['b']['age'].std(ddof=0):.4g}")
    assert not fedkern.run({"job": {"sums": "secure"}, **PVI}, data=clients).columns, "no client's own numbers are known"


def test_of_few_rows_no_mean_stands_in_the_table() -> None:
    clients = {"a": frame(1), "b": frame(2), "c": frame(3, 9)}
    told = {row["client"]: row["mean"] for row in fedkern.run(PVI, data=clients).columns if row["column"] == "age"}
    assert told["c"] is None
    assert told["a"] is not None


def test_a_column_that_all_clients_have_alike_makes_no_two_of_them_one_file() -> None:
    """As R's geepack::ohio, dealt by child: four ages each, smoking or not, and two clients with as many smokers and events."""
    pd = pytest.importorskip("pandas")
    clients = {}
    for name, smokers, events in (("a", 62, 110), ("b", 62, 110), ("c", 63, 106)):
        smoke = np.repeat(np.arange(179) < smokers, 4).astype(float)
        y = np.random.default_rng(ord(name)).permutation(np.arange(716) < events).astype(int)
        clients[name] = pd.DataFrame({"age": np.tile([-2.0, -1.0, 0.0, 1.0], 179), "smoke": smoke, "y": y})
    job = {"job": {"method": "likelihood"}, "data": {"response": "y"}, "model": {"family": "bernoulli"}}
    assert not [one for one in fedkern.run(job, data=clients).findings if one.id == "one-file-twice"]
    clients["b"] = clients["a"].sample(frac=1, random_state=1)
    for client in clients.values():
        client["lab"] = np.random.default_rng(int(client["y"].to_numpy() @ np.arange(716))).normal(size=716)
    clients["b"]["lab"] = clients["a"]["lab"]  # by row
    assert [one.id for one in fedkern.run(job, data=clients).findings if one.id == "one-file-twice"]
