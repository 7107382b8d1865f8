"""How far the numbers that `describe` tells are from those of pooled rows: R's data of `survival`, and `channing` of `boot`,
where rows enter late, divided among clients.

    python benchmarks/describe_figures.py [--only public private]

Mean and sd in standard errors, of columns that each client may tell. Quartiles: how many lie beyond the bins that are told.
A curve in intervals: 0 where its value at an end is one that R's `survfit` takes between the ends before and after. Noisy
counts: how often a 90 % interval holds the share, or the mean, of the rows.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Callable
from io import StringIO

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri

import fedkern
from fedkern.privacy import binned

Array = NDArray[np.float64]

SETS = {  # name -> time, status, the status of an event, a group, when rows enter
    "lung": ("time", "status", 2, "sex", None),
    "colon": ("time", "status", 1, "sex", None),
    "veteran": ("time", "status", 1, "trt", None),
    "pbc": ("time", "status", 2, "sex", None),
    "channing": ("exit", "cens", 1, "sex", "entry"),
}
ROWS = {"colon": "colon[colon$etype == 2, ]", "channing": "boot::channing[boot::channing$exit > boot::channing$entry, -4]"}
CLIENTS, FEDERATIONS = 3, 2000


def from_r(code: str) -> pd.DataFrame:
    """Returns a table that R writes."""
    done = subprocess.run(["Rscript", "-e", f"library(survival); {code}"], capture_output=True, text=True, check=True)
    return pd.read_csv(StringIO(done.stdout))


def divided(rows: pd.DataFrame, seed: int) -> list[pd.DataFrame]:
    place = np.random.default_rng(seed).integers(0, CLIENTS, len(rows))
    return [rows[place == k] for k in range(CLIENTS)]


def of_numbers(rows: pd.DataFrame, result: fedkern.Result) -> tuple[int, float, float, int]:
    """Returns how many columns have a mean of all rows, the largest errors of mean and sd in standard errors, and how many
    quartiles lie beyond the bins that are told."""
    mean, sd, beyond, told = [0.0], [0.0], 0, 0
    for name in rows.select_dtypes("number").columns:
        of_column = [row for row in result.rows() if row["column"] == name and not row["client"] and not row["group"]]
        head = of_column[0] if of_column else {"mean": None}
        if head["mean"] is None:
            continue
        values, told = rows[name].dropna().to_numpy(float), told + 1
        error = values.std(ddof=1) / np.sqrt(len(values))
        mean.append(abs(head["mean"] - values.mean()) / error)
        sd.append(abs(head["sd"] - values.std(ddof=1)) / (error / np.sqrt(2)))
        for key, share in (("q25", 0.25), ("median", 0.5), ("q75", 0.75)):
            ends = dict(re.findall(r"(from|below) (\S+)", head[f"{key}_in"] or ""))
            low, high = (float(ends.get(word, end)) for word, end in (("from", "-inf"), ("below", "inf")))
            beyond += head[key] is None and not low <= np.quantile(values, share) < high
    return told, max(mean), max(sd), beyond


def of_curve(name: str, result: fedkern.Result) -> tuple[int, int, int]:
    """Returns how many values of pooled curves are told, how many are off, and by how many intervals at most."""
    time, status, positive, column, entry = SETS[name]
    times = time if entry is None else f"{entry}, {time}"
    lines: dict[str, list[dict[str, float]]] = {}
    for row in result.summary["describe"]["survival"]:
        if not row["client"]:
            lines.setdefault(row["group"], []).append(row)
    off = list[int]()
    for level, told in lines.items():
        some = f'd <- d[as.character(d${column}) == "{level}", ]; ' if level else ""
        code = f"d <- {ROWS.get(name, name)}; {some}"
        ends = ", ".join(str(row["time"]) for row in told)
        fit = f"s <- summary(survfit(Surv({times}, {status} == {positive}) ~ 1, d), times = c({ends})); "
        reference = from_r(code + fit + "write.csv(data.frame(surv = s$surv), row.names = FALSE)")["surv"].to_numpy()
        bounds = np.array([1.0, *reference, 0.0])
        for j, value in enumerate(row["survival"] for row in told):
            off.append(0 if bounds[j] >= value >= bounds[j + 2] else int(np.argmin(np.abs(bounds - value)) - j))
    return len(off), sum(map(bool, off)), max(map(abs, off), default=0)


def public() -> None:
    """Compares what is told of R's data with what R says of all rows."""
    for name, (time, status, positive, group, entry) in SETS.items():
        rows = from_r(f"write.csv({ROWS.get(name, name)}, row.names = FALSE)")
        rows = rows.dropna(subset=[time, status]).drop(columns=["id", "study"], errors="ignore")
        clients = {f"site{k}": part for k, part in enumerate(divided(rows, 1))}
        for level in ("standard", "strict"):
            given = {"time": time, "event": status, "positive": positive, "disclosure": {"level": level}, "entry": entry}
            told = [fedkern.describe(clients, **given, **by) for by in ({}, {"group": group})]
            columns, mean, sd, beyond = of_numbers(rows.drop(columns=[time, status, entry], errors="ignore"), told[0])
            each = "; ".join("{} values, {} off, at most by {}".format(*of_curve(name, one)) for one in told)
            print(
                f"{name}, {len(rows)} rows, {CLIENTS} clients, {level}: {columns} columns, mean off by at most {mean:.3f} "
                f"and sd by {sd:.3f} standard errors, {beyond} quartiles beyond their bins; one curve, and by {group}: {each}",
                flush=True,
            )


def exact(epsilon: float, share: float) -> float:
    """Returns how often the interval of one share of many rows in three cells holds it, by the noise's probabilities."""
    steps = np.arange(-60, 61)
    one = np.tanh(epsilon / 2) * np.exp(-epsilon * np.abs(steps))
    own = one
    for _ in range(CLIENTS - 1):
        own = np.convolve(own, one)
    others = np.convolve(own, own)
    mine, rest = (np.arange(len(chances)) - len(chances) // 2 for chances in (own, others))
    off = (1 - share) * mine[:, None] - share * rest
    error = np.sqrt(binned.Noise(epsilon, CLIENTS).variance * ((1 - share) ** 2 + 2 * share**2))
    return float((np.outer(own, others) * (np.abs(off) <= ndtri(0.95) * error)).sum())


def private() -> None:
    """Counts how often intervals of noisy counts hold what the rows say.

    A share is any between .05 and .95: noise of whole rows has few values, so that an interval of one share alone holds more or
    less often. A mean of values is one of counts whose rows have one value a bin, so
    that the interval is that of the noise; else half a bin stands on either side.
    """
    ends, rng = np.arange(0, 101, 5.0), np.random.default_rng(1)
    middles = np.stack([ends[:-1] + 2.5] * 2, axis=-1)
    for epsilon in (0.5, 1.0, 2.0):
        chance, noise = -np.expm1(-epsilon), binned.Noise(epsilon, CLIENTS)

        def noisy(counts: NDArray[np.int64], chance: float = chance) -> Array:
            size = (CLIENTS, len(counts))
            return np.asarray(counts + (rng.geometric(chance, size) - rng.geometric(chance, size)).sum(axis=0), float)

        inside: dict[str, list[bool]] = {name: [] for name in ("share", "mean of values", "mean", "median")}
        for _ in range(FEDERATIONS):
            n = int(rng.integers(500, 5000))
            x = np.clip(rng.gamma(9, 5, n), 0, 99.9)
            counts = np.histogram(x, ends)[0]
            seen, share = noisy(counts), rng.uniform(0.05, 0.95)
            mean, median = binned.mean(seen, noise, ends), binned.quantile(seen, noise, ends, 0.5)
            inside["mean"].append(mean.lower <= x.mean() <= mean.upper)
            inside["median"].append(median.lower <= np.median(x) <= median.upper)
            mean = binned.mean(seen, noise, middles)
            inside["mean of values"].append(mean.lower <= counts @ middles[:, 0] / n <= mean.upper)
            counts = rng.multinomial(n, [share, (1 - share) / 2, (1 - share) / 2])
            found = binned.share(noisy(counts), noise, 0)
            inside["share"].append(found.lower <= counts[0] / n <= found.upper)
        each = ", ".join(f"{name} {np.mean(held):.3f}" for name, held in inside.items())
        alone = [exact(epsilon, share) for share in np.linspace(0.05, 0.95, 181)]
        of_one = f"of one share {min(alone):.3f} to {max(alone):.3f}, on average {np.mean(alone):.3f}"
        print(f"epsilon {epsilon}, {FEDERATIONS} federations, {CLIENTS} clients: {each}; {of_one}", flush=True)


CASES: dict[str, Callable[[], None]] = {"public": public, "private": private}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=CASES, nargs="*", default=[*CASES])
    for name in parser.parse_args().only:
        CASES[name]()


if __name__ == "__main__":
    main()
