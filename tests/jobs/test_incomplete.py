"""`model.missing`: rows that lack a cell are left out, or filled and marked; what others learn of that, and what nobody does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.data import incomplete
from fedkern.data.table import load
from fedkern.errors import JobError
from fedkern.models.encoding import Spec
from support import few
from support.refusal import refusal

LACK = {2: "x", 5: "ward", 9: "y", 11: "x", 14: "z"}  # row -> the cell that it lacks
PRIVATE = {"epsilon": 3.0, "delta": 1e-5, "clip": 2.0, "noise_multiplier": 4.0, "sampling_rate": 0.2, "noise_source": "keyed"}
COLUMNS = {"x": {"center": 60.0, "scale": 9.0}, "z": {"center": 0.0, "scale": 1.0}, "ward": {"levels": ["a", "b", "c"]}}


def rows(seed: int) -> list[dict[str, str]]:
    random = np.random.default_rng(seed)
    return [
        {
            "id": f"r{k}",
            "x": f"{random.normal(60, 9):.2f}",
            "z": f"{random.normal():.3f}",
            "ward": "abc"[k % 3],
            "y": str(int(random.random() < 0.5)),
        }
        for k in range(40)
    ]


def holey(table: list[dict[str, str]], lack: dict[int, str] = LACK) -> list[dict[str, str]]:
    """Cells are missing; the first has a level that no other row has, and no file without these rows would."""
    out = [dict(row) for row in table]
    for k, name in lack.items():
        out[k][name] = "NA" if name == "z" else ""
    return out


def written(path: Path, table: list[dict[str, str]]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([",".join(table[0]), *(",".join(row.values()) for row in table)]) + "\n")
    return str(path)


def job(clients: list[str], missing: str = "error", **sections: Any) -> dict[str, Any]:
    open_one = {} if "privacy" in sections else few.ANY
    data = {"clients": clients, "response": "y", "ignore": ["id"], **open_one, **sections.pop("data", {})}
    return {"job": {"rounds": 3}, "data": data, "model": {"missing": missing}, **sections}


@pytest.mark.usefixtures("undrawn")
def test_dropped_rows_had_as_well_never_been_there(tmp_path: Path) -> None:
    """Also a level that only such a row has; the counts are in the summary, the notes and the report."""
    table = holey(rows(1))
    table[2]["ward"] = "lost"
    whole = [row for k, row in enumerate(table) if k not in LACK]
    other = written(tmp_path / "b.csv", rows(2))
    plain = fedkern.run(job([written(tmp_path / "plain" / "a.csv", whole), other]))
    odd = fedkern.run(job([written(tmp_path / "a.csv", table), other], "drop"), out=tmp_path / "run")
    assert odd.digest == plain.digest
    assert odd.summary["incomplete"] == {"a": {"rows": 40, "incomplete": 5}, "b": {"rows": 40, "incomplete": 0}}
    note = "rows that lack a cell, left out: a 5 of 40"
    assert note in odd.summary["notes"]
    assert "5 rows lack a cell: left out" in json.loads((tmp_path / "run/client-a/rows.json").read_text())["notes"]
    assert "incomplete" not in plain.summary
    from fedkern.cli import report

    assert note in report.write(tmp_path / "run").read_text()


@pytest.mark.parametrize("missing", ["drop", "indicator"])
def test_with_secure_sums_the_server_learns_the_counts_of_all_together(tmp_path: Path, missing: str) -> None:
    clients = [written(tmp_path / f"{k}.csv", holey(rows(s), {s: "x", 7: "x"})) for s, k in enumerate("abc", 1)]
    sums = {"job": {"rounds": 3, "sums": "secure"}, "data": {"columns": COLUMNS}}
    result = fedkern.run({**job(clients, missing), **sums, "data": job(clients)["data"] | sums["data"]}, out=tmp_path / "run")
    assert result.summary["incomplete"] == {"all clients together": {"rows": 120, "incomplete": 6}}
    done = {"drop": "left out", "indicator": "filled and marked"}[missing]
    assert f"rows that lack a cell, {done}: all clients together 6 of 120" in result.summary["notes"]
    kinds = {line.get("kind") for line in map(json.loads, (tmp_path / "run/ledger/a.jsonl").read_text().splitlines())}
    assert "MaskedIncomplete" in kinds
    assert "Incomplete" not in kinds


def test_where_no_row_is_left_the_holder_is_told_the_emptiest_column(tmp_path: Path) -> None:
    table = [row | {"z": "", "x": "" if k < 3 else row["x"]} for k, row in enumerate(rows(1))]
    clients = [written(tmp_path / "a.csv", table), written(tmp_path / "b.csv", rows(2))]
    with refusal(JobError, "a", "disclosure.rows"):
        fedkern.run(job(clients, "drop"))
    with refusal(JobError, "a.csv", "40", "3"):
        incomplete.without(load(tmp_path / "a.csv"), Spec(response="y"))
    written(tmp_path / "a.csv", [row | {"z": f"{k}"} if k > 19 else row for k, row in enumerate(table)])
    assert fedkern.run(job(clients, "drop")).summary["incomplete"]["a"] == {"rows": 40, "incomplete": 20}


def test_a_line_that_cannot_be_read_is_not_a_row_that_lacks_a_cell(tmp_path: Path) -> None:
    path = Path(written(tmp_path / "a.csv", rows(1)))
    path.write_text(path.read_text() + "r40,1\n")
    with pytest.raises(JobError, match="rows cannot be used"):
        fedkern.run(job([str(path)], "drop"))


def test_indicators_are_columns_of_the_job(tmp_path: Path) -> None:
    """The same as a file with cells filled by the centre and 0/1 columns of its own."""
    lack = {2: "x", 11: "x", 14: "z"}
    by_hand = [
        {**row, "x": row["x"] if lack.get(k) != "x" else "60", "z": row["z"] if lack.get(k) != "z" else "0"}
        | {f"{name}[missing]": str(int(lack.get(k) == name)) for name in ("x", "z")}
        for k, row in enumerate(rows(1))
    ]
    marks = {f"{name}[missing]": {"center": 0.0, "scale": 1.0} for name in ("x", "z")}
    plain = fedkern.run(job([written(tmp_path / "plain" / "a.csv", by_hand)], data={"columns": {**COLUMNS, **marks}}))
    path = written(tmp_path / "a.csv", holey(rows(1), lack))
    odd = fedkern.run(job([path], "indicator", data={"columns": COLUMNS}))
    assert odd.digest == plain.digest
    assert "theta[x[missing]]" in odd.parameters
    assert odd.summary["incomplete"] == {"a": {"rows": 40, "incomplete": 3}}
    empty = written(tmp_path / "c.csv", holey(rows(1), {2: "x", 5: "ward"}))
    with pytest.raises(JobError, match=r"rows cannot be used \(column 'ward' is empty\)"):
        fedkern.run(job([empty], "indicator", data={"columns": COLUMNS}))


@pytest.mark.parametrize("missing", ["error", "drop", "indicator"])
def test_a_private_job_tells_nothing_of_missing_cells(tmp_path: Path, missing: str) -> None:
    """Messages, their lengths and what is public have the same form for files with and without them."""
    seen = []
    for name, table in (("plain", rows(1)), ("odd", holey(rows(1)))):
        clients = [written(tmp_path / name / "a.csv", table), written(tmp_path / name / "b.csv", rows(2))]
        data = {"columns": COLUMNS, "standardise": "public"}
        out = tmp_path / f"run-{name}"
        result = fedkern.run(job(clients, missing, data=data, privacy=PRIVATE), out=out)
        assert "incomplete" not in result.summary
        assert not any("lack" in note for note in result.summary["notes"])
        lines = [json.loads(line) for line in (out / "ledger/a.jsonl").read_text().splitlines()]
        seen.append([(line.get("kind"), line.get("bytes")) for line in lines])
        assert any(length for _, length in seen[-1])
    assert seen[0] == seen[1]


@pytest.mark.parametrize("missing", ["drop", "indicator"])
def test_check_lists_the_counts_of_an_open_job_alone(tmp_path: Path, missing: str) -> None:
    path = written(tmp_path / "a.csv", holey(rows(1), {2: "x"}))
    data = {"columns": COLUMNS, "standardise": "public"}
    said = "\n".join(fedkern.check(job([path], missing, data=data), verbose=True))
    assert "Incomplete" in said
    assert re.search(r"missing  .*(left out|filled and marked)", said)
    private = "\n".join(fedkern.check(job([path], missing, data=data, privacy=PRIVATE), verbose=True))
    assert "Incomplete" not in private


def vertical(folder: Path, lack: dict[int, str], missing: str, **sections: Any) -> dict[str, Any]:
    table = holey(rows(1), lack)
    parts = {"a": ("id", "x"), "b": ("id", "z"), "server": ("id", "y")}
    paths = {name: written(folder / f"{name}.csv", [{c: row[c] for c in kept} for row in table]) for name, kept in parts.items()}
    data = {"clients": [paths["a"], paths["b"]], "server": paths["server"], "id": "id", "response": "y"}
    columns = {"columns": {"x": COLUMNS["x"]}}
    return {
        "job": {"method": "vertical", "rounds": 20},
        "data": data | (columns if missing == "indicator" else {}),
        "model": {"missing": missing},
        **sections,
    }


def test_indicators_of_a_vertical_job(tmp_path: Path) -> None:
    """A mark that no row needs is left to its prior, and ends no job."""
    result = fedkern.run(vertical(tmp_path / "odd", {2: "x", 7: "x"}, "indicator"))
    assert result.summary["incomplete"] == {"a": {"rows": 40, "incomplete": 2}, "b": {"rows": 40, "incomplete": 0}}
    assert "rows that lack a cell, filled and marked: a 2 of 40" in result.summary["notes"]
    assert fedkern.run(vertical(tmp_path / "none", {}, "indicator")).summary["incomplete"]["a"]["incomplete"] == 0
    with pytest.raises(JobError, match="rows cannot be used"):
        fedkern.run(vertical(tmp_path / "error", {2: "x"}, "error"))


def test_a_vertical_job_leaves_out_at_all_parties_what_lacks_a_cell_at_one(tmp_path: Path) -> None:
    """As if nobody had ever had these rows; of rows without a response too, which are predicted."""
    lack = {2: "x", 7: "z", 11: "x", 20: "z"}
    odd = vertical(tmp_path / "odd", lack, "drop", model={"missing": "drop", "kind": "multilevel", "rho": 0.5})
    plain = vertical(tmp_path / "plain", {}, "error", model={"kind": "multilevel", "rho": 0.5})
    gone = [*lack, 30, 31, 32]  # without a group, an offset, and at the server alone
    for folder, empty in (("odd", True), ("plain", False)):
        for name in ("a", "b", "server"):
            path = tmp_path / folder / f"{name}.csv"
            lines = path.read_text().splitlines()
            said = [f"{lines[0]},{'o' if name == 'server' else 'ward'}"]
            for k, line in enumerate(lines[1:]):
                more = f"{k % 3 / 10}" if name == "server" else "uv"[k % 2]
                if empty and (k, name) in ((30, "a"), (31, "server")):
                    more = ""
                if name == "server" and k in (2, 5):  # no response: the row is predicted
                    line = line.rpartition(",")[0] + ","
                if (empty and not (k == 32 and name == "server")) or (not empty and k not in gone):
                    said.append(f"{line},{more}")
            path.write_text("\n".join(said) + "\n")
    for one in (odd, plain):
        one["data"] |= {"group": "ward", "offset": "o", "holdout": 0.2}
    found, wanted = fedkern.run(odd, out=tmp_path / "run"), fedkern.run(plain, out=tmp_path / "plain-run")
    assert found.digest == wanted.digest
    assert (tmp_path / "run" / "predictions.csv").read_text() == (tmp_path / "plain-run" / "predictions.csv").read_text()
    assert found.summary["incomplete"] == {"a": {"rows": 40, "incomplete": 3}, "b": {"rows": 40, "incomplete": 2}}
    assert "33 rows are complete at all parties; all others are left out" in found.summary["notes"]
    own = json.loads((tmp_path / "run" / "client-a" / "rows.json").read_text())["notes"]
    assert "3 rows lack a cell: left out" in own
    assert "4 more rows are left out: another party lacks a cell of them, or the whole row" in own
    said = "\n".join(fedkern.check(odd, verbose=True))
    assert "an incomplete row looks like an absent one" in said
    assert "rows     26 train, 7 are predicted" in said


def test_the_response_of_a_client_that_tells_it_is_a_cell_like_others(tmp_path: Path) -> None:
    made = vertical(tmp_path, {4: "y", 9: "z"}, "drop")
    made["data"].pop("server")
    a, server = ((tmp_path / f"{name}.csv").read_text().splitlines() for name in ("a", "server"))
    (tmp_path / "a.csv").write_text("\n".join(f"{one},{y.rpartition(',')[2]}" for one, y in zip(a, server)) + "\n")
    assert fedkern.run(made).summary["encoding"]["rows"] == 38


def test_what_is_left_of_a_vertical_job_must_be_enough(tmp_path: Path) -> None:
    lacking = dict.fromkeys(range(12), "x") | dict.fromkeys(range(20, 32), "z")
    made = vertical(tmp_path, lacking, "drop", disclosure={"level": "strict"})
    for act in (fedkern.run, fedkern.check):
        with refusal(JobError, "disclosure.rows") as caught:
            act(made)
        assert "16" not in str(caught.value)


def test_what_cannot_be(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", rows(1))
    private = {"privacy": {"epsilon": 3.0, "delta": 1e-5}}
    with refusal(JobError, "drop", "vertical"):
        fedkern.run(vertical(tmp_path, {}, "drop", **private))
    with refusal(JobError, "drop", "shared"):
        fedkern.run(vertical(tmp_path, {}, "drop", algorithm={"response": "shared"}))
    with pytest.raises(JobError, match=r"it declares none: give \[data.columns.NAME\]"):
        fedkern.run(job([path], "indicator"))
    with pytest.raises(JobError, match=r"data.columns.x.center is missing"):
        fedkern.run(job([path], "indicator", data={"columns": {"x": {"kind": "numeric"}}}))
    with refusal(JobError, "error", "drop", "indicator"):
        fedkern.run(job([path], "dropp"))
    named = [{**row, "x[missing]": "0"} for row in rows(1)]
    with pytest.raises(JobError, match=r"column 'x\[missing\]' is there already"):
        fedkern.run(job([written(tmp_path / "n.csv", named)], "indicator", data={"columns": COLUMNS}))


def test_a_client_of_incomplete_rows_alone_is_left_out() -> None:
    """As R leaves its rows out of a pooled fit; where no client has a whole row, or parties are apart, the job ends."""
    random = np.random.default_rng(2)
    data = {name: {"x": random.normal(size=60), "y": random.normal(size=60)} for name in "ab"}
    lacking = {"x": np.full(3, np.nan), "y": np.zeros(3)}
    made = {"job": {"method": "likelihood"}, "model": {"formula": "y ~ x", "family": "gaussian"}}
    found, without = (fedkern.run(made, data=own) for own in (data | {"c": lacking}, data))
    assert "client 'c' is left out: each of its rows lacks a cell" in found.notes
    assert found.parameters["theta[x]"]["mean"] == pytest.approx(without.parameters["theta[x]"]["mean"], abs=0.01)
    with pytest.raises(JobError, match="no client is left"):
        fedkern.run(made, data={"c": lacking, "d": lacking})
    with pytest.raises(JobError, match=r"client 'c', .*rows that count"):
        fedkern.run({**made, "disclosure": {"level": "standard"}}, data=data | {"c": lacking})
