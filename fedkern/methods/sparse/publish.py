"""Makes the result that the server of a sparse job publishes. Source: docs/spec/sparse.md, section 12."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...algorithms.core import once
from ...algorithms.exchanges.answers import SiteFit
from ...algorithms.exchanges.sums import LooSums
from ...algorithms.gibbs import machine as gibbs
from ...algorithms.gibbs.settings import ALWAYS
from ...arrays import Array
from ...errors import JobError
from ...finding import Finding
from ...jobs.publish import Fit
from ...kernels import rng
from ...models.incomplete import Completed
from ...results import chains, guard, heterogeneity, loo, meta, other_way, selection, verdict
from ...results.plain import Record
from ...results.samples import Samples
from ...results.streamed import Streamed
from ...results.verdict import Verdict
from .model import SparseModel
from .streams import Streams


def partial(theta: Array, n_nodes: int) -> Array:
    """Returns (c, p (p - 1) / 2) partial correlations of a round's draws, for the streaming summaries."""
    correlations, _ = selection.partial_correlations(selection.matrix(theta, n_nodes))
    upper: Array = correlations[..., *np.triu_indices(n_nodes, 1)]
    return upper


def pip(model: SparseModel, server: gibbs.Server) -> Array:
    """Returns the (P,) posterior inclusion probabilities of a run."""
    return _mean(model, server, "inclusion")


def means(model: SparseModel, server: gibbs.Server) -> Array:
    """Returns the (P,) posterior means of theta, standardised."""
    return _mean(model, server, "theta")


def _mean(model: SparseModel, server: gibbs.Server, name: str) -> Array:
    """Averages over all chains; NaN where a sem's chains disagree."""
    trace = server.trace
    if _groups(model, trace):
        return np.full(len(model.effects), np.nan)
    mean: Array = trace.streams[name].mean if isinstance(trace, Streams) else trace[name].mean(axis=(0, 1))
    return mean


@guard.check("the verdict", verdict.not_judged("no check is known"))
def _verdict(model: SparseModel, released: Samples | Streamed, groups: list[chains.Group]) -> Verdict:
    """Judges whether the chains agree about all judged quantities, by the job's limits where it has some."""
    slowest, settings, until = released.slowest(), model.settings, model.until
    if groups:
        found = Finding.of("chains-disagree", groups=chains.describe_groups(groups))
        worst = slowest[2] if slowest else ""
        return Verdict.of(False, found, worst)
    limits = {} if until is None else {"rhat": until.rhat, "ess": until.ess}
    return verdict.of_chains(slowest, settings.chains // settings.tempering, **limits)


@guard.figure("a further run", {})
def further(model: SparseModel, server: gibbs.Server, scales: Array) -> dict[str, Any]:
    """Returns the published numbers of a further run: PIPs and means, and how well they are known."""
    released = build_posterior(model, server, scales)
    if isinstance(released, Samples):
        released = replace(released, sites={}, by_rows=None, between=None)  # nobody asks how those have mixed
    slowest, error, names = released.slowest(), released.pip_error, model.effects
    standard = means(model, server)
    content: dict[str, object] = {"pip": name_values(names, pip(model, server)), "theta_std": name_values(names, standard)}
    content["theta"] = name_values(names, standard * model.factors(scales))
    content |= {} if error is None else {"pip_mcse": name_values(names, error)}
    content |= {} if slowest is None else {"rhat": slowest[0], "ess": slowest[1], "slowest": slowest[2]}
    judged = _verdict(model, released, _groups(model, server.trace))
    return content | {"converged": judged.converged, "unsettled": verdict.doubtful(names, released.rhat)}


def name_values(names: tuple[str, ...], values: Array) -> dict[str, float]:
    """Maps each coefficient to its value."""
    return dict(zip(names, values.tolist()))


def build_posterior(model: SparseModel, server: gibbs.Server, scales: Array) -> Samples | Streamed:
    """Returns the kept draws, or their streaming summaries."""
    settings = model.settings
    about: dict[str, Any] = {
        "names": model.effects, "scale": model.factors(scales), "kind": model.kind, "nodes": model.nodes,
        "c0": settings.prior.c0, "negligible": model.negligible,
    }  # fmt: skip
    trace = server.trace
    if isinstance(trace, Streams):
        return Streamed(streams=trace.streams, **about)
    draws = {name: trace[name] for name in ("theta", "tau_sq", "inclusion", "eta", "rho")}
    sites: dict[str, Array] = {}
    if settings.share_local:
        here = [name for k, name in enumerate(model.names) if k not in server.lost]
        sites = {name: np.ascontiguousarray(trace["sites"][:, :, i]) for i, name in enumerate(here)}
    means = ("average", "by_rows", "between")
    about |= dict.fromkeys(means) | {name: trace[name] for name in means if name in trace.names()}
    reached = None if server.told is None else server.told[[k for k in range(len(model.names)) if k not in server.lost]]
    return Samples(**draws, **about, sites=sites, delta=model.output.delta, told=reached)


def new_site(model: SparseModel, released: Samples) -> Array:
    """Draws (c, t, P) coefficients of a site that the model has not seen, one for each kept draw (sparse.md, section 12).

    lambda has its half-Cauchy prior, with a slab times (1 + (lambda tau / slab)^2)^(-1/2), by rejection.
    """
    prior, key = model.settings.prior, rng.key(model.seed, "posterior")
    theta, tau = released.theta, np.sqrt(released.tau_sq)
    server = len(model.names)  # a number that no client has
    spread, waiting, step = np.empty(theta.size), np.arange(theta.size), 0
    while len(waiting):
        u, v = rng.uniform(2 * len(waiting), key=key, client=server, step=step).reshape(2, -1)
        drawn = prior.scale_lambda * np.tan(0.5 * np.pi * u) * tau.ravel()[waiting]
        kept = v * np.hypot(1.0, drawn / prior.slab) <= 1
        spread[waiting[kept]] = drawn[kept] / np.hypot(1.0, drawn[kept] / prior.slab)
        waiting, step = waiting[~kept], step + 1
    z = rng.normal(theta.size, key=key, client=server, step=step)
    return np.asarray(theta + (spread * z).reshape(theta.shape))


def released(model: SparseModel, server: gibbs.Server, scales: Array) -> Samples | Streamed:
    """Returns the posterior that is released. Raises JobError: the run ended before a draw was kept."""
    if not server.trace.count:
        raise JobError(
            f"the run ended in round {server.round}, before any draw was kept; raise job.rounds, or lower algorithm.burn_in"
        )
    draws = build_posterior(model, server, scales)
    return replace(draws, new_site=new_site(model, draws)) if isinstance(draws, Samples) else draws


def bare(model: SparseModel, server: gibbs.Server, scales: Array, released: Samples | Streamed, *_: object) -> Fit:
    """Makes the result without anything that is judged or said of it."""
    return Fit(
        posterior=released,
        arrays=released.arrays,
        stop=str(server.stop),
        rounds=server.round,
        clients={
            name: {"updates": int(server.updates[k]), "status": "lost" if k in server.lost else "finished"}
            for k, name in enumerate(model.names)
        },
        chains=model.settings.chains,
        draws=server.trace.count,
        encoding=model.encoding.to_dict() | {"scales": name_values(model.scaled, scales)},
    )


@guard.check("the judging of the result", bare)
def fit(model: SparseModel, server: gibbs.Server, scales: Array, released: Samples | Streamed, doubts: Sequence[str] = ()) -> Fit:
    """Makes the published result, apart from further runs; here the chains are judged. `doubts`: reasons why no result of these
    files can stand, whatever the chains do."""
    groups, silent = _groups(model, server.trace), tells_nothing(model, server)
    more: dict[str, object] = {"sampler": sampler(model, server, released)}
    more |= _by_mode(model, released, groups) if groups else _selected(model, released)
    more |= _modes(model, released)
    if silent:
        more["tells_nothing"] = silent
    judged = _verdict(model, released, groups)
    turned = find_reversed(model, server)
    doubts, notes = [*doubts], [*_silent(model, server), *_slow(model, released, judged, groups), *_notes(model, server)]
    if turned:
        doubts.append(turned.doubt)
        notes.insert(0, turned.note)
    if groups:
        notes.append(_disagreement(model, groups))
    return replace(bare(model, server, scales, released), verdict=verdict.against(doubts, judged), notes=notes, more=more)


@guard.figure("modes of the coefficients", {})
def _modes(model: SparseModel, released: Samples | Streamed) -> dict[str, object]:
    """Returns the modes of structural equations, where draws are kept."""
    if not isinstance(released, Samples) or model.kind != "sem":
        return {}
    return {"modes": [{"share": m.share, "of_chains": list(m.of_chains), "signs": m.signs} for m in selection.modes(released)]}


@guard.check("the coding of the response", None)
def find_reversed(model: SparseModel, server: gibbs.Server) -> other_way.Reversed | None:
    """Returns the words on a client whose outcome of 0 and 1 seems to be coded the other way round; None where none does.

    Each client's coefficients are taken for normal, with the mean and covariance of their draws. Their prior draws them together,
    so that they contradict each other a little less than the rows do. Intercepts stay at the clients: slopes alone are asked.
    """
    present = [k for k in range(len(model.names)) if k not in server.lost]
    if server.moments is None or len(present) < 2 or not server.trace.count:
        return None
    n = server.trace.count * model.settings.chains // model.settings.tempering
    mean = server.moments[present, :, 0] / n
    covariance = server.moments[present, :, 1:] / n - np.einsum("ki,kj->kij", mean, mean)
    h, P = np.zeros_like(mean), np.zeros_like(covariance)
    for i, k in enumerate(present):
        known = np.arange(mean.shape[1]) if server.told is None else np.flatnonzero(server.told[k])
        try:
            P[i][np.ix_(known, known)] = np.linalg.inv(covariance[i][np.ix_(known, known)])
        except np.linalg.LinAlgError:  # nothing is known of this client, and the others are compared
            continue
        h[i] = P[i] @ mean[i]
    found = heterogeneity.find_opposed(h, P, 0)
    if not found:
        return None
    return other_way.describe([model.names[present[k]] for k in found], model.encoding.response, other_way.OF_TWO)


@guard.figure("further runs", lambda fit, others: fit)
def with_others(fit: Fit, others: Record) -> Fit:
    """Adds the results of further runs, by their keys in summary.json."""
    return replace(fit, notes=[*fit.notes, *_unsettled(others)], more={**fit.more, **others})


def with_sums(fit: Fit, query: once.Server[LooSums], names: Sequence[str]) -> Fit:
    """Adds the leave-one-out scores of rows."""
    content, notes = loo.told(query, names)
    more = {**fit.more, "loo": content} if content else fit.more
    return replace(fit, notes=[*fit.notes, *notes], more=more)


def imputed(model: SparseModel, sites: Sequence[Completed]) -> Record:
    """Returns client -> used rows, those of them that lack a value, and the number of drawn cells of each column."""
    if model.is_graph:
        names = model.nodes
    elif sites:
        names = model.coefficients.names
    else:
        names = ()
    return {
        client: {
            "rows": site.rows,
            "rows_imputed": site.incomplete,
            "cells_imputed": {name: site.rows - int(seen) for name, seen in zip(names, site.values)},
        }
        for client, site in zip(model.names, sites)
    }


def combine_fits(model: SparseModel, replies: Sequence[SiteFit], psi: Array | None = None, cells: Record | None = None) -> Record:
    """Returns the clients' least-squares fits, a random-effects meta-analysis, and the averages that are surely not 0.

    Parameters
    ----------
    psi : (w, w) covariance of the columns, where some may be missing
    cells : the result of `imputed`. The slope of a column that is correlated with one that its site lacks is left out: it would
        hold the effect of the other
    """
    b, se = (np.array([getattr(reply, name) for reply in replies]) for name in ("estimate", "error"))
    # A site without an estimate has the standard error 0 in its message.
    usable = se > 0
    if psi is not None and cells is not None:
        measured = [[cells[client]["cells_imputed"][e] < cells[client]["rows"] for e in model.effects] for client in model.names]
        usable &= ~np.array([meta.biased(psi, row) for row in measured])
    both = meta.combine(np.where(usable, b, np.nan), np.where(usable, se, np.nan))
    low, high = both.interval()
    p_values, level = both.p_values, model.output.fdr
    rows = {
        name: {
            "mean": both.mean[j],
            "se": both.se[j],
            "q05": low[j],
            "q95": high[j],
            "between_sd": float(np.sqrt(both.tau_sq[j])),
            "i_sq": both.i_sq[j],
            "p": p_values[j],
            "sites": int(both.sites[j]),
        }
        for j, name in enumerate(model.effects)
    }
    sites = {
        name: {e: {"estimate": b[k, j], "se": se[k, j]} for j, e in enumerate(model.effects) if se[k, j] > 0}
        for k, name in enumerate(model.names)
    }
    members = [name for name, chosen in zip(model.effects, selection.benjamini_hochberg(p_values, level)) if chosen]
    gone = (se > 0) & ~usable
    content = {"pooled": rows, "sites": sites, "selection": {"fdr": level, "members": members}}
    left = {client: [model.effects[j] for j in np.flatnonzero(row)] for client, row in zip(model.names, gone) if row.any()}
    if left:
        return content | {"left_out": left}
    return content


@guard.figure("notes on the clients' own fits", [])
def meta_notes(fits: Record) -> list[str]:
    """Names slopes of clients that the meta-analysis leaves out."""
    left_out = fits.get("left_out", {})
    return [Finding.of("slopes-left-out", client=client, columns=names) for client, names in left_out.items()]


@guard.figure("how the sampler went", {})
def sampler(model: SparseModel, server: gibbs.Server, released: Samples | Streamed) -> Record:
    """Returns how well the chains have mixed, and the counts of events on the way."""
    clipped, fallbacks, data_space = server.events.tolist()
    settings = model.settings
    about: dict[str, object] = {
        "kind": model.kind,
        "chains": settings.chains // settings.tempering, "kept": server.trace.count, "burn_in": settings.burn_in,
        "scales_clipped": clipped, "qr_fallbacks": fallbacks, "data_space_draws": data_space,
    }  # fmt: skip
    if settings.moves or settings.exchange:
        about["moves"] = model.moves.words(model.size)
    slowest = released.slowest()
    if slowest is None:
        return about
    return about | {"rhat": slowest[0], "ess": slowest[1], "slowest": slowest[2]}


@guard.figure("what is selected", {})
def _selected(model: SparseModel, released: Samples | Streamed) -> dict[str, object]:
    """Returns the FDR set and its explanation, deviating clients, and a graph's matrices and modes."""
    level = model.output.fdr
    pips = released.pip.copy()
    layout = model.settings.layout
    pips[layout.indicators[layout.has_coefficient] == ALWAYS] = np.nan  # always included: no question was asked
    members = [name for name, member in zip(released.names, selection.fdr_set(pips, level, released.rhat)) if member]
    large = released.p_large(model.output.delta)
    average_large = np.zeros_like(pips) if large is None else large
    delta = model.output.delta
    fitted = model.output.site_fits if model.has_least_squares else None
    text = selection.explain(released.names, pips, average_large, level, released.rhat, delta, fitted)
    out: dict[str, object] = {"selection": {"fdr": level, "delta": delta, "members": members, "text": text}}
    out["unsettled"] = verdict.doubtful(released.names, released.rhat)
    if isinstance(released, Samples) and released.new_site is not None:
        out["new_site"] = released.new_sites()
    if isinstance(released, Samples) and released.sites:
        out["deviating"] = selection.deviating(released.parameters())
    if model.is_graph:
        out["graph"] = _graph(model, released, level)
    elif isinstance(released, Samples):
        out["groups"] = _groups_of_columns(model, released)
    return out


def _groups_of_columns(model: SparseModel, released: Samples) -> list[dict[str, object]]:
    """Groups collinear columns, with the probability that one of a group is in the slab; a spline counts by its linear column."""
    indicators = model.settings.layout.indicators.ravel()
    groups, first = np.unique(indicators, return_index=True)
    columns = first[groups >= 0]
    effects = released.theta if released.average is None else released.average
    names = [released.names[j] for j in columns]
    return selection.groups(names, effects[..., columns], released.inclusion[..., columns])


@guard.check("groups of chains", [])
def _groups(model: SparseModel, trace: Any) -> list[chains.Group]:
    """Groups a sem's chains that stay in different modes, by the site average where it is known; none if they agree."""
    if model.kind != "sem":
        return []
    names, draws = (trace.streams, trace.streams) if isinstance(trace, Streams) else (trace.names(), trace)
    name = "average" if "average" in names else "theta"
    groups = chains.groups(draws[name])
    return groups if len(groups) > 1 else []


@guard.figure("what is selected, by groups of chains", {})
def _by_mode(model: SparseModel, released: Samples | Streamed, groups: list[chains.Group]) -> dict[str, object]:
    """Returns, for chains that disagree, the entries of each group of chains, and no number over all of them."""
    n_chains, modes = sum(len(group.chains) for group in groups), []
    for group in groups:
        part = released.of(group.chains)
        slowest = part.slowest()
        mode: dict[str, object] = {
            "chains": list(group.chains), "share": len(group.chains) / n_chains, "moved": group.moved,
            "signs": {released.names[j]: sign for j, sign in group.signs.items()}, "parameters": part.parameters(),
        }  # fmt: skip
        mode |= {} if slowest is None else {"rhat": slowest[0], "ess": slowest[1], "slowest": slowest[2]}
        modes.append(mode | _selected(model, part))
    graph: dict[str, object] = {"nodes": list(model.nodes)}
    if isinstance(released, Samples):
        graph["either"] = selection.either(released).tolist()
    text = "none over all chains, which disagree: each mode has its own"
    return {
        "parameters": chains.blank(released.parameters()), "by_mode": modes, "graph": graph,
        "selection": {"fdr": model.output.fdr, "delta": model.output.delta, "members": [], "text": text},
        "unsettled": verdict.doubtful(released.names, released.rhat),
    }  # fmt: skip


def _unsettled(others: Record) -> list[str]:
    """Names the further runs whose chains disagree: their numbers are missing."""
    which = [f"s_tau = {row['s_tau']:g}, c0 = {row['c0']:g}" for row in others.get("sensitivity", ()) if _lacks(row["pip"])]
    which += [f"without {name}" for name, row in others.get("leave_one_out", {}).items() if _lacks(row["pip"])]
    notes: list[str] = [Finding.of("further-runs-disagree", runs=which)] if which else []
    reruns = {f"s_tau = {row['s_tau']:g}, c0 = {row['c0']:g}": row for row in others.get("sensitivity", ())}
    reruns |= {f"without {name}": row for name, row in others.get("leave_one_out", {}).items()}
    slow = [name for name, row in reruns.items() if row["converged"] is False and name not in which]
    if slow:
        notes.append(Finding.of("further-runs-not-converged", runs=slow))
    return notes


def _lacks(numbers: Mapping[str, float]) -> bool:
    """Returns whether a number is missing."""
    return any(map(np.isnan, numbers.values()))


@guard.figure("the note on chains that disagree", "chains disagree")
def _disagreement(model: SparseModel, groups: list[chains.Group]) -> str:
    """Says that the chains disagree, how the result treats them, and which keys may mend it."""
    described = chains.describe_groups(groups)
    if not model.stable:
        return Finding.of("modes-of-equations", groups=described, remedies=["stable"])
    ways = ["more-rounds", "more-chains"]
    ways += ["tempering"] if model.tempering == 1 else []
    ways += [] if model.swaps else ["swap"]
    return Finding.of("modes-of-stable-graphs", groups=described, remedies=ways)


def _graph(model: SparseModel, released: Samples | Streamed, level: float) -> Record:
    """Returns the matrices and the chosen edges of a graph."""
    n = len(model.nodes)
    table = selection.matrix(released.pip, n)
    rules = {"or": selection.symmetrise(table, "or").tolist(), "and": selection.symmetrise(table, "and").tolist()}
    edges = [vars(edge) for edge in selection.graph(released, level)]
    out: dict[str, object] = {"nodes": list(model.nodes), "pip": table.tolist(), **rules, "edges": edges}
    for name, values in (("rhat", released.rhat), ("pip_mcse", released.pip_error)):
        out |= {} if values is None else {name: selection.matrix(values, n).tolist()}
    out["pip_by_chain"] = [selection.matrix(pip, n).tolist() for pip in released.pip_by_chain]
    if isinstance(released, Samples):
        out["either"] = selection.either(released).tolist()
    if model.kind == "mrf":
        correlation, clipped = released.partial_correlation()
        out |= {"partial_correlation": correlation.tolist(), "clipped": clipped}
    return out


@guard.figure("columns that tell nothing", {})
def tells_nothing(model: SparseModel, server: gibbs.Server) -> dict[str, list[str]]:
    """Returns client -> coefficients of which its rows tell nothing: a column has one value there, or none."""
    if server.told is None:
        return {}
    names = {k: name for k, name in enumerate(model.names) if k not in server.lost and not server.told[k].all()}
    return {name: [model.effects[j] for j in np.flatnonzero(~server.told[k])] for k, name in names.items()}


@guard.figure("notes on columns that tell nothing", [])
def _silent(model: SparseModel, server: gibbs.Server) -> list[str]:
    """Names averages that are over fewer sites than the job has."""
    silent = tells_nothing(model, server)
    return [Finding.of("silent-columns", client=client, columns=names) for client, names in silent.items()]


@guard.figure("the shape of errors", [])
def not_laplace(model: SparseModel, departures: Sequence[tuple[int, float]]) -> list[str]:
    """Notes that errors of structural equations have another law than the model's, which alone tells directions."""
    nodes = [(model.nodes[j], value) for j, value in departures]
    return [Finding.of("errors-not-laplace", nodes=nodes)] if nodes else []


@guard.figure("notes on slow coefficients", [])
def _slow(model: SparseModel, released: Samples | Streamed, judged: Verdict, groups: Sequence[chains.Group]) -> list[str]:
    """Notes the remedies of slow chains: more rounds, and a slab where site averages are slow and nothing bounds them."""
    if judged.converged is not False or groups:
        return []
    way: dict[str, Any] = {"remedies": ["until"]}
    if model.until is not None:
        way = {"remedies": ["more-rounds-until"], "max_rounds": model.until.max_rounds}
    rhat = released.mixing.get("average", (np.zeros(0),))[0]
    if np.isfinite(model.settings.prior.slab) or model.kind == "sem" or not (rhat > verdict.RHAT).any():
        return [Finding.of("chains-not-mixed", **way)]
    slow = [name for name, value in zip(model.effects, rhat.tolist()) if value > verdict.RHAT]
    return [Finding.of("averages-not-mixed", columns=slow, limit=verdict.RHAT, **way)]


@guard.figure("notes on the sampler", [])
def _notes(model: SparseModel, server: gibbs.Server) -> list[str]:
    """Returns notes for a reader of this run."""
    notes = list[str]()
    clipped, fallbacks, _ = server.events.tolist()
    if clipped:
        notes.append(Finding.of("scales-clipped", n=clipped))
    if fallbacks:
        notes.append(Finding.of("columns-nearly-copies", n=fallbacks))
    if server.lost and server.since:
        lost = [model.names[k] for k in sorted(server.lost)]
        notes.append(Finding.of("lost-in-sampling", clients=lost, round=server.since))
    if (advice := model.advice) is not None:
        notes.append(advice)
    if model.imputes:
        what = "values" if model.is_graph else "covariates"
        notes.append(Finding.of("drawn-as-gaussian", what=what))
    if model.settings.aggregate == "sums":
        notes.append(Finding.of("sums-alone"))
    return notes
