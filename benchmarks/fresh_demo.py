"""Measures `make demo` in a fresh clone of the last commit with an empty home: seconds, seconds of CPU, and the longest silences.

python benchmarks/fresh_demo.py                  the kernels are compiled
python benchmarks/fresh_demo.py WHEEL            this wheel lies in dist/, and no compiler is in the PATH
python benchmarks/fresh_demo.py [WHEEL] TARGET   another target of the Makefile

Packages come from the index that pip is set to for the whole system; its cache is empty.
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMPILERS = ("gcc", "g++", "cc", "c++", "clang", "cpp", "c89", "c99")


def path_without_compilers(folder: Path) -> str:
    """Returns a PATH of links to every program of this one but compilers."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            words = program.name.split("-")
            if not any(word in COMPILERS for word in words) and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    return str(folder)


def silences(command: list[str], folder: Path, environment: dict[str, str]) -> tuple[int, list[tuple[float, str]]]:
    """Runs a command and shows its lines with their times; returns its exit code, and the silences with the line after each."""
    began = last = time.monotonic()
    gaps: list[tuple[float, str]] = []
    job = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert job.stdout is not None
    for line in job.stdout:
        now = time.monotonic()
        gaps.append((now - last, line.strip()))
        last = now
        print(f"{now - began:7.1f} {line.rstrip()[:150]}", flush=True)
    code = job.wait()
    gaps.append((time.monotonic() - last, "its end"))
    return code, gaps


def main(arguments: list[str]) -> int:
    """Makes the clone, runs make in it and prints the figures."""
    wheel = next((Path(each).absolute() for each in arguments if each.endswith(".whl")), None)
    targets = [each for each in arguments if not each.endswith(".whl")] or ["demo"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(["git", "clone", "--quiet", ROOT, folder / "fedkern"], check=True)
        (folder / "home").mkdir()
        environment = {"HOME": str(folder / "home"), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        if wheel:
            (folder / "fedkern" / "dist").mkdir()
            shutil.copy(wheel, folder / "fedkern" / "dist")
            environment["PATH"] = path_without_compilers(folder / "programs")
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        # The interpreter itself: what a version manager puts into the PATH asks the home for its settings.
        python = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
        code, gaps = silences(["make", f"PYTHON={python}", *targets], folder / "fedkern", environment)
        seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"make {' '.join(targets)}: exit code {code}, {seconds:.0f} s, {cpu:.0f} s of CPU; load {os.getloadavg()[0]:.1f}")
    for gap, line in sorted(gaps, reverse=True)[:3]:
        print(f"  silent for {gap:.1f} s before: {line[:100]}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
