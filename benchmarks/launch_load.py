"""How many jobs over MPI come up on a busy machine: `fedkern launch` of 2 to 32 ranks beside processes that only compute.

    python benchmarks/launch_load.py [--load 30] [--each 2] [--ranks 2,4,8,16,32] [PYTHON ..]

PYTHON: of an environment with its own mpirun beside it (default: the one that runs this); one with Open MPI, one with MPICH.
A launch has come up when its job, of one round, has ended with code 0. Others of the machine suffer meanwhile.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fedkern

JOB = """
[job]
rounds = 1
[data]
builtin = "breast-cancer"
least_rows = 1                     # so many clients have few each
split = {{clients = {clients}}}
[algorithm]
schedule = "synchronous"
"""
LONGEST = 600.0  # seconds


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that compute, and give way a little, as another user's would."""
    loops = [subprocess.Popen(["nice", "-n", "5", "sh", "-c", "while :; do :; done"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def launched(python: Path, ranks: int, folder: Path) -> tuple[bool, float, str]:
    """Whether one job came up, in how many seconds, and what was said if not."""
    (job := folder / "job.toml").write_text(JOB.format(clients=ranks - 1))
    env = {
        **os.environ,
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(Path(fedkern.__file__).parents[1]),
        "OMP_NUM_THREADS": "1",
    }
    words = [python, "-P", "-m", "fedkern", "launch", "-n", str(ranks), job, "--out", folder / "out", "--quiet"]
    before = time.perf_counter()
    try:
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=LONGEST, check=False)
    except subprocess.TimeoutExpired:
        return False, LONGEST, "no end"
    return done.returncode == 0, time.perf_counter() - before, f"code {done.returncode}: {done.stderr.strip()[-200:]}"


def library(python: Path) -> str:
    """What starts the ranks."""
    said = subprocess.run([python.parent / "mpirun", "--version"], capture_output=True, text=True, check=False).stdout
    return "Open MPI" if "Open MPI" in said else "MPICH"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="*", type=Path, default=[Path(sys.executable)], metavar="PYTHON")
    parser.add_argument("--load", type=int, default=30, metavar="N", help="processes that compute beside the job")
    parser.add_argument("--each", type=int, default=2, metavar="N", help="launches of each size")
    parser.add_argument("--ranks", default="2,4,8,16,32", metavar="N,..")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # nothing is left busy
    sizes = [int(size) for size in options.ranks.split(",")]
    print(f"{os.cpu_count()} cores, {options.load} busy processes beside the job; came up / launched (longest, s)", flush=True)
    print(f"{'ranks':10}" + "".join(f"{size:>14}" for size in sizes), flush=True)
    up = said = 0
    with busy(options.load):
        for python in options.pythons:
            print(f"{library(python):10}", end="", flush=True)
            faults = []
            for size in sizes:
                runs = []
                for _ in range(options.each):
                    with tempfile.TemporaryDirectory() as folder:
                        runs.append(launched(python, size, Path(folder)))
                good, longest = sum(run[0] for run in runs), max(run[1] for run in runs)
                faults += [f"  {size} ranks: {run[2]}" for run in runs if not run[0]]
                up, said = up + good, said + len(runs)
                print(f"{f'{good}/{len(runs)} ({longest:.0f})':>14}", end="", flush=True)
            print("".join(f"\n{fault}" for fault in faults), flush=True)
    print(f"{up} of {said} came up", flush=True)


if __name__ == "__main__":
    main()
