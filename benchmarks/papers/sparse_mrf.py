"""Markov random field of breast cancer proteins at seven sites: 11 proteins, and all 217.

Seven hospitals (docs/spec/sparse.md, section 16): the eleven proteins of the paper, and all that were measured.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedkern.algorithms.gibbs.pooled import COLLINEAR
from fedkern.data.sets import rppa
from fedkern.results import graphs, selection
from fedkern.results.diagnostics import MARKED
from fedkern.results.plain import real
from fedkern.results.selection import Edge
from fedkern.results.verdict import MARK

from .common import Array, Json, Value, table
from .sparse import converged, job, judged, pairs_at, run_once, standardised, star, starred, verdicts, write_sites

Bools = NDArray[np.bool_]

ROUNDS, FAST, WHOLE = 2500, 300, 1200
LEVEL, MOST = 0.1, 120  # MOST: pairs that are drawn
FEWER = "†"  # the mark of an edge with fewer effective draws than `WANTED`
UNSURE, WANTED = (0.05, 0.95), 100.0  # PIPs of edges that must be known well; effective draws for that
EITHER, SHOWN = (0.1, 0.6, 1.4), 20  # least PIP of each of two, and between what their sum is in every chain: alternatives

# Every site's sufficient statistics are at the server, which moves all chains; they begin in two kinds of places.
FEW: Json = {"statistics": "pooled", "starts": "both"}
MOVES: Json = FEW | {"moves": ["translate", "interweave", "exchange"], "block": [432, 96], "second_every": 3}


def run(out: Path, fast: bool = False, seed: int = 1) -> Path:
    """Runs the jobs that `out` does not hold yet, and writes the table and the figures.

    Parameters
    ----------
    out : folder for the runs, table.md and, for each network, pip.png and graph.png
    fast : the eleven proteins alone, fewer rounds, and no runs without a site
    seed : of the jobs; of several, the first

    Returns
    -------
    the table's path
    """
    out.mkdir(parents=True, exist_ok=True)
    rppa.read()
    few = network(out, "eleven", FAST if fast else ROUNDS, whole=False, leave_one_out=not fast, seed=seed)
    runs = {"eleven proteins": few}
    parts = ["## Eleven proteins, seven sites\n", _described(few), _mixed(few), _edges(few)]
    if not fast:
        parts += ["## Stability: the larger PIP of these pairs without one site\n", _stability(few)]
        runs["all 217"] = whole = network(out, "whole", WHOLE, whole=True, leave_one_out=False, seed=seed)
        parts += ["## All 217 proteins\n", _described(whole), _cost(out / "whole"), _mixed(whole), _edges(whole)]
        parts += ["## Of two collinear proteins, either explains a third\n", _alternatives(whole, rppa.read(whole=True))]
    (out / "table.md").write_text("\n".join([verdicts(runs), *parts]), encoding="utf-8")
    return out / "table.md"


def network(out: Path, name: str, rounds: int, *, whole: bool, leave_one_out: bool, seed: int = 1) -> Json:
    """One job, its time and memory, and its two figures."""
    data = {"clients": write_sites(out / f"{name}-data", rppa.read(whole=whole))}
    # Four chains of every regression: own indicators, own eta and rho, as in the paper.
    asked = job(
        "mrf", data, rounds, seed=seed, output={"leave_one_out": leave_one_out, "fdr": LEVEL}, algorithm=MOVES if whole else FEW
    )
    before = time.perf_counter()
    fresh = not (out / name / "summary.json").exists()
    summary = run_once(out / name, asked)
    if fresh:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        spent = {"seconds": time.perf_counter() - before, "peak_MiB": peak}
        (out / name / "cost.json").write_text(json.dumps(spent) + "\n", encoding="utf-8")
    graph = summary["graph"]
    nodes, pip = graph["nodes"], np.array(graph["pip"])
    title = f"PIPs of {len(nodes)} proteins, seven sites"
    graphs.heat_map(pip, nodes, title, rhat=judged(graph)).savefig(out / f"{name}-pip.png", dpi=150)
    edges = likely(graph)
    drawn = f"the {MOST} surest of {len(edges)} pairs" if len(edges) > MOST else f"pairs: {len(edges)}"
    figure = graphs.network(edges[:MOST], nodes, f"union graph, PIP > 0.5: {drawn}", directed=False)
    figure.savefig(out / f"{name}-graph.png", dpi=150)
    return summary


def _described(summary: Json) -> str:
    graph, p = summary["graph"], len(summary["graph"]["nodes"])
    counts = [int(pairs_at(np.array(graph[rule]), LEVEL).sum()) // 2 for rule in ("or", "and")]
    pips = np.array(graph["pip"])[~np.eye(p, dtype=bool)]
    return (
        f"{p} regressions; {converged(summary)}. Edges at a false discovery rate of {LEVEL:g}: {len(graph['edges'])} directed, "
        f"{counts[0]} in the union graph (or), {counts[1]} in the intersection (and), of {p * (p - 1) // 2} pairs. "
        f"PIPs: median {np.median(pips):.3f}, {np.mean(pips > 0.5):.1%} above 0.5.\n"
    )


def _unsure(summary: Json) -> Bools:
    """(p, p) Edges to which any chain gives a PIP that is neither near 0 nor near 1."""
    by_chain = np.array(summary["graph"]["pip_by_chain"])
    unsure: Bools = ((by_chain > UNSURE[0]) & (by_chain < UNSURE[1])).any(axis=0) & ~np.eye(by_chain.shape[1], dtype=bool)
    return unsure


def _effective(summary: Json) -> Array:
    """(p, p) The smaller ESS of an edge's coefficient and of its PIP; NaN where the summary does not list the edge."""
    nodes, rows = summary["graph"]["nodes"], standardised(summary["parameters"], "theta")
    ess = np.full((len(nodes), len(nodes)), np.nan)
    for i, to in enumerate(nodes):
        for j, source in enumerate(nodes):
            row = rows.get(Edge(to, source, 0.0, 0.0).name, {})
            if "ess" in row:
                ess[i, j] = min(row["ess"], row.get("pip_ess", np.inf))
    return ess


def _mixed(summary: Json) -> str:
    """How many of the edges that any chain is unsure of are known as well as one would want."""
    if (rhat := judged(summary["graph"])) is None:
        return ""
    unsure, ess = _unsure(summary), _effective(summary)
    agreed = unsure & (rhat <= MARKED)
    n, agree, known = int(unsure.sum()), int(agreed.sum()), int((agreed & (ess >= WANTED)).sum())
    unlisted = int((unsure & np.isnan(ess)).sum())
    return (
        f"Of the {n} directed edges to which any chain gives a PIP between {UNSURE[0]:g} and {UNSURE[1]:g}, {agree} "
        f"({agree / max(n, 1):.0%}) have an R-hat of at most {MARKED:g}, and {known} ({known / max(n, 1):.0%}) also "
        f"{WANTED:g} effective draws"
        + (f" (of {unlisted} with small PIPs the summary has no ESS; they count as without)" if unlisted else "")
        + f". {FEWER} after an ESS: one of these edges, and fewer.\n"
    )


def _alternatives(summary: Json, sites: Mapping[str, Mapping[str, Array]]) -> str:
    """Modes: columns whose correlation within sites is above `COLLINEAR`, one of which is in where the other is out."""
    graph, nodes = summary["graph"], summary["graph"]["nodes"]
    pip, by_chain, rhat = (np.array(graph[name], dtype=np.float64) for name in ("pip", "pip_by_chain", "rhat"))
    Z = [np.column_stack([site[name] for name in nodes]) for site in sites.values()]
    correlation = np.corrcoef(np.vstack([z - z.mean(axis=0) for z in Z]).T)
    found = []
    for h, k in zip(*np.nonzero(np.triu(np.abs(correlation) > COLLINEAR, 1))):
        for j in range(len(nodes)):
            both, sums = pip[j, [h, k]], by_chain[:, j, h] + by_chain[:, j, k]
            unsure = EITHER[0] < both.min() and both.max() < UNSURE[1]
            if j not in (h, k) and unsure and EITHER[1] < sums.min() and sums.max() < EITHER[2]:
                found.append((float(both.min()), j, h, k))

    def chains(j: int, h: int) -> str:
        return f"{nodes[h]}{MARK * bool(rhat[j, h] > MARKED)}: " + ", ".join(f"{one:.2f}" for one in by_chain[:, j, h])

    rows: list[list[Value]] = [
        [nodes[j], chains(j, h), chains(j, k), float(correlation[h, k])] for _, j, h, k in sorted(found, reverse=True)[:SHOWN]
    ]
    heads = ("explained", "by, PIP of each chain", "or by", "correlation of the two")
    return f"The {len(rows)} clearest of {len(found)}.\n\n{table(heads, rows)}" if rows else "None.\n"


def likely(graph: Json) -> list[selection.Edge]:
    """Pairs whose larger PIP exceeds 0.5, by falling PIP; the mean is that of the partial correlation."""
    either, weights = np.array(graph["or"]), np.array(graph["partial_correlation"])
    edges = graphs.undirected(weights, either > 0.5, graph["nodes"], either, judged(graph))
    return sorted(edges, key=lambda edge: -edge.pip)


def _edges(summary: Json) -> str:
    """Pairs with a PIP above 0.5, the 40 surest of them."""
    graph = summary["graph"]
    pip, inside = np.array(graph["pip"]), pairs_at(np.array(graph["or"]), LEVEL)
    ess, unsure = _effective(summary), _unsure(summary)
    averages = standardised(summary["parameters"], "average")
    place = {name: j for j, name in enumerate(graph["nodes"])}
    heads = ["pair", "PIP, first on second", "second on first", f"FDR {LEVEL:g}, or", "partial correlation", "ESS of both"]
    heads += ["site averages", "P(abs > 0.2)"] if averages else []
    rows: list[list[Value]] = []
    edges = likely(graph)
    for edge in edges[:40]:
        i, j = place[edge.to], place[edge.source]
        row: list[Value] = [starred(edge), float(pip[i, j]), float(pip[j, i])]
        row += ["yes" if inside[i, j] else "", edge.mean]
        row += [", ".join(f"{ess[at]:.0f}{FEWER * bool(unsure[at] and not ess[at] >= WANTED)}" for at in ((i, j), (j, i)))]
        if averages:
            both = [averages[name] for name in _directions(edge)]
            row += [", ".join(f"{real(one[key]):.2f}" for one in both) for key in ("mean", "p_large")]
        rows.append(row)
    few = f"The 40 surest of {len(edges)}.\n\n" if len(edges) > len(rows) else ""
    return f"{few}{table(heads, rows)}" if rows else f"{summary['selection']['text']}.\n"


def _directions(edge: selection.Edge) -> tuple[str, str]:
    """A pair's two coefficients: the first explained by the second, and the other way round."""
    return edge.name, replace(edge, to=edge.source, source=edge.to).name


def _stability(summary: Json) -> str:
    """How sure a likely pair stays when each site is left out."""
    graph, left = summary["graph"], summary["leave_one_out"]
    rows: list[list[Value]] = []
    for edge in likely(graph):
        names = _directions(edge)
        without = [f"{max(real(one['pip'][name]) for name in names):.3f}{star(names, one)}" for one in left.values()]
        rows.append([starred(edge), edge.pip, *without])
    new = []
    for site, one in left.items():
        either = selection.symmetrise(selection.matrix([*map(real, one["pip"].values())], len(graph["nodes"])))
        count = int(np.triu((either > 0.5) & (np.array(graph["or"]) <= 0.5), 1).sum())
        new.append(f"{site} {count}")
    return table(("pair", "all sites", *left), rows) + f"\nOther pairs above 0.5 without a site: {', '.join(new)}.\n"


def _cost(folder: Path) -> str:
    path = folder / "cost.json"
    if not path.exists():
        return ""
    spent = json.loads(path.read_text(encoding="utf-8"))
    return f"{spent['seconds'] / 60:.1f} minutes, peak memory of the process {spent['peak_MiB']:.0f} MiB.\n"
