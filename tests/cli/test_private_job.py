"""What a private job tells about rows, wherever it writes: nothing that was not paid for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

HEADER = "age,sex,income"
JOB = """
[job]
rounds = 2
[data]
clients = ["clients/*.csv"]
response = "income"
positive = "yes"
[data.columns]
age = {center = 40, scale = 14}
sex = {levels = ["f", "m"]}
income = {levels = ["no", "yes"]}
[algorithm]
local_steps = 3
[privacy]
epsilon = 4.0
delta = 1e-4
clip = 2.5
noise_multiplier = 3.0
sampling_rate = 0.2
"""
OPEN = JOB[: JOB.index("[privacy]")]

LEDGER = {"protocol", "round", "kind", "fields", "shapes", "bytes", "charge"}
METRICS = {"round", "updates", "metrics"}
CLIENT = {"updates", "status"}
# Every number of a certificate is a function of the job file and of how often the server asked.
CERTIFICATE = {
    "claim",
    "epsilon",
    "delta",
    "epsilon_cap",
    "unit",
    "neighbours",
    "sampling",
    "sampling_rate",
    "steps",
    "noise_multiplier",
}
CERTIFICATE |= {"clip", "noise_source", "accountant", "caps", "rows_per_person", "posterior"}


def rows(n: int, shift: int = 0) -> list[str]:
    return [f"{20 + (7 * i + shift) % 50},{'fm'[i % 2]},{['no', 'yes'][(i + shift) % 3 == 0]}" for i in range(n)]


def federation(folder: Path, text: str, first: list[str]) -> Path:
    """A job with two clients, the first of which has these rows."""
    (folder / "clients").mkdir(parents=True)
    for name, lines in (("a", first), ("b", rows(60, 3))):
        (folder / "clients" / f"{name}.csv").write_text("\n".join([HEADER, *lines]) + "\n")
    (folder / "job.toml").write_text(text)
    return folder / "job.toml"


FAULTS = {
    "nan": "nan,f,no",
    "inf": "inf,f,no",
    "huge": "1e308,f,no",
    "empty cell": ",f,no",
    "no number": "forty,f,no",
    "unknown level": "40,x,no",
    "unknown label": "40,f,maybe",
    "too few cells": "40,f",
    "too many cells": "40,f,no,no",
}


def visible(folder: Path) -> dict[str, Any]:
    """All that others than the client could see, without what the noise decides."""
    seen: dict[str, Any] = {"files": sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if "client-" not in str(p))}
    for ledger in folder.glob("ledger/*.jsonl"):
        seen[ledger.name] = ledger.read_text()
    summary = json.loads((folder / "summary.json").read_text())
    seen |= {key: summary[key] for key in ("stop", "rounds", "clients", "wire", "privacy", "encoding", "notes", "claim")}
    return seen | {"names": sorted(summary["parameters"])}


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run without faults."""
    from fedkern.cli.__main__ import main

    folder = tmp_path_factory.mktemp("clean")
    assert main(["run", str(federation(folder, JOB, rows(50))), "--out", str(folder / "out"), "--quiet"]) == 0
    return visible(folder / "out")


@pytest.mark.parametrize("fault", [*FAULTS, "no rows", "one row", "one class"])
def test_a_faulty_row_changes_nothing_that_others_see(fedkern: Any, tmp_path: Path, clean: dict[str, Any], fault: str) -> None:
    lines = {"no rows": [], "one row": rows(1), "one class": [f"{i},f,no" for i in range(30)]}.get(fault)
    path = federation(tmp_path, JOB, [*rows(50), FAULTS[fault]] if lines is None else lines)
    ended = fedkern("run", path, "--out", "out")
    assert ended.code == 0
    assert "fault" not in ended.out + ended.err
    assert visible(tmp_path / "out") == clean
    if fault in FAULTS and fault != "huge":  # a number, if an unlikely one: its gradient is clipped
        own = json.loads((tmp_path / "out" / "client-a" / "rows.json").read_text())
        assert own["faults"]["rows"] == 1
        local = fedkern("check", path, "--local", tmp_path / "clients" / "a.csv")
        assert (local.code, "1 with faults" in local.out) == (0, True)


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "huge"])
def test_the_same_row_ends_an_open_job_by_name(fedkern: Any, tmp_path: Path, fault: str) -> None:
    ended = fedkern("run", federation(tmp_path, OPEN, [*rows(50), FAULTS[fault]]), "--out", "out")
    assert ended.code == 2
    assert re.search(r"client 'a'.*a\.csv, line 52", ended.err), ended.err
    assert not (tmp_path / "out" / "summary.json").exists()


def test_only_what_is_listed_is_written(fedkern: Any, tmp_path: Path) -> None:
    """A whitelist: a new key must be thought about before it may be written by a private job."""
    ended = fedkern("run", federation(tmp_path, JOB, [*rows(50), "nan,f,no"]), "--out", "out")
    assert ended.code == 0
    out = tmp_path / "out"
    for ledger in (out / "ledger").glob("*.jsonl"):
        for line in ledger.read_text().splitlines():
            assert json.loads(line).keys() == LEDGER
    for line in (out / "metrics.jsonl").read_text().splitlines():
        assert json.loads(line).keys() <= METRICS
    summary = json.loads((out / "summary.json").read_text())
    for name, client in summary["clients"].items():
        assert client.keys() == CLIENT
        assert summary["privacy"][name].keys() == CERTIFICATE
    others = [p for p in out.rglob("*") if p.is_file() and not any(part.startswith("client-") for part in p.parts)]
    assert {p.name for p in others} == {"job.json", "summary.json", "metrics.jsonl", "posterior.nc", "a.jsonl", "b.jsonl"}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (("age = {center = 40, scale = 14}\n", ""), "center and scale (or lower and upper)"),
        (('levels = ["f", "m"]', 'kind = "categorical"'), "column 'sex': a private job"),
    ],
    ids=["constants", "levels"],
)
def test_what_a_private_job_would_have_to_ask_of_rows(fedkern: Any, tmp_path: Path, change: tuple[str, str], text: str) -> None:
    path = federation(tmp_path, JOB.replace(*change), rows(50))
    for command in (["check", path], ["run", path, "--out", "out"]):
        ended = fedkern(*command)
        assert ended.code == 2
        assert text in ended.err


def test_the_plan_is_what_the_run_then_spends(fedkern: Any, tmp_path: Path) -> None:
    path = federation(tmp_path, JOB, rows(50))
    plan = fedkern("check", path).out
    fedkern("run", path, "--out", "out", "--quiet")
    (epsilon,) = {c["epsilon"] for c in json.loads((tmp_path / "out" / "summary.json").read_text())["privacy"].values()}
    assert re.search(rf"a +poisson 0\.2 +3 +2\.5 +0\.0001 +4 +2 +6 +{re.escape(f'{epsilon:.4g}')}\n", plan), plan
    assert "SiteDelta" in plan
    assert "(and no row)" in plan
    assert not (tmp_path / "clients" / "budget.jsonl").exists()


def test_a_column_that_one_client_lacks(fedkern: Any, tmp_path: Path) -> None:
    path = federation(tmp_path, JOB, rows(50))
    (tmp_path / "clients" / "b.csv").write_text("sex,age,income\nf,40,no\n")
    for command in (["check", path], ["run", path, "--out", "out"]):
        ended = fedkern(*command)
        assert ended.code == 2
        assert "'b'" in ended.err
        assert "another order" in ended.err
    (tmp_path / "clients" / "b.csv").write_text("age,income\n40,no\n")
    ended = fedkern("check", path)
    assert (ended.code, "column 'sex' is missing" in ended.err) == (2, True)


def test_what_only_the_holder_is_told(fedkern: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = federation(tmp_path, JOB.replace("delta = 1e-4", "delta = 0.02"), rows(50))
    said = fedkern("check", path, "--local", tmp_path / "clients" / "a.csv").out
    (mark,) = re.findall(r"fingerprint (\w{32})", said)
    monkeypatch.setenv("FEDKERN_CLIENT_HOME", str(tmp_path / "homes"))
    for name, known in (("a", mark), ("b", "0" * 32)):
        (tmp_path / "homes" / name).mkdir(parents=True)
        terms = f'[data.{name}]\nepsilon = 4.0\ndelta = 0.02\nfingerprint = "{known}"\n'
        (tmp_path / "homes" / name / "policy.toml").write_text(terms)
    ended = fedkern("run", path, "--out", "out")
    assert (ended.code, ended.err) == (0, "")
    own = {name: json.loads((tmp_path / "out" / f"client-{name}" / "certificate.json").read_text()) for name in "ab"}
    assert "warnings" not in own["a"]
    assert "not those for which" in own["b"]["warnings"]
    notes = json.loads((tmp_path / "out" / "client-a" / "rows.json").read_text())["notes"]
    assert any("delta = 0.02 is not below 1 / rows" in note for note in notes)
    for published in ("summary.json", "metrics.jsonl", "ledger/b.jsonl"):
        text = (tmp_path / "out" / published).read_text()
        assert "not those for which" not in text
        assert "1 / rows" not in text


def test_terms_for_a_client_that_does_not_exist(fedkern: Any, tmp_path: Path) -> None:
    path = federation(tmp_path, JOB + "[privacy.clients.c]\nclip = 1.0\n", rows(50))
    ended = fedkern("check", path)
    assert (ended.code, ended.err) == (2, "fedkern: privacy.clients.c: there is no such client; there are a, b\n")
    path.write_text(JOB.replace("clip = 2.5\n", "") + "[privacy.clients.a]\nclip = 1.0\n")
    ended = fedkern("check", path)
    assert (ended.code, "privacy.clip is missing for client 'b'" in ended.err) == (2, True)
