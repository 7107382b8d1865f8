"""Measures a description of columns: processor time and bytes, and how near its numbers are to those of pooled rows.

    python benchmarks/describe.py > benchmarks/results/describe.txt

Five clients have 100,000 rows of 30 columns each: 24 of numbers, of which some lack cells, and six of few values. Numbers are
compared with NumPy's of all rows: means and standard deviations in standard errors of theirs, quartiles in bins beyond the told
ones.
"""

from __future__ import annotations

import re
import time

import numpy as np

import fedkern

CLIENTS, ROWS, NUMBERS, FACTORS = 5, 100_000, 24, 6


def rows(seed: int) -> dict[str, np.ndarray]:
    """The columns of one client."""
    random = np.random.default_rng(seed)
    table: dict[str, np.ndarray] = {}
    for j in range(NUMBERS):
        values = random.normal(10 * j, 1 + j, ROWS) if j % 3 else random.gamma(2 + j, 3.0, ROWS)
        values[random.random(ROWS) < 0.02 * (j % 4 == 1)] = np.nan
        table[f"x{j}"] = values
    for j in range(FACTORS):
        table[f"f{j}"] = random.integers(0, 2 + j, ROWS).astype(np.float64)
    return table


def main() -> None:
    """Prints a row for each level."""
    data = {f"site{k}": rows(k) for k in range(CLIENTS)}
    fedkern.describe({name: {column: values[:100] for column, values in one.items()} for name, one in data.items()})  # imports
    print(f"{CLIENTS} clients, {ROWS:,} rows, {NUMBERS + FACTORS} columns; fedkern {fedkern.__version__}")
    print(f"{'level':<10}{'CPU s':>8}{'MB sent':>9}{'mean, se':>10}{'sd, se':>8}{'quantiles, bins':>17}")
    for level in ("standard", "strict"):
        for correlations in (True, False):
            began = time.process_time()
            job = {"job": {"method": "describe"}, "model": {"correlations": correlations}, "disclosure": {"level": level}}
            result = fedkern.run(job, data=data)
            seconds = time.process_time() - began
            sent = sum(way["to_server"]["bytes"] for way in result.summary["wire"].values()) / 1e6
            off = np.array([errors(result, data, f"x{j}") for j in range(NUMBERS)]).max(axis=0)
            name = level if correlations else f"{level} *"
            print(f"{name:<10}{seconds:>8.2f}{sent:>9.2f}{off[0]:>10.3f}{off[1]:>8.3f}{off[2]:>17.2f}")
    print("* without correlations. Columns of errors: the largest of 24 columns of numbers.")


def errors(result: fedkern.Result, data: dict[str, dict[str, np.ndarray]], name: str) -> tuple[float, float, float]:
    """How far mean, standard deviation and quartiles of a column are from those of all rows."""
    values = np.concatenate([np.asarray(one[name]) for one in data.values()])
    values = values[~np.isnan(values)]
    told = [row for row in result.summary["describe"]["rows"] if row["column"] == name and not row["client"]]
    first, error = told[0], values.std(ddof=1) / len(values) ** 0.5
    widths = [row["to"] - row["from"] for row in told[1:] if None not in (row["from"], row["to"])]
    off = 0.0
    for key, share in (("q25", 0.25), ("median", 0.5), ("q75", 0.75)):
        quartile = np.quantile(values, share)
        if first[key] is None:  # a bin, or several: 0 where they have the quartile
            ends = dict(re.findall(r"(from|below) (\S+)", first[f"{key}_in"]))
            beyond = max(float(ends.get("from", "-inf")) - quartile, quartile - float(ends.get("below", "inf")), 0.0)
        else:
            beyond = abs(first[key] - quartile)
        off = max(off, beyond / max(widths))
    return abs(first["mean"] - values.mean()) / error, abs(first["sd"] - values.std(ddof=1)) / (error / 2**0.5), off


if __name__ == "__main__":
    main()
