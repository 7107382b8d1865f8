"""What a round of partitioned inference costs with the full covariance of many columns: bytes of a message, and seconds.

    python benchmarks/pvi_columns.py [--coefficients 300] [--clients 4] [--rows 2000]    # prints results/pvi_columns.txt

Open jobs with nothing else set, all clients in one process, with a run's folder. A round is what ten more of them cost: start and
end of a job, with the one question for its slopes, are in neither.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fedkern

FAMILIES, SHORT, LONG = ("gaussian", "bernoulli", "poisson"), 5, 15
Rows = dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]


def federation(family: str, clients: int, rows: int, columns: int) -> Rows:
    """Columns with correlations of .5, and a linear predictor with a variance of about 1."""
    random, out = np.random.default_rng(0), Rows()
    slopes = random.standard_normal(columns) / columns**0.5
    for k in range(clients):
        X = (random.standard_normal((rows, columns)) + random.standard_normal((rows, 1))) / 2**0.5
        eta = X @ slopes
        drawn = {
            "gaussian": eta + random.standard_normal(rows),
            "bernoulli": random.random(rows) < 1 / (1 + np.exp(-eta)),
            "poisson": random.poisson(np.exp(np.minimum(eta, 3.0))),
        }[family]
        out[f"client-{k}"] = X, np.asarray(drawn, np.float64)
    return out


def run(family: str, rounds: int, data: Rows, out: Path) -> tuple[float, float]:
    """Seconds, and those of processor."""
    job: dict[str, Any] = {"job": {"rounds": rounds}, "data": {"response": "y"}, "model": {"family": family}}
    began, used = time.perf_counter(), time.process_time()
    fedkern.run(job, data=data, out=out)
    return time.perf_counter() - began, time.process_time() - used


def largest(out: Path) -> int:
    """Bytes of the largest message that left a client in a round."""
    lines = [json.loads(line) for path in (out / "ledger").glob("*.jsonl") for line in path.read_text().splitlines()]
    return max(line["bytes"] for line in lines if line["kind"].endswith("SiteDelta"))


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--coefficients", type=int, default=300, help="with the intercept")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rows", type=int, default=2000, help="of each client")
    at = parser.parse_args(arguments)
    print("| family | coefficients | clients x rows | bytes of a message | seconds a round | of processor |")
    print("| --- " * 6 + "|")
    with tempfile.TemporaryDirectory() as made, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for family in FAMILIES:
            data, folder = federation(family, at.clients, at.rows, at.coefficients - 1), Path(made) / family
            run(family, 1, data, folder / "first")  # what is loaded and compiled once
            cost = [run(family, rounds, data, folder / str(rounds)) for rounds in (SHORT, LONG)]
            each = [(long - short) / (LONG - SHORT) for short, long in zip(*cost)]
            size, given = largest(folder / str(LONG)), f"{at.coefficients} | {at.clients} x {at.rows:,}"
            print(f"| {family} | {given} | {size:,} | {each[0]:.3f} | {each[1]:.3f} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
