"""A refused job is an answer of one bit: at a holder whose policy forbids jobs that differ by little, none of them counts rows.

Whoever writes the jobs chooses which rows count, and how many it asks for. What others read of each job (its text, its exit code,
what the run leaves outside of the holder's own folder) is compared between files that differ by one patient.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern as package
from fedkern.errors import JobError
from fedkern.jobs import holders
from fedkern.jobs.holding.policy import Policy

ROWS, REFUSED = 60, "client 'b': refused by the holder's policy"
STRICT = '[disclosure]\nlevel = "strict"\ndifferencing = "refuse"'


def rows(root: Path, name: str, n: int = ROWS, of: str = "west", alone: int = 0) -> None:
    """A client's file. The patient of row 7 alone has a bmi of 41.7; the clinic of that one is `of`, and the other's who has been
    to row 8's. u is empty in row 3, v in the last 25 rows; `alone` rows have icu = 1."""
    random = np.random.default_rng(sum(name.encode()))
    clinic = random.choice(["north", "west"], n).tolist()
    clinic[7:9] = [of, "north" if of == "west" else "west"]
    lines = ["x,bmi,clinic,y,u,v,icu"]
    for i, (x, bmi, u) in enumerate(random.normal(size=(n, 3))):
        cells = ["" if i == 3 else f"{u:.3f}", "" if i >= n - 25 else f"{u:.2f}", str(int(i < alone))]
        lines.append(f"{x:.3f},{41.7 if i == 7 else round(27 + bmi, 2)},{clinic[i]},{i % 2},{','.join(cells)}")
    (root / f"{name}.csv").write_text("\n".join(lines) + "\n")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    made = tmp_path / "home" / ".fedkern"
    made.mkdir(parents=True)
    (made / "policy.toml").write_text(f"open = true\n{STRICT}\n[data.b]\n")
    return made


@pytest.fixture
def job(tmp_path: Path, home: Path) -> Path:
    rows(tmp_path, "a", 3 * ROWS)
    rows(tmp_path, "b")
    path = tmp_path / "job.toml"
    path.write_text(
        '[job]\nrounds = 1\n[data]\nclients = ["a.csv", "b.csv"]\nresponse = "y"\nignore = ["clinic", "u", "v", "icu"]\n'
        '[model]\nmissing = "drop"\nfamily = "gaussian"\nscale = 1.0\n'
    )
    return path


def using(*columns: str) -> tuple[str, str]:
    """The job with more of the columns: rows in which they are empty do not count."""
    return "--set", f"data.ignore={json.dumps([name for name in ('clinic', 'u', 'v', 'icu') if name not in columns])}"


def asking(least: int) -> tuple[str, str]:
    return "--set", f"disclosure.rows={least}"


def noted(home: Path) -> list[str]:
    budget = home / "budget.jsonl"
    return [json.loads(line)["unaccounted"] for line in budget.read_text().splitlines()] if budget.exists() else []


def the_old_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are counted before the account is asked, codes are the job's, and who was refused is forgotten."""
    monkeypatch.setattr(Policy, "refuses_empty_words", lambda policy: None)
    monkeypatch.setattr(holders, "asked", lambda *arguments: None)


def answers(root: Path, of: str) -> Iterator[str]:
    """What a curious server reads of a series of jobs, about the clinic of the one patient with a bmi of 41.7."""
    rows(root, "b", of=of)
    for codes in (["west"], ["west", "41.7"]):
        for least in range(37, 44):
            sections: dict[str, Any] = {
                "job": {"rounds": 1},
                "data": {"clients": [str(root / f"{name}.csv") for name in "ab"], "response": "y"},
                "disclosure": {"level": "strict", "rows": least, "rows_per_value": least // 2},
                "model": {"family": "gaussian", "scale": 1.0, "missing": "drop"},
            }
            sections["data"] |= {"dialect": {"missing": codes}, "ignore": ["u", "v", "icu"]}
            try:
                package.run(sections)
                yield f"{codes} {least}: ran"
            except JobError as error:
                yield f"{codes} {least}: {re.sub(r'[0-9]+ rows', 'n rows', str(error))}"


@pytest.mark.parametrize("old", [False, True])
def test_a_series_of_refused_jobs_reads_no_cell(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, old: bool) -> None:
    """Planted: in the old order the answers tell the clinics apart."""
    if old:
        the_old_order(monkeypatch)
    rows(tmp_path, "a", 3 * ROWS)
    seen = []
    for of in ("west", "north"):
        home.joinpath("budget.jsonl").unlink(missing_ok=True)
        monkeypatch.setenv("HOME", str(tmp_path / of))
        (tmp_path / of / ".fedkern").mkdir(parents=True)
        (tmp_path / of / ".fedkern" / "policy.toml").write_text((home / "policy.toml").read_text())
        seen.append([*answers(tmp_path, of)])
    assert (seen[0] == seen[1]) is not old


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("command", ["run", "check"])
def test_a_refused_job_is_an_earlier_one(
    fedkern: Any, job: Path, home: Path, monkeypatch: pytest.MonkeyPatch, command: str, old: bool
) -> None:
    """Whether 60 rows are there, and then whether 59 are, is whether the one row has a cell."""
    if old:
        the_old_order(monkeypatch)
    refused = fedkern(command, job, *asking(ROWS + 1))
    assert (refused.code, REFUSED in refused.err) == (2, not old)
    near = fedkern(command, job, *using("u"))
    assert near.code == (0 if old else 2)
    if not old:
        assert fedkern(command, job).code == 0, "the same rows"
        assert near.err == refused.err
        assert noted(home).count("asked") == 2, "what was refused for its rows tells nothing of how many they are"
        far = fedkern(command, job, *using("v"))
        assert far.code == 0, far.err


def read_by_others(out: Path) -> dict[str, bytes]:
    """All files of a run but those of b's own folder, without times and ids."""
    there = [path for path in sorted(out.rglob("*")) if path.is_file() and "client-b" not in path.parts]
    ids = rb"[0-9a-f]{32,}|\d{4}-\d\d-\d\dT[\d:+.]+"
    return {str(path.relative_to(out)): re.sub(ids, b"", path.read_bytes()) for path in there}


def test_few_alike_and_nearly_known_rows_are_one_sentence(fedkern: Any, tmp_path: Path, job: Path, home: Path) -> None:
    """Its holder reads which it was, in its own folder and by check --local."""
    assert fedkern("run", job, "--out", "first", "--quiet").code == 0
    rows(tmp_path, "a", 3 * ROWS, alone=30)
    rows(tmp_path, "b", alone=1)
    why = {
        "few": (asking(ROWS + 1), f"{ROWS} rows that count; {ROWS + 1} are asked for"),
        "near": (using("u"), "were those of this one but for fewer than 20"),
        "alike": (using("icu"), "rows that values of 'icu' have to themselves: 1"),
        "near and few": ((*using("u"), *asking(ROWS + 1)), f"fewer than 20: {'what was told'}"),
    }
    seen = []
    for name, (more, own) in why.items():
        run = fedkern("run", job, "--out", name, "--quiet", *more)
        check = fedkern("check", job, *more)
        assert REFUSED in run.err
        seen.append((run.code, run.err, run.out, check.code, check.err, check.out, read_by_others(Path(name))))
        assert own in (Path(name) / "client-b" / "holder.txt").read_text()
        local = fedkern("check", job, "--local", tmp_path / "b.csv", *more)
        assert local.code == 2
        assert name == "near and few" or own in local.out
    assert all(one == seen[0] for one in seen[1:]), seen
    assert f"{ROWS + 1} are asked for" in (Path("near and few") / "client-b" / "holder.txt").read_text(), "both are looked at"


def test_who_is_left_out_is_not_told_why_to_others(fedkern: Any, tmp_path: Path, job: Path, home: Path) -> None:
    rows(tmp_path, "c")
    job.write_text(job.read_text().replace('"a.csv"', '"a.csv", "c.csv"').replace("[data]\n", '[data]\nsmall = "leave-out"\n'))
    assert fedkern("run", job, "--out", "first", "--quiet").code == 0
    rows(tmp_path, "b", ROWS - 1)
    more = asking(ROWS)
    rows(tmp_path, "d", ROWS)
    assert fedkern("run", job, "--out", "near", "--quiet", *more).code == 0
    (tmp_path / "b.csv").write_text("\n".join((tmp_path / "d.csv").read_text().splitlines()[:-1]) + "\n")
    assert fedkern("run", job, "--out", "few", "--quiet", *more).code == 0
    assert "nearly" not in (Path("few") / "client-b" / "holder.txt").read_text()
    assert "fewer than 20" in (Path("near") / "client-b" / "holder.txt").read_text()
    summaries = [json.loads((Path(name) / "summary.json").read_text()) for name in ("near", "few")]
    assert summaries[0]["notes"] == summaries[1]["notes"]
    assert any("client 'b' is left out: refused by" in note for note in summaries[0]["notes"])
    assert summaries[0]["digest"] == summaries[1]["digest"]


def test_the_same_job_may_ask_again(fedkern: Any, tmp_path: Path, job: Path, home: Path) -> None:
    """Of few rows, when there are more of them: the job chooses nothing anew."""
    rows(tmp_path, "b", 15)
    assert fedkern("run", job, "--quiet").code == 2
    rows(tmp_path, "b", 30)
    assert fedkern("run", job, "--quiet").code == 0
    assert fedkern("run", job, "--quiet", *using("u")).code == 2


def test_what_counts_as_empty_is_the_holders_to_say(fedkern: Any, tmp_path: Path, job: Path, home: Path) -> None:
    codes = ("--set", 'data.dialect.missing=["41.7"]')
    for command in (("run", job, "--quiet"), ("check", job), ("check", job, "--local", tmp_path / "b.csv")):
        ended = fedkern(*command, *codes)
        assert ended.code == 2
        assert "data.dialect.missing" in ended.err + ended.out
    assert "which the policy leaves to the holder" in fedkern("check", job, *codes).err
    assert noted(home) == [], "no row was looked at"
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites" / "b.toml").write_text('[dialect]\nmissing = ["-9"]\n')
    for command in (("run", job, "--quiet"), ("check", job), ("check", job, "--local", tmp_path / "b.csv")):
        assert fedkern(*command, *codes).code == 0, "b's own file says it"
    (home / "policy.toml").write_text("open = true\n[data.b]\n")
    (tmp_path / "sites" / "b.toml").unlink()
    assert fedkern("check", job, *codes).code == 0


def test_the_holder_sees_who_has_asked(fedkern: Any, job: Path, home: Path) -> None:
    assert fedkern("check", job).code == 0
    assert fedkern("run", job, "--quiet", *asking(ROWS + 1)).code == 2
    assert len(re.findall(r"-1 +20\S+ +asked ", said := fedkern("budget", home).out)) == 2, said
