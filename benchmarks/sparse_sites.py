"""Figures of docs/develop/measured.md on sites: intervals of a meta-analysis, the odd site, and centres of structural equations.

    python benchmarks/sparse_sites.py

It takes about two minutes of one core. "before": DerSimonian and Laird with normal intervals; P(|theta_k - theta| > 0.3); columns
about their means.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtri

import fedkern
from fedkern.results.meta import combine

FEDERATIONS, TRUTH, LEVEL = 20_000, 0.4, 0.9
SEEDS = range(8)


def before(b: Any, se: Any) -> tuple[Any, Any]:
    """DerSimonian and Laird's average and its error."""
    weight = se**-2
    fixed = (weight * b).sum(axis=0) / weight.sum(axis=0)
    q = (weight * (b - fixed) ** 2).sum(axis=0)
    tau_sq = np.maximum(0, (q - (len(b) - 1)) / (weight.sum(axis=0) - (weight**2).sum(axis=0) / weight.sum(axis=0)))
    random = 1 / (se**2 + tau_sq)
    return (random * b).sum(axis=0) / random.sum(axis=0), random.sum(axis=0) ** -0.5


def coverage() -> None:
    print("coverage of 90 % intervals of a meta-analysis: sites, sd between them, before, after")
    for sites in (3, 5, 10):
        for between in (0.0, 0.2, 0.4):
            random = np.random.default_rng(sites)
            se = 0.2 * np.exp(0.5 * random.normal(size=(sites, FEDERATIONS)))
            b = TRUTH + np.hypot(between, se) * random.normal(size=se.shape)
            mean, error = before(b, se)
            low, high = combine(b, se).interval(LEVEL)
            inside = np.mean(np.abs(mean - TRUTH) < ndtri(0.5 + LEVEL / 2) * error), np.mean((low < TRUTH) & (high > TRUTH))
            print(f"  {sites:2d}  {between:.1f}  {inside[0]:.3f}  {inside[1]:.3f}", flush=True)


def written(folder: Path, names: str, sites: list[Any]) -> list[str]:
    folder.mkdir()
    for k, rows in enumerate(sites):
        lines = [",".join(repr(float(x)) for x in row) for row in rows]
        (folder / f"site-{k}.csv").write_text("\n".join([names, *lines]) + "\n")
    return [str(folder / f"site-{k}.csv") for k in range(len(sites))]


def odd_site(folder: Path) -> None:
    """Three sites near 0.4 and one at 0: theta is now in the slab and now in the spike."""
    found = []
    for seed in SEEDS:
        random, sites = np.random.default_rng(seed), []
        for effect, n in zip((0.35, 0.45, 0.4, 0.0), (60, 90, 120, 60)):
            X = random.normal(size=(n, 2))
            sites.append(np.column_stack([X, X @ [effect, 0.0] + 0.6 * random.normal(size=n)]))
        data = {"clients": written(folder / f"odd-{seed}", "a,b,y", sites), "response": "y"}
        job = {"job": {"method": "sparse", "rounds": 800, "seed": seed}, "data": data, "output": {"delta": 0.3}}
        own = fedkern.run({**job, "algorithm": {"share_local": True}}).parameters
        row = own.get("theta_std[a]@site-3", own["theta[a]@site-3"])
        found.append((row["p_deviates"], row["p_differs"]))
    print(f"the odd site differs, means of {len(found)} federations: before, after")
    print("  {:.3f}  {:.3f}".format(*np.mean(found, axis=0)), flush=True)


def centres(folder: Path) -> None:
    """One effect of 0.5 between two nodes, errors with a heavy and long right tail: where a mean is a poor centre."""
    coefficients = {"mean": list[tuple[float, float]](), "sample": list[tuple[float, float]]()}
    for seed in SEEDS:
        random = np.random.default_rng(100 + seed)
        sites = []
        for _ in range(4):
            e = random.exponential(size=(25, 2)) ** 2
            sites.append(np.column_stack([e[:, 0], 0.5 * e[:, 0] + e[:, 1]]))
        data = {"clients": written(folder / f"sem-{seed}", "a,b", sites)}
        for centre, rows in coefficients.items():
            job = {"job": {"method": "sparse", "rounds": 1500, "seed": seed}, "data": data}
            found = fedkern.run({**job, "model": {"kind": "sem", "centre": centre, "scale": "none", "stable": True}})
            row = found.parameters["average[a -> b]"]
            rows.append((row["mean"], row["sd"]))
    print("structural equations, skewed errors, effect 0.5: root mean square error of the site average, mean posterior sd")
    for centre, rows in coefficients.items():
        mean, sd = np.transpose(rows)
        print(f"  centre = {centre:6}  {np.sqrt(np.mean((mean - 0.5) ** 2)):.3f}  {sd.mean():.3f}", flush=True)


if __name__ == "__main__":
    coverage()
    with tempfile.TemporaryDirectory() as name:
        odd_site(Path(name))
        centres(Path(name))
