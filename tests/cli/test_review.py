"""`fedkern review`: every fact of a draft is this job's, fields stay empty, and nothing is judged."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from fedkern.cli.review import EMPTY

JUDGED = re.compile(r"anonym|complian|compliant|\b(un)?safe(ly|r|st)?\b|GDPR", re.IGNORECASE)
PAGES = Path(__file__).parents[2] / "docs"
PRIVATE = """
[data.columns]
age = {center = 40, scale = 10}
[privacy]
epsilon = 2.0
delta = 1e-4
clip = 2.5
sampling_rate = 0.1
noise_multiplier = 4.0
noise_source = "%s"
"""


@pytest.fixture
def written(job: Any, tmp_path: Path) -> Any:
    def write(more: str = "", method: str = "likelihood") -> Path:
        for name, shift in (("ada", 0), ("bo", 1)):
            rows = [f"{30 + (0.37 * i + shift) % 40:.2f},{(3 * i + shift) % 5}" for i in range(200)]
            (tmp_path / f"{name}.csv").write_text("\n".join(["age,visits", *rows]) + "\n")
        clients = f'clients = ["{tmp_path}/ada.csv", "{tmp_path}/bo.csv"]\nresponse = "visits"\n'
        return job(f'[job]\nmethod = "{method}"\n[model]\nfamily = "poisson"\n[data]\n{clients}{more}')

    return write


@pytest.mark.parametrize("form", ["dpia", "security"])
def test_facts_are_those_of_check_and_nothing_is_judged(fedkern: Any, written: Any, form: str) -> None:
    path = written()
    check, draft = fedkern("check", path).out, fedkern("review", path, "--form", form).out
    for block in re.findall(r"```text\n(.*?)\n```", draft, re.DOTALL):
        assert all(line in check for line in block.splitlines())
    cells = re.findall(r"^\| [^|]* \| ([^|]*) \| `fedkern check [^|`]*` \|$", draft, re.MULTILINE)
    assert all(cell in check or cell in ("not asked", "the job adds none") for cell in cells)
    assert len(cells) >= (3 if form == "dpia" else 1)
    assert "SchemaReply" in draft
    assert draft.count(EMPTY) >= 6
    assert not JUDGED.search(draft)
    rows = [line for line in draft.splitlines() if line.startswith("| ") and not line.startswith(("| |", "| ---"))]
    assert all(len(re.split(r"(?<!\\)\|", line)) == 5 and line.split("|")[-2].strip() for line in rows)  # each has its source


@pytest.mark.parametrize(("source", "words"), [("secure", "the system's entropy"), ("keyed", "no noise that protects anybody")])
def test_noise_comes_from_where_the_job_says(fedkern: Any, written: Any, source: str, words: str) -> None:
    path = written(PRIVATE % source, "pvi")
    assert words in fedkern("review", path, "--form", "security").out
    draft = fedkern("review", path).out
    assert "Why no noise is added" not in draft
    assert "poisson 0.1" in draft  # the plan
    assert "Why no noise is added" in fedkern("review", written()).out


def test_policies_and_code_of_others_are_named(
    fedkern: Any, written: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "policy.toml").write_text('open = true\n[data.ada]\npaths = ["/nowhere/ada.csv"]\n')
    monkeypatch.setenv("FEDKERN_CLIENT_HOME", str(home))
    assert str(home / "policy.toml") in fedkern("review", written(), "--form", "security").out


def test_a_draft_that_was_filled_in_is_not_written_over(fedkern: Any, written: Any) -> None:
    path = written()
    assert fedkern("review", path, "--out", "draft.md").code == 0
    before = Path("draft.md").read_text()
    ended = fedkern("review", path, "--out", "draft.md")
    assert (ended.code, "give another name" in ended.err) == (2, True)
    assert Path("draft.md").read_text() == before


def test_pages_for_organisations_judge_nothing() -> None:
    for path in PAGES.glob("start/organisations*.md"):
        assert not JUDGED.search(path.read_text()), path
