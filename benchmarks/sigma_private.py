"""Maps whose counts have noise: how far rates are from those of the open fit, and how often their 90 % intervals cover.

    python benchmarks/sigma_private.py [--rounds 1000] [--maps 40] [--only maps|coverage] [--inference nested|hmc]
        [--fixed]

Two maps with data (FEDKERN_DATA): lip cancer in Scotland (scotland-lip-cancer), sudden infant deaths in North Carolina (nc-sids),
two clients each. Error: root mean square over areas of (rate - rate of the open fit) / its sd. Coverage: over maps of 36 areas in
two clients, noise drawn anew for each map; phi and sigma_theta are drawn from their priors with each map (--fixed: .8 and .6 for
all), since posterior intervals cover 90 % of truths of the prior, and of one truth as many as they may. --rounds: of hmc alone.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import fedkern
from fedkern.jobs.run import Output
from fedkern.methods.sigma.prior import build
from fedkern.methods.sigma.prior.keys import parse
from fedkern.models.spatial.condition import Condition, Hyperprior

EPSILON = (0.5, 1.0, 2.0)
PHI = Condition("phi", 0.0, 0.99, hyperprior=Hyperprior("logit-normal"))  # as `fedkern sigma build` has it
Area = tuple[str, str, int, float]  # name, client, count, exposure
Map = tuple[list[Area], list[tuple[str, str]]]  # with pairs of neighbours


def built(folder: Path, areas: Sequence[Area], pairs: Sequence[tuple[str, str]]) -> Path:
    """The prior of a map."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "areas.csv").write_text("area,client\n" + "".join(f"{name},{client}\n" for name, client, _, _ in areas))
    (folder / "edges.csv").write_text("one,other\n" + "".join(f"{one},{other}\n" for one, other in pairs))
    tables = {
        "prior": {"kind": "leroux"},
        "data": {"areas": "areas.csv", "area": "area", "client": "client", "adjacency": "edges.csv", "islands": "independent"},
    }
    build.perform(parse(tables), folder, Output(folder / "prior", quiet=True))
    return folder / "prior"


def fitted(
    folder: Path, prior: Path, areas: Sequence[Area], privacy: Mapping[str, Any] | None, rounds: int | None
) -> dict[str, Mapping[str, str]]:
    """Area -> its line of areas.csv; `rounds` of hmc, None: nested."""
    folder.mkdir(parents=True)
    clients = sorted({client for _, client, _, _ in areas})
    for client in clients:
        lines = [f"{name},{y},{exposure!r}" for name, of, y, exposure in areas if of == client]
        (folder / f"{client}.csv").write_text("\n".join(["area,cases,expected", *lines]) + "\n")
    tables: dict[str, Any] = {
        "job": {"method": "sigma", "seed": 1},
        "data": {"clients": str(folder / "*.csv"), "area": "area", "response": "cases", "exposure": "expected"},
        "model": {"prior": str(prior)},
        "algorithm": {"inference": "nested"},
    }
    if rounds is not None:
        tables["job"]["rounds"], tables["algorithm"] = rounds, {"inference": "hmc", "thin": 2}
    if privacy is not None:
        tables["privacy"] = privacy
    fedkern.run(tables, out=folder / "run")
    found: dict[str, Mapping[str, str]] = {}
    for client in clients:
        with (folder / "run" / f"client-{client}" / "areas.csv").open(newline="") as file:
            found |= {line["area"]: line for line in csv.DictReader(file)}
    return found


def scotland(data: Path) -> Map:
    """56 districts, by latitude."""
    with (data / "scotland-lip-cancer" / "lip.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    middle = float(np.median([float(one["latitude"]) for one in lines]))
    areas = [
        (one["name"], "north" if float(one["latitude"]) > middle else "south", int(one["observed"]), float(one["expected"]))
        for one in lines
    ]
    named = {one["area"]: one["name"] for one in lines}
    with (data / "scotland-lip-cancer" / "edges_geobugs117.csv").open(newline="") as file:
        return areas, distinct((named[line["i"]], named[line["j"]]) for line in csv.DictReader(file))


def carolina(data: Path) -> Map:
    """100 counties, by longitude; expected at the state's rate."""
    with (data / "nc-sids" / "nc_sids.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    middle = float(np.median([float(one["lon"]) for one in lines]))
    rate = sum(int(one["SID74"]) for one in lines) / sum(int(one["BIR74"]) for one in lines)
    areas = [
        (one["name"], "west" if float(one["lon"]) < middle else "east", int(one["SID74"]), rate * int(one["BIR74"]))
        for one in lines
    ]
    with (data / "nc-sids" / "edges_ncCR85.csv").open(newline="") as file:
        found = [(lines[int(line["i"])]["name"], lines[int(line["j"])]["name"]) for line in csv.DictReader(file)]
    return areas, distinct(found)


def distinct(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Each pair once."""
    return sorted({(min(pair), max(pair)) for pair in pairs})


def numbers(found: Mapping[str, Mapping[str, str]], areas: Sequence[Area], column: str) -> np.ndarray:
    return np.array([float(found[name][column]) for name, *_ in areas])


def said(rounds: int | None) -> str:
    """How it is inferred."""
    return "nested" if rounds is None else f"hmc, {rounds} rounds"


def of_data(rounds: int | None) -> None:
    """Rates of two published maps."""
    data = Path(os.environ["FEDKERN_DATA"])
    maps: dict[str, Callable[[Path], Map]] = {"Scotland": scotland, "North Carolina": carolina}
    print(f"{said(rounds)}; error: rms over areas of (rate - open rate) / open sd; width: mean ratio of sds")
    for name, read in maps.items():
        areas, pairs = read(data)
        with tempfile.TemporaryDirectory() as folder:
            prior = built(Path(folder) / "map", areas, pairs)
            open_fit = fitted(Path(folder) / "open", prior, areas, None, rounds)
            mean, sd = (numbers(open_fit, areas, f"rate_{what}") for what in ("mean", "sd"))
            counts = [y for _, _, y, _ in areas]
            print(f"{name}: {len(areas)} areas, {sum(counts)} cases, median {np.median(counts):g} an area", flush=True)
            for spent in EPSILON:
                private = fitted(Path(folder) / f"private-{spent}", prior, areas, {"epsilon": spent}, rounds)
                error = (numbers(private, areas, "rate_mean") - mean) / sd
                width = numbers(private, areas, "rate_sd") / sd
                inside = (numbers(private, areas, "rate_q05") < mean) & (mean < numbers(private, areas, "rate_q95"))
                noise = 1 / (np.sqrt(2) * np.sinh(spent / 2))
                print(
                    f"  epsilon {spent:3g}  noise sd {noise:5.2f}  error {np.sqrt((error**2).mean()):.2f}  largest "
                    f"{np.abs(error).max():.2f}  width {width.mean():.2f}  open mean in the 90 % interval {inside.mean():.2f}",
                    flush=True,
                )


def grid(side: int = 6) -> tuple[list[Area], list[tuple[str, str]], np.ndarray]:
    """A map of squares in two clients, and its structure matrix."""
    names = [f"{i}-{j}" for i in range(side) for j in range(side)]
    areas = [(name, "one" if k < side * side // 2 else "two", 0, 1.0) for k, name in enumerate(names)]
    at = [(k, k + 1) for k in range(side * side) if (k + 1) % side] + [(k, k + side) for k in range(side * (side - 1))]
    structure = np.zeros((side * side, side * side))
    for one, other in at:
        structure[[one, other], [other, one]] -= 1
        structure[[one, other], [one, other]] += 1
    return areas, [(names[one], names[other]) for one, other in at], structure


def coverage(n_maps: int, rounds: int | None, fixed: bool) -> None:
    """Over simulated maps."""
    areas, pairs, structure = grid()
    d, drawn = len(areas), "phi 0.8, sigma_theta 0.6" if fixed else "phi and sigma_theta drawn from their priors"
    print(f"up to {n_maps} maps of {d} areas, {said(rounds)}; expected 2 to 20; leroux, {drawn}")
    with tempfile.TemporaryDirectory() as folder:
        prior = built(Path(folder) / "map", areas, pairs)
        hits: dict[float | None, list[float]] = {spent: [] for spent in (None, *EPSILON)}
        widths: dict[float | None, list[float]] = {spent: [] for spent in hits}
        for n in range(n_maps):
            random = np.random.default_rng([7, n])
            phi, scale = (0.8, 0.6) if fixed else (float(PHI.quantile(random.random(1))[0]), abs(random.standard_normal()))
            root = np.linalg.cholesky(np.linalg.inv((1 - phi) * np.eye(d) + phi * structure))
            truth = np.exp(0.3 + scale * (root @ random.normal(size=d)))
            expected = random.uniform(2, 20, d)
            y = random.poisson(expected * truth)
            made = [(name, of, int(y[i]), float(expected[i])) for i, (name, of, *_) in enumerate(areas)]
            for spent in hits:
                found = fitted(Path(folder) / f"{spent}-{n}", prior, made, None if spent is None else {"epsilon": spent}, rounds)
                low, high = (numbers(found, made, f"rate_{end}") for end in ("q05", "q95"))
                hits[spent].append(float(((low < truth) & (truth < high)).mean()))
                widths[spent].append(float(np.log(high / low).mean()))
                shutil.rmtree(Path(folder) / f"{spent}-{n}")
            if (n + 1) % 10 == 0 or n + 1 == n_maps:
                for spent, inside in hits.items():
                    at, error = "open" if spent is None else f"epsilon {spent:g}", np.std(inside, ddof=1) / np.sqrt(n + 1)
                    print(
                        f"  {at:12} {n + 1:3} maps: 90 % intervals cover {np.mean(inside):.3f} (se {error:.3f}), log width "
                        f"{np.mean(widths[spent]):.2f}",
                        flush=True,
                    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--maps", type=int, default=40)
    parser.add_argument("--only", choices=("maps", "coverage"))
    parser.add_argument("--inference", choices=("nested", "hmc"), default="nested")
    parser.add_argument("--fixed", action="store_true")
    o = parser.parse_args()
    if o.only != "coverage":
        of_data(o.rounds if o.inference == "hmc" else None)
    if o.only != "maps":
        coverage(o.maps, o.rounds * 3 // 5 if o.inference == "hmc" else None, o.fixed)


if __name__ == "__main__":
    main()
