"""A package that ends its process ends the job with an error that names the holder, at all ranks; who may be asked for what."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedkern
from fedkern.cli.__main__ import main
from fedkern.errors import JobError
from fedkern.methods.likelihood import own_exits
from support.command import mpirun
from support.own_package import PRIORS, SMALL, found_first, installed, job, schools
from support.own_package import package as package  # a fixture
from support.refusal import refusal

LEAVING = '''
import os
from os import _exit

import numpy as np

from own_models_of_tests import plain as usual


class Leaving:
    """A model that leaves as it is asked for the second time."""
    names = ("mu", "tau")

    def __init__(self, table, leave):
        self.model, self.leave, self.asked = usual(table, {}), leave, 0

    def values(self, points):
        self.asked += 1
        if self.asked > 1 and self.model.y[0] == 8.0:
            self.leave()
        return self.model.values(points)


def by_attribute(table, options):
    return Leaving(table, lambda: os._exit(0))


def by_name(table, options):
    return Leaving(table, lambda: _exit(0))


def at_once(table, options):
    os._exit(0)


def swallowing(table, options):
    def leave():
        try:
            os._exit(0)
        except Exception:
            pass
    return Leaving(table, leave)


class SecretError(BaseException):
    pass


def _raising(kind):
    def leave():
        raise kind("row 7.123456")
    return leave


def without_memory(table, options):
    return Leaving(table, _raising(MemoryError))


def interrupted(table, options):
    return Leaving(table, _raising(KeyboardInterrupt))


def cancelled(table, options):
    import asyncio
    return Leaving(table, _raising(asyncio.CancelledError))


def no_exception(table, options):
    return Leaving(table, _raising(SecretError))


def elsewhere(table, options):
    os.chdir("/")
    return usual(table, {})


def in_a_child(table, options):
    """What a child does is its own affair."""
    def leave():
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
    return Leaving(table, leave)
'''


@pytest.fixture(scope="module", autouse=True)
def leaving(tmp_path_factory: pytest.TempPathFactory, package: Path) -> Iterator[Path]:
    folder = installed(tmp_path_factory.mktemp("leaving"), "own_leaving", LEAVING)
    patch = pytest.MonkeyPatch()
    found_first(patch, folder, "own_leaving")
    yield folder
    patch.undo()


def written(folder: Path, factory: str) -> Path:
    path = job(folder, "plain", PRIORS + SMALL)
    path.write_text(path.read_text().replace("own_models_of_tests:plain", f"own_leaving:{factory}"))
    return path


@pytest.mark.parametrize("factory", ["by_attribute", "by_name", "swallowing"])
def test_the_end_of_the_process_is_an_error_that_names_the_holder(
    factory: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = os._exit
    path = written(tmp_path, factory)
    assert main(["run", str(path), "--out", str(tmp_path / "out"), "--quiet"]) == 2
    said = capsys.readouterr().err
    assert "client 'b': the model of factory \"own_leaving:" in said
    assert "values failed (ProcessExit); mend the package" in said
    assert "os._exit(0) would have ended" in (tmp_path / "out" / "client-b" / "holder.txt").read_text()
    assert os._exit is before


@pytest.mark.parametrize("factory", ["without_memory", "cancelled", "no_exception"])
def test_no_text_of_an_exception_is_told_whatever_its_type(
    factory: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, factory)
    assert main(["run", str(path), "--out", str(tmp_path / "out"), "--quiet"]) == 2
    said = capsys.readouterr()
    assert "7.123456" not in said.err + said.out
    assert "client 'b': the model of factory \"own_leaving:" in said.err
    assert "values" in said.err


def test_an_interrupt_of_a_package_tells_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(written(tmp_path, "interrupted")), "--out", str(tmp_path / "out"), "--quiet"]) == 3
    assert "7.123456" not in "".join(capsys.readouterr())


def test_a_package_that_changes_the_folder_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "elsewhere")
    monkeypatch.chdir(tmp_path)
    assert fedkern.run("job.toml", out="out").converged is True
    assert Path.cwd() == tmp_path
    assert (tmp_path / "out" / "summary.json").exists()


def test_a_factory_that_leaves_is_one_that_failed(tmp_path: Path) -> None:
    with refusal(JobError, "a", "ProcessExit"):
        fedkern.run(written(tmp_path, "at_once"))


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning")  # JAX warns of it
def test_a_child_of_the_package_may_end(tmp_path: Path) -> None:
    assert fedkern.run(written(tmp_path, "in_a_child")).converged is True


def test_all_ranks_end_and_name_the_holder(tmp_path: Path, leaving: Path, package: Path) -> None:
    both = tmp_path / "site"
    for folder in (leaving, package):
        shutil.copytree(folder, both, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    ended = mpirun(3, "run", written(tmp_path, "by_attribute"), "--out", tmp_path / "out", before=both)
    assert ended.code not in (0, None)
    assert "client 'b'" in ended.err
    assert "values failed (ProcessExit)" in ended.err
    assert not (tmp_path / "out" / "summary.json").exists()


def test_what_is_refused_ends_with_the_code(tmp_path: Path) -> None:
    with pytest.raises(own_exits.ProcessExit, match=r"os\._exit\(3\)"), own_exits.refused():
        os._exit(3)


def test_a_check_says_who_may_be_asked_and_what_stops_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = job(tmp_path, "plain")
    schools(tmp_path, 2)
    own = tmp_path / "rows" / "a.csv"
    assert main(["check", "--verbose", str(path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "any function of any package that a holder has installed can be named" in said
    assert "require = true, and factories" in said
    assert main(["check", str(path), "--local", str(own)]) == 0
    warned = " ".join(capsys.readouterr().out.split())
    assert "a job may have any function of any installed package run on these rows" in warned
    assert "require = true" in warned
    (tmp_path / "rows" / "fedkern-policy.toml").write_text(
        'require = true\nopen = true\nfactories = ["own_models_of_tests:plain"]\n[data.a]\n[data.b]\n'
    )
    assert main(["check", str(path), "--local", str(own)]) == 0
    assert "any installed package" not in " ".join(capsys.readouterr().out.split())
    path.write_text(path.read_text().replace("own_models_of_tests:plain", "numpy:asarray"))
    assert main(["check", str(path), "--local", str(own)]) == 2
    assert "numpy:asarray is not among the factories" in capsys.readouterr().out
