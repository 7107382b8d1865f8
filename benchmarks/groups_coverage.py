"""How often 90 % intervals of groups' standard deviations hold the truth, over simulated federations.

python groups_coverage.py N KIND: `nested` (wards in regions) or `crossed`, gaussian; each of N federations has two clients, and
sds from .2 to 1.2. Prints counts of intervals that hold, and jobs that have not converged.
"""

from __future__ import annotations

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


def main(n: int, kind: str) -> None:
    held, lost = np.zeros(2, int), 0
    for seed in range(n):
        random = np.random.default_rng([seed, len(kind)])
        sds = random.uniform(0.2, 1.2, 2)
        data = {name: frame(random, sds, kind) for name in ("ada", "bo")}
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "out"
            result = fedkern.fit(FORMULAS[kind], data, "gaussian", out=out, disclosure={"level": "none"}, job={"seed": seed})
            draws = result.to_arviz().posterior
            lost += result.summary["converged"] is not True
            for k, name in enumerate(NAMES[kind]):
                low, high = np.quantile(draws[f"group_sd[{name}:intercept]"].to_numpy(), (0.05, 0.95))
                held[k] += low < sds[k] < high
        print(f"{seed + 1} of {n}: {held[0]} and {held[1]} hold {NAMES[kind]}; {lost} not converged", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
