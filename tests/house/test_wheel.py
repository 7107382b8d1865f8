"""`make demo` uses a wheel of this checkout's own sources and no other."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WHEEL = runpy.run_path(str(ROOT / "tools" / "wheel.py"))
digest_of_sources, recorded, wheel_of, RECORDED = (
    WHEEL[name] for name in ("digest_of_sources", "recorded", "wheel_of", "RECORDED")
)
FILES = {
    "setup.py": "a",
    "pyproject.toml": "b",
    "csrc/x.hpp": "c",
    "fedkern/y.py": "de",
    "fedkern/run": "g",
    "fedkern/z.pyi": "f",
    "tools/stubs.py": "",
}


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "sources" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "sources"


def a_wheel(folder: Path, name: str, record: str | None) -> Path:
    """A wheel that pip takes, with nothing inside but this record."""
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}.whl", "w") as files:
        files.writestr("fedkern-0.1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: fedkern\nVersion: 0.1.0\n")
        files.writestr("fedkern-0.1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        files.writestr("fedkern-0.1.0.dist-info/RECORD", "")
        if record is not None:
            files.writestr(RECORDED, record)
    return folder / f"{name}.whl"


HERE, ELSEWHERE = "fedkern-0.1.0-py3-none-any", "fedkern-0.1.0-cp39-cp39-win_amd64"


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_part_of_the_digest(sources: Path, name: str) -> None:
    digests = {digest_of_sources(sources)}
    (sources / name).write_text(FILES[name] + " ")
    digests.add(digest_of_sources(sources))
    of_folder = name.startswith(("csrc/", "fedkern/"))
    if of_folder:
        (sources / name).rename(sources / f"{name}.py")
        digests.add(digest_of_sources(sources))
        (sources / f"{name}.py").unlink()
        digests.add(digest_of_sources(sources))
    assert len(digests) == (4 if of_folder else 2)


def test_files_that_a_run_leaves_are_no_sources(sources: Path) -> None:
    before = digest_of_sources(sources)
    made = ("fedkern/_core/glm.pyi", "fedkern/cli/completion/fedkern.zsh")
    for name in ("fedkern/_core.so", "fedkern/__pycache__/y.pyc", "csrc/.DS_Store", *made):
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        (sources / name).write_text("?")
    assert digest_of_sources(sources) == before


def test_the_newest_wheel_of_the_sources_is_taken(sources: Path, tmp_path: Path) -> None:
    assert wheel_of(sources, tmp_path / "dist") == (None, [])  # no folder
    record = f"{digest_of_sources(sources)} all\n"
    other = a_wheel(tmp_path / "dist", "fedkern-0.1.0-2-py3-none-any", "0 all\n")
    older = a_wheel(tmp_path / "dist", "fedkern-0.1.0-1-py3-none-any", record)
    newer = a_wheel(tmp_path / "dist", HERE, record)
    for seconds, path in enumerate((older, newer, other)):
        os.utime(path, (1e9 + seconds, 1e9 + seconds))
    assert wheel_of(sources, tmp_path / "dist") == (newer, [])


@pytest.mark.parametrize(
    ("name", "record", "reason"),
    [
        (HERE, "{digest}0 all", "not built from these sources"),
        (HERE, None, "not built from these sources"),
        (HERE, "{digest} native", "not built for all levels of instructions"),
        (ELSEWHERE, "{digest} all", "not for this Python on this machine"),
    ],
)
def test_another_wheel_is_named_with_the_reason(
    sources: Path, tmp_path: Path, name: str, record: str | None, reason: str
) -> None:
    record = record and record.format(digest=digest_of_sources(sources))
    folder = a_wheel(tmp_path / "dist", name, record).parent
    assert wheel_of(sources, folder) == (None, [f"{folder}: not used, because {reason}: {name}.whl"])


def test_a_broken_wheel_is_passed_over(sources: Path, tmp_path: Path) -> None:
    (tmp_path / f"{HERE}.whl").write_text("no zip")
    found, (line,) = wheel_of(sources, tmp_path)
    assert found is None
    assert line.endswith(f"not built from these sources: {HERE}.whl")


@pytest.mark.parametrize(("levels", "recorded_levels"), [(None, "all"), ("avx2, baseline", "avx2,baseline")])
def test_a_build_records_its_sources_and_levels(tmp_path: Path, levels: str | None, recorded_levels: str) -> None:
    build = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if name != "FEDKERN_LEVELS"}
    environment |= {"FEDKERN_LEVELS": levels} if levels else {}
    subprocess.run(build, cwd=ROOT, env=environment, check=True, timeout=60)
    with zipfile.ZipFile(tmp_path / "built.whl", "w") as files:
        files.write(tmp_path / RECORDED, RECORDED)
    assert recorded(tmp_path / "built.whl") == (digest_of_sources(ROOT), recorded_levels)
