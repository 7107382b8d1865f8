"""What is written for people is true: jobs, code and commands of the README and of docs/, and the reference of the job file."""

from __future__ import annotations

import html
import os
import re
import runpy
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import fedkern
from fedkern import kernels
from fedkern.cli.__main__ import EXIT_CODES, main, parser
from fedkern.cli.papers import PAPERS
from fedkern.jobs.holding.policy import read_policies
from fedkern.jobs.site import SiteFile
from fedkern.methods import load, load_method, parse
from fedkern.methods.pvi.keys import Config
from fedkern.methods.reference import text
from fedkern.methods.sigma.prior import keys as prior_config
from fedkern.methods.sigma.prior import reference as prior_reference
from fedkern.methods.sigma.prior.keys import PriorConfig
from fedkern.results import report
from fedkern.sections import marked_keys
from support.mpirun import environment

ROOT = Path(__file__).parents[2]
MADE = {name: page() for name, page in runpy.run_path(str(ROOT / "tools" / "pages.py"))["FILES"].items()}
WRITTEN = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").rglob("*.md"))}
DOCUMENTS = dict(sorted({**WRITTEN, **{name: text for name, text in MADE.items() if name.endswith(".md")}}.items()))
TEXTS = {**{name: (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md")}, **DOCUMENTS}


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def with_blocks(language: str) -> list[str]:
    return [name for name, text in TEXTS.items() if blocks(language, text)]


def test_the_tables_of_what_messages_tell_are_what_the_program_says() -> None:
    """Of the pages that are generated it alone is kept: a reader of the repository sees what leaves."""
    name = "docs/concepts/disclosure.md"
    assert WRITTEN[name] == MADE[name], "run `make pages`"


def test_pages_that_are_made_are_no_source() -> None:
    ignored = set((ROOT / ".gitignore").read_text(encoding="utf-8").split())
    made = {f"/{Path(name).with_name('*.toml')}" if name.endswith(".toml") else f"/{name}" for name in MADE}
    assert {name for name in ignored if name.startswith("/docs/reference")} == made - {"/docs/concepts/disclosure.md"}


def test_the_readme_counts_kernels_as_the_records_do() -> None:
    everything = kernels.list().values()
    on_device = sum(row["cuda"] in ("yes", "partly") for row in everything)
    assert f"{on_device} of the {len(everything)} kernels take CuPy arrays" in TEXTS["README.md"]


FALSE = tuple(" ".join(words) for words in (("and no", "row"), ("never send", "rows"), ("shows its", "counts")))


def test_no_text_says_that_what_is_sent_tells_nothing() -> None:
    """docs/concepts/disclosure.md says what it tells. (What golden jobs say is held by their own test.)"""
    found = []
    for folder in ("", "docs", "fedkern", "csrc", "mpi", "tools", "benchmarks", "tests"):
        files = (ROOT / folder).rglob("*") if folder else ROOT.glob("*")
        for path in files:
            if path.suffix in (".md", ".py", ".toml", ".rst", ".html", ".hpp", ".cpp", ".txt", ".cff", ".sh"):
                text = " ".join(path.read_text(encoding="utf-8", errors="replace").lower().split())
                found += [f"{path.relative_to(ROOT)}: {words}" for words in FALSE if words in text]
    assert not found


def test_the_reference_of_prior_files_names_every_section() -> None:
    assert tomllib.loads(prior_reference.text()).keys() == PriorConfig.model_fields.keys()


def test_the_page_of_keys_names_every_key() -> None:
    page = DOCUMENTS["docs/reference/jobs.md"]
    for method in METHODS:
        part = page.partition(f"## `{method}`\n")[2].partition("\n## ")[0]
        keys = re.findall(r"^# (\S+) = ", text(method), flags=re.MULTILINE)
        assert re.findall(r"^\| `(\w+)` \|", part, flags=re.MULTILINE) == keys
        of_experts = re.findall(r"^# (\S+) = ", text(method, expert=True), flags=re.MULTILINE)
        assert {*of_experts} == {name.rpartition(".")[2] for name in marked_keys(load_method(method).keys.Config, "expert")}
        assert len(keys) > 40
    assert set(PriorConfig.model_fields) <= set(re.findall(r"### `\[(\w+)\]`", page.partition("## Prior files")[2]))


def test_the_page_of_odd_files_names_every_key_of_a_site_file() -> None:
    page = DOCUMENTS["docs/how-to/files.md"].partition("## A holder's own site file")[2]
    assert all(re.search(rf"\b{key}\b", page) for key in SiteFile.model_fields)


def test_the_page_of_kernels_names_every_kernel() -> None:
    page = DOCUMENTS["docs/reference/kernels.md"]
    assert re.findall(r"^### `([\w.]+)`$", page, flags=re.MULTILINE) == sorted(kernels.KERNELS)


@pytest.mark.parametrize(
    ("method", "without"), [("pvi", set()), ("sparse", {"privacy"}), ("likelihood", {"privacy"}), ("sigma", set())]
)
def test_the_reference_names_every_section(method: str, without: set[str]) -> None:
    sections = set(Config.model_fields) - without
    assert {line[1:-1].split(".")[0] for line in text(method).splitlines() if line.startswith("[")} == sections
    assert tomllib.loads(text(method)).keys() == sections


@pytest.mark.parametrize("name", with_blocks("toml"))
def test_the_jobs_of_the_documents_are_valid(name: str, tmp_path: Path) -> None:
    """Jobs, prior files, site files, policies: a block of TOML is a whole file. A page shows how a `pvi` job is made private."""
    private = []
    for block in blocks("toml", TEXTS[name]):
        tables = tomllib.loads(block)
        if "job" in tables:
            config = parse(tables)
            private += [config.privacy is not None] if config.job.method == "pvi" else []
        elif "prior" in tables:
            assert prior_config.parse(tables).prior.kind == "car"
        elif "dialect" in tables:
            assert SiteFile.model_validate(tables).path
        else:
            (tmp_path / "policy.toml").write_text(block, encoding="utf-8")
            assert read_policies(tmp_path / "policy.toml").policies
    assert not private or any(private)


@pytest.mark.parametrize("path", sorted((ROOT / "mpi").glob("*.toml")), ids=lambda path: path.name)
def test_the_example_jobs_are_valid(path: Path) -> None:
    config = load(path)[0]
    assert config.privacy is not None or config.job.method != "pvi"


# Pages whose blocks are done one after the other, as a reader does them.
WALKS = [f"docs/start/{name}.md" for name in ("python", "hospitals", "cluster")]
RANKS = pytest.mark.nightly  # its commands are those of jobs/test_mpi_command.py


# A walk launches ranks; JAX, which other tests load, warns of every fork.
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", [*WALKS[:2], pytest.param(WALKS[2], marks=RANKS)])
def test_the_walks_of_the_documents_end_with_a_posterior(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Python runs, blocks of TOML become the file that their first line names, commands end with code 0."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    for key, value in environment().items():
        monkeypatch.setenv(key, value)
    names: dict[str, Any] = {}
    for language, block in re.findall(r"```(python|toml|sh)\n(.*?)```", TEXTS[name], flags=re.DOTALL):
        if language == "python":
            exec(compile(block, name, "exec"), names)
        elif language == "toml":
            path = Path(block.split()[1])
            path.parent.mkdir(exist_ok=True)
            path.write_text(block, encoding="utf-8")
        else:
            for command in block.splitlines():
                words = command.split()
                assert words[0] == "fedkern"
                assert main(words[1:]) == 0, f"{command}\n{capfd.readouterr()}"
    assert list(Path("runs").glob("*/report.html")) or Path("odds.png").stat().st_size > 5000
    results = [fedkern.load(path.parent) for path in Path("runs").glob("*/summary.json")]
    results += [value for value in names.values() if isinstance(value, fedkern.Result)]
    assert results
    for result in results:
        ends_well(result)


def ends_well(result: fedkern.Result) -> None:
    """What a reader who typed a page's lines sees first. (A private result may say why it is not judged.)"""
    assert result.converged in (True, "settled", *(["not judged"] if result.privacy else [])), result.summary["verdict"]
    text = report.page(report.RunFiles("run", result.summary, result.job), load_method(result.summary["method"]).report)
    assert "<i class=good>" in text
    assert "Worse than guessing" not in text
    assert result.summary["verdict"] in html.unescape(text)


# Run by `kernels/test_dlpack.py`, as it needs torch, and sets JAX to float64; and by `kernels/test_nopython.py`, where Numba has
# compiled most of it already.
ELSEWHERE = ("docs/how-to/arrays.md", "docs/how-to/numba.md")


@pytest.mark.parametrize("name", [name for name in with_blocks("python") if name not in (*WALKS, *ELSEWHERE)])
def test_the_code_of_the_documents_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {}
    for block in blocks("python", TEXTS[name]):
        exec(compile(block, name, "exec"), names)
    first = name == "README.md" or name.startswith("docs/start/")  # other pages show results that may not be read, too
    for result in (value for value in names.values() if first and isinstance(value, fedkern.Result)):
        assert result.converged is not False, result.summary["verdict"]
    if "draws" in names:
        assert names["draws"]["posterior"]["theta"].shape[:2] == (4, 1000)
    if "grad_mu" in names:
        assert names["grad_mu"].shape == (5,)


def test_the_documents_have_every_command_and_exit_code() -> None:
    words = " ".join(" ".join(TEXTS.values()).replace("|", " ").split())
    commands = next(action.choices for action in parser()._actions if action.dest == "command")
    assert commands is not None
    for command in commands:
        assert f"fedkern {command}" in words, command
    codes = re.findall(r"(\d) ([a-z][^;(]*)", EXIT_CODES.replace("\n", " "))
    assert len(codes) == 7
    for code, meaning in codes:
        assert f"{code} {meaning.strip().split(',')[0].split(' with')[0]}" in words, meaning


METHODS = [path.stem for path in sorted((ROOT / "docs" / "spec").glob("*.md")) if path.stem != "index"]
CODE = [
    path
    for folder in ("fedkern", "csrc", "tests", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".py", ".pyi", ".hpp", ".cpp", ".def")
]


def sections(method: str) -> list[str]:
    """Numbers of a page's headings, as "4" and "4.2", in their order."""
    text = DOCUMENTS[f"docs/spec/{method}.md"]
    return re.findall(r"^#{2,4} (\d+(?:\.\d+)*) ", text, flags=re.MULTILINE)


@pytest.mark.parametrize("method", METHODS)
def test_sections_are_numbered_without_a_gap(method: str) -> None:
    whole = [int(number) for number in dict.fromkeys(one.split(".")[0] for one in sections(method))]
    assert whole == list(range(1, len(whole) + 1))


def test_every_section_that_code_names_is_there() -> None:
    number = r"\d+(?:\.\d+)*"
    reference = re.compile(rf"\b({'|'.join(METHODS)})\.md, sections? ({number}(?:(?:, | and |, and | to |-){number})*)")
    named: dict[str, set[str]] = {method: set() for method in METHODS}
    for path in CODE:
        text = re.sub(r"\s*\n\s*(?:#|///?)?\s*", " ", path.read_text(encoding="utf-8"))
        for method, some in reference.findall(text):
            named[method].update(re.findall(number, some))
    for method, those in named.items():
        assert len(those) > 5, method
        assert those <= set(sections(method)), f"{method}: {sorted(those - set(sections(method)))}"


def test_a_section_without_a_page_is_of_the_one_that_the_module_names() -> None:
    """In brackets and by its number alone, where a head has said of which page."""
    for path in CODE:
        text = path.read_text(encoding="utf-8")
        bare = {one for some in re.findall(r"\(sections? ([^):;]*)", text) for one in re.findall(r"\d+(?:\.\d+)*", some)}
        if bare:
            pages = set(re.findall(rf"\b({'|'.join(METHODS)})\.md\b", text))
            assert len(pages) == 1, f"{path}: {sorted(pages)}"
            assert bare <= set(sections(pages.pop())), path


def test_pages_that_code_names_are_there() -> None:
    """By full paths; a method's page by its name alone, where a line has no room for more, and no other page so."""
    for path in CODE:
        for page in re.findall(r"(?<![\w/.-])docs/[\w/-]+\.md\b", path.read_text(encoding="utf-8")):
            assert page in DOCUMENTS, f"{path}: {page}"
        for page in re.findall(r"(?<![\w/}-])([a-z-]+)\.md\b, sections? \d", path.read_text(encoding="utf-8")):
            assert page in METHODS, f"{path}: {page}.md"


@pytest.mark.parametrize("name", TEXTS)
def test_pages_speak_of_what_there_is(name: str) -> None:
    """Plans, numbers that no script prints, and how the texts came about have no place in them."""
    out_of_place = r"prototype|acceptance (?:criteri|test)|\[run\]|\bissues?\b|\bsessions?\b|\bTODO\b|shared/"
    assert not re.findall(out_of_place, TEXTS[name], flags=re.IGNORECASE)


@pytest.mark.parametrize("name", TEXTS)
def test_paths_and_links_lead_somewhere(name: str) -> None:
    """Paths in back quotes, where capitals stand for any name; links and figures between files, which GitHub shows too."""
    folders = "fedkern|csrc|tests|docs|mpi|tools|benchmarks"
    paths = re.findall(rf"`((?:{folders})/[\w./{{}},-]+)`", TEXTS[name])
    for path in (one for some in paths if some.endswith("/") or "." in some for one in alternatives(some)):
        assert path in MADE or list(ROOT.glob(re.sub(r"(?<![a-z])[A-Z]+(?![a-z])", "*", path))), path
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", TEXTS[name]):
        target = os.path.normpath((ROOT / name).parent / link)
        # what stands beside docs is read in the repository
        made = name.startswith("docs/") and os.path.relpath(target, ROOT) in MADE
        assert link.startswith("http") or made or Path(target).exists(), link


def alternatives(path: str) -> list[str]:
    """mpi/{a,b}.toml -> both."""
    found = re.fullmatch(r"(.*)\{(.*)\}(.*)", path)
    return [path] if found is None else [found[1] + one + found[3] for one in found[2].split(",")]


def test_the_page_of_doors_is_what_there_is() -> None:
    """Which of the files that answer a question a method has."""
    page = DOCUMENTS["docs/develop/architecture.md"]
    methods = ("likelihood", "pvi", "sparse", "vertical", "sigma", "describe")
    cells = r" (\w*) ?\|" * len(methods)
    rows = re.findall(rf"^\| `(\w+)` \| [^|]+ \|{cells}$", page, flags=re.MULTILINE)
    assert len(rows) > 8
    for file, *has in rows:
        there = [(ROOT / "fedkern" / "methods" / method / f"{file}.py").exists() for method in methods]
        assert [word == "yes" for word in has] == there, file


@pytest.mark.parametrize("name", PAPERS)
def test_the_gallery_shows_every_reproduction(name: str) -> None:
    """Its command, its figure and the file of its table."""
    section = DOCUMENTS["docs/reference/reproductions.md"].partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    assert f"\nfedkern reproduce {name}" in section
    assert f"](figures/{name}.png)" in section
    assert f"`benchmarks/results/{name}.md`" in section


def test_the_readme_is_one_screen() -> None:
    assert len(TEXTS["README.md"].splitlines()) <= 90
