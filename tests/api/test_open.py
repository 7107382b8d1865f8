"""What a reader of the repository sees: its version, its workflow, and what these name."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import fedkern

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOW = (ROOT / ".github" / "workflows" / "checks.yml").read_text(encoding="utf-8")


def test_the_version_is_one():
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert cited is not None
    assert cited[1] == PROJECT["version"] == fedkern.__version__
    assert f"## {PROJECT['version']}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_what_the_workflow_calls_is_there():
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    called = re.findall(r"run: make ([\w-]+)", WORKFLOW)
    assert len(called) >= 6
    assert set(called) <= set(targets)
    for folder in re.search(r"-W ignore::DeprecationWarning (.*)", WORKFLOW)[1].split():  # type: ignore[index]
        assert (ROOT / "tests" / folder).is_dir(), folder
    least = PROJECT["requires-python"].removeprefix(">=")
    assert f'["{least}"' in WORKFLOW, "the first version that is tested is the lowest that is allowed"


def test_actions_are_pinned():
    """By what they are, and not by a name that may move."""
    used = re.findall(r"uses: (\S+)", WORKFLOW)
    assert used
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", one) for one in used)


def test_lowest_versions_are_those_that_are_allowed():
    command = [sys.executable, str(ROOT / "tools" / "lowest.py")]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) == len(set(lines)) > 15
    allowed = [*PROJECT["dependencies"], *(one for extra in PROJECT["optional-dependencies"].values() for one in extra)]
    bounds = {re.sub(r"\s", "", one.partition(";")[0]) for one in allowed}
    for line in lines:
        name, version = line.partition(";")[0].split("==")
        assert any(one.startswith(f"{name}>={version}") for one in bounds), line


@pytest.mark.parametrize("name", ["SECURITY.md", "RELEASING.md", "CONTRIBUTING.md", "docs/reference/versions.md"])
def test_pages_link_to_what_is_there(name: str):
    page = ROOT / name
    for link in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / link).exists(), link


def test_tests_import_what_a_fresh_machine_has():
    """At their heads only what pyproject.toml names: what else lies in this environment is not on another machine."""
    lines = sum(PROJECT["optional-dependencies"].values(), PROJECT["dependencies"])
    declared = {re.match(r"[\w.-]+", line)[0].lower() for line in lines} | {"fedkern", "pybind11", "setuptools"}  # type: ignore[index]
    distributions = packages_distributions()
    for path in (ROOT / "tests").rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                modules = [node.module]
            for module in modules:
                owners = distributions.get(module.partition(".")[0], [])
                assert not owners or {owner.lower() for owner in owners} & declared, f"{path}: {module}"
