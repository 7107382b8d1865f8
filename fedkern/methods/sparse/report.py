"""Makes the report's sections of a sparse model: effects with their sites, the graph, clients that differ, and mixing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from ...results import chains, graphs, guard, loo
from ...results.page import details, figure, number, paragraph, section, table
from ...results.plain import Record, real
from ...results.report import RunFiles, Tile
from ...results.selection import Edge
from ...results.verdict import HEADS, LEGEND, MARK, is_doubtful, marked

MOST = 60  # rows of a table
MOST_EDGES = 120  # of a drawn graph
MOST_NUMBERS = 1000  # rows that unfold
MOST_MODES = 6  # of chains that disagree, with figures
NUMBERS = {
    "mean": "mean",
    "sd": "sd",
    "q05": "5 %",
    "q95": "95 %",
    "pip": "PIP",
    "pip_mcse": "its error",
    "p_positive": "P(> 0)",
    "p_large": "P(large)",
    "contrast": "less the others",
    "p_differs": "P(differs from them)",
    "p_deviates": "P(differs from theta)",
    "rhat": "R-hat",
    "ess": "ESS",
}


def sections(run: RunFiles) -> list[str]:
    """Returns the sections of a finished run."""
    summary = run.summary
    if "by_mode" in summary:
        main = _by_mode(summary["by_mode"], summary["graph"]["nodes"])
    else:
        main = _graph(summary) if "graph" in summary else [_effects(summary)]
    more = [_modes(summary), _sites(summary), _deviating(summary), _meta(summary)]
    return [*main, *more, _mixing(summary), _sensitivity(summary), loo.piece(summary), _left_out(summary), _imputed(summary)]


@guard.figure("the page's tiles", [])
def tiles(run: RunFiles) -> list[Tile]:
    """Returns the tiles at the top of the page."""
    s = run.summary["sampler"]
    mixed = [("Largest R-hat", f"{real(s['rhat']):.3f}"), ("Smallest ESS", f"{real(s['ess']):,.0f}")] if "rhat" in s else []
    return [*mixed, ("Chains", str(s["chains"]))]


@guard.figure("the page's section effects", "")
def _effects(summary: Record) -> str:
    """Draws the effects, and the coefficients of sites."""
    parameters = summary["parameters"]
    text = f"Selection: {summary['selection']['text']}."
    groups = [
        [", ".join(group["names"]), number(group["p_any"]), number(group["largest"])] for group in summary.get("groups", [])
    ]
    heads = ["hardly told apart", "P(one at least in the slab)", "largest PIP of one"]
    collinear = table(heads, groups) if groups else ""
    drawn = graphs.effects(parameters, unsure=summary.get("unsettled", ()))
    sites = "Each site's coefficients by its own rows and, through the common part, the others'. Grey intervals hold zero."
    effects = figure("Effects", drawn, text, collinear, _details(parameters))
    return effects + figure("Coefficients of sites", graphs.sites(parameters), sites)


def _details(parameters: Mapping[str, Record]) -> str:
    """Makes the table of all numbers, which unfolds."""
    shown = dict(list(parameters.items())[:MOST_NUMBERS])
    unsure = [name for name, row in shown.items() if any(is_doubtful(real(row.get(key))) for key in ("rhat", "pip_rhat"))]
    known = {key: head for key, head in NUMBERS.items() if any(row.get(key) is not None for row in shown.values())}
    rows = [[marked(name, unsure), *(_cell(row.get(key)) for key in known)] for name, row in shown.items()]
    return details("All numbers", table(["name", *known.values()], rows), _legend(unsure))


def _legend(unsure: Collection[str]) -> str:
    """Explains the mark, where one was set."""
    return paragraph(f"{LEGEND}.") if unsure else ""


def _cell(value: object) -> str:
    """Formats a number; an unknown one is empty."""
    return "" if value is None else number(real(value))


@guard.figure("the page's section by mode", [])
def _by_mode(modes: Sequence[Record], nodes: Sequence[str]) -> list[str]:
    """Shows the modes in which chains stay, where they disagree, and each one's graph and numbers."""
    n_chains = sum(len(mode["chains"]) for mode in modes)
    differ = list(modes[0]["signs"])[:MOST]
    rows, parts = [], []
    for k, mode in enumerate(modes, start=1):
        share = f"{len(mode['chains'])} of {n_chains} ({real(mode['share']):.2f})"
        label = "Moved between modes" if mode["moved"] else f"Mode {k}"
        rows.append([label, share, ", ".join(map(str, mode["chains"])), *(_effect(mode, name) for name in differ)])
        if k <= MOST_MODES:
            parts += _graph(mode, f"{label}, {len(mode['chains'])} of {n_chains} chains: ")
    warning, text = (
        "The chains disagree. They stay in different modes, so there is no mean over all of them: it would "
        "depend on how many chains each mode has caught. The notes at the end name a remedy.",
        "Site averages, or global effects where they are not known, with 90 % intervals, standardised, of the coefficients in "
        "which the modes differ.",
    )
    few = f"The first {MOST_MODES} follow; all are in summary.json." if len(modes) > MOST_MODES else ""
    heads = ["", "chains", "which", *differ]
    return [section("Modes that chains stay in", paragraph(warning, "note"), text, table(heads, rows), few), *parts]


def _effect(mode: Record, name: str) -> str:
    """Returns the mean of an edge with its interval."""
    return _interval(chains.effect(mode["parameters"], name))


@guard.figure("the page's section graph", [])
def _graph(summary: Record, title: str = "") -> list[str]:
    """Draws a graph's chosen edges and its inclusion probabilities."""
    graph = summary["graph"]
    nodes = graph["nodes"]
    edges = list(map(Edge.of, graph["edges"]))
    pip = np.array(graph["pip"], dtype=np.float64)
    rhat = np.array(graph["rhat"], dtype=np.float64) if "rhat" in graph else None
    few = f" The {MOST_EDGES} surest of {len(edges)} are drawn." if len(edges) > MOST_EDGES else ""
    level = summary["selection"]["fdr"]
    text = f"Selection: {summary['selection']['text']}.{few} Blue: positive, orange: negative."
    rows = [[e.name + MARK * e.is_doubtful, number(e.mean), number(e.pip), _cell(e.mcse), _cell(e.rhat)] for e in edges[:MOST]]
    unsure = [e.name for e in edges[:MOST] if e.is_doubtful]
    listed = [table(["edge", "effect, standardised", "PIP", "its error", "R-hat"], rows), _legend(unsure)] if rows else []
    network, heat = graphs.network(edges[:MOST_EDGES], nodes), graphs.heat_map(pip, nodes, rhat=rhat)
    heading = f"{title}Graph at a false discovery rate of {level:g}"
    drawn = figure(heading, network, text, *listed) if edges else section(heading, text)
    more = _details(summary["parameters"]) if summary["parameters"] else ""
    return [drawn, figure(f"{title}Inclusion probabilities", heat, "Rows: the node that is explained.", more)]


@guard.figure("the page's section mixing", "")
def _mixing(summary: Record) -> str:
    """Says how well the chains have mixed."""
    s = summary["sampler"]
    text = f"{s['chains']} chains, {s['kept']:,} kept draws of each after {s['burn_in']:,} rounds of burn-in. "
    if "rhat" in s:
        text += f"Largest R-hat {real(s['rhat']):.3f}, smallest effective sample size {real(s['ess']):,.0f} ({s['slowest']}). "
        text += f"The verdict: {summary['verdict']}."
    else:
        text += "No R-hat: draws are too few, or no number varies."
    counted = {"scales_clipped": "scales clipped", "qr_fallbacks": "Cholesky factors that failed"}
    counts = [f"{int(s[key]):,} {words}" for key, words in counted.items() if s.get(key)]
    events = paragraph(f"{'; '.join(counts)}.") if counts else ""
    return section("Convergence", text, events)


@guard.figure("the page's section modes", "")
def _modes(summary: Record) -> str:
    """Makes a table of the modes, by the signs of the coefficients in which they differ."""
    modes = summary.get("modes", [])
    if len(modes) < 2 or "by_mode" in summary:
        return ""
    rows = []
    differ = [name for name in modes[0]["signs"] if len({mode["signs"][name] for mode in modes}) > 1]
    for mode in modes[:10]:
        signs = ", ".join(f"{name} {'−0+'[int(mode['signs'][name]) + 1]}" for name in differ)
        rows.append([f"{real(mode['share']):.2f}", ", ".join(f"{real(x):.2f}" for x in mode["of_chains"]), signs])
    text = "Draws by the signs of the coefficients in which modes differ: this posterior has more than one."
    return section("Modes", text, table(["share", "of each chain", "signs"], rows))


@guard.figure("the page's section sites", "")
def _sites(summary: Record) -> str:
    """Makes a table of averages with equal and with the rows' weights, the sites' spread, and a site that is not among them."""
    parameters, new, rows = summary["parameters"], summary.get("new_site", {}), list[list[str]]()
    for name in [name for name in new if name.startswith("theta[")][:MOST]:
        index = name.removeprefix("theta")
        label = f"theta_std{index}" if f"theta_std{index}" in new else name
        kinds = [label.replace("theta", kind, 1) for kind in ("average", "average_by_rows", "between_sd")]
        each = [*(parameters.get(kind, {}) for kind in kinds), {**new[label], "mean": new[label]["centre"]}]
        rows.append([index[1:-1], *map(_interval, each), _cell(each[-1].get("p_positive"))])
    text = "Standardised, with 90 % intervals; a new site's middle is its centre's mean."
    heads = ["coefficient", "average of sites", "of rows", "sd between sites", "a new site", "P(new site > 0)"]
    return section("Sites", text, table(heads, rows)) if rows and "by_mode" not in summary else ""


def _interval(row: Mapping[str, object]) -> str:
    """Formats a mean with its 90 % interval."""
    return f"{_cell(row['mean'])} ({_cell(row['q05'])}, {_cell(row['q95'])})" if row else ""


@guard.figure("the page's section imputed", "")
def _imputed(summary: Record) -> str:
    """Makes a table of the values that each client lacks."""
    clients: Mapping[str, Record] = summary.get("imputed", {})
    names = [name for cells in list(clients.values())[:1] for name in cells["cells_imputed"]]
    lacking = [name for name in names if any(cells["cells_imputed"][name] for cells in clients.values())][:MOST]
    rows = [
        [client, str(cells["rows"]), str(cells["rows_imputed"]), *(str(cells["cells_imputed"][name]) for name in lacking)]
        for client, cells in clients.items()
    ]
    heads = ["client", "rows", "of them imputed", *(f"{name}, cells" for name in lacking)]
    return section("Missing values", table(heads, rows)) if lacking else ""


@guard.figure("the page's section deviating", "")
def _deviating(summary: Record) -> str:
    """Makes a table of clients that differ."""
    rows, unsure = [], list[str]()
    for row in summary.get("deviating", [])[:MOST]:
        numbers = [_cell(row.get(key)) for key in ("p_deviates", "contrast", "mean", "q05", "q95", "global")]
        doubt = is_doubtful(real(row.get("rhat")))
        unsure += [row["coefficient"]] if doubt else []
        name = row["coefficient"] + MARK * doubt
        rows.append([str(row["client"]), name, _cell(row.get("p_differs")), *numbers])
    heads = ["client", "coefficient", "P(differs from the others)", "P(from theta)", "less the others' median", "its own mean"]
    if not rows:
        return ""
    text = f"By more than {number(summary['selection']['delta'])} standardised units."
    return section("Clients that differ", text, table([*heads, "5 %", "95 %", "global mean"], rows), _legend(unsure))


@guard.figure("the page's section meta", "")
def _meta(summary: Record) -> str:
    """Makes a table of the meta-analysis beside the model's answer: the two ask different questions."""
    analysis = summary.get("meta", {})
    pooled = analysis.get("pooled", {})
    keys, parameters = ("mean", "se", "q05", "q95", "p", "between_sd", "i_sq"), summary["parameters"]
    chosen = [set(content.get("selection", {}).get("members", ())) for content in (analysis, summary)]
    rows = [
        [
            *(name, *(_cell(row.get(key)) for key in keys), str(row["sites"])),
            *("yes" if name in members else "" for members in chosen),
            _cell(parameters.get(f"theta_std[{name}]", parameters.get(f"theta[{name}]", {})).get("pip")),
        ]
        for name, row in pooled.items()
    ]
    level = number(summary["selection"]["fdr"])
    text = "Each client's least squares, combined by random effects: Paule and Mandel's variance between clients, "
    text += f"Hartung and Knapp's intervals; on the data's scale. Its set is Benjamini and Hochberg's at {level}: averages that "
    text += "are surely not 0. The model's set asks for more: values that are clearly larger than the spike."
    heads = ["coefficient", "mean", "standard error", "5 %", "95 %", "p", "sd between clients", "I²", "clients"]
    return section("Separate fits", text, table([*heads, "in its set", "in the model's", "PIP"], rows)) if rows else ""


@guard.figure("the page's section sensitivity", "")
def _sensitivity(summary: Record) -> str:
    """Makes a table of the PIPs under other priors."""
    runs: Sequence[Record] = summary.get("sensitivity", [])
    if not runs:
        return ""
    names = list(runs[0]["pip"])[:MOST]
    rows = [[name, *(f"{real(other['pip'][name]):.2f}{_star(name, other)}" for other in runs)] for name in names]
    heads = ["PIP", *(f"s_tau {other['s_tau']:g}, c0 {other['c0']:g}" for other in runs)]
    return section("Under other priors", table(heads, rows + _judged(runs)), _legend(_unsure(runs)))


def _star(name: str, run: Record) -> str:
    """Returns the mark of a name whose chains do not agree in this run."""
    return MARK if name in run.get("unsettled", ()) else ""


def _unsure(runs: Sequence[Record]) -> list[str]:
    """Returns all names that bear the mark in one of these runs."""
    return [name for other in runs for name in other.get("unsettled", ())]


def _judged(runs: Sequence[Record]) -> list[list[str]]:
    """Returns rows that say how further runs have mixed."""
    if not any("rhat" in other for other in runs):
        return []
    return [
        ["R-hat, largest", *(_cell(other.get("rhat")) for other in runs)],
        ["ESS, smallest", *(_cell(other.get("ess")) for other in runs)],
        ["verdict", *(HEADS[other.get("converged", "not judged")] for other in runs)],
    ]


@guard.figure("the page's section left out", "")
def _left_out(summary: Record) -> str:
    """Makes a table of the effects without each client."""
    runs: Mapping[str, Record] = summary.get("leave_one_out", {})
    if not runs:
        return ""
    names = list(next(iter(runs.values()))["pip"])
    names.sort(key=lambda name: -max(abs(real(other["theta_std"][name])) for other in runs.values()))
    each, rows = list(runs.values()), []
    for name in names[:MOST]:
        cells = [
            f"{number(real(other.get('theta', other['theta_std'])[name]))} ({real(other['pip'][name]):.2f}){_star(name, other)}"
            for other in each
        ]
        rows.append([name, *cells])
    heads = ["", *(f"without {client}" for client in runs)]
    numbers = table(heads, rows + _judged(each))
    return section(
        "Without one client",
        "theta, on the data's scale, and PIP; scales are those of the clients that are left.",
        numbers,
        _legend(_unsure(each)),
    )
