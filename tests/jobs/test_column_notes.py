"""Covariates that nothing can be learnt from are named by `fedkern check` and in the notes, in every method."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.algorithms.core.messages import RemoteFault
from fedkern.algorithms.exchanges import column_notes
from fedkern.algorithms.exchanges.column_notes import Degenerate
from fedkern.api import check_job, perform
from fedkern.errors import OwnFault
from fedkern.jobs.run import Output
from fedkern.methods import load
from fedkern.transports.codec import Codec
from fedkern.transports.inprocess import InProcess, run_protocol
from support import forked
from support import sigma_artifacts as artifacts
from support.command import mpirun

NAMES = artifacts.NAMES
BAD = ("flat", "total", "large")  # one value; follows from a and b; 10^15 and some noise
KINDS = {name: {"kind": "numeric"} for name in ("a", "b", *BAD)}
SAID = {"flat": "has one value at every client", "total": "follows from 'a', 'b'", "large": "differ in their last digits only"}


@pytest.mark.parametrize(("values", "said"), [((0, 1, 0), False), ((1, 1, 1), True), ((0.1, 0.1, 0.1), True)])
@pytest.mark.parametrize("method", ["likelihood", "pvi"])
def test_a_column_with_one_value_a_site_is_named_only_where_all_have_the_same(
    method: str, values: tuple[float, ...], said: bool
) -> None:
    rng = np.random.default_rng(5)
    files = {}
    for name, value in zip(NAMES, values, strict=True):
        x = rng.normal(size=60)
        y = (rng.random(60) < 1 / (1 + np.exp(-x))).astype(int)
        files[name] = pd.DataFrame({"x": x, "flat": np.full(60, value), "y": y})
    data = {"response": "y", "columns": {"flat": {"kind": "numeric"}}}
    job = {"job": {"method": method}, "data": data, "model": {"family": "bernoulli"}}
    notes = fedkern.run(job, data=files).summary["notes"]
    assert any("'flat' has one value at every client" in note for note in notes) == said


def write(folder: Path, method: str, rows: int = 60) -> None:
    """Three clients; the bad columns are bad at each. Of vertical jobs each has columns of its own."""
    rng = np.random.default_rng(4)
    folder.mkdir(parents=True, exist_ok=True)
    ids = [f"p{i}" for i in range(rows)]
    for k, name in enumerate(NAMES):
        n = 30 if method == "sigma" else rows
        a, b = np.round(rng.normal(size=(2, n)), 3)
        own = {"a": a, "b": b, "flat": np.full(n, 3.5), "total": a + b, "large": 1e15 + np.round(20 * rng.normal(size=n))}
        if method == "vertical":
            del own["flat"]  # which ends a vertical job
            cells: dict[str, list[str]] = {"id": ids} | {f"{key}{k}": [repr(float(x)) for x in v] for key, v in own.items()}
        else:
            cells = {key: [repr(float(x)) for x in v] for key, v in own.items()}
            real = np.round(a + rng.normal(size=n), 3)
            y = {"sigma": rng.poisson(3, n), "pvi": rng.integers(0, 2, n), "sparse": real}[method]
            cells["y"] = [str(x) for x in y]
        if method == "sigma":
            cells["area"] = [f"{name}-{i}" for i in range(n)]
        lines = [",".join(cells), *(",".join(row) for row in zip(*cells.values()))]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    if method == "vertical":
        lines = ["id,y", *(f"{i},{rng.integers(0, 2)}" for i in ids)]
        (folder / "outcome").mkdir()
        (folder / "outcome" / "server.csv").write_text("\n".join(lines) + "\n")


def job(folder: Path, method: str, **sections: Any) -> Path:
    write(folder / "rows", method)
    data: dict[str, Any] = {"clients": ["rows/*.csv"], "response": "y"}
    tables: dict[str, dict[str, Any]] = {"job": {"method": method, "rounds": 5}, "data": data}
    if method == "sigma":
        artifacts.written(folder / "prior", sizes=(30, 30, 30))
        data["area"] = "area"
        tables["model"] = {"prior": "prior"}
    if method == "vertical":
        data |= {"id": "id", "server": "rows/outcome/server.csv"}
        tables["model"] = {"rho": 0.5}
    if method == "sparse":
        tables["model"] = {"scale": "none"}
        tables["algorithm"] = {"burn_in": 2}
    for name, more in sections.items():
        tables.setdefault(name, {}).update(more)
    text = "\n".join(
        line for name, table in tables.items() for line in (f"[{name}]", *(f"{k} = {inline(v)}" for k, v in table.items()))
    )
    (folder / "job.toml").write_text(text)
    return folder / "job.toml"


def inline(value: Any) -> str:
    """A value of a TOML file."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {inline(one)}" for key, one in value.items()) + "}"
    return json.dumps(value)


def names_of(lines: list[str]) -> set[str]:
    return {name for name, said in SAID.items() for line in lines if f"column '{name}'" in line and said in line}


@pytest.mark.parametrize("method", ["pvi", "sparse", "sigma", "vertical"])
def test_the_run_and_check_name_them(tmp_path: Path, method: str) -> None:
    path = job(tmp_path, method)
    config, folder = load(path)
    here = perform(InProcess(), config, folder, Output(tmp_path / "out", quiet=True))
    assert here is not None
    lines = check_job(InProcess(), config, folder)
    assert lines is not None
    for told in (here.summary["notes"], [line for line in lines if line.startswith("note ")]):
        if method == "vertical":
            for k, name in enumerate(NAMES):
                own = [line for line in told if f" at {name!r}" in line]
                (total,), (large,) = ([line for line in own if f"column '{what}{k}'" in line] for what in BAD[1:])
                assert f"follows from 'a{k}', 'b{k}'" in total
                assert SAID["large"] in large
        else:
            assert names_of(told) == set(BAD)
    assert any(line.split()[:1] == ["ColumnNotes"] for line in lines)
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "out" / "ledger" / "east.jsonl").read_text().splitlines()]
    assert kinds.count("ColumnNotes") == 1
    noted = json.loads((tmp_path / "out" / "client-east" / "rows.json").read_text())["notes"]
    assert sum("follows from" in note for note in noted) == 1


@pytest.mark.parametrize("method", ["pvi", "sigma"])
def test_ordinary_columns_are_not_named(tmp_path: Path, method: str) -> None:
    path = job(tmp_path, method, data={"ignore": list(BAD)})
    result = fedkern.run(path)
    assert not [note for note in result.summary["notes"] if "column" in note]
    assert not [line for line in check_job(InProcess(), *load(path)) or () if line.startswith("note ")]


PRIVACY = {"epsilon": 4.0, "delta": 1e-3, "clip": 1.0, "noise_multiplier": 4.0, "sampling_rate": 0.2}


def test_a_private_job_tells_its_holder_alone(tmp_path: Path) -> None:
    path = job(tmp_path, "pvi", privacy=PRIVACY, data={"standardise": "none", "columns": KINDS})
    result = fedkern.run(path, out=tmp_path / "out")
    told = [*result.summary["notes"], *(check_job(InProcess(), *load(path)) or ())]
    told += [(tmp_path / "out" / "ledger" / f"{name}.jsonl").read_text() for name in NAMES]
    assert not [line for line in told if any(name in line for name in BAD) or "ColumnNotes" in line]
    own = json.loads((tmp_path / "out" / "client-west" / "rows.json").read_text())["notes"]
    ended = forked.fedkern("check", path, "--local", tmp_path / "rows" / "west.csv", folder=tmp_path)
    assert ended.code == 0, ended.err
    for lines in (own, ended.out.splitlines()):
        assert {name for name in BAD for line in lines if f"column '{name}'" in line} == set(BAD)


def test_over_mpi_the_same_is_said(tmp_path: Path) -> None:
    path = job(tmp_path, "pvi")
    ended = mpirun(4, "check", "--verbose", path)
    assert ended.code == 0, ended.err
    assert names_of([line for line in ended.out.splitlines() if line.startswith("note ")]) == set(BAD)


def test_a_column_with_one_value_ends_a_vertical_job_and_is_named(tmp_path: Path) -> None:
    path = job(tmp_path, "vertical")
    rows = (tmp_path / "rows" / "north.csv").read_text().splitlines()
    (tmp_path / "rows" / "north.csv").write_text("\n".join([rows[0] + ",flat1", *(f"{row},3.5" for row in rows[1:])]) + "\n")
    with pytest.raises(OwnFault, match="client 'north'") as caught:
        fedkern.run(path)
    assert "column 'flat1' has one value" in caught.value.own
    assert any("'flat1' has one value" in line for line in check_job(InProcess(), *load(path)) or ())


@pytest.mark.parametrize("apart", [True, False])
def test_columns_that_follow_at_each_client_by_a_rule_of_its_own_follow_from_nothing(apart: bool) -> None:
    """Of two arms at a client each an interaction is the covariate at one and 0 at the other: all rows tell both slopes."""
    rng, files = np.random.default_rng(8), {}
    for k, name in enumerate("ab"):
        a, b = rng.normal(size=(2, 80))
        files[name] = pd.DataFrame({"a": a, "b": b, "c": (a if k else b) if apart else a + b, "y": a + rng.normal(size=80)})
    job = {"job": {"method": "likelihood"}, "data": {"response": "y"}, "model": {"family": "gaussian"}}
    result = fedkern.run(job, data=files)
    assert ("theta[c]" in result.summary.get("not_estimated", ())) != apart
    assert (result.parameters["theta[c]"]["sd"] < 0.3) == apart


# ---- The machine.


def agreed(*told: Degenerate) -> list[Any]:
    clients = {k: column_notes.Client(one) for k, one in enumerate(told)}
    names = tuple("abcd"[: len(told)])
    return run_protocol(column_notes.PROTOCOL, column_notes.start(names), clients, Codec(column_notes.DIMS, len(told)))[0].found


def test_what_is_true_of_one_client_alone_is_no_fault() -> None:
    assert agreed(Degenerate(("x",), (), {"z": ("x", "y")}), Degenerate()) == []
    both = Degenerate(("x",), (), {"z": ("u", "y")})
    assert len(agreed(both, both)) == 2
    assert len(agreed(both, Degenerate(judged=(False, False)))) == 2  # which has too few rows to say anything
    assert agreed(Degenerate(judged=(False, False))) == []


def test_lost_digits_are_named_with_their_clients() -> None:
    (note,) = agreed(Degenerate(), Degenerate(coarse=("x",)), Degenerate(coarse=("x",)))
    assert "only at 'b', 'c', and most" in note
    assert "only at every client, and most" in agreed(Degenerate(coarse=("x",)))[0]


@pytest.mark.parametrize(
    "content",
    [
        {"constant": [], "coarse": [], "collinear": {}},
        {"constant": [1], "coarse": [], "collinear": {}, "judged": [1, 1]},
        {"constant": [], "coarse": [], "collinear": {"x": "y"}, "judged": [1, 1]},
        {"constant": [], "coarse": [], "collinear": [], "judged": [1, 1]},
        {"constant": [], "coarse": [], "collinear": {}, "judged": [1, 2]},
        {"constant": [], "coarse": [], "collinear": {}, "judged": [1, 1], "far": {"x": 1}},
    ],
)
def test_a_wrong_answer_is_refused(content: dict[str, Any]) -> None:
    server, _ = column_notes.start(("a",))
    with pytest.raises(RemoteFault, match="client 0: ColumnNotes"):
        column_notes.PROTOCOL.server_receive(server, 0, column_notes.ColumnNotes(0, 0, 1, json.dumps(content).encode()))
