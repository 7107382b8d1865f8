"""Cyclic structural equation model of protein signalling under nine conditions, against two published networks.

Conditions are the clients (docs/spec/sparse.md, section 16). Edges are scored by their PIPs against the two published
networks, beside the same model on the pooled cells and on each condition alone. The conditions are interventions (inhibitors
and activators of some of the proteins), which the model does not know: a part of what is between clients is that.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedkern.data.sets import sachs
from fedkern.results import chains, graphs, selection
from fedkern.results.plain import real
from fedkern.results.verdict import MARK

from .common import Array, Json, Value, table
from .sparse import converged, job, judged, named, pairs_at, run_once, standardised, starred, verdicts, write_sites

ROUNDS, FAST = 2500, 120
LEVEL, SURE = 0.1, 0.95
CELLS = 100  # of each condition in a fast run


def run(out: Path, fast: bool = False, seed: int = 1) -> Path:
    """Runs the jobs that `out` does not hold yet, and writes the table and the figures.

    Parameters
    ----------
    out : folder for the runs, table.md, pip.png, graph.png, pairs.png and average.png
    fast : few rounds, the first 100 cells of each condition, two chains, and only three conditions alone
    seed : of the jobs; of several, the first

    Returns
    -------
    the table's path
    """
    out.mkdir(parents=True, exist_ok=True)
    sites = sachs.read()
    if fast:
        sites = {name: {node: values[:CELLS] for node, values in columns.items()} for name, columns in sites.items()}
    paths = write_sites(out / "data", sites)
    together = {node: np.concatenate([columns[node] for columns in sites.values()]) for node in sachs.NODES}
    pooled = write_sites(out / "pooled-data", {"all": together})
    rounds, n_chains = (FAST, 2) if fast else (ROUNDS, 4)

    def done(folder: str, files: list[str]) -> Json:
        asked = job("sem", {"clients": files}, rounds, chains=n_chains, seed=seed, output={"fdr": LEVEL})
        return chains.largest(run_once(out / folder, asked))

    federated = done("federated", paths)
    runs = {"federated": federated, "pooled cells": done("pooled", pooled)}
    for name, path in list(zip(sites, paths))[: 3 if fast else None]:
        runs[f"{name} alone"] = done(f"alone-{name}", [path])
    _figures(out, federated)
    (out / "table.md").write_text("\n".join([verdicts(runs), *_text(runs)]), encoding="utf-8")
    return out / "table.md"


def averages(summary: Json, key: str) -> Array:
    """(11, 11) a number of the site averages of all edges, [to, from]."""
    average = standardised(summary["parameters"], "average")
    values = [real(average[name][key]) for name in selection.edge_names(sachs.NODES)]
    return selection.matrix(values, len(sachs.NODES))


def scores(directed: Array, pairs: Array, network: frozenset[tuple[str, str]]) -> dict[str, float]:
    """AUROC and AUPRC of scores (11, 11) of directed edges, and of those of pairs."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    truth, off = sachs.adjacency(network) > 0, ~np.eye(len(sachs.NODES), dtype=bool)
    upper = np.triu(off)
    linked = (truth | truth.T)[upper]
    return {
        "AUROC": roc_auc_score(truth[off], directed[off]),
        "AUPRC": average_precision_score(truth[off], directed[off]),
        "AUROC, pairs": roc_auc_score(linked, pairs[upper]),
        "AUPRC, pairs": average_precision_score(linked, pairs[upper]),
    }


def _text(runs: dict[str, Json]) -> list[str]:
    parts = []
    for label, network in sachs.NETWORKS.items():
        truth = sachs.adjacency(network) > 0
        heads: list[str] = []
        rows: list[list[Value]] = []
        for name, summary in runs.items():
            of_run = scores(np.array(summary["graph"]["pip"]), np.array(summary["graph"]["either"]), network)
            edges = [(e["source"], e["to"]) for e in summary["graph"]["edges"]]
            right = sum(edge in network for edge in edges)
            turned = sum((to, source) in network and (source, to) not in network for source, to in edges)
            heads = ["run", *of_run, f"edges at FDR {LEVEL:g}", "in the network", "reversed"]
            rows.append([named(name, summary), *of_run.values(), len(edges), right, turned])
            if name in ("federated", "pooled cells"):
                size = np.abs(averages(summary, "mean"))
                by_size = scores(size, selection.symmetrise(size), network)
                rows.append([named(f"{name}, by abs average", summary), *by_size.values(), "", "", ""])
        p = len(sachs.NODES)
        base = f"{truth.sum() / (p * (p - 1)):.3f} and {(truth | truth.T).sum() / (p * (p - 1)):.3f}"
        parts += [f"## Against the {label} network, {len(network)} arcs\n", table(heads, rows)]
        parts.append(f"Guessing has AUROC 0.5, and AUPRC {base} (pairs).\n")
    federated = runs["federated"]
    pairs = skeleton(federated)
    parts += [
        f"## Pairs of the federated run, FDR {LEVEL:g}: an edge in at least one direction\n",
        table(("pair", "probability", "learned", "consensus"), [_pair(edge) for edge in pairs]),
        f"## Edges of the federated run, FDR {LEVEL:g}\n",
        f"{converged(federated)}. {federated['selection']['text']}.\n",
        table(("edge", "effect (standardised)", "PIP", "learned", "consensus"), [_edge(e) for e in federated["graph"]["edges"]]),
        f"## Edges whose site average exceeds 0.2 with probability > {SURE:g}\n",
        table(("edge", "site average", "P(abs > 0.2)", "learned", "consensus"), [_edge(vars(edge)) for edge in sure(federated)]),
        "## Modes of the federated run\n",
        "Draws by the signs of their strong coefficients; chains that stay in different modes have not converged.\n",
        _modes(federated),
    ]
    return parts


def skeleton(summary: Json) -> list[selection.Edge]:
    """Pairs that have an edge in at least one direction, at the Bayesian FDR; signed by the larger of the two site averages."""
    either, mean = np.array(summary["graph"]["either"]), averages(summary, "mean")
    larger = np.where(np.abs(mean) >= np.abs(mean.T), mean, mean.T)
    pairs = graphs.undirected(larger, pairs_at(either, LEVEL), sachs.NODES, either, judged(summary["graph"]))
    return sorted(pairs, key=lambda edge: -edge.pip)


def _pair(edge: selection.Edge) -> list[Value]:
    in_networks = ["yes" if {(edge.to, edge.source), (edge.source, edge.to)} & n else "" for n in sachs.NETWORKS.values()]
    return [starred(edge), edge.pip, *in_networks]


def sure(summary: Json) -> list[selection.Edge]:
    """Edges whose site average is surely large, with its mean and that probability."""
    mean, large, rhat = averages(summary, "mean"), averages(summary, "p_large"), judged(summary["graph"])
    nodes, edges = sachs.NODES, []
    for i, j in np.argwhere(large > SURE):
        own = None if rhat is None else selection.known(rhat[i, j])
        edges.append(selection.Edge(nodes[i], nodes[j], float(mean[i, j]), float(large[i, j]), rhat=own))
    return sorted(edges, key=lambda edge: -abs(edge.mean))


def _edge(edge: Json) -> list[Value]:
    arc, back = (edge["source"], edge["to"]), (edge["to"], edge["source"])
    in_networks = ["yes" if arc in n else "reversed" if back in n else "" for n in sachs.NETWORKS.values()]
    found = selection.Edge.of(edge)
    return [f"{found.name}{MARK if found.is_doubtful else ''}", real(edge["mean"]), real(edge["pip"]), *in_networks]


def _modes(summary: Json) -> str:
    modes = summary.get("modes", [])
    varying = [name for name in (modes[0]["signs"] if modes else ()) if len({mode["signs"][name] for mode in modes}) > 1]
    rows = []
    for mode in modes[:8]:
        shares = ", ".join(f"{share:.2f}" for share in mode["of_chains"])
        signs = ", ".join(f"{name} {'-0+'[int(mode['signs'][name]) + 1]}" for name in varying[:12])
        rows.append([mode["share"], shares, signs])
    return table(("share of draws", "of each chain", "signs that differ between modes"), rows)


def _figures(out: Path, summary: Json) -> None:
    graph = summary["graph"]
    nodes = graph["nodes"]
    graphs.heat_map(np.array(graph["pip"]), nodes, "PIPs, nine conditions", rhat=judged(graph)).savefig(out / "pip.png", dpi=150)
    edges = list(map(selection.Edge.of, graph["edges"]))
    graphs.network(edges, nodes, f"directed graph, FDR {LEVEL:g}: {len(edges)} edges").savefig(out / "graph.png", dpi=150)
    pairs = skeleton(summary)
    title = f"pairs with an edge in either direction, FDR {LEVEL:g}: {len(pairs)}"
    graphs.network(pairs, nodes, title, directed=False).savefig(out / "pairs.png", dpi=150)
    large = sure(summary)
    title = f"edges whose site average exceeds 0.2, probability > {SURE:g}: {len(large)}"
    graphs.network(large, nodes, title).savefig(out / "average.png", dpi=150)
