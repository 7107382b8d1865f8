"""The map of sudden infant deaths in North Carolina where counts below five are suppressed: as they are, as intervals, as gaps.

    python benchmarks/sigma_censored.py [--rounds 5000]

Prints the mean rate (deaths for each 1,000 births) of the hundred counties and its error. The data are in FEDKERN_DATA (nc-sids).
"""

from __future__ import annotations

import argparse
import csv
import os
import tempfile
from pathlib import Path

import numpy as np

import fedkern
from fedkern.jobs.run import Output
from fedkern.methods.sigma.prior import build
from fedkern.methods.sigma.prior.keys import parse

BELOW = 5


def map_of(folder: Path) -> tuple[list[dict[str, str]], Path]:
    """The counties, two clients by longitude, and the prior of their map."""
    data = Path(os.environ["FEDKERN_DATA"]) / "nc-sids"
    with (data / "nc_sids.csv").open(newline="") as file:
        counties = list(csv.DictReader(file))
    middle = float(np.median([float(one["lon"]) for one in counties]))
    for one in counties:
        one["client"] = "west" if float(one["lon"]) < middle else "east"
    (folder / "areas.csv").write_text("area,client\n" + "".join(f"{one['name']},{one['client']}\n" for one in counties))
    with (data / "edges_ncCR85.csv").open(newline="") as file:
        pairs = [(int(line["i"]), int(line["j"])) for line in csv.DictReader(file)]
    once = {tuple(sorted(pair)) for pair in pairs}
    (folder / "edges.csv").write_text("".join(f"{counties[i]['name']},{counties[j]['name']}\n" for i, j in sorted(once)))
    tables = {
        "prior": {"kind": "leroux"},
        "data": {"areas": "areas.csv", "area": "area", "client": "client", "adjacency": "edges.csv", "islands": "independent"},
    }
    build.perform(parse(tables), folder, Output(folder / "prior", quiet=True))
    return counties, folder / "prior"


def rates(folder: Path, counties: list[dict[str, str]], prior: Path, cell: str | None, rounds: int) -> tuple[float, object]:
    """The mean rate of all counties, and the verdict; `cell` for counts below five, None: as they are."""
    rows = folder / "rows"
    rows.mkdir(exist_ok=True)
    for client in ("east", "west"):
        lines = ["area,deaths,births"]
        for one in counties:
            if one["client"] == client:
                y = int(one["SID74"])
                lines.append(f"{one['name']},{y if cell is None or y >= BELOW else cell},{int(one['BIR74']) / 1000}")
        (rows / f"{client}.csv").write_text("\n".join(lines) + "\n")
    data = {"clients": str(rows / "*.csv"), "area": "area", "response": "deaths", "exposure": "births"}
    if cell:
        data["censored"] = {cell: [0, BELOW - 1]}
    tables = {"job": {"method": "sigma", "seed": 1, "rounds": rounds}, "data": data, "model": {"prior": str(prior)}}
    out = folder / f"run-{cell}"
    result = fedkern.run({**tables, "output": {"suppressed": "show"}}, out=out)
    found = []
    for client in ("east", "west"):
        with (out / f"client-{client}" / "areas.csv").open(newline="") as file:
            found += [float(line["rate_mean"]) for line in csv.DictReader(file)]
    return float(np.mean(found)), result.converged


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5000)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        counties, prior = map_of(folder)
        few = sum(int(one["SID74"]) < BELOW for one in counties)
        print(f"{few} of {len(counties)} counties have fewer than {BELOW} deaths; {rounds} rounds")
        whole = None
        for words, cell in (("all counts", None), ("intervals", f"<{BELOW}"), ("gaps", "")):
            rate, verdict = rates(folder, counties, prior, cell, rounds)
            whole = whole or rate
            print(f"{words:12} mean rate {rate:.3f}  {100 * (rate / whole - 1):+.1f} %  ({verdict})")


if __name__ == "__main__":
    main()
