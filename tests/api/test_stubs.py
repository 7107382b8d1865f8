"""The stubs of the compiled module are its own signatures (promise U6). mypy's stubtest (names only) is in `make lint`."""

import ast
import inspect
import os
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


def test_an_argument_that_is_one_of_several_words_has_these_as_its_type():
    found = 0
    for kernel in kernels.KERNELS.values():
        (text,) = (text for path, text in OF_KERNELS.items() if str(path).endswith(f"{kernel.module.replace('.', '/')}.pyi"))
        name = public_function(kernel).__name__
        (function,) = (n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name == name)
        types = {a.arg: ast.unparse(a.annotation) for a in (*function.args.args, *function.args.kwonlyargs)}
        assert ast.literal_eval(types["backend"].removeprefix("Literal").removesuffix(" | None")), name
        for scalar in kernel.scalars:
            if scalar.domain.codes and scalar.keyword in types:
                assert {*scalar.domain.codes} <= {*ast.literal_eval(types[scalar.keyword].removeprefix("Literal"))}, name
                found += 1
    assert found > 20


def built(folder):
    """The package's Python files, as they are installed."""
    build = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(folder)]
    subprocess.run(build, cwd=stubs.ROOT, check=True, timeout=60)


CALLS = """\
import numpy as np
from fedkern.kernels import augmented, glm, mixed, mlp, optim, privacy, rng, sem, shrinkage, spatial

X, y = np.ones((3, 2)), np.ones(3)
bound: float = glm.elbo_grad(X, y, np.zeros(2), np.zeros(2), family="bernoulli", key=rng.key(1))[0]
words = rng.bind_words(3, key=1)(2)
wrong: str = glm.loglik_grad(X, y, np.zeros(2), family="bernoulli")[0]  # E
glm.elbo_grad(X, y, np.zeros(2), np.zeros(2), familly="bernoulli")  # E
glm.loglik_grad(X, y, np.zeros(2), family="bernouli")  # E
glm.loglik_grad(X, y, np.zeros(2), family="bernoulli", backend="numpy")  # E
rng.bind_words(3, key=1, step=2)  # E
shrinkage.bind_local_sweeps(X, y)  # E
"""


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_type_checker_takes_the_stubs_and_finds_wrong_calls(tmp_path):
    built(tmp_path / "built")
    (tmp_path / "calls.py").write_text(CALLS)
    check = [sys.executable, "-P", "-m", "mypy", "--strict", "--cache-dir", "cache", "calls.py"]
    run = subprocess.run(
        check, cwd=tmp_path, env=os.environ | {"MYPYPATH": "built"}, capture_output=True, text=True, timeout=500, check=False
    )
    lines = [line.split(": error: ")[0] for line in run.stdout.splitlines() if ": error: " in line]
    found = dict.fromkeys(line for line in lines if line.startswith("calls.py") or ".pyi:" in line)  # not what our imports lack
    assert list(found) == [f"calls.py:{i}" for i, line in enumerate(CALLS.splitlines(), 1) if line.endswith("# E")], run.stdout


def test_stubs_of_kernels_are_installed_beside_their_modules(tmp_path):
    built(tmp_path)
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


def test_completion_offers_the_public_names_and_no_others():
    """What `fedkern.<TAB>` and `glm.<TAB>` show."""
    offered = {module: {name for name in dir(module) if not name.startswith("_")} for module in (fedkern, kernels, kernels.glm)}
    assert offered[fedkern] == set(fedkern.__all__)
    assert offered[kernels] == set(kernels.__all__)
    functions = {kernel.public.partition(".")[2] for kernel in kernels.KERNELS.values() if kernel.module == kernels.glm.__name__}
    assert offered[kernels.glm] == functions | {"bind_clipped_grad_sum"}
    for kernel in kernels.KERNELS.values():
        family, _, name = kernel.public.partition(".")
        assert name in dir(getattr(kernels, family)), kernel.name
