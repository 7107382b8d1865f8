"""How near open vertical jobs end to the undivided model's posterior: with the rho that is worked out, and with 0.5.

    python benchmarks/vertical_rho.py            # two clients of three columns, 200 rows

What it printed is benchmarks/results/vertical-rho.md. The posterior is that of all columns together, by importance sampling.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import fedkern
from papers import vertical

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from oracles.vertical_undivided import cell, exact

CELLS = (("bernoulli", 0), ("poisson", 1), ("poisson", 20), ("poisson", 300))  # those of large counts at 0.5 take long
JOBS: dict[str, dict[str, Any]] = {"AV, worked out": {}, "AV": {"rho": 0.5}, "PL": {"rho": 0.5, "augmentation": "power"}}


def line(family: str, mean: float, name: str) -> str:
    """A job with the defaults but for its model, against the posterior."""
    data = cell(family, mean)
    with TemporaryDirectory() as folder:
        tables = vertical.job(Path(folder), data, 1, 0, model={"family": family, **JOBS[name]})
        tables["job"]["rounds"] = "until"
        result = fedkern.run(tables, out=Path(folder) / "run")
        files = [Path(folder) / "run" / f"client-client-{k}" / "posterior.json" for k in (1, 2)]
        of = [result.summary["parameters"], *(json.loads(file.read_text())["parameters"] for file in files)]
    here = np.array([[row["mean"], row["sd"]] for parameters in of for row in parameters.values()]).T
    want, sd = exact(family, data.X, data.y)
    off, ratio = np.abs(here[0] - want) / sd, here[1] / sd
    response = family if family == "bernoulli" else f"poisson, mean {data.y.mean():.3g}"
    settled = "settled" if result.converged == "settled" else "not settled"
    return (
        f"| {response} | {name} | {result.summary['inference']['rho']:.3g} | {result.summary['rounds']} | {settled} "
        f"| {off[0]:.3f} | {off[1:].max():.3f} | {ratio.min():.3f} to {ratio.max():.3f} |"
    )


def main() -> None:
    head = ("response", "model", "rho", "rounds", "first line", "intercept, sds off", "worst slope, sds off", "sd / exact")
    print("| " + " | ".join(head) + " |\n|" + " --- |" * len(head), flush=True)
    for family, mean in CELLS:
        for name in JOBS:
            print(line(family, mean, name), flush=True)


if __name__ == "__main__":
    main()
