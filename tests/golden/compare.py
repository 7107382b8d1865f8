"""Whether this commit computes the same bits as another: `make golden BASE=commit`, or `python tests/golden/compare.py COMMIT`.

Both run the golden jobs of this folder on this machine; every digest is compared, and what is sent and said of a job is shown
line by line where it is another. The other commit lies in build/golden; it gets the compiled extension of this one where both
have the same sources of it, and is built where not.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import record

ROOT = record.HERE.parents[1]
COMPILED = ("csrc", "setup.py")


def git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True).stdout.strip()


def laid_out(commit: str) -> Path:
    """A folder with the files of a commit, and its extension."""
    folder = ROOT / "build" / "golden" / commit
    if not folder.exists():
        beside = folder.with_suffix(".part")
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(beside)], input=archive, check=True)
        beside.rename(folder)
    same = subprocess.run(["git", "-C", str(ROOT), "diff", "--quiet", commit, "--", *COMPILED], check=False).returncode == 0
    built = list((folder / "fedkern").glob("_core.*.so"))
    if same:
        spec = importlib.util.find_spec("fedkern._core")
        if spec is None or spec.origin is None:
            raise SystemExit("fedkern has no compiled extension here: pip install .")
        print(f"{commit[:12]} has the same C++: the extension is taken from {spec.origin}", flush=True)
        shutil.copy2(spec.origin, folder / "fedkern" / Path(spec.origin).name)
    elif not built:
        print(f"{commit[:12]} has other C++: it is compiled in {folder}, which takes minutes", flush=True)
        subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=folder, check=True)
    return folder


def rows(was: dict[str, Any], now: dict[str, Any]) -> list[tuple[str, str]]:
    """(job, where it differs), of all jobs and trainings that do."""
    found = []
    for half in ("numbers", "trainings"):
        for name in {**was[half], **now[half]}:
            changed = list(record.differences(was[half].get(name, {}), now[half].get(name, {})))
            if changed:
                found.append((name, ", ".join(sorted({line.split(": was ")[0].split(": is ")[0] for line in changed}))))
    return found


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__)
        return 2
    commit = git("rev-parse", "--verify", arguments[0] + "^{commit}")
    folder = laid_out(commit)
    was = record.recorded({"PYTHONPATH": str(folder)})
    if not Path(was["fedkern"]).is_relative_to(folder):
        raise SystemExit(f"the jobs of {commit[:12]} ran with {was['fedkern']}")
    now = record.recorded()
    print(f"{commit[:12]}: {was['fedkern']}\nthis: {now['fedkern']}")
    for line in record.differences(was["stored"], now["stored"]):
        print(line)
    different = rows(was, now)
    for name, where in different:
        print(f"{name:<34}{where}")
    n = len(now["numbers"]) + len(now["trainings"])
    print(f"{len(different)} of {n} jobs and trainings differ" if different else f"{n} jobs and trainings: all digests are equal")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
