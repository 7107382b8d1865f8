"""How right the results are when a client comes to a run or goes: `python benchmarks/add_drop.py [--only N]`.

Sixty federations of four clients, to which a fifth comes with 5 to 60 % of all rows, of 5 to 26 unknowns; its covariates may be
shifted, and one of its slopes another. The first stage's result, that of all together, and the result without the fourth client
are compared with runs of the same clients by ten times as many draws, with the first run's center and scale of columns: by how
many posterior sds means differ at most, and by which part standard deviations do. Writes `results/add-drop.txt`, ten minutes.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import fedkern
from fedkern.results.result import Result

ROOT = Path(__file__).parents[1]
MEAN, SD = 0.05, 0.05  # posterior sds by which a mean may be off, and the part by which a standard deviation may
SHARES = (0.05, 0.1, 0.2, 0.4, 0.6)
COLUMNS = (4, 8, 14, 25)
KINDS = ("alike", "shifted", "other slope")
FAMILIES = ("bernoulli", "gaussian", "poisson")
ROWS = 1600  # of all clients


@dataclass(frozen=True)
class Case:
    """Holds what a federation is made of."""

    share: float
    columns: int
    kind: str
    family: str
    seed: int

    def rows(self, n: int, client: int, *, newcomer: bool = False) -> pd.DataFrame:
        """Returns a client's rows."""
        rng = np.random.default_rng([self.seed, client])
        X = rng.normal(size=(n, self.columns)) + 0.5 * (newcomer and self.kind == "shifted")
        slopes = np.linspace(0.6, -0.6, self.columns) * np.sqrt(4 / self.columns)
        slopes[0] += 0.5 * (newcomer and self.kind == "other slope")
        eta = 0.2 + 0.6 * X @ slopes
        y = {
            "bernoulli": lambda: (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(int),
            "gaussian": lambda: 50 + 10 * (eta + rng.normal(size=n)),
            "poisson": lambda: rng.poisson(np.exp(eta)),
        }[self.family]()
        return pd.DataFrame(X, columns=[f"x{j}" for j in range(self.columns)]).assign(y=y)

    def job(self, **algorithm: float) -> dict[str, Any]:
        """Returns the job."""
        model = {"family": self.family}
        return {
            "job": {"method": "likelihood", "seed": self.seed},
            "data": {"response": "y"},
            "model": model,
            "algorithm": algorithm,
        }


def off(result: Result, exact: Result) -> tuple[float, float]:
    """Returns by how much means and standard deviations of coefficients on the data's scale are off at most."""
    pairs = [(own, exact.parameters[name]) for name, own in result.parameters.items() if "_std" not in name]
    mean = max(abs(own["mean"] - row["mean"]) / row["sd"] for own, row in pairs)
    return mean, max(abs(own["sd"] / row["sd"] - 1) for own, row in pairs)


def run(case: Case, folder: Path) -> list[tuple[str, Result, tuple[float, float], int]]:
    """Returns what was asked for, the result, by how much it is off, and how many messages the earlier clients have sent."""
    new = round(case.share * ROWS)
    data = {name: case.rows((ROWS - new) // 4, k) for k, name in enumerate("abcd")}
    newcomer = {"e": case.rows(new, 4, newcomer=True)}
    first = fedkern.run(case.job(), data=data, output={"extendable": True, "without": True}, out=folder / "first")
    columns = {c["name"]: {"center": c["center"], "scale": c["scale"]} for c in first.summary["encoding"]["columns"]}
    exact: dict[str, Any] = {**case.job(effective=20000.0), "data": {"response": "y", "columns": columns}}

    found = []
    pooled = fedkern.run(exact, data={**data, **newcomer})
    for name, more in (("alone", {}), ("together", {"data": data})):
        out = folder / name
        result = fedkern.add(first, newcomer, out=out, **more)
        sent = [row["messages"] for row in fedkern.ledger(out).rows() if row["who"] in data]
        if name == "together" and result.summary["extends"]["stage"] == "alone":
            continue  # its result is the first one
        found.append((result.summary["extends"]["stage"], result, off(result, pooled), sum(sent)))
    left = {name: rows for name, rows in data.items() if name != "d"}
    result = fedkern.drop(first, "d")
    found.append(("drop", result, off(result, fedkern.run(exact, data=left)), 0))
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", type=int, metavar="N", help="the first federations alone; nothing is written")
    only = options.parse_args().only
    cases = [
        Case(share, columns, kind, FAMILIES[(k + k // len(KINDS)) % len(FAMILIES)], k + 101)
        for k, (share, columns, kind) in enumerate(product(SHARES, COLUMNS, KINDS))
    ][:only]
    lines = ["share unknowns newcomer     family     asked     taken   k-hat  effective  error  mean off  sd off"]
    counts, messages = Counter[tuple[str, str]](), 0
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            for asked, result, (mean, sd), sent in run(case, Path(folder)):
                good, taken = mean <= MEAN and sd <= SD, result.converged is True
                counts[asked, ("" if taken else "not ") + "taken"] += 1
                counts[asked, "taken and beyond"] += taken and not good
                counts[asked, "not taken and within"] += good and not taken
                messages += sent if asked == "alone" else 0
                s, unknowns = result.summary, case.columns + 1 + (case.family == "gaussian")
                error = max(s["monte_carlo_error"].values())
                lines.append(
                    f"{case.share:5.2f} {unknowns:8} {case.kind:<12} {case.family:<10} {asked:<9} {'yes' if taken else 'no':<5}"
                    f" {s['k_hat']:7.2f} {s['ess']:10.0f} {error:6.3f} {mean:9.3f} {sd:7.3f}"
                )
                print(lines[-1], flush=True)
    for asked in ("alone", "together", "drop"):
        words = ("taken", "not taken", "taken and beyond", "not taken and within")
        said = ", ".join(f"{counts[asked, word]} {word}" for word in words)
        lines.append(f"{asked}: {said} ({MEAN} sd, {100 * SD:.0f} %)")
    lines.append(f"messages of the earlier clients in the first stage: {messages}")
    print("\n".join(lines[-4:]))
    if only is None:
        (ROOT / "benchmarks" / "results" / "add-drop.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
