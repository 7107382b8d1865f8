"""`fedkern reproduce`: names are always listed; code runs in a checkout, and elsewhere one line says how to get one."""

from __future__ import annotations

import ast
import json
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import fedkern as package
from fedkern.cli import papers
from support.command import python

ROOT = Path(__file__).parents[2]
CODE = ROOT / "benchmarks" / "papers"


@pytest.fixture
def installed(fedkern: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command of a package that lies in no checkout."""
    monkeypatch.setattr(papers, "__file__", str(tmp_path / "site-packages" / "fedkern" / "cli" / "papers.py"))
    return fedkern


def test_the_list_is_what_the_checkout_has() -> None:
    """Modules with `run(out, fast, seed)`, each told by its first line."""
    told = {}
    for path in CODE.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        runs = [node.args.args for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "run"]
        if runs and [argument.arg for argument in runs[0][:3]] == ["out", "fast", "seed"]:
            told[path.stem.replace("_", "-")] = (ast.get_docstring(tree) or "").partition("\n")[0].removesuffix(".")
    assert told == papers.PAPERS


def test_the_names_are_listed_everywhere(installed: Any) -> None:
    ended = installed("reproduce")
    assert (ended.code, ended.err) == (0, "")
    assert [line.split()[0] for line in ended.out.splitlines()] == [*papers.PAPERS]


VCS = {"url": "https://forge.example/fedkern.git", "vcs_info": {"vcs": "git", "commit_id": "0" * 40}}


@pytest.mark.parametrize(
    ("origin", "remedy"),
    [
        (VCS, "git clone https://forge.example/fedkern.git, and run this again in the new folder"),
        ({"url": "file://{here}/a%20tree", "dir_info": {}}, "it was installed from {here}/a tree: go there, and run this again"),
        ({"url": "file://{here}/gone", "dir_info": {}}, "clone the repository that it was installed from"),
        (None, "clone the repository that it was installed from"),
        ("none", "clone the repository that it was installed from"),
    ],
)
def test_elsewhere_one_line_says_how_to_get_a_checkout(
    origin: Any, remedy: str, installed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a tree" / "benchmarks" / "papers").mkdir(parents=True)

    class Distribution:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return None if origin is None else json.dumps(origin).replace("{here}", str(tmp_path))

    def distribution(name: str) -> Distribution:
        if origin == "none":
            raise metadata.PackageNotFoundError(name)
        return Distribution()

    monkeypatch.setattr(metadata, "distribution", distribution)
    ended = installed("reproduce", "sparse-mrf")
    assert (ended.code, ended.out) == (2, "")
    (line,) = ended.err.splitlines()
    assert line.startswith(f"fedkern: reproduce sparse-mrf: runs in the root of a checkout of fedkern, and {tmp_path} is none; ")
    assert remedy.replace("{here}", str(tmp_path)) in line
    assert not Path("runs").exists()


def test_code_of_a_folder_above_does_not_run(installed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In /tmp anybody may have put some."""
    (tmp_path / "benchmarks").symlink_to(ROOT / "benchmarks")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir("below")
    assert "runs in the root of a checkout" in installed("reproduce", "sparse-mrf", "--printed").err


def test_a_checkout_runs_its_own_code(tmp_path: Path) -> None:
    """A real process, whose package may lie elsewhere."""
    ended = python("-P", "-m", "fedkern", "reproduce", "sparse-mrf", "--printed", folder=ROOT)
    assert (ended.code, ended.err) == (2, "fedkern: reproduce sparse-mrf: has no --printed; that is for sparse-regression\n")


def test_a_list_a_seed_and_the_version_of_a_table(fedkern: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[bool, int]] = []

    class Module:
        @staticmethod
        def run(out: Path, fast: bool, seed: int) -> Path:
            asked.append((fast, seed))
            (out / "table.md").write_text("| a |\n")
            return out / "table.md"

    monkeypatch.chdir(ROOT)  # the package may be installed elsewhere
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.setattr("papers.import_module", lambda name: Module)
    assert fedkern("reproduce", "--list").out == fedkern("reproduce").out
    ended = fedkern("reproduce", "sparse-mrf", "--fast", "--seed", "3", "--out", str(tmp_path / "out"))
    assert (ended.code, asked) == (0, [(True, 3)])
    last = (tmp_path / "out" / "table.md").read_text().splitlines()[-1]
    assert last.startswith(f"Made by `fedkern reproduce sparse-mrf --seed 3 --fast`, fedkern {package.__version__}")
    ended = fedkern("reproduce", "sparse-mrf", "--out", str(tmp_path / "out"))
    assert ended.code == 2
    assert "holds parts with seed 3; take another folder (--out) for seed 1" in ended.err
    assert fedkern("reproduce", "sparse-mrf", "--seed", "0").code == 2


@pytest.mark.nightly
def test_a_reproduction_with_processes_of_its_own(tmp_path: Path) -> None:
    """They find the papers' modules, too."""
    ended = python("-P", "-m", "fedkern", "reproduce", "sparse-simulation", "--fast", "--out", tmp_path, folder=ROOT, timeout=280)
    assert ended.code == 0, ended.err
    assert "| --- |" in ended.out
