"""What a round of the 217 proteins' network costs with pooled statistics (sparse.md, section 6): CPU seconds and page faults.

    python benchmarks/sparse_network.py             # every schedule below
    python benchmarks/sparse_network.py network 6   # one of them, and how many rounds

The digest at the end of a line is of the last draws: what leaves the draws as they are leaves it as it is.
"""

from __future__ import annotations

import hashlib
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np

from fedkern.algorithms.gibbs import pooled
from fedkern.algorithms.gibbs.settings import Layout, Statistics
from fedkern.algorithms.gibbs.sites import Factor
from fedkern.data.sets import rppa
from fedkern.models.sparse import graph

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support import chosen

SCHEDULES: dict[str, dict[str, Any]] = {
    "none": {},
    "translate": {"moves": ("translate",)},
    "interweave": {"moves": ("interweave",), "block": (96,)},
    "exchange": {"exchange": True},
    "network": {"moves": ("translate", "interweave"), "block": (432, 96), "second_every": 3, "exchange": True},
}


def statistics() -> dict[int, Statistics]:
    """What every site sends; columns are divided by their standard deviations within sites."""
    rows = [np.column_stack(list(columns.values())) for columns in rppa.read(whole=True).values()]
    centred = [Y - Y.mean(axis=0) for Y in rows]
    scale = np.sqrt(sum((Y**2).sum(axis=0) for Y in centred) / sum(len(Y) - 1 for Y in centred))
    out = {}
    for k, Y in enumerate(centred):
        factor = Factor.of(Y / scale)
        out[k] = Statistics(0, *factor.padded(), factor.rss, len(Y), factor.n)
    return out


def cost(name: str, rounds: int) -> None:
    received = statistics()
    p = len(received[0].q)
    s = chosen.gibbs(
        Layout(graph(p, one_group=False)), seed=1, rounds=rounds, burn_in=rounds - 1, starts="both", **SCHEDULES[name]
    )
    before = resource.getrusage(resource.RUSAGE_SELF)
    last = pooled.sample(pooled.Server(s, "mrf", len(received), received=received))
    after = resource.getrusage(resource.RUSAGE_SELF)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    faults = (after.ru_minflt - before.ru_minflt) / rounds
    digest = hashlib.sha256(last.values.theta.tobytes() + last.values.tau_sq.tobytes()).hexdigest()[:12]
    print(f"{name:12s} {seconds / rounds:.2f} s of CPU and {faults:,.0f} page faults a round   {digest}", flush=True)


if __name__ == "__main__":
    for name in sys.argv[1:2] or SCHEDULES:
        cost(name, int(sys.argv[2]) if len(sys.argv) > 2 else 3)
