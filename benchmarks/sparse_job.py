"""A whole sparse job, from its start to its files, and what NumPyro's NUTS does with the same rows in one place.

    python benchmarks/sparse_job.py [--times 3] [--ranks 5]      # prints results/sparse_job.txt

The job of `fedkern simulate sparse --columns 11 --rows 130` (four sites) runs until every watched quantity has 1,000 effective
draws and R-hat 1.01: in one process, and under mpirun with a rank for each site. Two other samplers of the same posterior are
counted apart: four local sweeps a round, and moves, for which clients send a gradient and a precision more. NUTS samples the same
model with everything integrated out that can be (tools/references/sparse.py), on rows standardised as the job does, four chains
one after the other on the same cores. "ess" is that of the slowest coefficient, by ArviZ from what each has drawn. Medians over
runs, counted with all that a process loads, compiles and writes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

REFERENCES = Path(__file__).parents[1] / "tools" / "references"
UNTIL = ("--set", 'job.rounds="until"', "--set", "algorithm.until={ess = 1000, rhat = 1.01, max_rounds = 40000}")
OTHERS = {"local_sweeps = 4": "algorithm.local_sweeps=4", 'moves = "auto"': 'algorithm.moves="auto"'}
NUTS = """
import json, os, sys, time
sys.path.insert(0, sys.argv[1])
begin = time.perf_counter()
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
import sparse
from numpyro.infer import MCMC, NUTS
rows = np.load(sys.argv[2])
X, y = [rows[k] for k in rows if k[0] == "X"], [rows[k] for k in rows if k[0] == "y"]
n = int(sys.argv[3])
sampler = MCMC(NUTS(sparse.model, target_accept_prob=0.95), num_warmup=1000, num_samples=n, num_chains=4,
               chain_method="sequential", progress_bar=False)
sampler.warmup(jax.random.key(int(sys.argv[4])), *sparse.moments(X, y))
warmed = time.perf_counter()
sampler.run(jax.random.key(1 + int(sys.argv[4])), *sparse.moments(X, y))
theta = np.asarray(sampler.get_samples(group_by_chain=True)["theta"])
end = time.perf_counter()
import arviz
print(json.dumps([float(arviz.ess({"x": theta})["x"].min()), end - begin, end - warmed]))
"""


class Measured(NamedTuple):
    """One run: effective draws of the slowest coefficient; seconds, and those of processor, of all its processes."""

    ess: float
    seconds: float
    cpu: float


def ours(job: Path, out: Path, ranks: int, *sets: str) -> Measured:
    """A whole run."""
    import arviz

    fedkern = [sys.executable, "-P", "-m", "fedkern"]
    options = [str(job), "--out", str(out), "--quiet", *UNTIL, *(word for change in sets for word in ("--set", change))]
    command = [*fedkern, "launch", "-n", str(ranks), *options] if ranks > 1 else [*fedkern, "run", *options]
    begin, before = time.perf_counter(), os.times()
    subprocess.run(command, check=True)
    seconds, after = time.perf_counter() - begin, os.times()
    ess = float(arviz.ess(arviz.from_netcdf(out / "posterior.nc"), var_names=["theta"])["theta"].min())
    return Measured(ess, seconds, after[2] + after[3] - before[2] - before[3])


def nuts(rows: Path, draws: int, seed: int) -> tuple[Measured, float]:
    """And seconds without import, compilation and warm-up."""
    before = os.times()
    command = [sys.executable, "-c", NUTS, str(REFERENCES), str(rows), str(draws), str(seed)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    after = os.times()
    ess, seconds, sampling = json.loads(done.stdout)
    return Measured(ess, seconds, after[2] + after[3] - before[2] - before[3]), sampling


def standardised(folder: Path, into: Path) -> None:
    """Rows of all sites by the columns' means and sds over all of them."""
    tables = [np.loadtxt(path, delimiter=",", skiprows=1) for path in sorted(folder.glob("*.csv"))]
    every = np.concatenate(tables)
    tables = [(table - every.mean(axis=0)) / every.std(axis=0) for table in tables]
    np.savez(into, **{f"X{k}": t[:, :-1] for k, t in enumerate(tables)}, **{f"y{k}": t[:, -1] for k, t in enumerate(tables)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        simulate = [sys.executable, "-P", "-m", "fedkern", "simulate", "sparse", "--columns", "11", "--rows", "130"]
        subprocess.run([*simulate, "--out", str(folder / "job")], check=True, stdout=subprocess.DEVNULL)
        job = folder / "job" / "job.toml"
        standardised(folder / "job" / "clients", folder / "rows.npz")
        print(f"{'':36}{'ess':>8}{'seconds':>9}{'of CPU':>8}{'ess / s':>9}{'ess / s of CPU':>16}")
        rows: list[tuple[str, int, tuple[str, ...]]]
        rows = [("fedkern run, one process", 1, ()), (f"fedkern launch -n {options.ranks}", options.ranks, ())]
        rows += [(f"fedkern run, {what}", 1, (change,)) for what, change in OTHERS.items()]
        for name, ranks, sets in rows:
            outs = [folder / re.sub(r"\W+", "-", f"{name}-{i}") for i in range(options.times + 1)]
            _line(name, [ours(job, out, ranks, *sets) for out in outs][1:])
        found = [nuts(folder / "rows.npz", 1000, seed) for seed in range(options.times)]
        _line("NUTS, four chains of 1,000, whole", [run for run, _ in found])
        rate = statistics.median(run.ess / sampling for run, sampling in found)
        print(f"{'NUTS, compiled and warmed up':36}{'':8}{statistics.median(s for _, s in found):9.2f}{'':8}{rate:9.0f}")


def _line(name: str, runs: list[Measured]) -> None:
    ess, seconds, cpu = (statistics.median(values) for values in zip(*runs))
    rates = [statistics.median(run.ess / run[i] for run in runs) for i in (1, 2)]
    print(f"{name:36}{ess:8.0f}{seconds:9.2f}{cpu:8.2f}{rates[0]:9.0f}{rates[1]:16.0f}", flush=True)


if __name__ == "__main__":
    main()
