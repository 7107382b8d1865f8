"""The steps of `make demo` and `make install`, without a network and a compiler; and what is said while they run."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
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


@pytest.mark.parametrize("name", [name for name in FILES if name != "pyproject.toml"])
def test_a_demo_compiles_where_the_wheel_is_of_other_sources(checkout: Path, name: str) -> None:
    a_wheel(checkout / "dist", HERE, f"{digest_of_sources(checkout)} all\n")
    assert make(checkout, "demo")[0][-1] == "pip -r .venv/needs.txt"
    (checkout / name).write_text("changed")
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


def test_a_line_comes_while_commands_are_silent(tmp_path: Path) -> None:
    run = progress(
        tmp_path, "times", "pip", "sh", "-c", "echo one; sleep 1", "+", "compiler", "sh", "-c", "echo two >&2; sleep 0.7"
    )
    assert run.returncode == 0
    assert run.stderr == "two\n"
    lines = without_seconds(run.stdout).splitlines()
    assert len(lines) >= 4
    assert lines[0] == "  N s, pip: sh -c 'echo one; sleep 1'; compiler: sh -c 'echo two >&2; sleep 0.7'"
    assert "  N s, pip: one; compiler: sh -c 'echo two >&2; sleep 0.7'" in lines
    assert without_seconds((tmp_path / "times").read_text()).splitlines() == ["compiler N", "pip N"]


def test_a_long_line_leaves_room_for_the_other_command(tmp_path: Path) -> None:
    run = progress(tmp_path, "times", "pip", "echo", "a" * 500, "+", "compiler", "echo", "b" * 500, pause="9")
    assert run.stdout == f"  0 s, pip: echo {'a' * 60}...; compiler: echo {'b' * 55}...\n"


def test_lines_are_shown_when_they_come_if_that_is_asked_for(tmp_path: Path) -> None:
    run = progress(tmp_path, "--show", "times", "job", "sh", "-c", "sleep 0.4; echo one; sleep 0.4; echo two")
    lines = without_seconds(run.stdout).splitlines()
    assert set(lines) == {"  N s, job", "one", "two"}
    assert (lines[0], lines[lines.index("one") + 1], lines[-1]) == ("  N s, job", "  N s, job", "two")


def test_a_command_that_fails_is_named_with_all_that_it_said(tmp_path: Path) -> None:
    words = ("times", "pip", "sh", "-c", "echo one; echo two; exit 3", "+", "compiler", "true")
    run = progress(tmp_path, *words, pause="9")
    assert run.returncode == 3
    assert without_seconds(run.stdout).endswith("\nsh -c 'echo one; echo two; exit 3'\none\ntwo\npip failed after N s\n")
    assert not (tmp_path / "times").exists()
    run = progress(tmp_path, "times", "job", "sh", "-c", "kill -TERM $$", pause="9")
    assert run.returncode == 143
    assert without_seconds(run.stdout).endswith("\njob failed after N s\n")


def test_a_signal_reaches_the_commands(tmp_path: Path) -> None:
    script = "trap 'echo ended; exit 5' TERM; echo $$ > here; sleep 9 > rest & wait"
    process = subprocess.Popen(
        [sys.executable, str(PROGRESS), "times", "job", "sh", "-c", script], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    while not (tmp_path / "here").exists() or not (tmp_path / "here").read_text():
        assert process.poll() is None
        time.sleep(0.02)
    process.terminate()
    assert without_seconds(process.communicate(timeout=30)[0]).endswith("\nended\njob failed after N s\n")
    assert process.returncode == 5


# A job in the background has SIGINT ignored, and its children inherit that.
HEARS_INTERRUPTS = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@pytest.mark.parametrize("show", [(), ("--show",)])
def test_an_interrupt_is_one_line(tmp_path: Path, show: tuple[str, ...]) -> None:
    """What pip and the compiler have said is left out, and what they say of the interrupt; a job that is shown says it itself."""
    script = "trap 'echo ended; echo why >&2; exit 5' INT; echo before; echo warned >&2; echo $$ > here; sleep 9 > rest & wait"
    words = [*show, "times", "pip", "sh", "-c", script]
    process = subprocess.Popen(
        [sys.executable, "-c", HEARS_INTERRUPTS, str(PROGRESS), *words],
        cwd=tmp_path,
        env=os.environ | {"FEDKERN_PROGRESS_SECONDS": "9"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    err = process.stderr.readline()
    while not (tmp_path / "here").exists():
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, rest = process.communicate(timeout=30)
    err += rest
    assert process.returncode == 5
    if show:
        assert (out, err) == ("before\nended\n", "warned\nwhy\n")
    else:
        assert err == "warned\n"
        assert without_seconds(out).splitlines()[1:] == ["stopped by Ctrl-C after N s; start it again"]
    assert not (tmp_path / "times").exists()


def test_commands_are_taken_apart() -> None:
    words = ["a", "x", "1", "+", "b", "y"]
    assert runpy.run_path(str(PROGRESS))["commands_of"](words) == [("a", ["x", "1"]), ("b", ["y"])]
