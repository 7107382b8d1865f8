"""What a private job tells about rows, wherever it writes: nothing that was not paid for."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from support import few

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
OPEN = few.lowered(JOB[: JOB.index("[privacy]")])

LEDGER = {"protocol", "round", "kind", "fields", "shapes", "bytes", "charge"}
METRICS = {"round", "updates", "metrics"}
CLIENT = {"updates", "status"}
# Every number of a certificate is a function of the job file and of how often the server asked.
CERTIFICATE = {
    "mechanisms",
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
CERTIFICATE |= {"clip", "noise_source", "accountant", "caps", "rows_per_person", "posterior", "trust", "progress"}


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
def test_the_same_row_ends_an_open_job_and_only_its_holder_is_told_which(fedkern: Any, tmp_path: Path, fault: str) -> None:
    path = federation(tmp_path, OPEN, [*rows(50), FAULTS[fault]])
    ended = fedkern("run", path, "--out", "out")
    assert ended.code == 2
    told = r"^fedkern: client 'a', a\.csv: rows cannot be used \(.*; holder\.txt in its own folder"
    assert re.search(told, ended.err, re.M), ended.err
    assert "52" not in ended.err
    own = (tmp_path / "out" / "client-a" / "holder.txt").read_text()
    assert re.search(r"client 'a'.*a\.csv, line 52", own)
    assert [p.name for p in (tmp_path / "out").rglob("holder.txt")] == ["holder.txt"]
    assert not (tmp_path / "out" / "summary.json").exists()
    local = fedkern("check", path, "--local", tmp_path / "clients" / "a.csv")
    assert (local.code, "line 52" in local.out) == (2, True)


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
    listed = {".lock", "job.json", "summary.json", "metrics.jsonl", "posterior.nc", "a.jsonl", "b.jsonl"}
    assert {p.name for p in others} == listed


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (("age = {center = 40, scale = 14}\n", ""), "center and scale (or lower and upper)"),
        (('levels = ["f", "m"]', 'kind = "categorical"'), "it does for 'age', but what it says of 'sex' is not complete"),
        (('levels = ["f", "m"]', 'kind = "numeric"'), "it does for 'age', but what it says of 'sex' is not complete"),
        (('age = {center = 40, scale = 14}\nsex = {levels = ["f", "m"]}\n', ""), "it does for none yet"),
    ],
    ids=["constants", "levels", "constants of a text", "nothing is declared"],
)
def test_what_a_private_job_would_have_to_ask_of_rows(fedkern: Any, tmp_path: Path, change: tuple[str, str], text: str) -> None:
    path = federation(tmp_path, JOB.replace(*change), rows(50))
    said = set()
    for command in (["check", path], ["run", path, "--out", "out"]):
        ended = fedkern(*command)
        assert ended.code == 2
        for words in (text, 'kind = "categorical", levels = [..]', 'kind = "numeric", with center and scale'):
            assert words in ended.err
        said.add(ended.err.partition("; what is no covariate")[0])
    assert len(said) == 1
    assert not list(tmp_path.rglob("budget.jsonl")), "nothing is spent"


LEVELS = 'sex = {levels = ["f", "m"]}'


@pytest.mark.parametrize("sex", ["f", "f and a number", "no rows"])
def test_a_text_column_that_is_declared_as_numbers_changes_nothing_that_others_see(
    fedkern: Any, tmp_path: Path, sex: str, numbers: dict[str, Any]
) -> None:
    """Every row has weight 0 but perhaps one: that is the holder's own affair."""
    lines = {"f": rows(50), "f and a number": [*rows(50), "40,1,no"], "no rows": []}[sex]
    path = federation(tmp_path, JOB.replace(LEVELS, "sex = {center = 0, scale = 1}"), lines)
    assert fedkern("run", path, "--out", "out").code == 0
    assert visible(tmp_path / "out") == numbers
    notes = json.loads((tmp_path / "out" / "client-a" / "rows.json").read_text())["notes"]
    none = "column 'sex': none of its 50 cells is a number: every row counts as nothing"
    assert (none in notes) is (sex == "f")
    local = fedkern("check", path, "--local", tmp_path / "clients" / "a.csv")
    assert (none in local.out) is (sex == "f")


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run in which that column holds numbers."""
    from fedkern.cli.__main__ import main

    folder = tmp_path_factory.mktemp("numbers")
    lines = [line.replace(",f,", ",0,").replace(",m,", ",1,") for line in rows(50)]
    path = federation(folder, JOB.replace(LEVELS, "sex = {center = 0, scale = 1}"), lines)
    assert main(["run", str(path), "--out", str(folder / "out"), "--quiet"]) == 0
    return visible(folder / "out")


def test_the_plan_is_what_the_run_then_spends(fedkern: Any, tmp_path: Path) -> None:
    path = federation(tmp_path, JOB, rows(50))
    plan = fedkern("check", "--verbose", path).out
    fedkern("run", path, "--out", "out", "--quiet")
    (epsilon,) = {c["epsilon"] for c in json.loads((tmp_path / "out" / "summary.json").read_text())["privacy"].values()}
    assert re.search(rf"a +poisson 0\.2 +3 +2\.5 +0\.0001 +4 +2 +6 +{re.escape(f'{epsilon:.4g}')}\n", plan), plan
    assert "SiteDelta" in plan
    assert "noised sums, charged to its budget" in plan
    assert not (tmp_path / "clients" / "budget.jsonl").exists()


SIZES = "[privacy.clients]\na = {dataset_size = 50}\nb = {dataset_size = 60}\n"
FORMS = {
    "rows": (JOB, "Each client's rows are", "add or remove one example", "nobody"),
    "a public number of rows": (
        JOB + 'sampling = "poisson-truncated"\nmax_batch = 15\n' + SIZES,
        "Each client's rows are",
        "replace one example by any other",
        "nobody",
    ),
    "clients": (
        JOB.replace("sampling_rate = 0.2", 'unit = "client"'),
        "Each client, with all its rows, is",
        "add or remove one client with all its rows",
        "the server",
    ),
}


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.usefixtures("undrawn")
def test_plan_certificate_and_report_name_the_same_neighbours(fedkern: Any, tmp_path: Path, form: str) -> None:
    text, protected, neighbours, trusted = FORMS[form]
    path = federation(tmp_path, text, rows(50))
    plan = fedkern("check", "--verbose", path).out
    ended = fedkern("run", path, "--out", "out")
    certificates = json.loads((tmp_path / "out" / "summary.json").read_text())["privacy"]
    assert fedkern("report", "out").code == 0
    page = (tmp_path / "out" / "report.html").read_text()
    for certificate in certificates.values():
        assert certificate["neighbours"] == neighbours
        assert certificate["trust"].startswith(trusted)
        assert f"neighbours: {neighbours}; by the" in plan
        for words in (plan, ended.out):
            assert f"trusts {certificate['trust']}\n" in words
        assert f"{neighbours}</td>" in page
        assert unescape(page).count(f"The claim trusts {certificate['trust']}.") == 1
    assert f"{protected} protected by (ε, δ)" in unescape(page)


def test_a_number_of_rows_that_is_not_the_true_one(fedkern: Any, tmp_path: Path) -> None:
    """It ends the job before anything is charged, and the true one is not told."""
    path = federation(tmp_path, FORMS["a public number of rows"][0].replace("50}", "51}"), rows(50))
    ended = fedkern("run", path, "--out", "out")
    assert ended.code == 2
    assert "client 'a': privacy.dataset_size = 51 is not its number of rows" in ended.err
    assert "50" not in ended.err
    assert not list((tmp_path / "out").rglob("budget.jsonl"))


def test_a_column_that_one_client_lacks(fedkern: Any, tmp_path: Path) -> None:
    path = federation(tmp_path, JOB, rows(50))
    (tmp_path / "clients" / "b.csv").write_text("age,income\n40,no\n")
    ended = fedkern("check", path)
    assert (ended.code, "client 'b': the file is not what [data] describes" in ended.err) == (2, True)
    local = fedkern("check", path, "--local", tmp_path / "clients" / "b.csv")
    assert (local.code, "column 'sex' is missing; there are age, income" in local.err) == (2, True)


def test_what_only_the_holder_is_told(fedkern: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = federation(tmp_path, JOB.replace("delta = 1e-4", "delta = 0.02"), rows(50))
    said = fedkern("check", path, "--local", tmp_path / "clients" / "a.csv").out
    (mark,) = re.findall(r"fingerprint (\w{32})", said)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FEDKERN_CLIENT_HOME", str(tmp_path / "homes"))
    for name, known in (("a", mark), ("b", "0" * 32)):
        (tmp_path / "homes" / name).mkdir(parents=True)
        terms = f'[data.{name}]\nepsilon = 4.0\ndelta = 0.02\nfingerprint = "{known}"\n'
        (tmp_path / "homes" / name / "policy.toml").write_text(terms)
    ended = fedkern("run", path, "--out", "out")
    assert ended.code == 0
    assert "client 'b': the data are not those for which [data.b] of the policy was written" in ended.err
    assert "client 'a': the data" not in ended.err
    own = {name: json.loads((tmp_path / "out" / f"client-{name}" / "account.json").read_text()) for name in "ab"}
    assert own["a"]["warnings"] == []
    assert "not those for which" in own["b"]["warnings"][0]
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
