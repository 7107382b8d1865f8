"""What the reproductions of the sparse models share: jobs, and what is read from their summaries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkern.results import selection
from fedkern.results.gaussian import comparable
from fedkern.results.plain import real
from fedkern.results.verdict import LEGEND, MARK

from . import common
from .common import Array, Json, Tables, write_csv

Parameters = Mapping[str, Mapping[str, float]]


def run_once(folder: Path, job: Tables) -> Json:
    """`common.run_once`, which says how the chains have mixed."""
    summary = common.run_once(folder, job)
    print(f"{folder.name}: {converged(summary)}", flush=True)
    return summary


def job(kind: str, data: Json, rounds: int, *, chains: int = 4, seed: int = 1, **sections: Json) -> Tables:
    """Tables of a sparse job; a fifth of the rounds, and at most 500, are burn-in."""
    tables: dict[str, Json] = {"job": {"method": "sparse", "seed": seed, "rounds": rounds}, "data": data, "model": {"kind": kind}}
    # The data are published: the same bits again are worth more than random numbers that nobody else has.
    tables |= {"algorithm": {"chains": chains, "burn_in": min(500, rounds // 5), "random_source": "keyed"}}
    return tables | {name: tables.get(name, {}) | keys for name, keys in sections.items()}


def write_sites(folder: Path, sites: Mapping[str, Mapping[str, Array]]) -> list[str]:
    """One csv file for each site; the paths, in the sites' order. Missing values are empty cells."""
    return [write_csv(folder / f"{site}.csv", columns) for site, columns in sites.items()]


def verdicts(runs: Mapping[str, Json]) -> str:
    """What a table begins with: whether its runs have converged."""
    text = common.verdicts({name: run.get("verdict", common.UNKNOWN) for name, run in runs.items()})
    return text + f"\n{LEGEND}. After the name of a run: it has not converged.\n"


def judged(graph: Json) -> Array | None:
    """(p, p) own R-hats of a graph's edges, where the run had them."""
    return np.array(graph["rhat"], dtype=np.float64) if "rhat" in graph else None


def starred(edge: selection.Edge) -> str:
    """A pair's name, with the mark if it bears one."""
    return f"{edge.to} - {edge.source}{MARK if edge.is_doubtful else ''}"


def star(names: Iterable[str], run: Json) -> str:
    """The mark, if one of these has not converged in a run."""
    return MARK if set(names) & set(run.get("unsettled", ())) else ""


def named(run: str, summary: Json) -> str:
    """A run's name as a table has it in a row: with the mark, unless it has converged."""
    return run if summary.get("converged") is True else f"{run}{MARK}"


def converged(summary: Json) -> str:
    """How the chains have mixed, in one sentence."""
    s = summary["sampler"]
    mixed = "not judged: no ArviZ"
    if "rhat" in s:
        mixed = f"R-hat at most {s['rhat']:.3f}, ESS at least {s['ess']:.0f} ({s['slowest']})"
    text = f"{s['chains']} chains of {s['kept']} kept draws, {mixed}"
    if "by_mode" in summary:
        first = len(summary["by_mode"][0]["chains"])
        text += f"; the chains disagree, and numbers are those of the {first} in the largest mode"
    return text


def standardised(parameters: Parameters, kind: str) -> dict[str, Mapping[str, float]]:
    """Name -> numbers of all `theta` or all `average` on the standardised scale; sites' own are left out."""
    rows = comparable(parameters) if kind == "theta" else _averages(parameters)
    starts = (f"{kind}_std[", f"{kind}[")
    return {name[name.index("[") + 1 : -1]: row for name, row in rows.items() if name.startswith(starts) and name.endswith("]")}


def _averages(parameters: Parameters) -> dict[str, Mapping[str, float]]:
    both = {name: row for name, row in parameters.items() if name.startswith(("average[", "average_std["))}
    return {n: row for n, row in both.items() if n.startswith("average_std") or n.replace("average[", "average_std[") not in both}


def interval(row: Mapping[str, float], digits: int = 3) -> str:
    """The mean with its 90 % interval."""
    mean, low, high = (f"{real(row[key]):.{digits}f}" for key in ("mean", "q05", "q95"))
    return f"{mean} ({low}, {high})"


def pip_with_error(row: Mapping[str, Any]) -> str:
    """The PIP and its Monte-Carlo standard error, where that is known."""
    return f"{real(row['pip']):.3f}" + (f" ± {real(row['pip_mcse']):.3f}" if "pip_mcse" in row else "")


def pairs_at(symmetric: Array, level: float) -> NDArray[np.bool_]:
    """(p, p) pairs in the Bayesian FDR set of symmetric probabilities; each counts once."""
    upper = np.where(np.triu(np.ones(symmetric.shape, dtype=bool), 1), symmetric, np.nan)
    inside = selection.fdr_set(upper, level)
    return np.asarray(inside | inside.T)
