"""How whole jobs grow: rows, columns, levels, clients and areas eight-fold, with the exponents of what they take.

    python benchmarks/growth.py [--out benchmarks/results/growth.txt] [NAME ..]

Of each job are told: calls of Python functions, which are counted and the same on every machine; bytes that clients send; and
seconds of CPU, the least of three runs, whose exponent is that of what is computed inside of kernels, too. An exponent is the
logarithm of a quotient over that of eight. Wanted are at most 1.2, and 2.1 for columns, whose cross-products are told. The exit
code is 1 where a count or the seconds grow faster.
"""

from __future__ import annotations

import argparse
import cProfile
import math
import os
import pstats
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import fedkern
from fedkern.data import graph as graphs
from fedkern.data.simulate.federations import client_names
from fedkern.jobs.run import Output
from fedkern.methods.sigma.prior import build
from fedkern.methods.sigma.prior.keys import parse
from papers.common import write_csv
from papers.sigma import write_map

TIMES, FOLD = 3, 8
MOST = {"rows": 1.2, "columns": 2.1, "levels": 1.2, "clients": 1.2, "areas": 1.2}
Job = Callable[[], fedkern.Result]


def regression(clients: int, rows: int, columns: int, levels: int = 0) -> Job:
    """A logistic regression by `likelihood`, with a factor of so many levels if there are any."""
    random = np.random.default_rng(1)
    data = dict[str, dict[str, Any]]()
    for name in client_names(clients):
        X = random.normal(size=(rows, columns))
        eta = X @ np.full(columns, 0.5 / math.sqrt(columns))
        data[name] = {f"x{j}": X[:, j] for j in range(columns)}
        if levels:
            codes = np.arange(rows) % levels
            eta += 0.3 * (codes % 3 - 1)
            data[name]["level"] = [f"level {code:03}" for code in codes.tolist()]
        data[name]["y"] = (random.random(rows) < 1 / (1 + np.exp(-eta))).astype(int)
    job = {"job": {"method": "likelihood"}, "data": {"response": "y"}}
    return lambda: fedkern.run(job, data=data, progress=False)


def map_of(rows: int, columns: int, folder: Path) -> Job:
    """Counts of a grid of areas by `sigma`; four clients have as many areas each. The prior is built before."""
    number = np.arange(rows * columns)
    made = graphs.make_map(graphs.grid(rows, columns), [f"{4 * (k // columns) // rows}" for k in number.tolist()])
    section = write_map(folder / "map", made)
    build.perform(parse({"prior": {"kind": "car"}, "data": section}), folder, Output(folder / "prior", quiet=True))
    random, files = np.random.default_rng(1), list[str]()
    names = np.array(made.graph.names)
    for k, client in enumerate(client_names(4)):
        own = names[made.client == k]
        files.append(write_csv(folder / f"{client}.csv", {"area": own.tolist(), "y": random.poisson(5.0, len(own)).tolist()}))
    job = {
        "job": {"method": "sigma"},
        "data": {"clients": files, "area": "area", "response": "y"},
        "model": {"prior": str(folder / "prior")},
    }
    return lambda: fedkern.run(job, progress=False)


def jobs(name: str, folder: Path) -> tuple[Job, Job]:
    """A job, and one that has eight times as many of what is named."""
    if name == "rows":
        return regression(3, 10_000, 10), regression(3, 10_000 * FOLD, 10)
    if name == "columns":
        return regression(3, 4_000, 8), regression(3, 4_000, 8 * FOLD)
    if name == "levels":
        return regression(3, 8_000, 2, 8), regression(3, 8_000, 2, 8 * FOLD)
    if name == "clients":
        return regression(25, 100, 2), regression(25 * FOLD, 100, 2)
    return map_of(8, 12, folder / "few"), map_of(16, 48, folder / "many")


def measured(job: Job) -> dict[str, float]:
    """What a job takes; the first run imports."""
    result = job()
    seconds = list[float]()
    for _ in range(TIMES):
        began = time.process_time()
        job()
        seconds.append(time.process_time() - began)
    profile = cProfile.Profile()
    profile.runcall(job)
    calls = sum(row[1] for row in pstats.Stats(profile).stats.values())  # type: ignore[attr-defined]
    sent = sum(each["to_server"]["bytes"] for each in result.summary["wire"].values())
    return {"calls": calls, "bytes": sent, "seconds": min(seconds)}


def main() -> int:
    """The jobs that are named, or all."""
    options = argparse.ArgumentParser()
    options.add_argument("names", nargs="*", metavar="NAME")
    options.add_argument("--out", type=Path)
    o = options.parse_args()
    lines, too_fast = [f"eight-fold; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the beginning"], False
    for name in o.names or MOST:
        with TemporaryDirectory() as folder:
            few, many = (measured(job) for job in jobs(name, Path(folder)))
        powers = {what: math.log(many[what] / few[what]) / math.log(FOLD) for what in few}
        told = ", ".join(f"{what} {few[what]:,.6g} -> {many[what]:,.6g} (exponent {powers[what]:.2f})" for what in few)
        fast = max(powers.values()) > MOST[name]
        lines.append(f"{name}: {told}; wanted at most {MOST[name]}{': FASTER' if fast else ''}")
        too_fast |= fast
        print(lines[-1], flush=True)
    if o.out:
        o.out.write_text("\n".join(lines) + "\n")
    return int(too_fast)


if __name__ == "__main__":
    sys.exit(main())
