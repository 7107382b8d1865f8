"""Groups that clients have in common: what draws about the mode are worth, by their number and sd.

python shared_groups.py FAMILY GROUPS SD [ROWS [once]]: three clients with ROWS (12) rows of each group; `once`: the mode at an sd
of .5 alone, without the one that is found again where the sd is. Prints k-hat, what draws are worth, and the sd of the groups.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit

import fedkern
from fedkern.algorithms.importance.proposals import Grid


def main(family: str, groups: int, sd: float, rows: int = 12, once: str = "") -> None:
    if once:
        Grid.nearer = lambda self, mode: None
    random = np.random.default_rng(1)
    effect, data = sd * random.normal(size=groups), {}
    for name in ("ada", "bo", "cy"):
        item = np.repeat(np.arange(groups), rows)
        x = random.normal(size=len(item)) + 2
        eta = -0.5 + 0.4 * x + effect[item]
        y = random.poisson(np.exp(eta)) if family == "poisson" else random.uniform(size=len(item)) < expit(eta)
        data[name] = pd.DataFrame({"y": y.astype(float), "x": x, "item": [f"i{k}" for k in item]})
    with tempfile.TemporaryDirectory() as folder:
        begun = time.process_time()
        model = {"random": {"groups": [{"by": "item", "shared": True}]}}
        result = fedkern.fit("y ~ x", data, family, out=Path(folder) / "out", model=model, disclosure={"level": "none"})
        found, told = result.summary, result.parameters["group_sd[item:intercept]"]
        case = f"{family}, {groups} groups of {rows} rows at each of three clients, sd {sd:g}{', one mode' if once else ''}"
        worth = f"converged {found['converged']}, k-hat {found['k_hat']:.2f}, draws worth {found['ess']:.0f}"
        of_sd = f"sd {told['mean']:.3f} ({told['sd']:.3f}), that of the effects {effect.std():.3f}"
        if found["converged"] is not True:
            print(found["verdict"])
        print(f"{case}: {worth}; {of_sd}; {time.process_time() - begun:.0f} s of processor", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), *(int(word) for word in sys.argv[4:5]), *sys.argv[5:6])
