"""The whole wheeze job, from its start to its files, and what NumPyro's NUTS does with the same rows in one place.

    FEDKERN_DATA=DIR python benchmarks/likelihood_wheeze.py [--times 3]      # prints results/likelihood_wheeze.txt

537 children (six-cities-wheeze/ohio.csv), 2,148 rows, four clients of every fourth child of a shuffled list; logistic
regression on age, smoke and their product with a random intercept of each child, at the defaults of `method = "likelihood"`
but for the prior of its sd, which is that of NUTS: in one process, and under mpirun with a rank for each client. NUTS samples
the same model (non-centred, four chains of 1,000 one after the other, after 500 of warm-up) on the pooled rows with columns
standardised as the job does. "ess": of the job as its summary says it, of NUTS that of the slowest of coefficients and log tau
by ArviZ. Seconds are of whole processes, with all that they load, compile and write; medians over runs.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

CLIENTS = 4
JOB = """
[job]
method = "likelihood"
[data]
clients = ["clinic-*.csv"]
response = "wheeze"
[model]
family = "bernoulli"
[model.random]
group = "child"
[model.priors."group_sd[intercept]"]
kind = "half-normal"
sd = 1.0
"""
NUTS = """
import json, sys, time
begin = time.perf_counter()
import arviz, jax, jax.numpy as jnp, numpy as np, numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS
jax.config.update("jax_enable_x64", True)
rows = np.load(sys.argv[1])
X, y, child, level = rows["X"], rows["y"], rows["child"], float(rows["level"])
def model():
    a = numpyro.sample("a", dist.Normal(level, 5))
    b = numpyro.sample("b", dist.Normal(0, 2.5).expand([X.shape[1]]))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    u = numpyro.sample("u", dist.Normal(0, 1).expand([int(child.max()) + 1]))
    numpyro.sample("y", dist.Bernoulli(logits=a + X @ b + tau * u[child]), obs=y)
sampler = MCMC(NUTS(model), num_warmup=500, num_samples=1000, num_chains=4, chain_method="sequential", progress_bar=False)
sampler.run(jax.random.PRNGKey(1))
draws = sampler.get_samples(group_by_chain=True)
own = {"a": np.asarray(draws["a"]), "b": np.asarray(draws["b"]), "log tau": np.log(np.asarray(draws["tau"]))}
ess = min(float(np.min(arviz.ess(value[..., k] if value.ndim > 2 else value))) for value in own.values()
          for k in range(value.shape[2] if value.ndim > 2 else 1))
print(json.dumps({"ess": ess, "seconds": time.perf_counter() - begin, "mean tau": float(np.exp(own["log tau"]).mean())}))
"""


def files(folder: Path) -> None:
    """The clients' files, and the pooled rows as NUTS takes them."""
    with (Path(os.environ["FEDKERN_DATA"]) / "six-cities-wheeze" / "ohio.csv").open() as file:
        rows = [{key: int(value) for key, value in row.items()} for row in csv.DictReader(file)]
    children = np.random.default_rng(1).permutation(1 + max(row["id"] for row in rows))
    for k in range(CLIENTS):
        own = set(children[k::CLIENTS])
        lines = ["age,smoke,age_smoke,child,wheeze"]
        lines += [f"{r['age']},{r['smoke']},{r['age'] * r['smoke']},c{r['id']},{r['resp']}" for r in rows if r["id"] in own]
        (folder / f"clinic-{k + 1}.csv").write_text("\n".join(lines) + "\n")
    raw = np.array([[r["age"], r["smoke"], r["age"] * r["smoke"]] for r in rows], dtype=float)
    y = np.array([r["resp"] for r in rows], dtype=float)
    X, level = (raw - raw.mean(axis=0)) / raw.std(axis=0), np.log(y.mean() / (1 - y.mean()))
    np.savez(folder / "rows.npz", X=X, y=y, child=np.array([r["id"] for r in rows]), level=level)
    (folder / "job.toml").write_text(JOB)


def timed(folder: Path, *command: str) -> tuple[float, str]:
    """Seconds of a whole process, and what it printed."""
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    begin = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=os.environ | allowed, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return time.perf_counter() - begin, done.stdout


def job(folder: Path, name: str, *words: str) -> tuple[float, float]:
    """Seconds and effective draws of the job."""
    out = folder / f"{name} {time.monotonic()}"
    seconds, _ = timed(folder, *words, "--out", str(out), "--quiet")
    summary = json.loads((out / "summary.json").read_text())
    sent = sum(ways[way]["bytes"] for ways in summary["wire"].values() for way in ways)
    rounds = summary["rounds_to_mode"] + summary["rounds_of_draws"]
    good = f"ess {summary['ess']:.0f}, k-hat {summary['k_hat']:.2f}"
    print(f"  {name}: {seconds:.2f} s, {good}, {rounds} rounds, {sent / 1e6:.2f} MB")
    return seconds, summary["ess"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=3)
    times = parser.parse_args().times
    beside = Path(sys.executable).parent
    print(f"{platform.machine()}, {os.cpu_count()} cores, FEDKERN_ISA={os.environ.get('FEDKERN_ISA', 'best')}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files(folder)
        cli = [sys.executable, "-P", "-m", "fedkern.cli"]
        mpirun = [str(beside / "mpirun"), "--oversubscribe", "-n", str(CLIENTS + 1)]
        ways = {"one process": [*cli, "run", "job.toml"], f"{CLIENTS + 1} ranks": [*mpirun, *cli, "run", "job.toml", "--mpi"]}
        start = statistics.median(timed(folder, *cli, "check", "job.toml")[0] for _ in range(times))
        print(f"start of a process, which reads the job and all files (fedkern check): {start:.2f} s")
        found = {way: [job(folder, way, *words) for _ in range(times)] for way, words in ways.items()}
        (folder / "nuts.py").write_text(NUTS)
        nuts = []
        for _ in range(times):
            seconds, text = timed(folder, sys.executable, "nuts.py", "rows.npz")
            own = json.loads(text.splitlines()[-1])
            nuts.append((seconds, own["ess"]))
            print(f"  NumPyro NUTS: {seconds:.2f} s, ess {own['ess']:.0f}, mean tau {own['mean tau']:.3f}")
        of_nuts = statistics.median(ess / seconds for seconds, ess in nuts)
        print(f"NumPyro NUTS, pooled rows: {of_nuts:.1f} effective draws a second")
        for way, runs in found.items():
            rate = statistics.median(ess / seconds for seconds, ess in runs)
            seconds = statistics.median(seconds for seconds, _ in runs)
            beside_start = f"{seconds - start:.2f} beside the start"
            print(f"{way}: {seconds:.2f} s ({beside_start}), {rate:.0f} effective draws a second, {rate / of_nuts:.1f} x NUTS")


if __name__ == "__main__":
    main()
