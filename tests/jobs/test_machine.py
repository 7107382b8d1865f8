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


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_disk_that_takes_nothing(number: int, fedkern: Any, job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = job(OPEN)
    assert fedkern("run", path, "--out", "out", "--quiet").code == 0

    def refuse(*arguments: Any, **more: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "write_text", refuse)
    one_line(fedkern("simulate", "poisson", "--out", "made"), "made", os.strerror(number))
    monkeypatch.setattr(os, "fsync", refuse)
    one_line(fedkern("report", "out"), "out/report.html", os.strerror(number))
    one_line(fedkern("run", path, "--out", "again", "--quiet"), "again/", os.strerror(number), "--out")
    assert not list(Path().glob("**/.*.part"))


def test_more_clients_than_open_files(tmp_path: Path) -> None:
    """A rank has several files for each of its clients; it takes as many as it can get, and says what to do beyond."""
    (tmp_path / "job.toml").write_text(OPEN.replace("clients = 3", "clients = 60").replace("rounds = 3", "rounds = 1"))
    command = ["run", "job.toml", *few.SET, "--quiet", "--out"]
    assert python("-c", LIMITED, "64", "512", *command, "a", folder=tmp_path).code == 0
    ended = python("-c", LIMITED, "64", "64", *command, "b", folder=tmp_path)
    one_line(ended, "Too many open files", "ulimit -n", "more ranks")
