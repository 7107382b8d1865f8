"""`fedkern review`: every fact of a draft is this job's, fields stay empty, and nothing is judged."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from fedkern.bridges.digest import digest_of
from fedkern.cli.review import EMPTY
from fedkern.methods import load

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
    check, draft = fedkern("check", "--verbose", path, "--apart").out, fedkern("review", path, "--form", form).out
    for block in re.findall(r"```text\n(.*?)\n```", draft, re.DOTALL):
        assert all(line in check for line in block.splitlines())
    cells = re.findall(r"^\| [^|]* \| ([^|]*) \| `fedkern check [^|`]*` \|$", draft, re.MULTILINE)
    assert all(cell in check or cell in ("not asked", "the job adds none") for cell in cells)
    assert all((PAGES.parent / page).is_file() for page in re.findall(r"docs/[\w/-]+\.md", draft))
    assert len(cells) >= (3 if form == "dpia" else 1)
    assert "SchemaReply" in draft
    assert "SchemaReply.text: names and kinds of the columns" in draft
    assert ("AskSchema" in draft) == (form == "security")  # a message to the holder
    assert digest_of(load(path)[0]).hex() in draft  # by which the holder accepts it
    assert draft.count(EMPTY) >= 6
    assert not JUDGED.search(draft)
    rows = [line for line in draft.splitlines() if line.startswith("| ") and not line.startswith(("| |", "| ---"))]
    assert all(len(re.split(r"(?<!\\)\|", line)) == 5 and line.split("|")[-2].strip() for line in rows)  # each has its source


FACTS = {  # page -> words of it that a line of a draft rests on
    "how-to/mpi.md": ("the parties compare it before anything else", "Press Ctrl-C (INT), or send TERM"),
    "how-to/site.md": ("consent.toml", "audit.jsonl", "mode 0600 in a folder of mode 0700"),
    "how-to/policy.md": ("budget.jsonl", "beside the data", "~/.local/state/fedkern"),
    "how-to/files.md": ("a faulty row ends the job", "it weighs nothing, and nobody else learns of it"),
    "develop/architecture.md": ("kind, shapes, sizes and checksum are compared", "no pickle, ever"),
    "start/index.md": ("what only the client may see, closed to other users (0700)",),
}


@pytest.mark.parametrize("page", FACTS)
def test_pages_that_a_draft_names_have_the_fact(page: str) -> None:
    text = " ".join((PAGES / page).read_text().split())
    assert [words for words in FACTS[page] if words not in text] == []


def test_modes_of_files_are_those_of_the_draft(fedkern: Any, written: Any, tmp_path: Path) -> None:
    path = written()
    draft = fedkern("review", path, "--form", "security").out
    assert "`client-NAME` and `ledger` for its user alone (0700), all else as the user's mask says" in draft
    before = os.umask(0o022)
    try:
        assert fedkern("run", path, "--out", "out", "--quiet").code == 0
    finally:
        os.umask(before)
    modes = {one.relative_to("out").as_posix(): one.stat().st_mode & 0o777 for one in Path("out").iterdir()}
    assert (modes["client-ada"], modes["summary.json"], modes["posterior.nc"]) == (0o700, 0o644, 0o644)
    assert modes["ledger"] == 0o700
    assert {one.stat().st_mode & 0o777 for one in Path("out/ledger").iterdir()} == {0o600}


@pytest.mark.parametrize("form", ["dpia", "security"])
def test_a_holder_drafts_it_with_its_own_file_alone(
    fedkern: Any, tmp_path: Path, written: Any, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other organisations' files are not here, and the site's policy lies where the site file says."""
    monkeypatch.setenv("FEDKERN_SITE", "")  # --site sets it for the process
    monkeypatch.delenv("FEDKERN_SITE")
    path = written()
    (tmp_path / "bo.csv").unlink()
    refused = fedkern("review", path, "--form", form)
    assert (refused.code, "site" in refused.err) == (2, True)
    site = tmp_path / "own" / "site.toml"
    site.parent.mkdir()
    site.write_text(f'client = "ada"\npath = "{tmp_path}/ada.csv"\npolicy = "mine.toml"\n')
    terms = f'open = true\nplaces = ["fedkern.places:Spoke"]\n[data.ada]\npaths = ["{tmp_path}/ada.csv"]\n'
    site.with_name("mine.toml").write_text(terms)
    draft = fedkern("review", path, "--form", form, "--site", site).out
    assert "Only the file of ada is here" in draft
    assert str(site.with_name("mine.toml")) in draft
    assert ("| ada: `age`, `visits` |" in draft) == (form == "dpia")
    # A policy that does not let sites of a relay carry messages ends it, as it ends the job.
    site.with_name("mine.toml").write_text(terms.replace('places = ["fedkern.places:Spoke"]\n', ""))
    assert fedkern("review", path, "--form", form, "--site", site).code == 2


def test_columns_and_results_of_single_clients_are_named(fedkern: Any, written: Any) -> None:
    path = written()
    draft = fedkern("review", path, "--set", "output.without=true", "--set", "output.sites=true").out
    assert "`output.without`: the result without one client" in draft
    assert "`output.sites`: the result of each client's rows alone" in draft
    draft = fedkern("review", path).out
    assert "no result of single clients" in draft
    assert "| ada, bo: `age`, `visits` |" in draft


def test_limits_of_secure_sums_are_named(fedkern: Any, written: Any, tmp_path: Path) -> None:
    path = written()
    (tmp_path / "cy.csv").write_text((tmp_path / "bo.csv").read_text().replace(".5", ".6"))
    text = (
        path.read_text().replace("[model]", 'sums = "secure"\n[model]', 1).replace('/bo.csv"]', f'/bo.csv", "{tmp_path}/cy.csv"]')
    )
    path.write_text(text)
    draft = fedkern("review", path).out
    for words in ("nobody signs them here", "it hides whose number it was, not what the sum says", "X'WX of all clients' rows"):
        assert words in draft
    assert "tells X'WX of its rows" not in draft
    assert "without a mask" not in draft
    singly = ("--set", "output.without=true", "--set", "job.sums_except=without")
    for form in (("review", path), ("review", path, "--form", "security")):
        draft = fedkern(*form, *singly).out
        assert "log-likelihoods at the draws (SingleValues): these leave one by one, without a mask" in draft
        assert "`SingleValues`" in draft or "SingleValues " in draft
    assert (
        "`job.sums_except`: for it each client sends log-likelihoods of its own, one by one"
        in fedkern("review", path, *singly).out
    )


def test_a_coordinator_without_rows_reads_what_to_do(fedkern: Any, written: Any, tmp_path: Path) -> None:
    path = written()
    for name in ("ada", "bo"):
        (tmp_path / f"{name}.csv").rename(tmp_path / f"{name}.kept")
    said = fedkern("review", path)
    assert said.code == 2
    assert "put invented rows with the same columns at each path of data.clients" in said.err
    for name in ("ada", "bo"):  # which is done
        (tmp_path / f"{name}.kept").rename(tmp_path / f"{name}.csv")
    assert fedkern("review", path).code == 0


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


@pytest.mark.parametrize("form", ["dpia", "security"])
def test_the_folder_that_a_job_names_for_clients_is_named(fedkern: Any, written: Any, form: str) -> None:
    path = written('[output]\nclient_folder = "elsewhere"\n')
    draft = fedkern("review", path, "--form", form).out
    assert "`elsewhere` (`output.client_folder`" in draft
    assert "`client-NAME` of the run's" not in draft
    assert "below `--out`: `client-NAME`" not in draft


@pytest.mark.parametrize("family", ["poisson", "gaussian"])
def test_there_is_one_number_of_fewest_rows(fedkern: Any, written: Any, family: str) -> None:
    path = written()
    path.write_text(path.read_text().replace('"poisson"', f'"{family}"'))
    draft = fedkern("review", path).out
    (cell,) = re.findall(r"^\| Fewest rows of a holder \| ([^|]*) \|", draft, re.MULTILINE)
    named = re.findall(r"([\d,]+) rows, the fewest that this job takes", draft)
    assert len(named) >= 2  # what can be computed says it, too
    assert {*named} == {cell.split()[0]}


def test_what_the_result_holds_and_what_leaves_beside_the_rounds_is_named(fedkern: Any, written: Any) -> None:
    """Each part is looked for in the summary of a run, and each kind in the ledger of a place."""
    path = written()
    draft = fedkern("review", path).out
    (cell,) = re.findall(r"^\| The result \| ([^|]*) \|", draft, re.MULTILINE)
    assert fedkern("run", path, "--out", "out", "--quiet").code == 0
    summary = json.loads(Path("out/summary.json").read_text())
    for words, there in (
        ("how many there are", summary["predictive"]["rows"]),
        ("means and standard deviations of covariates", summary["encoding"]["columns"][0]["center"]),
        ("the response's mean", summary["predictive"]["response"]["mean"]),
        ("by tenth of what the model foresees", summary["predictive"]["tenths"]),
        ("how clients differ", summary["heterogeneity"]),
    ):
        assert words in cell
        assert there
    assert [word for word in ("hello", "run ", "fault", "bye") if not re.search(f"^  {word}", draft, re.MULTILINE)] == []
    assert "`ledger/` of the run's folder" in draft


def test_earlier_jobs_on_the_rows_are_counted(fedkern: Any, written: Any, tmp_path: Path) -> None:
    path = written(PRIVATE % "secure", "pvi")
    assert "nobody counts them here" in fedkern("review", path).out
    (tmp_path / "fedkern-policy.toml").write_text(
        "open = true\n"
        + "".join(f'[data.{name}]\npaths = ["{name}.csv"]\nepsilon = 50.0\ndelta = 1e-3\n' for name in ("ada", "bo"))
    )
    opened = tmp_path / "open.toml"
    opened.write_text(
        '[job]\nmethod = "pvi"\n[model]\nfamily = "poisson"\n'
        + path.read_text()
        .partition("[model]")[2]
        .partition("\n")[2]
        .partition("[data.columns]")[0]
        .replace('family = "poisson"\n', "")
    )
    assert fedkern("run", opened, "--out", "out", "--quiet").code == 0
    draft = fedkern("review", path).out
    (cell,) = re.findall(r"^\| Earlier jobs on these rows, to which this one adds \| ([^|]*) \|", draft, re.MULTILINE)
    assert "1 open job" in cell
    assert "bound what this job tells anybody of one row, to which other jobs on these rows add" in draft
