"""How far the numbers that `describe` tells are from those of pooled rows: R's data of `survival`, divided among clients.

    python benchmarks/describe_figures.py [--only public private]

Mean and sd in standard errors, of columns that each client may tell. Quartiles in bins: 0 where the bin that is told has the
quartile, 1 where it is in the next one. A curve in intervals: 0 where its value at an end is one that R's `survfit` takes between
the ends before and after. Noisy counts: how often a 90 % interval holds the share, or the mean, of the rows.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Callable, Iterator
from io import StringIO

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedkern.disclosure import cells, curves, measures
from fedkern.disclosure.rules import LEVELS, Rules
from fedkern.privacy import binned

Array = NDArray[np.float64]

SETS = {  # name -> time, status, the status of an event, a group
    "lung": ("time", "status", 2, "sex"),
    "colon": ("time", "status", 1, "sex"),
    "veteran": ("time", "status", 1, "trt"),
    "pbc": ("time", "status", 2, "sex"),
}
CLIENTS, FEDERATIONS, ENDS = 3, 200, 31


def from_r(code: str) -> pd.DataFrame:
    """Returns a table that R writes."""
    done = subprocess.run(["Rscript", "-e", f"library(survival); {code}"], capture_output=True, text=True, check=True)
    return pd.read_csv(StringIO(done.stdout))


def divided(rows: pd.DataFrame, seed: int) -> list[pd.DataFrame]:
    place = np.random.default_rng(seed).integers(0, CLIENTS, len(rows))
    return [rows[place == k] for k in range(CLIENTS)]


def of_numbers(rows: pd.DataFrame, rules: Rules) -> Iterator[tuple[float, float, float]]:
    """Yields, of each column, the errors of its mean and sd, in standard errors, and the largest of its quartiles, in bins."""
    for name in rows.select_dtypes("number").columns:
        clients = [part[name].to_numpy(float) for part in divided(rows, 1)]
        told = [measures.moments(own, rules) for own in clients]
        if any(one is None for one in told):
            continue
        every = measures.present(rows[name].to_numpy(float))
        found = measures.pooled([one for one in told if one is not None])
        error = every.std(ddof=1) / np.sqrt(len(every))
        inner = measures.ends(found.mean, found.sd)
        counts = [measures.binned(own, inner) for own in clients]
        middle, bins = len(inner) // 2, len(inner) + 1
        parts = cells.common(*(cells.join(own, rules.rows_per_value, ordered=bins, into=middle) for own in counts))
        sums, off = cells.added(np.sum(counts, axis=0), parts), []
        bounds = sorted({min(part) for part in parts if min(part) < bins})
        edges = np.array([-np.inf, *inner[[k - 1 for k in bounds[1:]]], np.inf])
        for share in (0.25, 0.5, 0.75):
            low, _ = measures.quantile(sums, parts, inner, share)
            off.append(
                abs(int(np.searchsorted(edges, low)) - int(np.searchsorted(edges, np.quantile(every, share), "right") - 1))
            )
        yield abs(found.mean - every.mean()) / error, abs(found.sd - every.std(ddof=1)) / (error / np.sqrt(2)), max(off)


def halves(times: Array) -> list[float]:
    """Returns ends of equally many rows, those that halve the rest first."""
    places = sorted(range(1, ENDS + 1), key=lambda k: (-(k & -k), k))
    every = np.quantile(times, np.arange(1, ENDS + 1) / (ENDS + 1)).round()
    return [float(every[k - 1]) for k in places]


def of_curve(name: str, rows: pd.DataFrame, rules: Rules, *, grouped: bool) -> tuple[int, int, int]:
    """Returns how many values of pooled curves are told, how many are off, and by how many intervals at most."""
    time, status, positive, column = SETS[name]
    group = column if grouped else time  # of which all is one group
    levels = sorted(rows[group].unique()) if grouped else [0]
    own = [
        (
            part[time].to_numpy(float),
            (part[status] == positive).to_numpy(float),
            np.searchsorted(levels, part[group]) if grouped else np.zeros(len(part), np.int64),
        )
        for part in divided(rows, 2)
    ]
    kept = list[float]()
    for end in halves(rows[time].to_numpy(float)):
        tried = sorted([*kept, end])
        told = [curves.curve_counts(*one, tried, rules, len(levels)) for one in own]
        if all(one is not None and len(one.ends) == len(tried) for one in told):
            kept = tried
    if not kept:
        return 0, 0, 0
    told = [curves.curve_counts(*one, kept, rules, len(levels)) for one in own]
    pooled = curves.Counts(np.array(kept), *(np.sum([one[k] for one in told if one is not None], axis=0) for k in (1, 2, 3)))
    survival, off = curves.curve(pooled).survival, list[int]()
    for g, level in enumerate(levels):
        own_level = repr(level) if isinstance(level, str) else level
        some = f"d <- d[d${group} == {own_level}, ]; " if grouped else ""
        code = f"d <- {'colon[colon$etype == 2, ]' if name == 'colon' else name}; {some}"
        ends = ", ".join(map(str, pooled.ends))
        fit = f"s <- summary(survfit(Surv({time}, {status} == {positive}) ~ 1, d), times = c({ends})); "
        reference = from_r(code + fit + "write.csv(data.frame(surv = s$surv), row.names = FALSE)")["surv"].to_numpy()
        bounds = np.array([1.0, *reference, 0.0])
        for j, value in enumerate(survival[g]):
            off.append(0 if bounds[j] >= value >= bounds[j + 2] else int(np.argmin(np.abs(bounds - value)) - j))
    return len(off), sum(map(bool, off)), max(map(abs, off))


def public() -> None:
    """Compares what is told of R's data with what R says of all rows."""
    for name in SETS:
        rows = from_r(f"write.csv({name}, row.names = FALSE)")
        rows = rows.dropna(subset=[SETS[name][0], SETS[name][1]]).drop(columns=["id", "study"], errors="ignore")
        rows = rows[rows.etype == 2] if name == "colon" else rows
        for level in ("standard", "strict"):
            numbers = np.array([*of_numbers(rows, LEVELS[level])]).reshape(-1, 3)
            mean, sd, quartile = numbers.max(axis=0, initial=0.0)
            each = (of_curve(name, rows, LEVELS[level], grouped=grouped) for grouped in (False, True))
            told = "; ".join(f"{values} values, {off} off, at most by {most}" for values, off, most in each)
            print(
                f"{name}, {len(rows)} rows, {CLIENTS} clients, {level}: {len(numbers)} columns, mean off by at most {mean:.3f} "
                f"and sd by {sd:.3f} standard errors, quartiles by {quartile:.0f} bins; one curve, and two: {told}",
                flush=True,
            )


def private() -> None:
    """Counts how often intervals of noisy counts hold what the rows say."""
    ends, rng = np.arange(0, 101, 5.0), np.random.default_rng(1)
    for epsilon in (0.5, 1.0, 2.0):
        chance, noise = -np.expm1(-epsilon), binned.Noise(epsilon, CLIENTS)

        def noisy(counts: NDArray[np.int64], chance: float = chance) -> Array:
            size = (CLIENTS, len(counts))
            return np.asarray(counts + (rng.geometric(chance, size) - rng.geometric(chance, size)).sum(axis=0), float)

        inside: dict[str, list[bool]] = {"mean": [], **{f"share of {p}": [] for p in (0.5, 0.3, 0.1)}, "median": []}
        for _ in range(FEDERATIONS):
            n = int(rng.integers(500, 5000))
            x = np.clip(rng.gamma(9, 5, n), 0, 99.9)
            seen = noisy(np.histogram(x, ends)[0])
            mean, median = binned.mean(seen, noise, ends), binned.quantile(seen, noise, ends, 0.5)
            inside["mean"].append(mean.lower <= x.mean() <= mean.upper)
            inside["median"].append(median.lower <= np.median(x) <= median.upper)
            for p in (0.5, 0.3, 0.1):
                counts = rng.multinomial(n, [p, (1 - p) / 2, (1 - p) / 2])
                found = binned.share(noisy(counts), noise, 0)
                inside[f"share of {p}"].append(found.lower <= counts[0] / n <= found.upper)
        every = np.concatenate([inside[name] for name in inside if name != "median"])
        each = ", ".join(f"{name} {np.mean(held):.3f}" for name, held in inside.items())
        print(f"epsilon {epsilon}, {FEDERATIONS} federations: shares and means {every.mean():.3f} ({each})", flush=True)


CASES: dict[str, Callable[[], None]] = {"public": public, "private": private}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=CASES, nargs="*", default=[*CASES])
    for name in parser.parse_args().only:
        CASES[name]()


if __name__ == "__main__":
    main()
