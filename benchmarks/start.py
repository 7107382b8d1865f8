"""What a small job costs beside its rounds: processor, memory, modules.

    python benchmarks/start.py          # prints benchmarks/results/start.txt

Twelve rounds of the job that `fedkern simulate sparse` writes: in one process, and each rank of `mpirun -n 3`. Medians of five.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

CODE = """
import json, os, resource, sys
from fedkern.cli.__main__ import main
code = main(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_SELF)
with open(os.environ["OUT"] + os.environ.get("OMPI_COMM_WORLD_RANK", ""), "w") as file:
    json.dump([used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, len(sys.modules)], file)
sys.exit(code)
"""


def used(ranks: int, job: Path, out: Path) -> list[list[float]]:
    """Seconds of processor, MiB and modules of each process."""
    python = [sys.executable, "-P", "-c", CODE, "run", str(job), "--out", str(out / "run"), "--quiet"]
    python += ["--set", "job.rounds=12", "--set", "algorithm.burn_in=2"]
    mpirun = [str(Path(sys.executable).with_name("mpirun")), "--oversubscribe", "-n", str(ranks)]
    subprocess.run([*mpirun, *python, "--mpi"] if ranks > 1 else python, check=True, env=os.environ | {"OUT": str(out / "used")})
    return [json.loads(path.read_text()) for path in sorted(out.glob("used*"))]


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        job = Path(made) / "job"
        simulate = [sys.executable, "-P", "-m", "fedkern", "simulate", "sparse", "--columns", "11", "--rows", "130"]
        subprocess.run([*simulate, "--out", str(job)], check=True, stdout=subprocess.DEVNULL)
        print(f"{'12 rounds of a sparse job':32}{'s of CPU':>10}{'MiB':>8}{'modules':>10}")
        for ranks, who in ((1, ["one process"]), (3, ["the server, mpirun -n 3", "a client, mpirun -n 3"])):
            runs = []
            for number in range(5):
                (out := Path(made) / f"{ranks}-{number}").mkdir()
                runs.append(used(ranks, job / "job.toml", out))
            for rank, name in enumerate(who):
                seconds, mib, modules = (statistics.median(run[rank][i] for run in runs) for i in range(3))
                print(f"{name:32}{seconds:10.2f}{mib:8.0f}{modules:10.0f}")


if __name__ == "__main__":
    main()
