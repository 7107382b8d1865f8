"""How often 90 % intervals of open partitioned jobs hold the truth, with nothing set but the family.

    python benchmarks/interval_coverage.py [--federations 120] [--out benchmarks/results/coverage.txt]

A federation has three clients of 100 to 200 rows with the same true coefficients. A cell is a family and a kind of data:

* `r = 0`, `.5`, `.9`: three columns, two of them with this correlation;
* `age^2`: age, its square, and a third column;
* `rare events`: 4 % of ones, or about 0.08 counts a row; of a measurement a column that is 1 in 4 % of the rows;
* `overdispersed`, `a little`: counts vary more than the job's family says (negative binomial with r = 1 or r = 3 where it says
  Poisson, with r = 0.4 or r = 1.2 where it says r = 3); of a measurement errors of Student's t with 4 degrees of freedom. A 0/1
  response cannot vary more than its mean says.

The line of a cell has the share of federations that are judged (the first line says "settled" or "converged"; not where a client
refuses, since one of its rows stands alone), and of those the
share of the slopes' intervals that hold the truth, with its standard error over federations. Wanted: each cell within 3 standard
errors of .90, the mean of all within .01, unless the first line is another. The slopes are fixed and the prior is N(0, 1) on
standardised columns, so where rows say little intervals may cover more than .90.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

import fedkern
from fedkern import _core
from fedkern.arrays import Vector
from fedkern.errors import JobError

FAMILIES = ("gaussian", "bernoulli", "poisson", "negative-binomial")
KINDS = ("r = 0", "r = .5", "r = .9", "age^2", "rare events", "overdispersed", "a little")
VARIED = {"overdispersed": {"poisson": 1.0, "negative-binomial": 0.4}, "a little": {"poisson": 3.0, "negative-binomial": 1.2}}
SAID = 3.0  # the r of a job that says negative binomial
LEVEL = 0.90
SD = 10.0  # of a measurement's errors: blood pressures, say
SLOPES = np.array([0.3, -0.4, 0.2])
OF_AGE = np.array([-0.03, 0.0005, 0.2])  # a year, a squared year, and the third column's
FEWEST = 5  # judged federations, of which a cell's coverage is told


@dataclass(frozen=True)
class Cell:
    """A family, and a kind of data."""

    family: str
    kind: str

    @property
    def size(self) -> float:
        """The r of the counts that are drawn; infinite of a Poisson's."""
        as_said = SAID if self.family == "negative-binomial" else np.inf
        return VARIED.get(self.kind, {}).get(self.family, as_said)

    @property
    def model(self) -> dict[str, Any]:
        """What the job file says of the model: the family, and what it must be told of it."""
        return {"family": self.family} | ({"scale": SAID} if self.family == "negative-binomial" else {})


def cells() -> Iterator[Cell]:
    """All that are defined."""
    for kind in KINDS:
        for family in FAMILIES:
            if kind not in VARIED or family in VARIED[kind] or (family, kind) == ("gaussian", "overdispersed"):
                yield Cell(family, kind)


def covariates(cell: Cell, n: int, rng: np.random.Generator) -> Vector:
    """(n, 3)"""
    X: Vector = rng.normal(size=(n, 3))
    if cell.kind == "age^2":
        age = np.round(60 + 12 * X[:, 0])
        return np.column_stack([age, age**2, X[:, 2]])
    r = {"r = .5": 0.5, "r = .9": 0.9}.get(cell.kind, 0.0)
    X[:, 1] = r * X[:, 0] + np.sqrt(1 - r * r) * X[:, 1]
    if cell.kind == "rare events" and cell.family == "gaussian":
        X[:, 2] = rng.random(n) < 0.04
    return X


def truth(cell: Cell) -> Vector:
    """The slopes, on the scale of the columns."""
    slopes = OF_AGE if cell.kind == "age^2" else SLOPES
    return slopes * SD if cell.family == "gaussian" else slopes


def responses(cell: Cell, X: Vector, rng: np.random.Generator) -> Vector:
    """(n,)"""
    eta = X @ truth(cell)
    if cell.family == "gaussian":
        errors = rng.standard_t(4, len(X)) if cell.kind == "overdispersed" else rng.normal(size=len(X))
        return 125 + eta + SD * errors
    eta += 0.9 if cell.kind == "age^2" else 0.0  # 60 years: the mean of the predictor is near 0 there
    eta += -0.4 if cell.kind != "rare events" else -3.4 if cell.family == "bernoulli" else -2.7
    if cell.family == "bernoulli":
        return (rng.random(len(X)) < expit(eta)).astype(float)
    frailty = rng.gamma(cell.size, 1 / cell.size, len(X)) if np.isfinite(cell.size) else 1.0
    return rng.poisson(np.exp(eta) * frailty).astype(float)


def fitted(cell: Cell, seed: int) -> fedkern.Result:
    """One federation, from its rows to its result."""
    rng = np.random.default_rng([seed, KINDS.index(cell.kind), FAMILIES.index(cell.family)])
    data = {}
    for name in ("east", "north", "west"):
        X = covariates(cell, int(rng.integers(100, 201)), rng)
        data[name] = (X, responses(cell, X, rng))
    return fedkern.run({"job": {"method": "pvi", "seed": seed}, "model": cell.model}, data=data)


@dataclass(frozen=True)
class Measured:
    """Of a cell: the share of slopes held by each judged federation's intervals, and the number of all federations."""

    held: Vector
    federations: int

    @property
    def judged(self) -> float:
        return len(self.held) / self.federations

    @property
    def coverage(self) -> float:
        return float(self.held.mean())

    @property
    def error(self) -> float:
        """Standard error, over federations; where all hold, that of a rule of three."""
        scatter = float(self.held.std(ddof=1)) / np.sqrt(len(self.held))
        return max(scatter, 1 / (3 * len(self.held)))

    @property
    def off(self) -> bool:
        """Whether it is more than three standard errors from what is wanted."""
        return abs(self.coverage - LEVEL) > 3 * self.error


def measured(cell: Cell, federations: int) -> Measured:
    """Over so many federations."""
    held = []
    for seed in range(federations):
        try:
            summary = fitted(cell, seed).summary
        except JobError:  # a client of which too few rows have a value
            continue
        if summary["converged"] not in (True, "settled"):
            continue
        found = [summary["parameters"][f"theta[x{j + 1}]"] for j in range(3)]
        held.append(np.mean([one["q05"] <= true <= one["q95"] for one, true in zip(found, truth(cell))]))
    return Measured(np.array(held), federations)


def lines(federations: int) -> Iterator[str]:
    """The table, a line when it is known."""
    yield f"fedkern {fedkern.__version__}, {platform.machine()} with {_core.isa()}, {federations} federations a cell"
    yield f"{'family':<18} {'kind':<14} {'judged':>6}  coverage  error"
    found = []
    for cell in cells():
        one = measured(cell, federations)
        told = f"{cell.family:<18} {cell.kind:<14} {one.judged:6.2f}"
        if len(one.held) < FEWEST:
            yield f"{told}  not settled"
            continue
        found.append(one)
        yield f"{told}     {one.coverage:.3f}  {one.error:.3f}{'  off' if one.off else ''}"
    mean = float(np.mean([one.coverage for one in found]))
    error = float(np.sqrt(np.sum([one.error**2 for one in found]))) / len(found)
    off = sum(one.off for one in found)
    yield f"mean of {len(found)} cells: {mean:.3f} +- {error:.3f}; more than 3 standard errors off: {off}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--federations", type=int, default=120)
    parser.add_argument("--out", type=Path, help="a file that gets the table too")
    given = parser.parse_args()
    table = []
    for line in lines(given.federations):
        table.append(line)
        print(line, flush=True)
    if given.out:
        given.out.write_text("\n".join(table) + "\n", "utf-8")


if __name__ == "__main__":
    main()
