"""Everything that the server of a sparse job publishes. Source: sparse-models.md, section 12."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...algorithms import gibbs
from ...algorithms.gibbs_settings import ALWAYS
from ...errors import JobError
from ...results import selection
from ...results.digest import digest
from ...results.inference_data import write
from ...results.result import Result
from ...results.samples import Samples
from ...results.streamed import Streamed
from ...results.summary import Outcome, summary
from .. import info
from ..hooks import RunHooks
from .model import SparseModel
from .streams import Streams

Array = NDArray[np.float64]


def partial(theta: Array, n_nodes: int) -> Array:
    """(c, p (p - 1) / 2) partial correlations of a round's draws, for the streaming summaries."""
    found, _ = selection.partial_correlations(selection.matrix(theta, n_nodes))
    upper: Array = found[..., *np.triu_indices(n_nodes, 1)]
    return upper


def pip(server: gibbs.Server) -> Array:
    """(P,) posterior inclusion probabilities of a run."""
    return _mean(server, "inclusion")


def means(server: gibbs.Server) -> Array:
    """(P,) posterior means of theta, standardised."""
    return _mean(server, "theta")


def _mean(server: gibbs.Server, name: str) -> Array:
    if isinstance(server.trace, Streams):
        return server.trace.streams[name].mean
    mean: Array = server.trace[name].mean(axis=(0, 1))
    return mean


def named(names: tuple[str, ...], values: Array) -> dict[str, float]:
    """Coefficient -> value."""
    return dict(zip(names, values.tolist()))


def posterior(model: SparseModel, server: gibbs.Server, scales: Array) -> Samples | Streamed:
    """The kept draws, or their streaming summaries."""
    settings, config = model.settings, model.config
    about: dict[str, Any] = {
        "names": model.effects, "scale": model.factors(scales), "kind": config.model.kind, "nodes": model.nodes,
        "c0": settings.prior.c0, "negligible": config.model.negligible,
    }  # fmt: skip
    trace = server.trace
    if isinstance(trace, Streams):
        return Streamed(streams=trace.streams, **about)
    draws = {name: trace[name] for name in ("theta", "tau_sq", "inclusion", "eta", "rho")}
    sites: dict[str, Array] = {}
    if settings.share_local:
        here = [name for k, name in enumerate(model.names) if k not in server.lost]
        sites = {name: np.ascontiguousarray(trace["sites"][:, :, i]) for i, name in enumerate(here)}
    average = trace["average"] if "average" in trace.names() else None
    return Samples(**draws, average=average, sites=sites, **about)


def result(model: SparseModel, server: gibbs.Server, scales: Array, others: Mapping[str, Any], hooks: RunHooks) -> Result:
    """The whole result of a job.

    Raises
    ------
    JobError
        The run ended before a draw was kept.
    """
    config, files = model.config, hooks.folder
    if not server.trace.count:
        raise JobError(
            f"the run ended in round {server.round}, before any draw was kept; raise job.rounds, or lower algorithm.burn_in"
        )
    found = posterior(model, server, scales)
    notes = [*hooks.notes, *_notes(model, server)]
    if files is not None:
        try:
            write(
                found, files.path / "posterior.nc", seed=config.job.seed, chains=config.algorithm.chains, draws=server.trace.count
            )
        except JobError as error:
            notes.append(f"no posterior.nc: {error}")
    outcome = Outcome(
        stop=str(server.stop),
        rounds=server.round,
        clients={
            name: {"updates": int(server.updates[k]), "status": "lost" if k in server.lost else "finished"}
            for k, name in enumerate(model.names)
        },
        lost=hooks.gone,
        metrics={},
        privacy={},
        wire=hooks.wire.as_dict(),
        digest=digest(found.arrays),
        encoding=model.encoding.to_dict() | {"scales": named(model.scaled, scales)},
        versions=info.of_a_run(),
        notes=notes,
    )
    more = {"sampler": sampler(model, server, found), **_selected(model, found), **others}
    content = summary(config.job.method, found, outcome, more)
    if files is not None:
        files.write_json("summary.json", content)
    return Result(
        content, found, None if files is None else files.path, config.job.seed, config.algorithm.chains, server.trace.count
    )


def sampler(model: SparseModel, server: gibbs.Server, found: Samples | Streamed) -> dict[str, Any]:
    """How well the chains have mixed, and what was counted on the way."""
    clipped, fallbacks, data_space = (int(n) for n in server.events)
    settings = model.settings
    told = {
        "kind": model.config.model.kind,
        "chains": settings.chains // settings.tempering, "kept": server.trace.count, "burn_in": settings.burn_in,
        "scales_clipped": clipped, "qr_fallbacks": fallbacks, "data_space_draws": data_space,
    }  # fmt: skip
    slowest = found.slowest()
    return told | ({} if slowest is None else {"rhat": slowest[0], "ess": slowest[1], "slowest": slowest[2]})


def _selected(model: SparseModel, found: Samples | Streamed) -> dict[str, Any]:
    """The FDR set and its explanation, deviating clients, and a graph's matrices and modes."""
    level = model.config.output.fdr
    pips = found.pip.copy()
    layout = model.settings.layout
    pips[layout.indicators[layout.there] == ALWAYS] = np.nan  # always included: no question was asked
    members = [name for name, member in zip(found.names, selection.fdr_set(pips, level)) if member]
    large = found.p_large(model.config.output.delta)
    text = selection.explained(found.names, pips, np.zeros_like(pips) if large is None else large, level)
    out: dict[str, Any] = {"selection": {"fdr": level, "members": members, "text": text}}
    if isinstance(found, Samples) and found.sites:
        out["deviating"] = selection.deviating(found.parameters())
    if model.is_graph:
        out["graph"] = _graph(model, found, level)
    if isinstance(found, Samples) and model.config.model.kind == "sem":
        modes = selection.modes(found)
        out["modes"] = [{"share": m.share, "of_chains": list(m.of_chains), "signs": m.signs} for m in modes]
    return out


def _graph(model: SparseModel, found: Samples | Streamed, level: float) -> dict[str, Any]:
    n = len(model.nodes)
    table = selection.matrix(found.pip, n)
    rules = {"or": selection.symmetrised(table, "or").tolist(), "and": selection.symmetrised(table, "and").tolist()}
    edges = [vars(edge) for edge in selection.graph(found, level)]
    out: dict[str, Any] = {"nodes": list(model.nodes), "pip": table.tolist(), **rules, "edges": edges}
    if isinstance(found, Samples):
        out["either"] = selection.either(found).tolist()
    if model.config.model.kind == "mrf":
        correlation, clipped = found.partial_correlation()
        out |= {"partial_correlation": correlation.tolist(), "clipped": clipped}
    return out


def _notes(model: SparseModel, server: gibbs.Server) -> list[str]:
    """What a reader should know of this run."""
    notes = []
    clipped, fallbacks, _ = server.events.tolist()
    if clipped:
        notes.append(f"{clipped} draws of a scale were clipped to [1e-60, 1e60]")
    if fallbacks:
        notes.append(
            f"{fallbacks} draws needed a QR factorisation, because Cholesky's failed: columns are (nearly) copies of each other"
        )
    if server.lost and server.since:
        lost = ", ".join(model.names[k] for k in sorted(server.lost))
        notes.append(f"{lost} lost: the result is that of the model without; burn-in began again in round {server.since}")
    if model.config.model.missing == "impute":
        notes.append("missing covariates were drawn as Gaussian, 0/1 columns too")
    if model.config.algorithm.aggregate == "sums":
        notes.append("the server kept the sums of all sites alone: there is no average over sites")
    return notes
