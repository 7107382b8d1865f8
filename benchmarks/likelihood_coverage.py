"""How often 90 % intervals of `method = "likelihood"` hold the truth, with nothing set but family and random effects.

    python benchmarks/likelihood_coverage.py [--federations 400] [--kept FILE] [--out benchmarks/results/likelihood-coverage.txt]

A federation has four clients (eight, where clients have effects) of 96 rows: two columns, with correlation .5, the same true
coefficients everywhere, and effects of wards or clients that are drawn anew. A line of the table has the share of federations
that are "converged", and of those the share of intervals that hold the truth, with its standard error: of the slopes, the
intercept, and standard deviations of effects or a dispersion. Truths are fixed and priors are the defaults, which are wide for
coefficients; that of a standard deviation of effects says a little, where few groups or clients do. `--kept` gets a line for
each federation when it is done, and those that it has are not run again.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import fedkern
from fedkern import _core
from fedkern.arrays import Vector

LEVEL = 0.90
SLOPES = (0.4, -0.3)
WARDS, ROWS = 12, 8  # of a client, and of a ward
R, SD = 2.0, 12.0  # of negative binomial counts, and of a measurement's errors
OF_WARDS, OF_SLOPES, OF_CLIENTS = 0.7, 0.4, 0.6  # standard deviations of effects


@dataclass(frozen=True)
class Cell:
    """A model: its family, its intercept, and what differs: "wards", "slopes" (of wards, too), "clients" or ""."""

    family: str
    intercept: float
    differ: str = ""

    @property
    def name(self) -> str:
        return f"{self.family}, {self.differ}" if self.differ else self.family

    @property
    def random(self) -> dict[str, Any]:
        """The job's [model.random]."""
        found: dict[str, dict[str, Any]] = {
            "": {},
            "wards": {"group": "ward"},
            "slopes": {"group": "ward", "slopes": ["a"]},
            "clients": {"client": True},
        }
        return found[self.differ]

    @property
    def unit(self) -> float:
        """Of coefficients and effects."""
        return SD if self.family == "gaussian" else 1.0

    @property
    def truth(self) -> dict[str, float]:
        """By the names of summary.json."""
        found = {"intercept": self.intercept, "theta[a]": self.unit * SLOPES[0], "theta[b]": self.unit * SLOPES[1]}
        if self.differ in ("wards", "slopes"):
            found["group_sd[intercept]"] = self.unit * OF_WARDS
        if self.differ == "slopes":
            found["group_sd[a]"] = self.unit * OF_SLOPES
        if self.differ == "clients":
            found["client_sd[intercept]"] = self.unit * OF_CLIENTS
        return found | {"negative-binomial": {"dispersion": 1 / R}, "gaussian": {"sigma": SD}}.get(self.family, {})


CELLS = (
    Cell("bernoulli", -0.8),
    Cell("bernoulli", -0.8, "wards"),
    Cell("poisson", 0.3, "slopes"),
    Cell("poisson", 0.3, "clients"),
    Cell("negative-binomial", 0.7, "wards"),
    Cell("gaussian", 125.0, "wards"),
)


def data(cell: Cell, seed: int) -> dict[str, pd.DataFrame]:
    """The clients' rows."""
    rng = np.random.default_rng([seed, *cell.name.encode()])
    found = {}
    for k in range(8 if cell.differ == "clients" else 4):
        ward = np.repeat(np.arange(WARDS), ROWS)
        a, e = rng.normal(size=(2, len(ward)))
        b = 0.5 * a + np.sqrt(0.75) * e
        effect, slope = OF_WARDS * rng.normal(size=WARDS)[ward], OF_SLOPES * rng.normal(size=WARDS)[ward]
        of_client = OF_CLIENTS * rng.normal()
        eta = SLOPES[0] * a + SLOPES[1] * b
        eta += effect if cell.differ in ("wards", "slopes") else of_client if cell.differ == "clients" else 0.0
        eta += slope * a if cell.differ == "slopes" else 0.0
        eta = cell.intercept + cell.unit * eta
        found[f"site {k}"] = pd.DataFrame({"a": a, "b": b, "ward": [f"ward {g}" for g in ward], "y": responses(cell, eta, rng)})
    return found


def responses(cell: Cell, eta: Vector, rng: np.random.Generator) -> Vector:
    """(n,)"""
    if cell.family == "gaussian":
        return rng.normal(eta, SD)
    if cell.family == "bernoulli":
        return (rng.random(len(eta)) < 1 / (1 + np.exp(-eta))).astype(float)
    frailty = rng.gamma(R, 1 / R, len(eta)) if cell.family == "negative-binomial" else 1.0
    return rng.poisson(np.exp(eta) * frailty).astype(float)


def fitted(cell: Cell, seed: int) -> dict[str, Any]:
    """Of one federation: whether it is judged right, and of each parameter whether its interval holds the truth."""
    model: dict[str, Any] = {"family": cell.family} | ({"random": cell.random} if cell.random else {})
    lowered = {"least_rows": 19} if cell.differ == "slopes" else {}  # random slopes ask for more rows than these clients have
    job = {"job": {"method": "likelihood", "seed": seed}, "data": {"response": "y", **lowered}, "model": model}
    tables = data(cell, seed)
    if "group" not in cell.random:
        tables = {name: table.drop(columns="ward") for name, table in tables.items()}
    summary = fedkern.run(job, data=tables).summary
    held = {}
    for name, true in cell.truth.items():
        one = summary["parameters"][name]
        held[name] = bool(one["q05"] <= true <= one["q95"])
    return {"cell": cell.name, "seed": seed, "right": summary["converged"] is True, "held": held, "said": summary["verdict"]}


def all_of(federations: int, kept: Path | None) -> Iterator[dict[str, Any]]:
    """What is known of each federation, those of a file first."""
    known = [json.loads(line) for line in kept.read_text("utf-8").splitlines()] if kept and kept.exists() else []
    known = [one for one in known if one["seed"] < federations]
    yield from known
    there = {(one["cell"], one["seed"]) for one in known}
    for seed in range(federations):
        for cell in CELLS:
            if (cell.name, seed) in there:
                continue
            one = fitted(cell, seed)
            if kept:
                with kept.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(one) + "\n")
            yield one


def lines(found: list[dict[str, Any]], federations: int) -> Iterator[str]:
    """The table."""
    yield f"fedkern {fedkern.__version__}, {platform.machine()} with {_core.isa()}, {federations} federations a model"
    yield f"{'model':<26} {'judged':>6}  {'parameter':<22} coverage  error"
    off, slopes = 0, []
    for cell in CELLS:
        own = [one for one in found if one["cell"] == cell.name]
        right = [one["held"] for one in own if one["right"]]
        for i, name in enumerate(cell.truth):
            held = np.array([one[name] for one in right], float)
            share, error = float(held.mean()), float(np.sqrt(LEVEL * (1 - LEVEL) / len(held)))
            wrong = abs(share - LEVEL) > 3 * error
            off += wrong
            slopes += [held] if name.startswith("theta") else []
            head = f"{cell.name:<26} {len(right) / len(own):6.3f}" if i == 0 else " " * 33
            yield f"{head}  {name:<22}    {share:.3f}  {error:.3f}{'  off' if wrong else ''}"
    each = np.concatenate(slopes)
    yield f"slopes of all models: {each.mean():.3f} +- {np.sqrt(LEVEL * (1 - LEVEL) / len(each)):.3f}"
    yield f"more than 3 standard errors off: {off}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--federations", type=int, default=400)
    parser.add_argument("--kept", type=Path, help="a file of what is known already, which gets a line for each federation")
    parser.add_argument("--out", type=Path, help="a file that gets the table too")
    given = parser.parse_args()
    table = list(lines(list(all_of(given.federations, given.kept)), given.federations))
    print("\n".join(table))
    if given.out:
        given.out.write_text("\n".join(table) + "\n", "utf-8")


if __name__ == "__main__":
    main()
