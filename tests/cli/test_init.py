"""`fedkern init` and `fedkern schema`: what is drafted is valid, and shows no cell."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import fedkern.cli.__main__
from fedkern.cli.__main__ import main
from fedkern.data.simulate import federations
from fedkern.jobs.holding import policy
from fedkern.jobs.run import Output
from fedkern.methods import METHODS, draft
from fedkern.methods.sigma.prior import build
from fedkern.methods.sigma.prior.keys import load
from fedkern.printing import toml_key
from support import few

KINDS = {"logistic": "pvi", "poisson": "pvi", "regression": "pvi", "sparse": "sparse", "mrf": "sparse", "sem": "sparse"}
KINDS |= {"vertical": "vertical", "sigma": "sigma"}


def simulated(kind: str, folder: Path, rows: int = 64) -> Path:
    federations.simulate(kind, folder, federations.Settings(clients=3, rows=rows, columns=3))
    if kind == "sigma":
        build.perform(*load(folder / "prior.toml"), Output(folder / "prior", quiet=True))
    return folder


def drafted(kind: str, folder: Path, *options: str) -> Path:
    """The job file that is drafted for a federation."""
    files = [str(path) for path in sorted((folder / "clients").glob("*"))]
    own = [f"--{name}={path}" for name in ("test", "server") if (path := folder / f"{name}.csv").exists()]
    method = [] if kind in ("vertical", "sigma") else ["--method", KINDS[kind]]  # the headers say it
    assert main(["init", *files, *method, *own, *options, "--out", str(folder / "drafted.toml")]) == 0
    return folder / "drafted.toml"


@pytest.mark.parametrize("kind", KINDS)
def test_check_accepts_it_unchanged(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = drafted(kind, simulated(kind, tmp_path))
    assert main(["check", str(path)]) == 0, capsys.readouterr().err
    job = tomllib.loads(path.read_text())
    assert job["job"]["method"] == KINDS[kind]
    assert path.read_text().startswith(f"#:schema ./fedkern-{KINDS[kind]}.schema.json\n")
    schema = json.loads((tmp_path / f"fedkern-{KINDS[kind]}.schema.json").read_text())
    jsonschema.validate(job, schema)
    jsonschema.validate(tomllib.loads((tmp_path / "job.toml").read_text()), schema)


@pytest.mark.parametrize("kind", ["logistic", "poisson", "regression"])
def test_open_jobs_of_rows_are_drafted_with_the_exact_posterior(kind: str, tmp_path: Path) -> None:
    files = sorted(map(str, (simulated(kind, tmp_path, 128) / "clients").glob("*")))
    path = tmp_path / "drafted.toml"
    assert main(["init", *files, "--out", str(path)]) == 0
    assert tomllib.loads(path.read_text())["job"]["method"] == "likelihood"
    assert main(["check", str(path)]) == 0


ODD = """\
Fall-Nr;Größe;Station;Geheim;gestorben
A-17;171,5;Köln;Zappa;0
A-18;160,0;Köln;Bowie;1
A-19;188,2;Münster;Cage;0
A-20;170,9;Münster;Zappa;1
"""


def odd(folder: Path, text: str = ODD) -> Path:
    path = folder / "nord.csv"
    path.write_bytes(text.encode("cp1252"))
    return path


def test_a_follow_up_time_is_no_covariate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A 0/1 response beside a column of months is taken for a survival study, and what to do otherwise is said."""
    files = sorted(map(str, (simulated("survival", tmp_path, 128) / "clients").glob("*")))
    path = tmp_path / "drafted.toml"
    assert main(["init", *files, "--out", str(path)]) == 0
    said = capsys.readouterr().out
    assert "data.time" in said
    assert 'response = "died"' in said
    job = tomllib.loads(path.read_text())
    assert job["model"]["family"] == "cox"
    assert (job["data"]["time"], job["data"]["event"]) == ("months", "died")
    assert main(["check", str(path)]) == 0


@pytest.mark.parametrize(
    ("names", "event", "time", "left_out"),
    [
        ("os_months pfs_months os_status pfs_status age", "os_status", "os_months", ["pfs_months", "pfs_status"]),
        ("pfs_months os_months os_status pfs_status age", "pfs_status", "pfs_months", ["os_months", "os_status"]),
        ("entry_time os_months os_status age", "os_status", "os_months", ["entry_time"]),
        ("tstart tstop event age", "event", "tstop", ["tstart"]),
        ("left right died age", "died", "left", ["right"]),
        ("months died weight stratum age", "died", "months", ["weight", "stratum"]),
    ],
)
def test_what_is_known_afterwards_is_no_covariate(
    names: str, event: str, time: str, left_out: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of several times the event's own; all others are left out and named, with the key that they may be of."""
    rng = np.random.default_rng(5)
    columns = {
        name: rng.integers(0, 2, 60) if name in ("died", "event") or name.endswith("status") else rng.uniform(1, 9, 60).round(3)
        for name in names.split()
    }
    rows = zip(*(values.tolist() for values in columns.values()))
    file = tmp_path / "a.csv"
    file.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows), ""]))
    path = tmp_path / "job.toml"
    assert main(["init", str(file), "--response", event, "--out", str(path)]) == 0
    said = capsys.readouterr().out
    job = tomllib.loads(path.read_text())
    assert (job["data"]["time"], job["data"]["event"]) == (time, event)
    assert sorted(job["data"]["ignore"]) == sorted(left_out)
    for name in left_out:
        assert name in said


@pytest.mark.parametrize(
    ("time", "event"),
    [
        ("time", "cens"),
        ("futime", "fustat"),
        ("survival", "censors"),
        ("time", "status"),
        ("stop", "event"),
        ("rfstime", "status"),
    ],
)
def test_a_time_with_an_event_is_a_survival_job(time: str, event: str, tmp_path: Path) -> None:
    """Names of R's `gehan`, `ovarian`, `veteran`, `heart` and `gbsg`, and statsmodels' `heart`; the time may be the response."""
    rng = np.random.default_rng(6)
    cells = zip(rng.uniform(1, 900, 60).round(1), [0, 1] * 30, rng.integers(40, 80, 60))
    file = tmp_path / "a.csv"
    file.write_text("\n".join([f"{time},{event},age", *(",".join(map(str, row)) for row in cells), ""]))
    for response in (time, event):
        path = tmp_path / f"{response}.toml"
        assert main(["init", str(file), "--response", response, "--out", str(path)]) == 0
        job = tomllib.loads(path.read_text())
        assert (job["data"]["time"], job["data"]["event"], job["model"]["family"]) == (time, event, "cox")
        assert main(["check", str(path), *few.SET]) == 0


@pytest.mark.parametrize("response", ["status", "time"])
def test_an_event_that_is_coded_as_1_and_2_is_of_a_survival_job(response: str, tmp_path: Path) -> None:
    """As R's `lung` has it: the larger value is the event, as in R's Surv; the job says so, and asks nothing."""
    rng = np.random.default_rng(5)
    rows = zip(rng.uniform(1, 900, 60).round(1), rng.integers(1, 3, 60), rng.integers(40, 80, 60))
    file, path = tmp_path / "a.csv", tmp_path / "job.toml"
    file.write_text("\n".join(["time,status,age", *(",".join(map(str, row)) for row in rows), ""]))
    assert main(["init", str(file), "--response", response, "--out", str(path)]) == 0
    job = tomllib.loads(path.read_text())
    assert (job["data"]["time"], job["data"]["event"], job["model"]["family"]) == ("time", "status", "cox")
    assert "positive" not in job["data"]
    assert main(["check", str(path), *few.SET]) == 0


def test_no_cell_is_written_or_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = odd(tmp_path)
    assert main(["init", str(path), "--out", str(tmp_path / "job.toml")]) == 2
    said = capsys.readouterr().err
    assert "which column is to be explained? give --response, one of Größe, Station" in said
    assert main(["init", str(path), "--response", "gestorben", "--out", str(tmp_path / "job.toml")]) == 0
    text = (tmp_path / "job.toml").read_text()
    job = tomllib.loads(text)
    assert job["data"]["dialect"] == {"delimiter": ";", "decimal": ",", "encoding": "cp1252"}
    assert job["data"]["ignore"] == ["Fall-Nr"]
    assert job["model"]["family"] == "bernoulli"
    for cell in ("Köln", "Zappa", "A-17", "171"):
        assert cell not in text + said
    # Rare levels: the next thing that a person must decide.
    assert main(["check", str(tmp_path / "job.toml"), *few.SET, "--set", "disclosure.rows_per_value=3", "--apart"]) == 2
    assert "refused by disclosure.rows_per_value" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["logistic", "vertical"])
def test_a_private_jobs_constants_are_asked_for_all_at_once(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = drafted(kind, simulated(kind, tmp_path), "--private")
    listed = capsys.readouterr().out
    assert main(["check", str(path)]) == 2
    said = capsys.readouterr().err
    names = ["x1", "x2", "x3"] if kind == "logistic" else [f"x{client}_{k}" for client in (1, 2, 3) for k in (1, 2, 3)]
    for name in names:
        assert name in said
        assert f"data.columns.{toml_key(name)}: center and scale" in listed
    text = path.read_text()
    assert text.count("[data.columns.") == len(names)  # not the response, not the id
    assert text.count("# center = .., scale = ..") == len(names)
    filled = text.replace("# center = .., scale = ..   (or lower = .., upper = ..)", "center = 0.0\nscale = 2.0")
    path.write_text(filled)
    assert main(["check", str(path)]) == 0, capsys.readouterr().err


def test_a_private_linear_draft_leaves_the_scale_to_be_filled_in(tmp_path: Path) -> None:
    """1.0 passed for a number that somebody knows."""
    rows = "\n".join(f"{k % 7 + 0.5},{k * 0.37 + 100.25}" for k in range(60))
    (tmp_path / "a.csv").write_text(f"x,bp\n{rows}\n")
    for private in ([], ["--private"]):
        out = tmp_path / f"job{len(private)}.toml"
        arguments = ["--method", "pvi", "--response", "bp", "--out", str(out), *private]
        assert main(["init", str(tmp_path / "a.csv"), *arguments]) == 0
        assert ("\nscale = 1.0" in out.read_text()) is not bool(private)
        assert "scale = " in out.read_text()


def test_a_private_draft_takes_the_response_that_it_was_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.csv").write_text("pid,age,gone\nA1,30.5,0\nA2,41.5,1\nA3,50.5,0\n")
    out = tmp_path / "job.toml"
    assert main(["init", str(tmp_path / "a.csv"), "--private", "--response", "gone", "--out", str(out)]) == 0
    assert [*tomllib.loads(out.read_text())["data"]["columns"]] == ["age"]
    assert main(["init", str(tmp_path / "a.csv"), "--private", "--method", "vertical", "--out", str(tmp_path / "v.toml")]) == 2
    assert "give --server FILE" in capsys.readouterr().err


def test_a_holders_policy(tmp_path: Path) -> None:
    path = odd(tmp_path)
    assert main(["init", str(path), "--holder", "--out", str(tmp_path / "policy.toml")]) == 0
    text = (tmp_path / "policy.toml").read_text()
    assert tomllib.loads(text)["data"]["nord"]["paths"] == [str(path)]
    read = policy.read_policies(tmp_path / "policy.toml")
    assert read.require
    assert [one.differencing for one in read.policies] == ["refuse"]


def test_the_policy_on_the_page_of_sites_is_one(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "site.md").read_text()
    (tmp_path / "policy.toml").write_text(page.partition("# policy.toml\n")[2].partition("```")[0])
    (only,) = policy.read_policies(tmp_path / "policy.toml").policies
    assert (only.data, only.differencing) == ("stroke", "refuse")


def test_a_holders_site_file_is_read_with_its_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file lies elsewhere and is written otherwise than the job says; the policy binds the job through the site file."""
    data, job = tmp_path / "data", tmp_path / "job"
    data.mkdir()
    job.mkdir()
    rows = "\n".join(f"{150 + (k * k * 3.217 + k) % 29:.3f};{k % 2}".replace(".", ",") for k in range(20))
    (data / "nord.csv").write_text(f"Größe;y\n{rows}\n", encoding="cp1252")
    (job / "nord.csv").write_text("nothing of the kind\n1\n")
    assert main(["init", str(data / "nord.csv"), "--holder", "--out", str(job / "policy.toml")]) == 0
    site = (job / "sites" / "nord.toml").read_text()
    expected = {"path": str(data / "nord.csv"), "policy": "../policy.toml"}
    assert tomllib.loads(site) == expected | {"dialect": {"delimiter": ";", "decimal": ",", "encoding": "cp1252"}}
    assert "# threads = " in site
    (job / "job.toml").write_text('[job]\nmethod = "pvi"\n[data]\nclients = ["nord.csv"]\nresponse = "y"\n')
    capsys.readouterr()
    assert main(["check", str(job / "job.toml")]) == 2
    assert "ask the holder to allow open jobs" in capsys.readouterr().err
    (job / "policy.toml").write_text((job / "policy.toml").read_text().replace("open = false", "open = true "))
    assert main(["check", str(job / "job.toml")]) == 0, capsys.readouterr().err
    assert main(["init", str(data / "nord.csv"), "--holder", "--out", str(job / "other.toml")]) == 2
    assert "nord.toml is there already" in capsys.readouterr().err
    assert not (job / "other.toml").exists()


NO_HEADERS = {
    "numbers": "171.5,Zappa,1\n160.0,Bowie,0\n",
    "twice": "171.5,171.5,1\n160.0,1,0\n",
    "dates": "1971-12-04,Zappa,x\n1974-05-24,Bowie,z\n",
    "commas": "171,5;Zappa;x\n160,0;Bowie;z\n",
    "words": "Zappa,Bowie\nCage,Bowie\nZappa,Cage\n",
    "zeros": "Zappa\0,Bowie\nCage,Bowie\n",
}


@pytest.mark.parametrize("name", NO_HEADERS)
@pytest.mark.parametrize("holder", [False, True])
def test_a_row_in_the_place_of_a_header_is_not_shown(
    name: str, holder: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text(NO_HEADERS[name])
    code = main(["init", "a.csv", *(["--holder"] if holder else []), "--out", "out.toml"])
    assert code == (0 if holder and name == "words" else 2)  # a holder's files are opened for their headers alone
    captured = capsys.readouterr()
    written = "".join(path.read_text() for path in tmp_path.rglob("*.toml")).replace(str(tmp_path), "")
    for cell in ("171", "160", "Zappa", "Bowie", "Cage", "1971"):
        assert cell not in captured.out + captured.err + written


ACCEPTED = {
    "quoted": '"a ""b"", c","#d","y"\n1.5,2.5,0\n2.5,3.5,1\n',
    "beyond 16 bits": "x\U0001f600,café,y\n1.5,2.5,0\n2.5,3.5,1\n",
    "del": "x\x7fz,w,y\n1.5,2.5,0\n2.5,3.5,1\n",
    "escape": "x\x1b[31m,w,y\n1.5,2.5,0\n2.5,3.5,1\n",
    "gaps": "x,w,y\n1.5,,0\n2.5,3.5,1\nNA,2.5,1\n1.5,2.5,0\n",
    "a level as its column": "x,ward,y\n" + "1.5,ward,0\n2.5,icu,1\n3.5,ward,1\n" * 3,
    "no response": "x,w,y\n1.5,2.5,\n2.5,3.5,1\n2.5,1.5,0\n",
    "tabs": "x\tw\ty\n1.5\t2.5\t0\n2.5\t3.5\t1\n",
    "bars": "x|w|y\n1.5|2.5|0\n2.5|3.5|1\n",
    "mark": "\ufeffx,w,y\n1.5,2.5,0\n2.5,3.5,1\n",
    "old Mac": "x,w,y\r1.5,2.5,0\r2.5,3.5,1\r",
    "dates": "when,x,y\n2020-01-01,1.5,0\n2020-01-02,2.5,1\n2020-01-03,3.5,1\n",
    "two values": "x,w,y\n1.5,2.5,1\n2.5,3.5,2\n2.5,1.5,1\n",
    "signs": "x,w,y\n1.5,2.5,-1\n2.5,3.5,1\n2.5,1.5,1\n",
}


@pytest.mark.parametrize("name", ACCEPTED)
@pytest.mark.parametrize("file", ["a.csv", "a[1].csv"])
def test_check_accepts_drafts_of_odd_files(name: str, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / file).write_bytes(ACCEPTED[name].encode())
    out = tmp_path / "job.toml"
    assert main(["init", str(tmp_path / file), "--out", str(out)]) == 0, capsys.readouterr().err
    assert main(["check", str(out), *few.SET]) == 0, capsys.readouterr().err
    said = {"gaps": 'missing = "drop"', "two values": 'family = "bernoulli"   # two values', "signs": 'family = "bernoulli"'}
    assert said.get(name, "") in out.read_text()


def rows(*columns: Any) -> str:
    return "".join(",".join(map(str, cells)) + "\n" for cells in zip(*columns))


AGES, LABELS = [20.5 + k for k in range(30)], [k % 2 for k in range(30)]
SLIPS = {
    "thousands": (
        "cost",
        [f'"{k},{100 + 7 * k}.5"' for k in range(1, 31)],
        "cells look like numbers with separators of thousands",
    ),
    "whole thousands": ("cost", [f'"{k},{100 + 7 * k}"' for k in range(1, 31)], "with separators of thousands"),
    "a point for what is missing": ("bmi", [25.5 + k / 10 if k > 2 else "." for k in range(30)], "a few cells are no numbers"),
    "blanks": ("cost", [f"{k} {100 + 7 * k}" for k in range(1, 31)], "cells look like numbers with separators of thousands"),
    "unit": ("sbp", [f"{110 + k} mmHg" for k in range(30)], "cells look like numbers with a unit behind"),
    "capitals": ("sex", ["fFmM"[k % 4] for k in range(30)], "levels differ in capitals or blanks alone"),
    "code": (
        "bmi",
        [25.5 + k / 10 if k > 1 else -9 for k in range(30)],
        "some cells have one value as programs write for a missing one",
    ),
    "far": ("bmi", [25.5 + k / 10 if k else 2550 for k in range(30)], "a cell is more than 20 robust standard deviations"),
    "rooms": ("room", [f"{k}{'abcdefghij'[k % 10]}" for k in range(30)], ""),
    "numbers": ("bmi", [25.5 + k / 10 for k in range(30)], ""),
}


@pytest.mark.parametrize("name", SLIPS)
def test_slips_of_the_pen_are_listed_without_a_cell(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    column, cells, said = SLIPS[name]
    (tmp_path / "a.csv").write_text(f"age,{column},y\n" + rows(AGES, cells, LABELS))
    assert main(["init", str(tmp_path / "a.csv"), "--out", str(tmp_path / "job.toml")]) == 0
    told = capsys.readouterr().out
    assert (f"column {column}: " in told) == bool(said)
    assert said in told
    assert "mmHg" not in told + (tmp_path / "job.toml").read_text()
    ignored = tomllib.loads((tmp_path / "job.toml").read_text())["data"].get("ignore", [])
    assert ignored == (["room"] if name == "rooms" else []), "what names its rows, and no numbers that are written otherwise"


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_codes_for_missing_values_are_a_line_to_fill_in(
    delimiter: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Filled in, they count as missing."""
    bmi = [25.5 + k / 10 if k > 1 else -9 for k in range(30)]
    (tmp_path / "a.csv").write_text(("age,bmi,y\n" + rows(AGES, bmi, LABELS)).replace(",", delimiter))
    out = tmp_path / "job.toml"
    assert main(["init", str(tmp_path / "a.csv"), "--out", str(out)]) == 0
    text = out.read_text()
    (line,) = (line for line in text.splitlines() if line.startswith("# missing = "))
    assert '# Some cells of "bmi" have one value' in text
    assert tomllib.loads(text)["data"].get("dialect", {}) == ({} if delimiter == "," else {"delimiter": ";"})
    out.write_text(text.replace(line, 'missing = ["-9"]'))
    assert main(["check", str(out), *few.SET, "--set", "model.missing=drop", "--local", str(tmp_path / "a.csv")]) == 0
    assert "28 rows" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("cells", "codes"),
    [
        ([f"{1000 + 7 * k:05d}" for k in range(30)], True),
        ([f"{(1 + k % 12):02d}" for k in range(30)], True),
        (["0150" if k == 3 else str(2000 + k) for k in range(30)], True),
        (["05" if k == 3 else str(98 + k) for k in range(30)], False),
        ([f"0.{k:02d}" for k in range(30)], False),
        ([k % 3 for k in range(30)], False),
    ],
    ids=["postal codes", "months", "one", "ages", "decimals", "small"],
)
def test_whole_numbers_with_zeros_before_them_are_no_numbers(
    cells: list[Any], codes: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_text("age,plz,y\n" + rows(AGES, cells, LABELS))
    (tmp_path / "b.csv").write_text("age,plz,y\n" + rows(AGES, [cells[-1]] * 30, LABELS))
    out = tmp_path / "job.toml"
    assert main(["init", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), "--out", str(out)]) == 0
    assert tomllib.loads(out.read_text())["data"].get("ignore", []) == (["plz"] if codes else [])


def test_files_that_code_a_column_otherwise_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for site, first in (("a", 0), ("b", 1)):
        (tmp_path / f"{site}.csv").write_text("age,smoker,y\n" + rows(AGES, [first + k % 2 for k in range(30)], LABELS))
    files = [str(tmp_path / f"{site}.csv") for site in "ab"]
    assert main(["init", *files, "--out", str(tmp_path / "job.toml")]) == 0
    assert "column smoker: two values in each file, and not the same two in all; code it alike" in capsys.readouterr().out


@pytest.mark.parametrize("title", ["Secret ward", "Secret ward,,", "Secret ward,2024"])
def test_a_title_above_the_header_is_said(title: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.csv").write_text(f"{title}\nage,sex,y\n" + rows(AGES, ["f", "m"] * 15, LABELS))
    assert main(["init", str(tmp_path / "a.csv"), "--out", str(tmp_path / "job.toml")]) == 2
    said = capsys.readouterr().err
    assert "title" in said
    assert "remove" in said.lower()
    assert "Secret" not in said


def test_a_column_without_a_cell_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("age,z,y\n" + "\n".join(f"{k}.5,,{k % 2}" for k in range(30)) + "\n")
    assert main(["init", str(tmp_path / "a.csv"), "--out", str(tmp_path / "job.toml")]) == 0
    drafted = tomllib.loads((tmp_path / "job.toml").read_text())
    assert drafted["data"]["ignore"] == ["z"]
    assert "missing" not in drafted["model"]


def test_names_are_those_of_the_header_in_a_private_draft_too(tmp_path: Path) -> None:
    for name in ("beyond 16 bits", "del", "quoted", "escape"):
        (tmp_path / "a.csv").write_text(ACCEPTED[name], encoding="utf-8")
        out = tmp_path / f"{name}.toml"
        assert main(["init", str(tmp_path / "a.csv"), "--private", "--out", str(out)]) == 0
        columns = [*tomllib.loads(out.read_text(encoding="utf-8"))["data"]["columns"]]
        assert columns == {"quoted": ['a "b", c', "#d"], "del": ["x\x7fz", "w"], "escape": ["x\x1b[31m", "w"]}.get(
            name, ["x\U0001f600", "café"]
        )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--method", "pvy"], "init --method pvy: there are pvi, likelihood, vertical, sigma, sparse"),
        (["--method", "sparse", "--private"], 'method = "sparse" makes no privacy claim'),
        (["--method", "sigma", "--response", "y"], "no column is called as areas are"),
        (["--response", "zz"], "init --response zz: there is no such column"),
        (["nowhere.csv"], "no such file"),
        (["two.csv"], "which column is to be explained? give --response, one of cases, status"),
        (["none.csv"], "no rows, so that nothing tells what its columns hold"),
        (["sub/a.csv"], "two of the files would both be client 'a'; rename one"),
        (["a\udcff.csv"], "cannot be written into a TOML file"),
        (["a\udcff.csv", "--holder"], "cannot be written into a TOML file"),
    ],
)
def test_what_cannot_be_drafted(
    tmp_path: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    for name in ("a.csv", "sub/a.csv", "a\udcff.csv"):
        Path(name).write_text("x,y\n1,0\n2,1\n")
    Path("two.csv").write_text("status,cases,x\n1,3,1.5\n0,4,2.5\n")
    Path("none.csv").write_text("x,y\n")
    files = arguments if arguments[0] in ("two.csv", "none.csv") else ["a.csv", *arguments]
    assert main(["init", *files]) == 2
    assert said in capsys.readouterr().err
    assert not Path("job.toml").exists()


def test_files_with_other_columns_and_a_file_that_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("x,y\n1,0\n2,1\n")
    Path("b.csv").write_text("x,z,y\n1,0,1\n2,1,0\n")
    assert main(["init", "a.csv", "b.csv"]) == 2
    assert "b.csv has other columns than the rest" in capsys.readouterr().err
    Path("job.toml").write_text("mine")
    assert main(["init", "a.csv"]) == 2
    assert "job.toml is there already" in capsys.readouterr().err
    assert Path("job.toml").read_text() == "mine"


@pytest.mark.parametrize("method", METHODS)
def test_the_schema_knows_what_check_knows(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "--method", method]) == 0
    schema: dict[str, Any] = json.loads(capsys.readouterr().out)
    jsonschema.Draft7Validator.check_schema(schema)
    good = {"job": {"method": method, "rounds": "until"}, "data": {"clients": "a.csv"}}
    jsonschema.validate(good, schema)
    jsonschema.validate(good | {"data": {"clients": ["a.csv"]}}, schema)
    for wrong in ({"rounds": "budjet"}, {"rounds": 0}, {"method": "pvy"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"job": wrong}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"job": {"metod": method}, "data": {}}, schema)
    assert schema == json.loads(draft.schema(method))


def test_an_unknown_method_of_a_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "--method", "sparce"]) == 2
    assert 'did you mean "sparse"?' in capsys.readouterr().err


@pytest.fixture(scope="module")
def completions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all shells' scripts, which an installed package has (`api/test_stubs.py`)."""
    folder = tmp_path_factory.mktemp("completion")
    written = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "stubs.py"))["completions"]()
    for name, text in written.items():
        (folder / Path(name).name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def _installed(completions: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fedkern.cli.__main__, "COMPLETIONS", completions)


@pytest.mark.usefixtures("_installed")
def test_completion(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in ("bash", "fish", "tcsh", "zsh"):
        with pytest.raises(SystemExit, match="0"):
            main(["--print-completion", shell])
        assert {"launch", "predict", "reproduce"} <= set(re.findall(r"\w+", capsys.readouterr().out))
    with pytest.raises(SystemExit, match="2"):
        main(["--print-completion", "ksh"])
    assert re.findall(r"bash|fish|tcsh|zsh", capsys.readouterr().err) == ["bash", "fish", "tcsh", "zsh"]


def test_bash_completes_a_command(completions: Path) -> None:
    """Bash itself is asked what follows `fedkern rep`."""
    script = "source /dev/stdin; COMP_WORDS=(fedkern rep); COMP_CWORD=1; _shtab_fedkern; printf '%s\\n' \"${COMPREPLY[@]}\""
    text = (completions / "fedkern.bash").read_text(encoding="utf-8")
    shown = subprocess.run(["bash", "-c", script], input=text, capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["report", "replay", "reproduce"]


def hospitals(folder: Path, rows: int = 240) -> list[str]:
    """Files as hospitals have them: with the date of admission, a ward's number and the surgeon's name."""
    for k, name in enumerate(("oslo", "graz", "lyon")):
        lines = [
            f"{1000 * k + i},{101 + 1000 * k + i % 8},2024-{1 + i * 7 % 12:02d}-{1 + i * 11 % 28:02d},"
            f"Dr {'abcdefghijkl'[i * 5 % 12]}{i * 13 % 17},{40 + i * 37 % 411 / 10},{110 + i * 29 % 71},"
            f"{('female', 'male')[i // 3 % 2]},{int(i * i % 7 < 3)}"
            for i in range(rows)
        ]
        (folder / f"{name}.csv").write_text("\n".join(["patient_id,ward,admitted,surgeon,age,sbp,sex,died", *lines]) + "\n")
    return [str(folder / f"{name}.csv") for name in ("oslo", "graz", "lyon")]


def test_dates_and_crowded_categories_are_left_out_and_codes_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The draft of ordinary files passes its own check, unchanged and with each of the remedies that its comments name."""
    files, path = hospitals(tmp_path), tmp_path / "job.toml"
    assert main(["init", *files, "--out", str(path)]) == 0
    text = path.read_text()
    assert tomllib.loads(text)["data"]["ignore"] == ["patient_id", "admitted", "surgeon"]
    assert '# "admitted": dates. Written as YYYY-MM-DD' in text
    assert '# "surgeon": nearly as many levels as rows' in text
    assert '# "ward": taken for a number, with a slope' in text
    assert '# group = "ward"' in text
    assert "2024" not in text
    assert main(["check", str(path)]) == 0, capsys.readouterr().err
    for more in (["model.random.group=ward"], ["data.columns.ward.kind=categorical"]):
        sets = [f"--set={one}" for one in more]
        assert main(["check", str(path), *sets]) == 0, capsys.readouterr().err


def test_a_column_of_too_many_levels_is_named_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files, path = hospitals(tmp_path, 150), tmp_path / "job.toml"
    assert main(["init", *files, "--out", str(path)]) == 0
    ignored = '--set=data.ignore=["patient_id", "surgeon"]'
    capsys.readouterr()
    ignored = [ignored, '--set=data.columns.admitted.kind="categorical"', '--set=disclosure.rare="refuse"']
    assert main(["check", str(path), *ignored, "--apart"]) != 0
    assert "refused by disclosure.rows_per_" in capsys.readouterr().err
    assert main(["check", str(path), *ignored, "--local", files[1]]) != 0
    own = capsys.readouterr()
    counts = re.findall(r"(\d+) coefficients", own.out + own.err)
    assert len({*counts}) == 1, "one count, wherever it is said"
    assert "take fewer columns; 'admitted' has the most levels: join them" in own.out
    assert "(84 of them of column 'admitted') (of 88 identified ones)" in own.out + own.err


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("age", [20 + k % 70 for k in range(240)]),  # years
        ("visits", [k % 6 for k in range(240)]),
        ("stage", [1 + k % 4 for k in range(240)]),
        ("score", [15 + k / 7 for k in range(240)]),
        ("visit", [f"{k % 5}/7" for k in range(240)]),  # no date
    ],
)
def test_ordinary_columns_stay_covariates_without_a_word(name: str, cells: list[Any], tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"x,{name},y\n" + rows([k / 3 for k in range(240)], cells, [k % 2 for k in range(240)]))
    assert main(["init", str(tmp_path / "a.csv"), "--out", str(tmp_path / "job.toml")]) == 0
    text = (tmp_path / "job.toml").read_text()
    assert "ignore" not in tomllib.loads(text)["data"]
    assert "taken for a number" not in text


RNG = np.random.default_rng(8)
GRAMS = [2700, 4150, 6300, *RNG.integers(60, 120, 57) * 50]  # as body_mass_g of penguins
BREAKS = [0, 1, 1, 2, *RNG.poisson(3, 56)]
EXPLAINED: dict[str, tuple[list[Any], str, str]] = {
    "measured whole numbers": (GRAMS, "gaussian", '"poisson" if they count something'),
    "whole numbers in a column of decimals": ([*map(float, GRAMS)], "gaussian", '"poisson" if they count something'),
    "counts": (BREAKS, "poisson", '"gaussian" if they are measurements, "multinomial" if they number classes'),
    "numbers": (RNG.normal(size=60).round(3).tolist(), "gaussian", ""),
    "0 and 1": ([0, 1] * 30, "bernoulli", ""),
    "two labels": (["alive", "dead"] * 30, "bernoulli", "else all files' labels decide, and the result says it"),
    "three labels": (["setosa", "virginica", "versicolor"] * 20, "multinomial", 'or "ordinal", where the labels have an order'),
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_the_family_is_the_response_s_and_check_agrees(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells, family, said = EXPLAINED[name]
    for k, client in enumerate("ab"):
        x = np.random.default_rng(k).normal(size=60).round(3)
        (tmp_path / f"{client}.csv").write_text("x,y\n" + rows(x, cells))
    path = tmp_path / "job.toml"
    assert main(["init", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), "--response", "y", "--out", str(path)]) == 0
    text = path.read_text()
    assert f'family = "{family}"' in text
    assert said in text
    asked = capsys.readouterr().out
    assert ("data.levels: the labels of y" in asked) == (family == "multinomial")
    assert "data.positive" not in asked
    path.write_text(text.replace('# levels = ["..", ".."]', 'levels = ["setosa", "versicolor", "virginica"]'))
    assert main(["check", str(path), *few.SET]) == 0, capsys.readouterr().err


# Classes of wine are 0, 1 and 2: nothing tells them from counts.
SHIPPED = {"iris": "multinomial", "wine": "poisson", "breast_cancer": "bernoulli", "diabetes": "gaussian"}


@pytest.mark.parametrize("name", SHIPPED)
def test_check_agrees_with_drafts_of_public_files(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bunch = getattr(pytest.importorskip("sklearn.datasets"), f"load_{name}")(as_frame=True)
    frame = bunch.frame.rename(columns=lambda column: re.sub(r"\W+", "_", column).strip("_")).iloc[:, -7:]
    if name == "iris":
        frame["target"] = bunch.target_names[frame["target"]]
    frame = frame.sample(frac=1, random_state=1)
    for client, part in (("a", frame[::2]), ("b", frame[1::2])):
        part.to_csv(tmp_path / f"{client}.csv", index=False)
    path = tmp_path / "job.toml"
    assert main(["init", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), "--response", "target", "--out", str(path)]) == 0
    text = path.read_text()
    assert f'family = "{SHIPPED[name]}"' in text
    path.write_text(text.replace('# levels = ["..", ".."]', f"levels = {[*map(str, bunch.get('target_names', ()))]}"))
    assert main(["check", str(path), *few.SET]) == 0, capsys.readouterr().err
