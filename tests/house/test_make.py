"""The steps of `make demo` and `make install`, without a network and a compiler."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .test_wheel import FILES, HERE, a_wheel, digest_of_sources

ROOT = Path(__file__).parents[2]
PROGRESS = ROOT / "tools" / "progress.py"
# Stands for the virtual environment's Python: does what the repository's own tools do, and writes all else down.
STAND_IN = """#!/bin/sh
case "$1" in
tools/*) exec {python} "$@" ;;
-m) echo "pip $@" | sed 's/pip -m pip install --disable-pip-version-check --progress-bar off --no-compile/pip/' >> calls.txt ;;
*) echo "$FEDKERN_LEVELS $*" >> calls.txt ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with this Makefile, a few sources and an environment that only writes down what it is to do."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    shutil.copytree(ROOT / "tools", tmp_path / "tools", ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    stand_in = tmp_path / ".venv" / "bin" / "python"
    stand_in.parent.mkdir(parents=True)
    stand_in.write_text(STAND_IN.format(python=sys.executable))
    stand_in.chmod(0o755)
    return tmp_path


def make(checkout: Path, target: str, **settings: str) -> tuple[list[str], subprocess.CompletedProcess[str]]:
    """The steps that making a file takes, and what make says."""
    environment = {name: value for name, value in os.environ.items() if name not in ("FEDKERN_LEVELS", "MAKEFLAGS", "MAKELEVEL")}
    command = ["make", f"PYTHON={sys.executable}", f".venv/{target}"]
    calls = checkout / "calls.txt"
    calls.unlink(missing_ok=True)
    run = subprocess.run(
        command, cwd=checkout, env=environment | settings, capture_output=True, text=True, timeout=60, check=False
    )
    return sorted(calls.read_text().splitlines()) if calls.exists() else [], run


def steps(levels: str) -> list[str]:
    """The steps of a build from sources: what it needs is looked up once."""
    return [
        f"{levels} setup.py --quiet build_ext",
        "pip --no-deps --no-build-isolation .",
        "pip -r .venv/needs.txt",
        "pip setuptools>=77 pybind11>=3",
    ]


def test_a_demo_compiles_this_machines_level_and_tests_all_that_it_can_run(checkout: Path) -> None:
    assert make(checkout, "demo")[0] == sorted(steps("native"))
    assert make(checkout, "demo")[0] == []
    assert make(checkout, "test", FEDKERN_LEVELS="native")[0] == sorted(steps("usable"))
    assert make(checkout, "test")[0] == []
    assert make(checkout, "demo")[0] == []  # tests have all that it needs


def test_a_demo_needs_no_more_than_its_job_and_its_page(checkout: Path) -> None:
    make(checkout, "demo")
    few = (checkout / ".venv/needs.txt").read_text()
    assert {"h5py", "jinja2", "dp-accounting", "scikit-learn"} <= set(re.findall(r"^[\w-]+", few, re.MULTILINE))
    assert "arviz" not in few
    make(checkout, "test")
    assert "arviz" in (checkout / ".venv/needs.txt").read_text()


def test_a_demo_compiles_the_levels_that_are_asked_for(checkout: Path) -> None:
    assert make(checkout, "demo", FEDKERN_LEVELS="baseline")[0] == sorted(steps("baseline"))
    assert make(checkout, "demo", FEDKERN_LEVELS="baseline")[0] == []
    # The remedy that a job names whose ranks have no level in common.
    assert make(checkout, "demo", FEDKERN_LEVELS="all")[0] == sorted(steps("all"))
    assert make(checkout, "demo")[0] == []


def test_tests_compile_what_a_demo_has_left_out(checkout: Path) -> None:
    assert make(checkout, "test")[0] == sorted(steps("usable"))
    (checkout / "setup.py").write_text("changed")
    assert make(checkout, "demo")[0] == sorted(steps("native"))
    (checkout / ".venv/test").touch()  # were it ever so new
    assert make(checkout, "test")[0] == sorted(steps("usable"))


def test_a_demo_installs_a_wheel_of_the_same_sources(checkout: Path) -> None:
    a_wheel(checkout / "dist", HERE, f"{digest_of_sources(checkout)} all\n")
    calls, run = make(checkout, "demo")
    assert calls == [f"pip --no-deps --no-index --force-reinstall dist/{HERE}.whl", "pip -r .venv/needs.txt"]
    assert f"\nInstalling dist/{HERE}.whl: it was built from these sources.\n" in run.stdout
    # A wheel has all levels, but tests are of what the compiler makes here.
    assert make(checkout, "test")[0] == sorted(steps("usable"))


def test_a_demo_compiles_where_the_wheel_is_of_other_sources(checkout: Path) -> None:
    a_wheel(checkout / "dist", HERE, f"{digest_of_sources(checkout)} all\n")
    assert make(checkout, "demo")[0][-1] == "pip -r .venv/needs.txt"
    (checkout / "csrc/x.hpp").write_text("changed")  # of every file test_wheel.py has that it counts
    calls, run = make(checkout, "demo")
    assert calls == sorted(steps("native"))
    assert run.stderr == f"dist: not used, because not built from these sources: {HERE}.whl\n"


def test_a_step_that_fails_ends_the_build(checkout: Path) -> None:
    stand_in = checkout / ".venv" / "bin" / "python"
    stand_in.write_text(stand_in.read_text() + '[ "$1" != setup.py ] || { echo why; exit 3; }\n')
    calls, run = make(checkout, "demo")
    assert run.returncode == 2
    assert without_seconds(run.stdout).endswith("python setup.py --quiet build_ext\nwhy\ncompiler failed after N s\n")
    assert "pip --no-deps --no-build-isolation ." not in calls
    assert not (checkout / ".venv" / "demo").exists()


def without_seconds(text: str) -> str:
    """A text without its numbers: another load of the machine gives others."""
    return re.sub(r"\b\d+(?= s\b|$)", "N", text, flags=re.MULTILINE)


def progress(tmp_path: Path, *words: str, pause: str = "0.1") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRESS), *words]
    environment = os.environ | {"FEDKERN_PROGRESS_SECONDS": pause}
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False)
