"""Time of a whole iteration of a vertical job: kernels, machines, frames and ledger.

    python benchmarks/vertical_iteration.py            # logistic, n = 500, ten clients of two columns, in this process
    python benchmarks/vertical_iteration.py --mpi      # 50,000 iterations of the split heart model, mpirun -n 3 (FEDKERN_DATA)

In process: of a whole job the mean of every hundred iterations, and each iteration of the clients' compiled calls alone;
quantiles of both, because other work on the machine only ever adds time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import fedkern
from fedkern.algorithms.core.messages import evolve
from fedkern.algorithms.split import machine as vertical
from fedkern.data.columns import Columns
from fedkern.models.split.site import Auxiliary, Linear, Site
from papers.vertical import job

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support import chosen

ROWS, COLUMNS, CLIENTS, ROUNDS, BLOCK, RHO = 500, 2, 10, 3000, 100, 0.5
HEART = """
[job]
method = "vertical"
rounds = 50000
[data]
builtin = "heart-failure"
folds = 10
[model]
kind = "bayes-network"
rho = 1.0
[algorithm]
learning_rate = 0.001
average = "none"
[output]
metrics_every = 5000
"""


def data() -> Columns:
    """Of the logistic regression."""
    random = np.random.default_rng(0)
    X = random.normal(size=(CLIENTS, ROWS, COLUMNS))
    y = (random.random(ROWS) < 1 / (1 + np.exp(-X.sum(axis=(0, 2))))).astype(np.float64)
    return Columns(tuple(X), tuple(tuple(f"x{k}-{j}" for j in range(COLUMNS)) for k in range(CLIENTS)), y)


def whole(kind: str) -> np.ndarray:
    """Microseconds of an iteration of a job with frames and ledger, the mean of each block."""
    sections = {"model": {"rho": RHO}, "algorithm": {"auxiliary": kind}, "output": {"metrics_every": BLOCK}}
    with tempfile.TemporaryDirectory() as folder:
        fedkern.run(job(Path(folder), data(), 1, ROUNDS, **sections), out=Path(folder) / "run")
        lines = (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
    return 1e6 * np.diff([json.loads(line)["seconds"] for line in lines]) / BLOCK


def kernels(kind: str) -> np.ndarray:
    """Microseconds of the ten clients' compiled calls of one iteration."""
    settings = chosen.split(1, ROUNDS, ROWS, CLIENTS)
    auxiliary = Auxiliary(kind, RHO, inputs=("residual",) if kind == "amortised" else ())
    clients = [vertical.client(f"client-{k}", k, settings, Site(Linear(X), auxiliary)) for k, X in enumerate(data().X)]
    ready = [vertical.client_receive(client, vertical.Begin(0))[0] for client in clients]
    message, times = np.random.default_rng(1).normal(size=ROWS) * 0.3, []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for k, state in enumerate(ready):
            parameters, optimiser, drawn = state.site.iterated(
                state.parameters, state.optimiser, state.drawn[0], message, state.extra, 0.01, seed=1, client=k, step=state.step
            )
            ready[k] = evolve(state, parameters=parameters, optimiser=optimiser, drawn=(drawn,), step=state.step + 1)
        times.append(1e6 * (time.perf_counter() - began))
    return np.array(times[10:])


def heart(rounds: int) -> float:
    """Seconds of the split heart model under mpirun -n 3."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.toml"
        path.write_text(HEART)
        launcher = str(Path(sys.executable).with_name("mpirun"))
        command = [
            launcher,
            "--oversubscribe",
            "-n",
            "3",
            sys.executable,
            "-m",
            "fedkern.cli",
            "run",
            str(path),
            "--mpi",
            "--quiet",
        ]
        more = ["--set", f"job.rounds={rounds}", "--out", f"{folder}/out"]
        subprocess.run([*command, *more], check=True, stdout=subprocess.DEVNULL)
        lines = (Path(folder) / "out" / "metrics.jsonl").read_text().splitlines()
        return float(json.loads(lines[-1])["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mpi", action="store_true")
    parser.add_argument("--rounds", type=int, default=50_000)
    options = parser.parse_args()
    if options.mpi:
        seconds = heart(options.rounds)
        each = 1e6 * seconds / options.rounds
        print(f"split heart model, mpirun -n 3: {options.rounds} iterations in {seconds:.1f} s, {each:.0f} us each")
        return
    print(f"logistic, n = {ROWS}, {CLIENTS} clients of {COLUMNS} columns; us an iteration: 5 %, median, 95 %")
    with threadpool_limits(1, user_api="blas"):
        for kind in ("mean-field", "amortised"):
            for name, measure in (("client calls alone", kernels), ("whole, with ledger", whole)):
                low, middle, high = np.quantile(measure(kind), (0.05, 0.5, 0.95))
                print(f"  {kind:<11} {name:<20} {low:>7.0f} {middle:>7.0f} {high:>7.0f}")


if __name__ == "__main__":
    main()
