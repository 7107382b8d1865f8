"""The stubs of the compiled module are its own signatures (promise U6). mypy's stubtest (names only) is in `make lint`."""

import ast
import sys
from pathlib import Path

import pytest

import fedkern

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import stubs


def meaning(text):
    tree = ast.parse(text)
    imports = {ast.unparse(n) for n in tree.body if isinstance(n, (ast.Import, ast.ImportFrom))}
    functions = {n.name: ast.unparse(n) for n in tree.body if isinstance(n, ast.FunctionDef)}
    return imports, functions


@pytest.mark.parametrize("path", stubs.stubs(), ids=lambda p: p.name)
def test_stub_is_the_signatures_of_the_module(path):
    assert meaning(path.read_text()) == meaning(stubs.stubs()[path]), "run `python tools/stubs.py`"


def test_no_stub_is_left_over():
    assert set(stubs.FOLDER.glob("*")) == set(stubs.stubs())


def test_the_stub_of_the_root_has_its_names_and_where_they_come_from():
    stub = ast.parse(Path(fedkern.__file__).with_name("__init__.pyi").read_text())
    imported = {alias.asname: node.module for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    functions = {node.name for node in stub.body if isinstance(node, ast.FunctionDef)}
    assert imported.keys() | functions == set(fedkern.__all__)
    assert imported.pop("kernels") is None
    assert {name: f"fedkern.{module}" for name, module in imported.items()} == fedkern._LAZY
