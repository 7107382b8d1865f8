"""What factors in closed form miss of a map's prior, and what they cost: posterior means against the exact ones, phi known.

    python benchmarks/sigma_within.py [australia] [counties] [grid]

A row for each phi and number of latents: rms distance of the posterior means of y = theta + N(0, sd 0.5) to the exact ones, over
that of independent areas; "0 latents" is each client's own part exact and nothing shared. `grid` is 100 x 200 areas of 40
clients. The maps of Australia and of the US counties are read from $FEDKERN_DATA.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import numpy as np

from fedkern.data.graph import from_pairs, grid
from fedkern.data.sets import au_sa2, county_homicide
from fedkern.models.spatial.condition import Condition, Hyperprior
from fedkern.models.spatial.factors import Division, Judge, leading, owed, tie
from fedkern.models.spatial.prior import AreaPrior

VARIANCE = 0.25
PHI = Condition("phi", 0.0, 0.99, "log-rest", Hyperprior("logit-normal"))


def squares() -> tuple[AreaPrior, list[int]]:
    """100 x 200 areas, each client a block of 20 x 25."""
    rows, columns = 100, 200
    number = np.arange(rows * columns)
    client = number // columns // 20 * 8 + number % columns // 25
    order = np.argsort(client, kind="stable")
    graph = grid(rows, columns)
    place = np.argsort(order)
    pairs = np.column_stack([place[graph.rows], place[graph.indices]])
    made = from_pairs([graph.names[k] for k in order], pairs)
    return AreaPrior(made.indptr, made.indices, PHI), np.bincount(client).tolist()


def table(name: str, prior: AreaPrior, sizes: Sequence[int], phis: Sequence[float], latents: Sequence[int]) -> None:
    """Prints the rows of one map."""
    names = [str(j) for j in range(len(sizes))]
    division = Division(prior, sizes, names)
    print(f"{name}: {prior.n:,} areas, {len(sizes)} clients, {division.n_borders:,} areas on borders")
    for phi in phis:
        begin = time.perf_counter()
        judge = Judge(division, phi, VARIANCE)
        H = owed(judge.at.C, division.parts)
        ready = time.perf_counter() - begin
        print(f"  phi {phi:g}: {0:4d} latents {judge.error(np.zeros((division.n_borders, 0))):.4f}   ({ready:.1f} s)", flush=True)
        for r in latents:
            begin = time.perf_counter()
            W = leading(judge.at.C, H, division.parts, r, 12)
            took = time.perf_counter() - begin
            print(f"  phi {phi:g}: {r:4d} latents {judge.error(W):.4f}   ({took:.1f} s)", flush=True)
    begin = time.perf_counter()
    tied = tie(prior, sizes, names, n_latents=latents[-1])
    errors = ", ".join(f"{e:.4f} at {phi:.3g}" for phi, e in zip(tied.phi, tied.errors))
    print(f"  the whole range of phi, {latents[-1]} latents: {time.perf_counter() - begin:.0f} s; noise as theta's: {errors}")
    size = max(client.U.nbytes + client.K.nbytes + client.W.nbytes for client in tied.clients)
    print(f"  the largest client holds {size / 2**20:.1f} MiB", flush=True)


def main() -> None:
    """The maps that are named, or all."""
    which = sys.argv[1:] or ["australia", "counties", "grid"]
    if "australia" in which:
        areas = au_sa2.read()
        prior = AreaPrior(areas.graph.indptr, areas.graph.indices, PHI)
        table("Australia", prior, areas.sizes, (0.6, 0.95, 0.98), (10, 20, 40))
    if "counties" in which:
        areas = county_homicide.read_map()[0]
        prior = AreaPrior(areas.graph.indptr, areas.graph.indices, PHI)
        table("US counties", prior, areas.sizes, (0.989,), (40, 120, 300))
    if "grid" in which:
        table("grid", *squares(), (0.6, 0.95, 0.98), (300,))


if __name__ == "__main__":
    main()
