"""Finds a wheel of this checkout: `python tools/wheel.py dist` prints its path, or nothing.

A wheel has a digest of the sources that it was built from (setup.py writes it). One with the digest of this checkout is what the
compiler would make of it. It is only looked for in the folder that is named, and never in an index.
"""

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

RECORDED = "fedkern/sources.sha256"  # in a wheel
FOLDERS, FILES = ("csrc", "fedkern", "stubs"), ("setup.py", "pyproject.toml")
MADE = {".so", ".pyc", ".pyd"}  # what a build or a run leaves among the sources


def digest_of_sources(root: Path) -> str:
    """Returns a digest of the names and contents of all files that the package is built from."""
    paths = [root / name for name in FILES]
    paths += [path for folder in FOLDERS for path in (root / folder).rglob("*.*") if path.is_file() and path.suffix not in MADE]
    digest = hashlib.sha256()
    for path in sorted(paths, key=lambda path: path.relative_to(root).as_posix()):
        name, content = path.relative_to(root).as_posix().encode(), path.read_bytes()
        digest.update(b"%d %d " % (len(name), len(content)) + name + content)
    return digest.hexdigest()


def recorded_digest(wheel: Path) -> str | None:
    """Returns the digest that a wheel has of its sources; None where it has none, or where the file is no wheel."""
    try:
        with zipfile.ZipFile(wheel) as files:
            return files.read(RECORDED).decode(errors="replace").strip()
    except (OSError, KeyError, zipfile.BadZipFile):
        return None


def runs_here(wheel: Path) -> bool:
    """Asks pip whether this Python on this machine can have the wheel."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps", "--no-index", "--force-reinstall"]
    return subprocess.run([*command, wheel], capture_output=True, check=False).returncode == 0


def wheel_of(root: Path, folder: Path) -> Path | None:
    """Returns the wheel in `folder` that was built from the sources at `root` and that runs here; None without one."""
    digest = digest_of_sources(root)
    wheels = sorted(folder.glob("fedkern-*.whl"), key=lambda path: -path.stat().st_mtime_ns)
    return next((wheel for wheel in wheels if recorded_digest(wheel) == digest and runs_here(wheel)), None)


if __name__ == "__main__":
    if found := wheel_of(Path(__file__).parents[1], Path(sys.argv[1])):
        print(found)
