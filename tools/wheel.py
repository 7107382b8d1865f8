"""Finds a wheel of this checkout: `python tools/wheel.py dist` prints its path, or nothing.

A wheel has a digest of the sources that it was built from, and the levels of instructions that were asked for (setup.py writes
both). One with the digest of this checkout and all levels is what the compiler would make of it. It is only looked for in the
folder that is named, and never in an index. Wheels that are not used are named on standard error, with the reason.
"""

import hashlib
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

RECORDED = "fedkern/sources.sha256"  # in a wheel: the digest, a space, FEDKERN_LEVELS of its build
FOLDERS, FILES = ("csrc", "fedkern"), ("setup.py", "pyproject.toml", "tools/stubs.py")
MADE = {".so", ".pyc", ".pyd"}  # what a build or a run leaves among the sources
MADE_FOLDERS = ("fedkern/_core", "fedkern/cli/completion")  # and what tools/stubs.py writes there


def digest_of_sources(root: Path) -> str:
    """Returns a digest of the names and contents of all files that the package is built from."""
    paths = [root / name for name in FILES]
    paths += [path for folder in FOLDERS for path in (root / folder).rglob("*") if path.is_file() and path.suffix not in MADE]
    digest = hashlib.sha256()
    for path in sorted(paths, key=lambda path: path.relative_to(root).as_posix()):
        name = path.relative_to(root).as_posix()
        if path.name.startswith(".") or name.rpartition("/")[0] in MADE_FOLDERS:  # a file manager's, too
            continue
        content = path.read_bytes()
        digest.update(b"%d %d " % (len(name.encode()), len(content)) + name.encode() + content)
    return digest.hexdigest()


def recorded(wheel: Path) -> tuple[str, str]:
    """Returns the digest that a wheel has of its sources, and its levels; two empty texts where it has none, or is no wheel."""
    try:
        with zipfile.ZipFile(wheel) as files:
            digest, _, levels = files.read(RECORDED).decode(errors="replace").strip().partition(" ")
            return digest, levels
    except (OSError, KeyError, ValueError, zipfile.BadZipFile, zlib.error):  # damaged
        return "", ""


def runs_here(wheel: Path) -> bool:
    """Asks pip whether this Python on this machine can have the wheel."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps", "--no-index", "--force-reinstall"]
    return subprocess.run([*command, wheel], capture_output=True, check=False).returncode == 0


def wheel_of(root: Path, folder: Path) -> tuple[Path | None, list[str]]:
    """Returns the wheel in `folder` that was built from the sources at `root` and that runs here, None without one; and a line
    for each reason why others were passed over."""
    own = digest_of_sources(root), "all"
    of_others, of_few, elsewhere = [], [], []
    for wheel in sorted(folder.glob("fedkern-*.whl"), key=lambda path: -path.stat().st_mtime_ns):
        has = recorded(wheel)
        if has[0] != own[0]:
            of_others.append(wheel.name)
        elif has != own:
            of_few.append(wheel.name)
        elif not runs_here(wheel):
            elsewhere.append(wheel.name)
        else:
            return wheel, []
    reasons = {"not built from these sources": of_others, "not built for all levels of instructions": of_few}
    reasons["not for this Python on this machine"] = elsewhere
    return None, [f"{folder}: not used, because {reason}: {', '.join(names)}" for reason, names in reasons.items() if names]


if __name__ == "__main__":
    wheel, passed_over = wheel_of(Path(__file__).parents[1], Path(sys.argv[1]))
    for line in passed_over:
        print(line, file=sys.stderr)
    if wheel:
        print(wheel)
