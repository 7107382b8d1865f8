"""How often 90 % intervals of groups' standard deviations hold the truth, over simulated federations.

python groups_coverage.py N: N federations of each kind, `nested` (wards in regions) and `crossed`, gaussian; each has two
clients, and sds from .2 to 1.2. Prints the share of intervals that hold, and how many jobs have not converged.
"""

from __future__ import annotations

import math
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import fedkern

FORMULAS = {"nested": "y ~ 1 + (1 | region/ward)", "crossed": "y ~ 1 + (1 | region) + (1 | item)"}
NAMES = {"nested": ("region", "region/ward"), "crossed": ("region", "item")}
REGIONS, WARDS, EACH, ITEMS = 8, 3, 4, 12


def frame(random: np.random.Generator, sds: np.ndarray, kind: str) -> pd.DataFrame:
    region = np.repeat(np.arange(REGIONS), WARDS * EACH)
    ward, item = np.tile(np.repeat(np.arange(WARDS), EACH), REGIONS), random.integers(0, ITEMS, len(region))
    first, second = random.normal(size=REGIONS)[region], random.normal(size=(REGIONS, WARDS))[region, ward]
    if kind == "crossed":
        second = random.normal(size=ITEMS)[item]
    y = 1 + sds[0] * first + sds[1] * second + 0.7 * random.normal(size=len(region))
    return pd.DataFrame({"y": y, **{n: [f"{n}{k}" for k in c] for n, c in (("region", region), ("ward", ward), ("item", item))}})


def held_of(kind: str, seed: int) -> tuple[np.ndarray, bool]:
    """Whether each interval holds its truth, and whether the job has converged."""
    random = np.random.default_rng([seed, len(kind)])
    sds = random.uniform(0.2, 1.2, 2)
    data = {name: frame(random, sds, kind) for name in ("ada", "bo")}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        result = fedkern.fit(FORMULAS[kind], data, "gaussian", out=out, disclosure={"level": "none"}, job={"seed": seed})
        draws = result.to_arviz().posterior
        ends = [np.quantile(draws[f"group_sd[{name}:intercept]"].to_numpy(), (0.05, 0.95)) for name in NAMES[kind]]
    return np.array([low < sd < high for sd, (low, high) in zip(sds, ends)]), result.summary["converged"] is True


def main(n: int) -> None:
    held, lost = {kind: np.zeros(2, int) for kind in FORMULAS}, dict.fromkeys(FORMULAS, 0)
    for seed in range(n):
        for kind in FORMULAS:
            found, converged = held_of(kind, seed)
            held[kind] += found
            lost[kind] += not converged
            parts = held[kind] / (seed + 1)
            errors = [math.sqrt(part * (1 - part) / (seed + 1)) for part in parts]
            told = ", ".join(f"{name} {part:.3f} +- {error:.3f}" for name, part, error in zip(NAMES[kind], parts, errors))
            print(f"{kind}: {seed + 1} federations, {told}, {lost[kind]} not converged", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
