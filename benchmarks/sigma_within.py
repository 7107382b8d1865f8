"""What factors in closed form miss of a map's prior, and what they cost: posterior means against the exact ones, phi known.

    python benchmarks/sigma_within.py [australia] [counties] [grid] [fit] [build] [bym2]

A row for each phi and number of latents: rms distance of the posterior means of y = theta + N(0, sd 0.5) to the exact ones, over
that of independent areas; "0 latents" is each client's own part exact and nothing shared. `grid` is 100 x 200 areas of 40
clients, `build` its whole range of phi at once, with what a round of a client takes. `bym2` is the map of Australia with that
prior, rho in the place of phi. `fit` is variational inference on that map with phi unknown, theta a draw at three phi. The maps
of Australia and of the US counties are read from $FEDKERN_DATA.
"""

from __future__ import annotations

import resource
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedkern.algorithms.sfvi import machine as sfvi
from fedkern.data.graph import from_pairs, grid
from fedkern.kernels import spatial
from fedkern.models.likelihood import Likelihood
from fedkern.models.spatial.condition import Condition, Hyperprior
from fedkern.models.spatial.factors import Division, Judge, leading, owed, tie
from fedkern.models.spatial.prior import AreaPrior, MixedPrior
from fedkern.models.spatial.site import Layout, Rows, SigmaPrior
from fedkern.models.spatial.within_site import WithinSite
from papers import au_sa2, county_homicide
from papers.car import Areas, exact_areas

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support import chosen

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


def build(latents: int = 300) -> None:
    """Prints what the whole range of phi takes on the grid, and a client's part of a round."""
    areas, sizes = squares()
    begin = time.perf_counter(), time.process_time()
    tied = tie(areas, sizes, [str(j) for j in range(len(sizes))], n_latents=latents)
    took = time.perf_counter() - begin[0], time.process_time() - begin[1]
    errors = ", ".join(f"{e:.4f} at {phi:.3g}" for phi, e in zip(tied.phi, tied.errors))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"grid, {areas.n:,} areas, {tied.n_borders:,} on borders, {latents} latents: {errors}")
    print(f"  built in {took[0]:.0f} s, {took[1]:.0f} s of CPU, {most:.1f} GiB", flush=True)
    layout, rng = Layout(True, latents, intercept=False, scaled=False), np.random.default_rng(1)
    own = max(tied.clients, key=lambda client: len(client.border))
    rows = Rows(rng.standard_normal(own.size), np.arange(own.size), np.zeros((own.size, 0)), np.zeros(own.size))
    site, xi = WithinSite(own, PHI, layout, Likelihood("gaussian", 0.5), rows, integrated=True), rng.standard_normal(layout.size)
    begin = time.perf_counter(), time.process_time()
    for _ in range(5):
        site.log_joint_grad(xi, np.zeros(0))
    took = (time.perf_counter() - begin[0]) / 5, (time.process_time() - begin[1]) / 5
    size = (own.U.nbytes + own.K.nbytes + own.W.nbytes) / 2**20
    print(f"  the largest client: {size:.0f} MiB, {1e3 * took[0]:.0f} ms a round, {1e3 * took[1]:.0f} ms of CPU", flush=True)


def mixed(name: str, made: Any, latents: Sequence[int], nodes: int) -> None:
    """Prints the errors of BYM2."""
    prior = MixedPrior(AreaPrior(made.graph.indptr, made.graph.indices, Condition("none", 0.0, 0.0), "bym2"))
    for r in latents:
        begin = time.process_time()
        tied = tie(prior, made.sizes, list(made.clients), n_latents=r, nodes=nodes)
        errors = ", ".join(f"{e:.4f} at {rho:.3g}" for rho, e in zip(tied.phi, tied.errors))
        took = time.process_time() - begin
        print(f"{name}, bym2, {r} latents, {nodes} values of rho: {errors}; {took:.0f} s of CPU", flush=True)


def fit(phis: Sequence[float], latents: int = 40, rounds: int = 2_000) -> None:
    """Prints how far the means of theta are from the exact ones where phi is unknown, and what a round takes."""
    made = au_sa2.read()
    areas, sizes = AreaPrior(made.graph.indptr, made.graph.indices, PHI), made.sizes
    names, ends, sd = list(made.clients), np.cumsum([0, *sizes]), float(np.sqrt(VARIANCE))
    tied = tie(areas, sizes, names, n_latents=latents)
    layout, true = Layout(True, latents, intercept=False, scaled=False), Areas(areas.indptr, areas.indices)
    for phi in phis:
        rng = np.random.default_rng(1)
        draws = spatial.DrawTable.car(areas.indptr, areas.indices, np.array([phi]), group=1).sample(1, 0, 1)[0]
        y = draws[0] + sd * rng.standard_normal(areas.n)
        exact = exact_areas(true, PHI, y, np.arange(areas.n), sd, n_nodes=41, variances=False)
        sites = []
        for j, own in enumerate(tied.clients):
            rows = Rows(y[ends[j] : ends[j + 1]], np.arange(own.size), np.zeros((own.size, 0)), np.zeros(own.size))
            sites.append(WithinSite(own, PHI, layout, Likelihood("gaussian", sd), rows, integrated=True))
        settings, prior = chosen.sfvi(rounds=rounds, learning_rate=0.02, seed=1), SigmaPrior(layout, PHI)
        begin = time.perf_counter()
        server, inbox = sfvi.start(settings, prior, tuple(names))
        parties = {k: sfvi.client(names[k], k, settings, site, len(sites), prior) for k, site in enumerate(sites)}
        waiting: deque[Any] = deque(inbox)
        while waiting:
            k, message = waiting.popleft()
            parties[k], answers = sfvi.client_receive(parties[k], message)
            for answer in answers:
                server, effects = sfvi.server_receive(server, k, answer)
                waiting.extend(effects)
        took = time.perf_counter() - begin
        mean, covariance = sfvi.posterior_moments(server)
        xi = rng.multivariate_normal(mean, covariance, 50)
        normals = [np.zeros((len(xi), site.n_areas)) for site in sites]
        theta = np.concatenate([s.theta_given(xi, np.zeros((len(xi), 0)), e).mean(axis=0) for s, e in zip(sites, normals)])
        variance = areas.mean_variance()
        alone = variance / (variance + VARIANCE) * y
        error = np.sqrt(np.mean((theta - exact.mean) ** 2) / np.mean((alone - exact.mean) ** 2))
        of_phi = PHI.at(rng.normal(mean[0], np.sqrt(covariance[0, 0]), 4000))[0]
        exact_phi = float(exact.weight @ exact.phi)
        spread = float(np.sqrt(exact.weight @ (exact.phi - exact_phi) ** 2))
        print(f"fit, theta at phi {phi:g}: {error:.4f} of independent areas' error; {rounds:,} rounds in {took:.0f} s")
        print(f"  phi {of_phi.mean():.3f} sd {of_phi.std():.3f}, exact {exact_phi:.3f} sd {spread:.3f}", flush=True)


def main() -> None:
    """The maps that are named, or all."""
    which = sys.argv[1:] or ["australia", "counties", "grid", "fit", "build", "bym2"]
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
    if "build" in which:
        build()
    if "bym2" in which:
        mixed("Australia", au_sa2.read(), (40, 300), 7)
    if "fit" in which:
        fit((0.6, 0.95, 0.98))


if __name__ == "__main__":
    main()
