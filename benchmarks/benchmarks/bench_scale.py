"""What a job costs as its clients, its columns and its draws become many: processor time, memory, open files, bytes on the disk.

    python benchmarks/benchmarks/bench_scale.py [CLIENTS ..]    # prints the table of benchmarks/results/scale.txt

Each case is a process of its own, with at most 1,024 open files: two sequential rounds of partitioned inference, clients of 50
rows and two columns, in memory or as files with a run's folder; `fedkern check` of two files of very many columns; checkpoints of
a sampler. Start-up, which is part of each, is the first row. Open files are the highest number that the system gave one.
"""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

CLIENTS, ROWS, LIMIT = (100, 1_000, 10_000), 50, 1024
COLUMNS = (1_000, 10_000, 100_000)
ROUNDS = (1_000, 4_000, 16_000)  # of a sampler, whose checkpoints are a hundred


def tables(clients: int) -> dict[str, Any]:
    """Rows of a logistic regression."""
    random = np.random.default_rng(0)
    X = random.normal(size=(clients, ROWS, 2))
    y = (random.random((clients, ROWS)) < 1 / (1 + np.exp(-X[..., 0]))).astype(float)
    return {f"client-{k:05d}": (X[k], y[k]) for k in range(clients)}


def job(folder: Path, clients: int, source: str) -> dict[str, Any]:
    """The arguments of `fedkern.run`."""
    tables_of = {"job": {"method": "pvi", "rounds": 2}, "model": {"family": "bernoulli"}, "data": {"response": "y"}}
    if source == "memory":
        return {"job": tables_of, "data": tables(clients)}
    (folder / "clients").mkdir()
    for name, (X, y) in tables(clients).items():
        lines = [f"{a:.6f},{b:.6f},{c:.0f}" for (a, b), c in zip(X, y)]
        (folder / "clients" / f"{name}.csv").write_text("\n".join(["x1,x2,y", *lines]) + "\n")
    tables_of["data"]["clients"] = [str(folder / "clients" / "*.csv")]
    return {"job": tables_of, "out": folder / "out"}


def rounds(folder: Path, clients: int, source: str) -> Callable[[], object]:
    import fedkern

    given = job(folder, clients, source)
    return lambda: fedkern.run(given.pop("job"), **given)


def check(folder: Path, columns: int, source: str) -> Callable[[], object]:
    import fedkern

    for name in ("a", "b"):
        rows = [",".join(str((i * j + i) % 17) for j in range(columns)) + f",{i % 2}" for i in range(6)]
        header = ",".join(f"x{j}" for j in range(columns)) + ",y"
        (folder / f"{name}.csv").write_text("\n".join([header, *rows]) + "\n")
    path = folder / "job.toml"
    path.write_text('[job]\nrounds = 2\n[data]\nclients = ["*.csv"]\nresponse = "y"\nleast_rows = 1\n')
    return lambda: fedkern.check(path)


def sampled(folder: Path, rounds: int, source: str) -> Callable[[], object]:
    """A sparse job of five columns, with a checkpoint every hundredth of its rounds."""
    from fedkern.cli.__main__ import main
    from fedkern.jobs.keeping import Keeper

    with redirect_stdout(io.StringIO()):
        main(["simulate", "sparse", "--out", str(folder / "sparse"), "--columns", "5"])
    since = 0

    def due(keeper: Any) -> bool:
        nonlocal since
        since += keeper.protocol == "gibbs"
        return keeper.protocol == "gibbs" and since % (3 * rounds // 100) == 0  # three clients answer a round

    Keeper.checkpoint_due = due  # type: ignore[method-assign]
    sets = [f"job.rounds={rounds}", f"algorithm.burn_in={rounds // 10}"]
    arguments = ["run", str(folder / "sparse" / "job.toml"), "--out", str(folder / "out"), "--quiet"]
    return lambda: main([*arguments, *(word for one in sets for word in ("--set", one))])


KINDS: dict[str, Callable[[Path, int, str], Callable[[], object]]] = {"rounds": rounds, "check": check, "sampled": sampled}


def measure(kind: str, size: int, source: str) -> dict[str, float]:
    """Of one case, in this process."""
    most = written = 0
    opening = os.open
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))

    def opened(*arguments: Any, **more: Any) -> int:
        nonlocal most
        file = opening(*arguments, **more)
        most = max(most, file)
        return file

    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        work = KINDS[kind](folder, size, source)
        began, os.open = time.process_time(), opened  # type: ignore[assignment]
        with redirect_stdout(io.StringIO()):
            work()
        seconds = time.process_time() - began
        os.open = opening
        if kind == "sampled":
            checkpoints = [path for path in (folder / "out").rglob("*") if path.suffix in (".ckpt", ".draws")]
            written = sum(path.stat().st_size for path in checkpoints if path.suffix == ".draws")
            most = max(path.stat().st_size for path in checkpoints if path.suffix == ".ckpt")
        elif (folder / "out").exists():
            written = sum(path.stat().st_size for path in (folder / "out").rglob("*") if path.is_file())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "peak": peak, "most": most, "written": written / 2**20}


def apart(kind: str, size: int, source: str = "") -> dict[str, float]:
    """The same in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--one", kind, str(size), source], check=True, capture_output=True, text=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


class Scale:
    """Two rounds of many clients (asv)."""

    params: ClassVar = [[100, 1_000], ["memory", "files"]]
    param_names: ClassVar = ["clients", "source"]
    unit = "s"
    timeout = 300

    def track_cpu(self, clients: int, source: str) -> float:
        return apart("rounds", clients, source)["seconds"]


def main() -> None:
    sizes = [int(word) for word in sys.argv[1:]] or CLIENTS
    print(f"{'two rounds of':24}{'s of CPU':>10}{'ms a client':>13}{'MiB':>8}{'open':>7}{'MiB written':>13}")
    for source in ("memory", "files"):
        start = apart("rounds", 2, source)
        for clients in (2, *sizes):
            found = start if clients == 2 else apart("rounds", clients, source)
            each = f"{1e3 * (found['seconds'] - start['seconds']) / clients:13.2f}" if clients > 2 else " " * 13
            row = f"{clients:,} clients, {source}"
            print(
                f"{row:24}{found['seconds']:10.1f}{each}{found['peak']:8.0f}{found['most']:7.0f}{found['written']:13.1f}",
                flush=True,
            )
    print(f"\n{'check of two files of':24}{'s of CPU':>10}{'us a column':>13}{'MiB':>8}")
    for columns in COLUMNS:
        found = apart("check", columns)
        print(f"{columns:<24,}{found['seconds']:10.1f}{1e6 * found['seconds'] / columns:13.0f}{found['peak']:8.0f}", flush=True)
    print(f"\n{'a sampler of':24}{'s of CPU':>10}{'KiB, largest checkpoint':>26}{'MiB of draws':>14}")
    for number in ROUNDS:
        found = apart("sampled", number)
        row = f"{number:,} rounds"
        print(f"{row:24}{found['seconds']:10.1f}{found['most'] / 1024:26.1f}{found['written']:14.1f}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(sys.argv[2], int(sys.argv[3]), sys.argv[4])))
    else:
        main()
