"""The map of sudden infant deaths in North Carolina where counts below five are suppressed: as they are, as intervals, as gaps.

    python benchmarks/sigma_censored.py [--maps 30] [--seed 0]

Prints the mean rate (deaths for each 1,000 births) of the hundred counties and its error; and over so many maps with simulated
deaths, whose rates are known, the mean error, its standard error, and how often 90 % intervals of rates cover. Truths are of a
Leroux prior with phi .8 and sigma_theta .5, about two deaths for each 1,000 births. Data are in FEDKERN_DATA (nc-sids).
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import fedkern
from fedkern.arrays import Array
from fedkern.jobs.run import Output
from fedkern.methods.sigma.prior import build
from fedkern.methods.sigma.prior.keys import parse

BELOW = 5
LEVEL, PHI, SCALE = float(np.log(2.0)), 0.8, 0.5
CELLS = {"all counts": None, "intervals": f"<{BELOW}", "gaps": ""}


def map_of(folder: Path) -> tuple[list[dict[str, str]], Path, Array]:
    """The counties, two clients by longitude; the prior of their map; and its structure matrix."""
    data = Path(os.environ["FEDKERN_DATA"]) / "nc-sids"
    with (data / "nc_sids.csv").open(newline="") as file:
        counties = list(csv.DictReader(file))
    middle = float(np.median([float(one["lon"]) for one in counties]))
    for one in counties:
        one["client"] = "west" if float(one["lon"]) < middle else "east"
    (folder / "areas.csv").write_text("area,client\n" + "".join(f"{one['name']},{one['client']}\n" for one in counties))
    with (data / "edges_ncCR85.csv").open(newline="") as file:
        pairs = [(int(line["i"]), int(line["j"])) for line in csv.DictReader(file)]
    once = sorted({(min(pair), max(pair)) for pair in pairs})
    (folder / "edges.csv").write_text("".join(f"{counties[i]['name']},{counties[j]['name']}\n" for i, j in once))
    structure = np.zeros((len(counties), len(counties)))
    for i, j in once:
        structure[[i, j], [j, i]] -= 1
        structure[[i, j], [i, j]] += 1
    tables = {
        "prior": {"kind": "leroux"},
        "data": {"areas": "areas.csv", "area": "area", "client": "client", "adjacency": "edges.csv", "islands": "independent"},
    }
    build.perform(parse(tables), folder, Output(folder / "prior", quiet=True))
    return counties, folder / "prior", structure


def rates(
    folder: Path, counties: Sequence[dict[str, str]], y: Sequence[int], prior: Path, cell: str | None
) -> tuple[Array, Array, Array, object]:
    """Of each county's rate the mean and both ends of the 90 % interval, and the verdict; `cell` for counts below five, None: as
    they are."""
    rows = folder / "rows"
    rows.mkdir(exist_ok=True)
    for client in ("east", "west"):
        lines = ["area,deaths,births"]
        for one, count in zip(counties, y, strict=True):
            if one["client"] == client:
                lines.append(f"{one['name']},{count if cell is None or count >= BELOW else cell},{int(one['BIR74']) / 1000}")
        (rows / f"{client}.csv").write_text("\n".join(lines) + "\n")
    data: dict[str, Any] = {"clients": str(rows / "*.csv"), "area": "area", "response": "deaths", "exposure": "births"}
    if cell:
        data["censored"] = {cell: [0, BELOW - 1]}
    tables = {"job": {"method": "sigma", "seed": 1}, "data": data, "model": {"prior": str(prior)}}
    result = fedkern.run({**tables, "output": {"suppressed": "show"}}, out=folder / "run")
    found: dict[str, list[float]] = {}
    for client in ("east", "west"):
        with (folder / "run" / f"client-{client}" / "areas.csv").open(newline="") as file:
            found |= {line["area"]: [float(line[f"rate_{of}"]) for of in ("mean", "q05", "q95")] for line in csv.DictReader(file)}
    shutil.rmtree(folder / "run")
    mean, low, high = np.array([found[one["name"]] for one in counties]).T
    return mean, low, high, result.converged


def simulated(counties: Sequence[dict[str, str]], structure: Array, seed: int) -> tuple[list[int], Array]:
    """Deaths, and the rates that they are drawn with."""
    rng, n = np.random.default_rng([11, seed]), len(counties)
    root = np.linalg.cholesky(np.linalg.inv((1 - PHI) * np.eye(n) + PHI * structure))
    rate = np.exp(LEVEL + SCALE * (root @ rng.standard_normal(n)))
    births = np.array([int(one["BIR74"]) / 1000 for one in counties])
    return rng.poisson(births * rate).tolist(), rate


def of_data(folder: Path, counties: Sequence[dict[str, str]], prior: Path) -> None:
    """The map as it is."""
    y = [int(one["SID74"]) for one in counties]
    print(f"{sum(count < BELOW for count in y)} of {len(counties)} counties have fewer than {BELOW} deaths")
    whole = None
    for words, cell in CELLS.items():
        mean, _, _, verdict = rates(folder, counties, y, prior, cell)
        rate = float(mean.mean())
        whole = whole or rate
        print(f"{words:12} mean rate {rate:.3f}  {100 * (rate / whole - 1):+.1f} %  ({verdict})", flush=True)


def over_maps(folder: Path, counties: Sequence[dict[str, str]], prior: Path, structure: Array, maps: int, first: int) -> None:
    """Many maps whose rates are known."""
    off: dict[str, list[float]] = {words: [] for words in CELLS}
    inside: dict[str, list[float]] = {words: [] for words in CELLS}
    few, converged = [], 0
    for seed in range(first, first + maps):
        y, truth = simulated(counties, structure, seed)
        few.append(sum(count < BELOW for count in y))
        for words, cell in CELLS.items():
            mean, low, high, verdict = rates(folder, counties, y, prior, cell)
            off[words].append(100 * (float(mean.mean()) / float(truth.mean()) - 1))
            inside[words].append(float(((low < truth) & (truth < high)).mean()))
            converged += verdict is True
        if (seed - first + 1) % 10 == 0 or seed - first + 1 == maps:
            n, whole = len(few), np.array(off["all counts"])
            print(
                f"{n} simulated maps, {np.mean(few):.0f} counties with fewer than {BELOW}; {converged} of {3 * n} fits converged"
            )
            for words, errors in off.items():
                beside = np.array(errors) - whole
                print(
                    f"  {words:12} mean rate {np.mean(errors):+.2f} % off (se {np.std(errors, ddof=1) / n**0.5:.2f}), beside all "
                    f"counts {beside.mean():+.2f} (se {beside.std(ddof=1) / n**0.5:.2f}), 90 % intervals cover "
                    f"{np.mean(inside[words]):.3f}",
                    flush=True,
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--maps", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        counties, prior, structure = map_of(folder)
        of_data(folder, counties, prior)
        if o.maps:
            over_maps(folder, counties, prior, structure, o.maps, o.seed)


if __name__ == "__main__":
    main()
