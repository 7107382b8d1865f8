"""What a sparse job finds of effects that are there, beside a meta-analysis, and what `model.negligible` does.

    python benchmarks/sparse_power.py [FEDERATIONS] > benchmarks/results/sparse-power.txt

Federations of four sites of 60 to 200 rows, twelve covariates (correlated by .3 to the power of their distance), two of them
with an effect of .2 and .35 standard deviations of the noise that varies by .05 between sites. A set is the Bayesian FDR set of
the job, or that of Benjamini and Hochberg of the meta-analysis of the sites' own fits, both at .1.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import pandas

import fedkern

EFFECTS = {"x2": 0.2, "x7": 0.35}
NEGLIGIBLE = (None, 0.2, 0.1, 0.05, 0.02)
COLUMNS = [f"x{j}" for j in range(12)]


def federation(seed: int) -> dict[str, pandas.DataFrame]:
    """Site -> its rows."""
    random = np.random.default_rng(seed)
    distance = np.abs(np.subtract.outer(np.arange(12), np.arange(12)))
    slopes, sites = np.array([EFFECTS.get(name, 0.0) for name in COLUMNS]), {}
    for k in range(4):
        X = random.multivariate_normal(np.zeros(12), 0.3**distance, int(random.integers(60, 201)))
        own = slopes + 0.05 * (slopes != 0) * random.normal(size=12)
        y = X @ own + random.normal(size=len(X)) + random.normal()
        sites[f"site-{k}"] = pandas.DataFrame(X, columns=COLUMNS).assign(y=y)
    return sites


def main() -> None:
    many, began = int(sys.argv[1]) if len(sys.argv) > 1 else 25, time.monotonic()
    found = {name: [] for name in (*NEGLIGIBLE, "meta")}
    for seed in range(many):
        data = federation(seed)
        for negligible in NEGLIGIBLE:
            model = {} if negligible is None else {"negligible": negligible}
            job = {
                "job": {"method": "sparse", "seed": seed, "rounds": 1500}, "data": {"response": "y"}, "model": model,
                "output": {"site_fits": negligible is None},
            }  # fmt: skip
            summary = fedkern.run(job, data=data).summary
            found[negligible].append(set(summary["selection"]["members"]))
            if negligible is None:
                found["meta"].append(set(summary["meta"]["selection"]["members"]))
    true = many * len(EFFECTS)
    print(f"{many} federations, {true} true effects, sets at a false discovery rate of .1, {time.monotonic() - began:.0f} s")
    print(f"{'set':<28} {'true found':>10} {'false found':>11} {'empty sets':>10}")
    for name, sets in found.items():
        label = "meta-analysis" if name == "meta" else "job, defaults" if name is None else f"job, negligible = {name:g}"
        right = sum(len(one & EFFECTS.keys()) for one in sets)
        wrong = sum(len(one - EFFECTS.keys()) for one in sets)
        print(f"{label:<28} {right:>10} {wrong:>11} {sum(not one for one in sets):>10}")


if __name__ == "__main__":
    main()
