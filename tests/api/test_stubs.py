"""The stubs of the compiled module and of kernels, which are made of the modules themselves (promise U6)."""

import ast
import inspect
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import fedkern
from fedkern import kernels
from fedkern.testing import public_function

ROOT = Path(__file__).parents[2]
stubs = SimpleNamespace(**runpy.run_path(str(ROOT / "tools" / "stubs.py")))

OF_KERNELS = stubs.of_kernels()
PACKAGE = Path(fedkern.__file__).parent


def text_of(kernel):
    """The stub of a kernel's module."""
    return OF_KERNELS[f"{kernel.module.removeprefix('fedkern.').replace('.', '/')}.pyi"]


def test_stubs_of_kernels_document_every_argument():
    """What an editor shows is what `help` says."""
    for kernel in kernels.KERNELS.values():
        function = public_function(kernel)
        body = ast.parse(text_of(kernel)).body
        (found,) = (n for n in body if isinstance(n, ast.FunctionDef) and n.name == function.__name__)
        assert ast.get_docstring(found) == inspect.getdoc(function)
        assert [a.arg for a in (*found.args.args, *found.args.kwonlyargs)] == list(inspect.signature(function).parameters)


def test_an_argument_that_is_one_of_several_words_has_these_as_its_type():
    found = 0
    for kernel in kernels.KERNELS.values():
        name = public_function(kernel).__name__
        (function,) = (n for n in ast.parse(text_of(kernel)).body if isinstance(n, ast.FunctionDef) and n.name == name)
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
    subprocess.run(build, cwd=ROOT, check=True, timeout=60)
    stubs.write(folder / "fedkern")


CALLS = """\
import numpy as np
from fedkern.kernels import augmented, glm, mixed, mlp, optim, privacy, rng, sem, shrinkage, spatial

X, y = np.ones((3, 2)), np.ones(3)
bound: float = glm.elbo_grad(X, y, np.zeros(2), np.zeros(2), family="bernoulli", seed=1)[0]
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


def test_stubs_of_kernels_have_the_names_of_their_modules():
    assert all((PACKAGE / name).with_suffix(".py").exists() for name in OF_KERNELS)


@pytest.mark.skipif(PACKAGE.parent == ROOT, reason="the package is not installed")
def test_an_installed_package_has_its_stubs_and_completions():
    made = stubs.stubs() | stubs.completions() | OF_KERNELS
    assert {name: (PACKAGE / name).read_text(encoding="utf-8") for name in made} == made
    assert {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.pyi")} <= {*made, "__init__.pyi"}


def test_the_stub_of_the_root_has_its_names_and_where_they_come_from():
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text())
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
    assert offered[kernels.glm] == functions | {"bind_clipped_grad_sum", "loglik"}
    for kernel in kernels.KERNELS.values():
        family, _, name = kernel.public.partition(".")
        assert name in dir(getattr(kernels, family)), kernel.name
