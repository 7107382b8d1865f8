"""Whole jobs with priors that are exact inside each client: `fedkern sigma build`, then `fedkern run`, against exact algebra.

    python benchmarks/sigma_within_jobs.py australia|counties|grid PHI [PHI ..] [--latents N] [--rounds N]

A map is written to files, its prior built, theta drawn at PHI, and y = theta + N(0, sd 0.5) fitted with phi unknown. The error
is the rms distance of the posterior means in areas.csv to the exact ones, over that of independent areas. $FEDKERN_DATA has the
maps of Australia and of the US counties; `grid` is 100 x 200 areas of 40 clients. All clients run in one process, whose peak of
memory bounds that of a rank.
"""

from __future__ import annotations

import argparse
import csv
import resource
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import fedkern
from fedkern.data import graph as graphs
from fedkern.data.simulate.federations import client_names
from fedkern.jobs.run import Output
from fedkern.kernels import spatial
from fedkern.methods.sigma.prior import build
from fedkern.methods.sigma.prior.keys import parse
from papers import au_sa2, county_homicide
from papers.car import Areas, exact_areas
from papers.common import write_csv
from papers.sigma import write_map

SD = 0.5


def read(name: str) -> graphs.Map:
    """A map."""
    if name == "australia":
        return au_sa2.read()
    if name == "counties":
        return county_homicide.read_map()[0]
    rows, columns = 100, 200
    number = np.arange(rows * columns)
    client = number // columns // 20 * 8 + number % columns // 25
    return graphs.make_map(graphs.grid(rows, columns), [f"{k:02}" for k in client])


def peak() -> str:
    """The most memory that this process had."""
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB"


def main() -> None:
    """The maps and values that are named."""
    options = argparse.ArgumentParser()
    options.add_argument("map", choices=("australia", "counties", "grid"))
    options.add_argument("phi", type=float, nargs="+")
    options.add_argument("--latents", type=int)
    options.add_argument("--rounds", type=int, default=2500)
    o = options.parse_args()
    made = read(o.map)
    with TemporaryDirectory() as name:
        folder = Path(name)
        within = {} if o.latents is None else {"latents": o.latents}
        data = write_map(folder / "map", made)
        began = time.perf_counter(), time.process_time()
        built = build.perform(
            parse({"prior": {"kind": "car"}, "data": data, "within": within}), folder, Output(folder / "prior", quiet=True)
        )
        took = time.perf_counter() - began[0], time.process_time() - began[1]
        print(f"{o.map}: " + "\n".join(built.describe()))
        print(f"built in {took[0]:.0f} s, {took[1]:.0f} s of CPU, {peak()}", flush=True)
        for phi in o.phi:
            _fitted(o.map, made, folder, phi, o.rounds, built)


def _fitted(what: str, made: graphs.Map, folder: Path, phi: float, rounds: int, built: build.Built) -> None:
    """One job."""
    graph, rng = made.graph, np.random.default_rng(1)
    theta = spatial.DrawTable.car(graph.indptr, graph.indices, np.array([phi]), group=1).sample(1, 0, 1)[0][0]
    y = theta + SD * rng.standard_normal(graph.n)
    condition = built.source.prior.condition
    exact = exact_areas(Areas(graph.indptr, graph.indices), condition, y, np.arange(graph.n), SD, n_nodes=41, variances=False)
    names, files = client_names(len(made.clients)), []
    for k, client in enumerate(names):
        own = made.client == k
        cells = {"area": [area for area, mine in zip(graph.names, own) if mine], "y": y[own].tolist()}
        files.append(write_csv(folder / f"rows-{phi:g}" / f"{client}.csv", cells))
    job = {
        "job": {"method": "sigma", "seed": 1, "rounds": rounds},
        "data": {"clients": files, "area": "area", "response": "y"},
        "model": {"family": "gaussian", "scale": SD, "spatial_scale": 1.0, "intercept": False, "prior": str(folder / "prior")},
        "algorithm": {"learning_rate": 0.02, "start_sd": 0.3},
    }
    began = time.perf_counter(), time.process_time()
    result = fedkern.run(job, out=folder / f"run-{phi:g}")
    took = time.perf_counter() - began[0], time.process_time() - began[1]
    means = list[float]()
    for client in names:
        with (folder / f"run-{phi:g}" / f"client-{client}" / "areas.csv").open(newline="") as file:
            means += [float(row["theta_mean"]) for row in csv.DictReader(file)]
    alone = built.tied.variance / (built.tied.variance + SD**2) * y
    error = np.sqrt(np.mean((np.array(means) - exact.mean) ** 2) / np.mean((alone - exact.mean) ** 2))
    about, at = result.summary["parameters"]["phi"], float(exact.weight @ exact.phi)
    spread = float(np.sqrt(exact.weight @ (exact.phi - at) ** 2))
    print(f"{what}, theta at phi {phi:g}, {built.latents} latents, {rounds:,} rounds: error {error:.4f} of independent areas'")
    print(f"  phi {about['mean']:.4f} sd {about['sd']:.4f}, exact {at:.4f} sd {spread:.4f}; ", end="")
    print(f"{took[0]:.0f} s, {took[1]:.0f} s of CPU, {1e3 * took[1] / rounds:.0f} ms a round with the areas' draws, ", end="")
    print(peak(), flush=True)


if __name__ == "__main__":
    main()
