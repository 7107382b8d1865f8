"""What a small job costs beside its rounds: seconds of processor, peak memory, modules; in one process and of each rank.

    cd benchmarks; python -m benchmarks.bench_start          # prints what is in results/start.txt

Twelve rounds of the job that `fedkern simulate sparse --columns 11 --rows 130` writes. Bytecode is compiled before, as it is
where a package is installed. A bare rank does what none can do without: it imports NumPy and SciPy's BLAS, and starts MPI.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

FIGURES = ("cpu", "mib", "modules")
PROCESSES = {"one process": (1, 0), "server of three ranks": (3, 0), "client of three ranks": (3, 1), "bare rank": (2, 1)}
TIMES = 7

RUN = """
import sys
from fedkern.cli.__main__ import main
code = main(sys.argv[1:])
"""
BARE = """
import mpi4py, numpy, scipy.linalg, sys
mpi4py.rc.initialize = False
from mpi4py import MPI
MPI.Init_thread(MPI.THREAD_FUNNELED)
MPI.COMM_WORLD.Barrier()
MPI.Finalize()
code = 0
"""
USED = """
import json, os, re, resource
used = resource.getrusage(resource.RUSAGE_SELF)
peak = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
with open(os.environ["USED"] + os.environ.get("OMPI_COMM_WORLD_RANK", "0"), "w") as file:
    json.dump({"cpu": used.ru_utime + used.ru_stime, "mib": peak, "modules": modules}, file)
sys.exit(code)
"""


# What a process pays before its first line of a job. The last one less the one above it is the most that kernels loaded on their
# first use could save.
IMPORTS = {
    "fedkern": "import fedkern",
    "NumPy, SciPy's BLAS": "import numpy, scipy.linalg, threadpoolctl",
    "these and all kernels": "import numpy, scipy.linalg, threadpoolctl, fedkern.kernels",
}
# A whole small job, rows included, beside what anybody pays for such rows.
SMALL = """
import fedkern, numpy as np
random, data = np.random.default_rng(1), {}
for name in ("north", "south", "west"):
    X = random.normal(size=(500, 8))
    y = (random.random(500) < 1 / (1 + np.exp(-0.18 * X.sum(axis=1)))).astype(int)
    data[name] = {f"x{j}": X[:, j] for j in range(8)} | {"y": y}
fedkern.run({"job": {"method": "likelihood", "seed": 1}, "data": {"response": "y"}}, data=data, progress=False)
"""
JOBS = {"NumPy, pandas, scipy.special": "import numpy, pandas, scipy.special", "a job, 3 x 500 x 8": SMALL}


def imported(codes: Mapping[str, str], times: int = 3 * TIMES) -> dict[str, float]:
    """Returns the median seconds of processor of each code, beside those of a bare interpreter; they take turns."""
    codes = {"": "pass", **codes}
    seconds: dict[str, list[float]] = {name: [] for name in codes}
    for turn in range(times + 1):
        for name, code in codes.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-P", "-c", code], check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            if turn:  # the first compiles bytecode
                seconds[name].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    return {name: medians[name] - medians[""] for name in codes if name}


def used(folder: Path, ranks: int, code: str, *arguments: str) -> list[dict[str, float]]:
    """The figures of each process."""
    command = [sys.executable, "-P", "-c", f"{code}\nmodules = len(sys.modules){USED}", *arguments]
    if ranks > 1:
        command = [str(Path(sys.executable).with_name("mpirun")), "--oversubscribe", "-n", str(ranks), *command]
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    bytecode = {"PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}
    environment = os.environ | allowed | bytecode | {"USED": str(folder / "used"), "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    return [json.loads((folder / f"used{rank}").read_text()) for rank in range(ranks)]


def measured(folder: Path, name: str) -> dict[str, float]:
    """Medians of one of `PROCESSES`."""
    ranks, rank = PROCESSES[name]
    runs = []
    for number in range(TIMES + 1):
        out = folder / f"{name}-{number}".replace(" ", "-")
        job = ["run", str(folder / "job" / "job.toml"), "--out", str(out), "--quiet"]
        job += ["--set", "job.rounds=12", "--set", "algorithm.burn_in=2", *(["--mpi"] if ranks > 1 else [])]
        code, arguments = (BARE, []) if name == "bare rank" else (RUN, job)
        runs.append(used(folder, ranks, code, *arguments)[rank])
    return {figure: statistics.median(run[figure] for run in runs[1:]) for figure in FIGURES}  # the first compiles bytecode


def simulated(folder: Path) -> None:
    """The job."""
    simulate = [sys.executable, "-P", "-m", "fedkern", "simulate", "sparse", "--columns", "11", "--rows", "130"]
    subprocess.run([*simulate, "--out", str(folder / "job")], check=True, stdout=subprocess.DEVNULL)


class Start:
    """One process of a small job, from its first to its last instruction."""

    params = tuple(PROCESSES)
    param_names = ("process",)
    timeout = 300

    def setup_cache(self) -> dict[str, dict[str, float]]:
        with tempfile.TemporaryDirectory() as made:
            simulated(Path(made))
            there = Path(sys.executable).with_name("mpirun").exists()
            return {name: measured(Path(made), name) for name, (ranks, _) in PROCESSES.items() if ranks == 1 or there}

    def setup(self, found: dict[str, dict[str, float]], process: str) -> None:
        if process not in found:
            raise NotImplementedError

    def track_cpu(self, found: dict[str, dict[str, float]], process: str) -> float:
        return found[process]["cpu"]

    def track_mib(self, found: dict[str, dict[str, float]], process: str) -> float:
        return found[process]["mib"]

    def track_modules(self, found: dict[str, dict[str, float]], process: str) -> float:
        return found[process]["modules"]


Start.track_cpu.unit = "s"  # type: ignore[attr-defined]
Start.track_mib.unit = "MiB"  # type: ignore[attr-defined]
Start.track_modules.unit = "modules"  # type: ignore[attr-defined]


def main() -> None:
    print(f"{'imports':28}{'s of CPU':>10}")
    for codes in (IMPORTS, JOBS):
        for name, seconds in imported(codes).items():
            print(f"{name:28}{seconds:10.3f}", flush=True)
    with tempfile.TemporaryDirectory() as made:
        simulated(Path(made))
        print(f"{'12 rounds of a sparse job':28}{'s of CPU':>10}{'MiB':>8}{'modules':>10}")
        for name in PROCESSES:
            found = measured(Path(made), name)
            print(f"{name:28}{found['cpu']:10.2f}{found['mib']:8.0f}{found['modules']:10.0f}")


if __name__ == "__main__":
    main()
