"""The command line, run inside this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from command import Ended

from fedkern.cli.__main__ import main


@pytest.fixture
def fedkern(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    """`fedkern ARGUMENTS` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDKERN_CLIENT_HOME", raising=False)

    def run(*arguments: str | Path) -> Ended:
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Ended(code, out, err)

    return run


@pytest.fixture
def job(tmp_path: Path) -> Callable[[str], Path]:
    """A job file with this content."""

    def write(text: str) -> Path:
        path = tmp_path / "job.toml"
        path.write_text(text)
        return path

    return write
