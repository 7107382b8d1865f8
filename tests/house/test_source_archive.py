"""The source archive holds all that the repository does, but for what is named here."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LEFT_OUT = (".ci/", ".github/", ".pre-commit-config.yaml")  # for the place where the repository lives


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="compares with a repository")
def test_the_source_archive_is_complete(tmp_path: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    files = {name for name in listed if name and (ROOT / name).exists()}
    # In a copy: setuptools writes beside the sources, and adds whatever an old list there has.
    copy = tmp_path / "copy"
    for name in files:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    command = [sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", str(tmp_path)]
    subprocess.run(command, cwd=copy, check=True, capture_output=True, timeout=100)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        held = {member.name.partition("/")[2] for member in tar.getmembers()}
    assert {name for name in files - held if not name.startswith(LEFT_OUT)} == set()
