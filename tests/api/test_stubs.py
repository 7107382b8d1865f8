"""The stubs of the compiled module say what is there (promise U6)."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import stubs

ROOT = Path(__file__).parents[2]


def meaning(text):
    tree = ast.parse(text)
    imports = {ast.unparse(n) for n in tree.body if isinstance(n, (ast.Import, ast.ImportFrom))}
    functions = {n.name: ast.unparse(n) for n in tree.body if isinstance(n, ast.FunctionDef)}
    return imports, functions


@pytest.mark.parametrize("path", stubs.stubs(), ids=lambda p: p.name)
def test_stub_is_the_signatures_of_the_module(path):
    assert meaning(path.read_text()) == meaning(stubs.stubs()[path]), "run `python tests/support/stubs.py`"


def test_no_stub_is_left_over():
    assert set(stubs.FOLDER.glob("*")) == set(stubs.stubs())


def stubtest(*options, path=None):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    if path:
        environment["MYPYPATH"] = str(path)
    command = [sys.executable, "-m", "mypy.stubtest", "fedkern._core", *options]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)


def test_stubtest_finds_no_difference():
    run = stubtest("--mypy-config-file", "pyproject.toml")
    assert run.returncode == 0, run.stdout + run.stderr
