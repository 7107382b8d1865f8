"""What moves buy where chains are slow: effective draws of the least quantity, mean of four seeds (sparse.md, section 6).

    python benchmarks/sparse_moves.py sites       # 32 sites of 50 rows, 5 covariates: per 1,000 rounds of a chain
    python benchmarks/sparse_moves.py proteins    # rows ACC1 and EGFR_pY1068 of the 217 proteins: per 480 rounds of four chains

Whole rounds of the sampler as a job has it; rank-normalised bulk ESS of ArviZ.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedkern.algorithms.gibbs import machine as gibbs
from fedkern.algorithms.gibbs import pooled
from fedkern.algorithms.gibbs.settings import Layout, Settings
from fedkern.algorithms.gibbs.sites import Factor
from fedkern.arrays import Array
from fedkern.data.sets import rppa
from fedkern.methods.sparse.moving import Size
from fedkern.methods.sparse.moving import chosen as moves_for
from fedkern.results import mixing
from fedkern.transports.codec import Codec
from fedkern.transports.inprocess import run_protocol

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support import chosen

SEEDS = (1, 2, 3, 4)
NODES = ("ACC1", "EGFR_pY1068")
BOTH = ("translate", "interweave")


def sampled(settings: Settings, sites: Sequence[tuple[Array, Array]]) -> gibbs.Server:
    """The server's last state, of the whole sampler at one place."""
    clients = {k: pooled.Client(Factor.of(X, y), len(X)) for k, (X, y) in enumerate(sites)}
    began = pooled.start(pooled.Server(settings, "regression", len(sites)))
    server = run_protocol(pooled.PROTOCOL, began, clients, Codec(settings.dims(), len(sites)))[0].sampled
    assert server is not None
    return server


def effective(server: gibbs.Server) -> tuple[list[float], float]:
    """The least ESS of theta, log tau and q over all kept draws; the largest R-hat."""
    trace = server.trace
    pairs = [mixing.published_rhat_ess(x) for x in (trace["theta"], 0.5 * np.log(trace["tau_sq"]), trace["inclusion"])]
    return [float(np.nanmin(ess)) for _, ess in pairs], max(float(np.nanmax(rhat)) for rhat, _ in pairs)


def simulated(seed: int) -> list[tuple[Array, Array]]:
    """32 sites of 50 rows; two effects, sites differ by .15."""
    random = np.random.default_rng(seed)
    theta = np.array([0.5, -0.3, 0.0, 0.0, 0.0])
    sites = []
    for _ in range(32):
        X = random.standard_normal((50, 5))
        sites.append((X, X @ (theta + 0.15 * random.standard_normal(5)) + random.standard_normal(50)))
    return sites


def of_sites() -> None:
    for name, options in {"interweave": {"moves": BOTH[1:]}, "no moves": {}, "translate": {"moves": BOTH[:1]}}.items():

        def one(seed: int, options: dict[str, Any] = options) -> tuple[gibbs.Server, float]:
            s = chosen.gibbs(Layout(np.arange(5)[None]), seed=seed, rounds=1500, burn_in=500, **options)
            return sampled(s, simulated(seed)), 1000 / (s.chains * 1000)

        row(f"32 sites, {name}", one)


def of_proteins(wanted: str = "") -> None:
    tables = rppa.read(whole=True)
    for node in NODES:
        for name, options in schedules(216).items():
            if wanted not in name:
                continue

            def one(seed: int, options: dict[str, Any] = options, node: str = node) -> tuple[gibbs.Server, float]:
                s = chosen.gibbs(Layout(np.arange(216)[None]), seed=seed, rounds=600, burn_in=120, **options)
                return sampled(s, regression(tables, node)), 1.0

            row(f"{node}, {name}", one)


def schedules(p: int) -> dict[str, dict[str, Any]]:
    auto = moves_for(Size(7, 1, p, 4), pooled=True)
    return {
        "no moves": {},
        "translate": {"moves": BOTH[:1]},
        "interweave 96": {"moves": BOTH[1:], "block": (96,)},
        "interweave all": {"moves": BOTH[1:]},
        "translate, interweave 96 in turn": {"moves": BOTH, "block": (None, 96)},
        "auto": vars(auto),
        "over the wire, 32 of each": {"moves": BOTH, "block": (32, 32)},
    }


def regression(tables: dict[str, dict[str, Array]], node: str) -> list[tuple[Array, Array]]:
    """One protein on all others, scaled by the standard deviations within sites."""
    values = [np.column_stack(list(columns.values())) for columns in tables.values()]
    names = list(next(iter(tables.values())))
    centred = [rows - rows.mean(axis=0) for rows in values]
    scale = np.sqrt(sum((rows**2).sum(axis=0) for rows in centred) / sum(len(rows) - 1 for rows in centred))
    j = names.index(node)
    return [(np.delete(rows / scale, j, axis=1), rows[:, j] / scale[j]) for rows in centred]


def row(name: str, one: Callable[[int], tuple[gibbs.Server, float]]) -> None:
    begin, rounds, least, rhat = time.perf_counter(), 0, [], 1.0
    for seed in SEEDS:
        server, unit = one(seed)
        ess, worst = effective(server)
        rounds += server.round
        least.append([unit * value for value in ess])
        rhat = max(rhat, worst)
    numbers = " ".join(f"{value:6.0f}" for value in np.mean(least, axis=0))
    seconds = (time.perf_counter() - begin) / rounds
    print(f"{name:42s} theta, tau, q {numbers}   R-hat at most {rhat:.2f}   {1000 * seconds:.0f} ms a round", flush=True)


if __name__ == "__main__":
    {"sites": of_sites, "proteins": of_proteins}[sys.argv[1]](*sys.argv[2:])
