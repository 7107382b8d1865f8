"""Kernels are compiled once for all Pythons of a machine, bindings for each."""

from __future__ import annotations

import os
import platform
import runpy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from setuptools import Distribution
from setuptools.errors import CompileError

ROOT = Path(__file__).parents[2]
# What Python 3.11 and 3.13 were compiled with, as both say of themselves.
OLDER = ["g++", "-Wsign-compare", "-DNDEBUG", "-g", "-fwrapv", "-O3", "-Wall", "-fPIC"]
NEWER = ["g++", "-fno-strict-overflow", "-Wsign-compare", "-DNDEBUG", "-g", "-O3", "-Wall", "-fPIC"]


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """Makes the command that builds the module, with a compiler."""
    monkeypatch.chdir(ROOT)  # its paths begin there
    setup = runpy.run_path("setup.py", run_name="setup")

    def make(compiler: list[str] = OLDER) -> Any:
        command = setup["BuildKernels"](Distribution())
        command.build_temp, command.shared, command.include_dirs = str(tmp_path / "temp"), tmp_path / "kernels", []
        command.compiler, command.contents, command.working = SimpleNamespace(compiler_so_cxx=compiler), {}, []
        return command

    return make


def test_kernels_have_the_same_command_for_every_python(build: Callable[..., Any]) -> None:
    older, newer = (build(compiler).kernel(Path("csrc/units/rng.cpp"), "avx2", "-march=x86-64-v3") for compiler in (OLDER, NEWER))
    assert older == newer
    assert older.command.count("-fwrapv") == 1  # signed numbers wrap, as they do in CPython
    assert {"-DNDEBUG", "-O3", "-fno-trapping-math", "-march=x86-64-v3"} <= set(older.command)
    of_older, of_newer = (next(build(compiler).pieces()) for compiler in (OLDER, NEWER))
    assert of_older.command[: len(OLDER)] == OLDER  # bindings are compiled as their Python was
    assert of_newer.command[: len(NEWER)] == NEWER


def test_a_kernels_object_serves_every_python_and_that_of_bindings_one(
    build: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command, source = build(), tmp_path / "a.cpp"
    source.write_text("int a() { return 1; }\n")
    kernel = command.kernel(source, "baseline")
    binding = kernel._replace(made=tmp_path / "temp" / "a.o", includes_python=True)
    for unit in (kernel, binding):
        assert not command.is_fresh(unit)
        command.compile_unit(unit)
        assert command.is_fresh(unit)
        assert [path.name for path in sorted(unit.made.parent.iterdir())] == ["a.d", "a.key", "a.o"]
    monkeypatch.setattr(platform, "python_version", lambda: "3.99.0")
    assert command.is_fresh(kernel)
    assert not command.is_fresh(binding)
    source.write_text("int a() { return 2; }\n")
    assert not command.is_fresh(kernel)


def test_a_kernel_cannot_include_python(build: Callable[..., Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command, source = build(), tmp_path / "a.cpp"
    source.write_text("#include <Python.h>\n")
    with pytest.raises(CompileError, match=r"failed on .*a\.cpp"):
        command.compile_unit(command.kernel(source, "baseline"))
    assert "Python.h" in capfd.readouterr().err
    assert list((tmp_path / "kernels" / "baseline").iterdir()) == []


def test_a_missing_compiler_is_named(build: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=rf"cannot run the compiler {tmp_path}{os.sep}g.*apt install g\+\+.*wheel"):
        build([f"{tmp_path}{os.sep}g++"]).architecture()
