"""The stubs of the compiled module are its own signatures (promise U6). mypy's stubtest (names only) is in `make lint`."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import fedkern
from fedkern import kernels
from fedkern.testing import public_function

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import stubs

OF_KERNELS = stubs.of_kernels()


def meaning(text):
    tree = ast.parse(text)
    imports = {ast.unparse(n) for n in tree.body if isinstance(n, (ast.Import, ast.ImportFrom))}
    functions = {n.name: ast.unparse(n) for n in tree.body if isinstance(n, ast.FunctionDef)}
    return imports, functions


@pytest.mark.parametrize("path", stubs.stubs(), ids=lambda p: p.name)
def test_stub_is_the_signatures_of_the_module(path):
    assert meaning(path.read_text()) == meaning(stubs.stubs()[path]), "run `python tools/stubs.py`"


@pytest.mark.parametrize("path", OF_KERNELS, ids=lambda p: p.name)
def test_stub_of_kernels_is_what_the_module_says(path):
    kept, now = path.read_text(), OF_KERNELS[path]
    assert kept == now or ast.dump(ast.parse(kept)) == ast.dump(ast.parse(now)), "run `python tools/stubs.py`"


def test_stubs_of_kernels_document_every_argument():
    """What an editor shows is what `help` says."""
    for kernel in kernels.KERNELS.values():
        function = public_function(kernel)
        (path,) = (p for p in OF_KERNELS if str(p).endswith(f"{kernel.module.replace('.', '/')}.pyi"))
        (found,) = (n for n in ast.parse(path.read_text()).body if isinstance(n, ast.FunctionDef) and n.name == function.__name__)
        assert ast.get_docstring(found) == inspect.getdoc(function)
        assert [a.arg for a in (*found.args.args, *found.args.kwonlyargs)] == list(inspect.signature(function).parameters)


def test_stubs_of_kernels_are_installed_beside_their_modules(tmp_path):
    build = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(tmp_path)]
    subprocess.run(build, cwd=stubs.ROOT, check=True, timeout=60)
    installed = {path.relative_to(tmp_path) for path in tmp_path.rglob("*.pyi")}
    assert installed >= {path.relative_to(stubs.ROOT / "stubs") for path in OF_KERNELS}
    assert all((tmp_path / path).with_suffix(".py").exists() for path in installed if "_core" not in path.parts)


def test_no_stub_is_left_over():
    assert set(stubs.FOLDER.glob("*")) == set(stubs.stubs())
    assert set((stubs.ROOT / "stubs").rglob("*.pyi")) == set(OF_KERNELS)


def test_the_stub_of_the_root_has_its_names_and_where_they_come_from():
    stub = ast.parse(Path(fedkern.__file__).with_name("__init__.pyi").read_text())
    imported = {alias.asname: node.module for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    functions = {node.name for node in stub.body if isinstance(node, ast.FunctionDef)}
    assert imported.keys() | functions == set(fedkern.__all__)
    assert imported.pop("kernels") is None
    assert {name: f"fedkern.{module}" for name, module in imported.items()} == fedkern._LAZY
