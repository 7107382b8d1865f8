"""`fedkern check`: is the job sound, what will it spend, what will each party send? Nothing is spent, no row is sent.

In a private job no row is read. In another one each client looks through its own for columns that nothing can be learnt from, and
names them, as it will in the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..algorithms.exchanges import certificates, column_notes
from ..algorithms.exchanges import columns as agreement
from ..algorithms.exchanges.columns import Summary
from ..data import table
from ..data.artifact import read_client
from ..data.degenerate import Degenerate, degenerate
from ..data.design import check_header, describe, encode
from ..data.faults import who
from ..data.table import Table, Text
from ..errors import JobError
from ..methods.pvi.model import Model
from ..methods.sigma import rows as sigma_rows
from ..methods.sigma import stages as sigma
from ..methods.sigma.model import SigmaModel
from ..methods.sigma.points import extended
from ..methods.sigma.run import agreed
from ..methods.sparse import stages as sparse
from ..methods.sparse.model import SparseModel
from ..methods.vertical import stages as vertical
from ..methods.vertical.rows import aligned
from ..methods.vertical.rows import columns as vertical_columns
from ..models.encoding import Column, Encoding, Spec
from ..models.sparse import relative
from ..printing import printable
from ..privacy.certificate import trust
from ..transports.codec import Codec
from . import columns, holders, memory, wire
from .engine import agree
from .load import AnyConfig, Config, SigmaConfig, SparseConfig, VerticalConfig
from .parties import Parties, fingerprint, parties

if TYPE_CHECKING:
    from .run import Place

MOST_LEVELS = 200  # of a column that is looked through


def checked(place: Place, config: AnyConfig, folder: Path) -> list[str] | None:
    """What `fedkern check` prints, at the server's place; None elsewhere.

    Raises
    ------
    JobError
        Whatever would end the job before the first row is read.
    """
    found = parties(config, folder)
    agree(place, config, found)
    holders.permit_all(config, found, place.mine(found.n_clients), server=place.is_server)
    if isinstance(config, VerticalConfig):
        return _vertical(place, config, found)
    spec = _public(found.spec)
    clients = {}
    for k in place.mine(found.n_clients):
        source, names = found.header(k)
        check_header(names, found.spec, source, found.names[k])
        if isinstance(config, SigmaConfig):
            sigma_rows.needed(config, names, who(found.names[k], source))
        covariates = spec.covariates(names)
        clients[k] = agreement.Client(spec, Summary(covariates, tuple(_kind(spec, name) for name in covariates)))
    start = agreement.start(spec, found.names) if place.is_server else None
    server, _ = place.run(agreement.PROTOCOL, start, clients, Codec(agreement.DIMS, found.n_clients))
    prior = agreed(place, config, folder, found.names)[0] if isinstance(config, SigmaConfig) else None
    notes = []
    if config.privacy is None:
        intercept = config.model.intercept if isinstance(config, Config) else True
        notes = _notes(place, found, {k: _own_columns(found.spec, found.rows(k), intercept) for k in clients})
    if server is None:
        return None
    encoding = server.encoding
    assert isinstance(encoding, Encoding)
    if isinstance(config, SparseConfig):
        job = SparseModel(config, found.names, relative(encoding))
        allgather = config.algorithm.topology == "allgather"
        unknown = [] if job.is_graph or config.data.builtin else _unknown(found.spec, encoding)
        told = wire.lines(found.n_clients, sparse.protocols(job), found.spec, unknown, allgather=allgather)
        return [*sparse.lines(job), *memory.lines(*memory.sparse(job)), *notes, "", *told]
    if isinstance(config, SigmaConfig):
        assert prior is not None
        model = SigmaModel(config, found.names, encoding, prior.common)
        told = wire.lines(found.n_clients, sigma.protocols(model), found.spec, _unknown(found.spec, encoding))
        used = memory.lines(*memory.sigma(model.layout.size, "diagonal" if model.chains else config.algorithm.covariance))
        return [*sigma.lines(model), *used, *notes, "", *told]
    return list(_lines(config, found, Model(config, found.names, encoding), notes))


def _vertical(place: Place, config: VerticalConfig, found: Parties) -> list[str] | None:
    """Headers at every party; then digests of ids, so that it can be said how many rows there are. No other cell is used."""
    counted = vertical.counted(place, config, found)
    notes = []
    if config.privacy is None:
        tables = {k: found.rows(k) for k in place.mine(found.n_clients)}
        own = {k: _own_columns(vertical.spec_of_file(config, t.names), t) for k, t in tables.items()}
        notes = _notes(place, found, own, split=True)
    if counted is None:
        return None
    train, test = vertical.held_out(config, *counted)
    job = vertical.VerticalModel(config, found.names, len(train), len(test) + len(counted[1]))
    used = memory.vertical(config.algorithm.covariance)
    return [*vertical.lines(job), *used, *notes, "", *wire.lines(found.n_clients, vertical.protocols(job))]


def _notes(place: Place, found: Parties, own: Mapping[int, Degenerate], *, split: bool = False) -> list[str]:
    """Lines on columns that nothing can be learnt from, at the server's place."""
    return [f"note     {note}" for note in columns.exchanged(place, found.names, own, split=split)]


def _own_columns(spec: Spec, own: Table, intercept: bool = True) -> Degenerate:
    """What nothing can be learnt from in one file, whose columns are taken as they are there."""
    there = (_found(spec, own, name) for name in spec.covariates(own.names))
    encoding = spec.encoding(tuple(column for column in there if len(column.levels or ()) <= MOST_LEVELS))
    return degenerate(encode(own, encoding, private=True, missing=True).X, encoding, intercept=intercept)


def _public(spec: Spec) -> Spec:
    """The agreement on names alone, as in a private job: levels and constants that are still to be found are left out."""
    complete = {n: c for n, c in spec.columns.items() if c.kind == "numeric" or c.levels is not None}
    return replace(spec, private=True, standardise="none", columns=complete)


def _kind(spec: Spec, name: str) -> Any:
    return spec.columns[name].kind if name in spec.columns else "numeric"


def _lines(config: Config, found: Parties, model: Model, notes: list[str]) -> Iterator[str]:
    a, m, d = config.algorithm, config.model, model.encoding.size
    unknown = _unknown(found.spec, model.encoding)
    schedule = "synchronous" if model.by_client else a.schedule
    yield f"job      {config.job.method}, variant {a.variant}, {schedule}, rounds = {config.job.rounds}, seed {config.job.seed}"
    yield f"model    {m.family}, {m.covariance} covariance, prior precision {m.prior_precision:g}"
    yield f"clients  {found.n_clients}: {', '.join(found.names)}"
    more = "; more if columns turn out to be categorical" if unknown else ""
    yield f"columns  {d} coefficients{more}; response {found.spec.response}"
    yield from memory.lines(*memory.pvi(model))
    yield from notes
    yield ""
    yield from _privacy(config, model)
    yield ""
    settings = model.settings
    protocols = [(agreement.PROTOCOL, agreement.DIMS), (model.protocol, settings.sizes(model.encoding.size))]
    if config.privacy is None:
        protocols.insert(1, (column_notes.PROTOCOL, column_notes.DIMS))
    protocols += [(certificates.PROTOCOL, certificates.DIMS)] if config.privacy is not None and not model.by_client else []
    yield from wire.lines(len(model.names), protocols, found.spec, unknown)


def _privacy(config: Config, model: Model) -> Iterator[str]:
    if config.privacy is None:
        yield "privacy  none is claimed: the job is federated, and what clients send has no noise in it"
        return
    source = config.privacy.noise_source
    yield f"privacy  plan, {source} noise" + ("" if source == "secure" else ": for experiments, epsilon is infinite")
    head = ("client", "sampling", "noise/clip", "clip", "delta", "cap", "updates", "steps", "epsilon")
    names = ["(all)"] if model.by_client else model.names
    rows = []
    for name in names:
        plan = model.plan(name)
        m = plan.mechanism
        rate = f"{m.sampling} {m.rate:.4g}" if m.rate < 1 else m.sampling
        epsilon = f"{plan.spent:.4g}" if m.secure else f"inf (secure: {plan.spent:.4g})"
        steps = plan.steps
        values = (
            name,
            rate,
            f"{m.sigma:.4g}",
            f"{m.clip:g}",
            f"{plan.delta:g}",
            f"{plan.epsilon:g}",
            steps // plan.update,
            steps,
            epsilon,
        )
        rows.append([str(v) for v in values])
    yield from wire.laid_out(head, rows)
    yield f"         neighbours: {plan.mechanism.neighbours}; by the {plan.mechanism.accountant} accountant"
    yield f"         trusts {trust(plan.mechanism)}"
    if model.by_client and plan.mechanism.rate < 1:
        more = f"{1 / plan.mechanism.rate:.3g}"
        yield f"         every client works in every round, so that nobody sees whose work counts: {more} times the work"


def _unknown(spec: Spec, encoding: Encoding) -> list[str]:
    """Columns that only their rows can tell to be categorical."""
    return [c.name for c in encoding.columns if c.levels is None and c.name not in spec.columns and not spec.private]


def local(config: AnyConfig, folder: Path, path: Path) -> int:
    """What is wrong with the rows of one's own file. Nothing leaves this process."""
    found = parties(config, folder)
    spec = found.spec
    own = table.load(path, text=spec.texts, response=spec.response or "y")
    if isinstance(config, VerticalConfig):
        spec = vertical.spec_of_file(config, own.names)
    check_header(own.names, spec, own.source)
    encoding = spec.encoding(tuple(_found(spec, own, name) for name in spec.covariates(own.names)))
    design = encode(own, encoding, private=True)
    faults = design.faults
    lines = [f"{path}: {own.n_rows} rows, {faults.rows} with faults"]
    if mark := fingerprint(path):
        lines.append(f"  fingerprint {mark} (for [data.{path.stem}] in policy.toml, if wanted)")
    lines += holders.local(config, found, path)
    lines += [f"  {count:>6}  {reason}" for reason, count in faults.counts]
    lines += [f"  {fault}" for fault in faults.first]
    lines += [f"  note: {note}" for note in (*design.notes, *_own_columns(spec, own).lines())]
    print("\n".join(map(printable, lines)))
    if faults.rows and not spec.private:
        return JobError.exit_code
    _local_of_method(config, folder, path, own, spec, encoding)
    return 0


def _local_of_method(config: AnyConfig, folder: Path, path: Path, own: Table, spec: Spec, encoding: Encoding) -> None:
    """What else would end a run of this method with this file; JobError."""
    if isinstance(config, VerticalConfig):
        rows, _ = aligned(own, config, "the file")
        if spec.covariates(own.names):
            vertical_columns(rows, config, np.arange(own.n_rows), path.stem, response=spec.response is not None)
    elif not spec.private:
        describe(own, spec)
    if isinstance(config, SigmaConfig):
        try:
            prior = read_client(folder / config.model.prior, path.stem)
        except JobError as error:
            print(printable(f"  note: not compared with the prior: {error}"))
            return
        sigma_rows.rows(own, config, encoding, extended(prior, own, config, "the file"), path.stem)


def _found(spec: Spec, own: Table, name: str) -> Column:
    """A column as far as it is public, and else as this file has it."""
    cells = own.columns[name]
    declared = spec.columns.get(name) or Column(name, cells.kind() if isinstance(cells, Text) and not spec.private else "numeric")
    if declared.kind == "categorical":
        if declared.levels is None and isinstance(cells, Text):
            return replace(declared, levels=tuple(sorted(set(cells.levels) - {""})))
        return declared
    return declared if declared.center is not None else replace(declared, center=0.0, scale=1.0)
