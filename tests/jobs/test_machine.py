"""What a machine refuses is one clear error with its remedy: full and read-only disks, too many open files, lost output."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fedkern as package
from fedkern import _core
from fedkern.errors import JobError
from support import few
from support.command import OPEN, python

LIMITED = """
import resource, sys
soft, hard = int(sys.argv.pop(1)), int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
from fedkern.cli.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def one_line(ended: Any, *words: str) -> None:
    assert ended.code == 2, ended.err
    (line,) = ended.err.splitlines()
    assert line.startswith("fedkern: ")
    for word in words:
        assert word in line


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("arguments", [["reproduce"], ["simulate", "logistic", "--out", "made"]])
def test_standard_output_on_a_full_disk(arguments: list[str], buffered: bool, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(package.__file__).parents[1])}
    env |= {"PYTHONUNBUFFERED": "" if buffered else "1"}
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "fedkern.cli", *arguments],
            stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=env, timeout=60, check=False,
        )  # fmt: skip
    assert ended.returncode == 2
    text = "fedkern: cannot write standard output: No space left on device; free some space there, or choose another folder\n"
    assert ended.stderr == text


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_disk_that_takes_nothing(number: int, fedkern: Any, job: Any, finished: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = job(OPEN)
    finished(OPEN)

    def refuse(*arguments: Any, **more: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "write_text", refuse)
    one_line(fedkern("simulate", "poisson", "--out", "made"), "made", os.strerror(number))
    monkeypatch.setattr(os, "fsync", refuse)
    one_line(fedkern("report", "out"), "out/report.html", os.strerror(number))
    one_line(fedkern("run", path, "--out", "again", "--quiet"), "again/", os.strerror(number), "--out")
    assert not list(Path().glob("**/.*.part"))


@pytest.mark.parametrize(
    ("out", "reason"),
    [
        ("/dev/null", "/dev/null is a device, a pipe or a socket, and no folder"),
        ("/dev/null/x", "/dev/null is a device, a pipe or a socket, and no folder"),
        ("/proc", "/proc shows what the system is doing, and keeps no files"),
        ("/proc/x/y", "/proc shows what the system is doing, and keeps no files"),
        ("loop", "/loop is a link that leads back to itself"),
        ("loop/x", "/loop is a link that leads back to itself"),
        ("dangling", "/dangling is a link to /nowhere/there, which is not there"),
        ("dangling/x", "/dangling is a link to /nowhere/there, which is not there"),
        ("job.toml", "/job.toml is a file, and no folder"),
        ("job.toml/x", "/job.toml is a file, and no folder"),
    ],
)
def test_an_out_that_can_be_no_folder(out: str, reason: str, fedkern: Any, job: Any) -> None:
    path = job(OPEN)
    Path("loop").symlink_to("loop")
    Path("dangling").symlink_to("/nowhere/there")
    one_line(fedkern("run", path, "--out", out, "--quiet"), reason, "--out")


@pytest.mark.parametrize("command", ["run", "simulate", "predict", "init", "demo", "reproduce"])
def test_an_empty_out_is_an_error(command: str, fedkern: Any, job: Any) -> None:
    more = {"run": [job(OPEN)], "simulate": ["logistic"], "predict": ["a", "b"], "init": ["a.csv"], "reproduce": ["sigma"]}
    before = sorted(Path().rglob("*"))
    one_line(fedkern(command, *more.get(command, []), "--out", ""), "--out is empty; name a place, or leave the option out")
    assert sorted(Path().rglob("*")) == before
    with pytest.raises(JobError, match="out = '' names no folder"):
        package.run(more["run"][0], out="")


@pytest.mark.parametrize("command", [["run", "--quiet"], ["launch", "-n", "2"]])
def test_instructions_that_there_are_not(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job.toml").write_text(OPEN)
    monkeypatch.setenv("FEDKERN_ISA", "nonsense")
    ended = python("-P", "-m", "fedkern", *command, "job.toml", folder=tmp_path)
    one_line(ended, "FEDKERN_ISA=nonsense", ", ".join(_core.levels()), "unset FEDKERN_ISA")
    if command[0] == "run":
        ended = python("-P", "-c", "import fedkern; fedkern.run('job.toml', out='out')", folder=tmp_path)
        assert "JobError: FEDKERN_ISA=nonsense" in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["job.toml"]


def test_more_clients_than_open_files(tmp_path: Path) -> None:
    """A rank has several files for each of its clients; it takes as many as it can get, and says what to do beyond."""
    (tmp_path / "job.toml").write_text(OPEN.replace("clients = 3", "clients = 60").replace("rounds = 3", "rounds = 1"))
    command = ["run", "job.toml", *few.SET, "--quiet", "--out"]
    assert python("-c", LIMITED, "64", "512", *command, "a", folder=tmp_path).code == 0
    ended = python("-c", LIMITED, "64", "64", *command, "b", folder=tmp_path)
    one_line(ended, "Too many open files", "ulimit -n", "more ranks")
