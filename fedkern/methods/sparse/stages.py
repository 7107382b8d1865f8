"""What `fedkern check` prints of a sparse job: the model, and every message that may leave a client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...algorithms.exchanges import column_notes
from ...algorithms.exchanges import columns as agreement
from ...algorithms.exchanges import fits as site_fits
from ...algorithms.exchanges import scales as scaling
from ...algorithms.gibbs import machine as gibbs
from ...algorithms.gibbs import pooled as gibbs_pooled
from ...data.design import describe
from ...data.table import Table
from ...jobs import memory, wire
from ...jobs.check import Check
from ...models.encoding import Encoding, Spec
from ...models.sparse import relative
from .keys import Config
from .model import SparseModel

STREAMED = 900, 150  # numbers for each chain and coefficient of a graph, at the server and at a client: what its streams keep


def checked(at: Check[Config]) -> list[str] | None:
    """All that is printed, at the server's place; None elsewhere."""
    encoding = at.agreed()
    notes = at.notes()
    if encoding is None:
        return None
    model = SparseModel(at.config, at.names, relative(encoding))
    unknown = [] if model.is_graph or at.config.data.builtin else at.unknown(encoding)
    allgather = at.config.algorithm.topology == "allgather"
    told = wire.lines(len(at.names), protocols(model), at.parties.spec, unknown, allgather=allgather)
    return [*lines(model), *memory.lines(*_memory(model)), *notes, "", *told]


def spec_of_file(config: Config, spec: Spec, names: tuple[str, ...]) -> Spec:
    """What is known of the columns of one client's file."""
    return spec


def look_through(config: Config, folder: Path, path: Path, own: Table, spec: Spec, encoding: Encoding) -> None:
    """What else would end a run with this file; JobError."""
    describe(own, spec)


def lines(model: SparseModel) -> Iterator[str]:
    """Job, model, sampler, and what is disclosed."""
    config, s = model.config, model.settings
    m, a = config.model, config.algorithm
    yield f"job      sparse, {m.kind}, rounds = {config.job.rounds} ({a.burn_in} of them burn-in), seed {config.job.seed}"
    spike = f"spike sd {m.negligible / 2:g}" if m.negligible else f"c0 {s.prior.c0:g} (of variances)"
    yield f"model    {m.family}, {spike}, eta {m.eta}, scale {m.scale}" + (f", slab {m.slab:g}" if m.slab else "")
    yield f"sampler  {s.chains} chains, {s.local_sweeps} local and {s.server_sweeps} server sweeps a round"
    yield f"         {s.scales} scales, {s.order} sweep, " + (f"moves: {s.moves}" if s.moves else "no moves")
    yield f"clients  {len(model.names)}: {', '.join(model.names)}"
    yield f"columns  {_coefficients(model)} coefficients" + ("" if model.is_graph else f"; response {model.encoding.response}")
    yield ""
    yield "privacy  none is claimed: the job is federated, and what clients send has no noise in it"
    yield f"disclosure  {disclosure(model)}"


def _coefficients(model: SparseModel) -> int:
    """Their number; a graph's names are not made for it, for there may be more of them than memory."""
    return len(model.nodes) * (len(model.nodes) - 1) if model.is_graph else len(model.effects)


def disclosure(model: SparseModel) -> str:
    """In words, what the others learn of a client (docs/methods/sparse.md, section 5)."""
    a = model.config.algorithm
    seen = "all clients" if a.topology == "allgather" else "the server"
    if a.statistics == "pooled":
        text = "every client's sufficient statistics (Gram matrix, X'y, y'y, number of rows) go to the server, once"
    elif a.aggregate == "sums":
        text = f"sums of a client's deviations and scales (which tell both), three or four a coefficient and round, go to {seen}"
    else:
        text = f"draws of every client's coefficients in every round go to {seen}"
        if a.moves:
            text += "; with moves also X'y / sigma^2 and X'X / sigma^2 of every client, from which its sufficient statistics "
            text += "follow"
    if model.config.model.scale == "pooled":
        moments = "cross-products of every two columns about their means" if model.second_moments else "every column's variance"
        text += f"; {moments} and the numbers of rows, once"
    if model.config.output.site_fits:
        text += "; least-squares estimates of every client and their errors, once"
    return text


def protocols(model: SparseModel) -> list[tuple[Any, Mapping[str, int]]]:
    """All protocols of the job with the sizes of their messages, in order."""
    w = len(model.scaled)
    found: list[tuple[Any, Mapping[str, int]]] = [(one.PROTOCOL, one.DIMS) for one in (agreement, column_notes)]
    if model.config.model.scale == "pooled":
        found.append((scaling.protocol(second=model.second_moments), {"w": w}))
    if model.config.output.site_fits:
        found.append((site_fits.PROTOCOL, {"w": model.coefficients.size}))
    settings = model.settings
    if model.config.algorithm.statistics == "pooled":
        return [*found, (gibbs_pooled.PROTOCOL, settings.dims())]
    return [*found, (gibbs.protocol(settings), settings.dims())]


def _memory(job: SparseModel) -> tuple[float, float]:
    """Bytes at the server and at a client, of a graph's coefficients, or of the second moments of a regression's columns."""
    config, n = job.config, len(job.names)
    a = config.algorithm
    p = len(job.nodes) if job.is_graph else job.coefficients.size
    server, client = 0.0, 6.0
    if job.is_graph:
        kept = (config.job.rounds - a.burn_in) // a.thin
        streamed = p * (p - 1) > config.output.largest
        server, client = (a.chains * (one if streamed else min(one, 40 + 8 * kept)) for one in STREAMED)
        server += 2 * n * a.chains * 8
    if job.second_moments:
        server += 4 * n
    if a.statistics == "pooled":
        server, client = server + 4 * n, client + 4
    return memory.NUMBER * p * p * server, memory.NUMBER * p * p * client
