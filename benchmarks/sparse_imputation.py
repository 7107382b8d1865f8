"""Coverage of 90 % intervals of the site averages where covariates are missing: docs/spec/sparse.md, section 11.

    python benchmarks/sparse_imputation.py [--federations 400] [--first 0] [--how ...] [--rows 150] [--rounds 400] [--graph]

Three sites, slopes .5 and .7, covariates with correlation .6 about sites' own centres; the first column lacks values. A share of
.90 over 400 federations has a standard error of .015 for one slope. The same federations without a gap stand beside it.
`--graph`: a random field of the three columns, whose six slopes are those of each column on the others.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import fedkern

SLOPES = np.array([0.5, 0.7])
HOW = ("nothing", "completely at random", "by the other column", "by the response", "a column at one site")
Part = NDArray[np.float64]


def federation(how: str, rows: int, seed: int) -> list[Part]:
    """Three sites' columns a, b, y, with gaps in a."""
    random, out = np.random.default_rng(seed), []
    for k in range(3):
        x = random.multivariate_normal([k, -k], [[1, 0.6], [0.6, 1]], rows)
        out.append(np.column_stack([x, x @ SLOPES + k + random.standard_normal(rows)]))
    gaps = np.random.default_rng([seed, 1])
    for k, part in enumerate(out):
        about = part - part.mean(axis=0)
        chance = {
            "nothing": np.zeros(rows),
            "completely at random": np.full(rows, 0.25),
            "by the other column": 1 / (1 + np.exp(-3 * about[:, 1])),
            "by the response": 1 / (1 + np.exp(-2 * about[:, 2])),
            "a column at one site": np.full(rows, 1.0 * (k == 1)),
        }[how]
        part[gaps.random(rows) < chance, 0] = np.nan
    return out


def effects(graph: bool) -> dict[str, float]:
    """The true slopes, by name."""
    if not graph:
        return dict(zip("ab", SLOPES.tolist()))
    of_x = np.array([[1, 0.6], [0.6, 1]])
    cross = of_x @ SLOPES
    precision = np.linalg.inv(np.block([[of_x, cross[:, None]], [cross, SLOPES @ cross + 1]]))
    return {f"{'aby'[h]} -> {'aby'[j]}": float(-precision[j, h] / precision[j, j]) for j in range(3) for h in range(3) if h != j}


def covered(how: str, rows: int, rounds: int, seed: int, graph: bool, folder: Path) -> tuple[NDArray[np.bool_], Part]:
    """Of each slope, whether it is inside its interval, and how far the mean is off, in posterior sds."""
    for k, part in enumerate(federation(how, rows, seed)):
        lines = [",".join("" if np.isnan(v) else repr(float(v)) for v in row) for row in part]
        (folder / f"site-{k}.csv").write_text("\n".join(["a,b,y", *lines]) + "\n")
    result = fedkern.run({
        "job": {"method": "sparse", "rounds": rounds, "seed": seed},
        "data": {"clients": [str(folder / "*.csv")]} | ({} if graph else {"response": "y"}),
        "model": {"missing": "impute", "kind": "mrf" if graph else "regression"},
        "algorithm": {"chains": 2, "burn_in": rounds // 6},
    })  # fmt: skip
    found = [(result.parameters[f"average[{name}]"], truth) for name, truth in effects(graph).items()]
    inside = [row["q05"] <= truth <= row["q95"] for row, truth in found]
    return np.array(inside), np.array([(row["mean"] - truth) / row["sd"] for row, truth in found])


def line(how: str, rows: int, each: list[tuple[NDArray[np.bool_], Part]]) -> str:
    """A row of the table, of the federations so far."""
    inside, off = (np.array(part) for part in zip(*each))
    shares, mean, rms = inside.mean(axis=0), off.mean(axis=0), np.sqrt((off**2).mean(axis=0))
    texts = (" | ".join(f"{share:.3f}" for share in shares), *(", ".join(f"{v:.2f}" for v in part) for part in (mean, rms)))
    return f"| {how} | {rows} | {len(each)} | {' | '.join(texts)} |"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--federations", type=int, default=400)
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--how", nargs="+", default=list(HOW), choices=HOW)
    parser.add_argument("--rows", type=int, default=150, help="of each site")
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--graph", action="store_true", help="a random field of the three columns")
    at = parser.parse_args(arguments)
    names = effects(at.graph)
    print(f"| missing | rows a site | federations | {' | '.join(names)} | mean error, sds | its rms |")
    print("| --- " * (5 + len(names)) + "|")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for how in at.how:
            each = []
            for seed in range(at.first, at.first + at.federations):
                each.append(covered(how, at.rows, at.rounds, seed, at.graph, Path(folder)))
                if len(each) % 25 == 0:
                    print(line(how, at.rows, each), file=sys.stderr, flush=True)
            print(line(how, at.rows, each), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
