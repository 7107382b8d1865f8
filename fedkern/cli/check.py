"""`fedkern check`: is the job sound, what will it spend, what will each party send? Nothing is spent, no row is read or sent."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..algorithms import agreement, certificates
from ..algorithms.agreement import Summary
from ..algorithms.messages import Message, schema
from ..data import table
from ..data.design import check_header, encode
from ..data.table import Table, Text
from ..errors import JobError
from ..models.encoding import Column, Encoding, Spec
from ..models.sparse import relative
from ..transports.codec import Codec
from .assembly import agreed_identity
from .config import AnyConfig, Config, SigmaConfig, SparseConfig, VerticalConfig, load
from .job import place_for
from .model import Model
from .parties import Parties, fingerprint, parties
from .sigma import check as sigma
from .sigma import rows as sigma_rows
from .sigma.assembly import agreed
from .sigma.model import SigmaModel
from .sparse import check as sparse
from .sparse.model import SparseModel
from .vertical import check as vertical

if TYPE_CHECKING:
    from .assembly import Place


def command(options: argparse.Namespace) -> int:
    """Runs `fedkern check` and returns the exit code."""
    if options.local:
        config, folder = load(options.job, options.sets)
        return _local(config, folder, Path(options.local))

    def main(place: Place) -> int:
        config, folder = load(options.job, options.sets)
        lines = checked(place, config, folder)
        if lines is not None:
            print("\n".join(lines))
        return 0

    return place_for(options, main)


def checked(place: Place, config: AnyConfig, folder: Path) -> list[str] | None:
    """What `fedkern check` prints, at the server's place; None elsewhere.

    Raises
    ------
    JobError
        Whatever would end the job before the first row is read.
    """
    found = parties(config, folder)
    agreed_identity(place, config, found)
    if isinstance(config, VerticalConfig):
        return _vertical(place, config, found)
    spec = _public(found.spec)
    clients = {}
    for k in place.mine(found.n_clients):
        source, names = found.header(k)
        check_header(names, found.spec, source, found.names[k])
        if isinstance(config, SigmaConfig):
            sigma_rows.needed(config, names, f"client {found.names[k]!r}, {source}")
        columns = spec.covariates(names)
        clients[k] = agreement.Client(spec, Summary(columns, tuple(_kind(spec, name) for name in columns)))
    start = agreement.start(spec, found.names) if place.is_server else None
    server, _ = place.run(agreement.PROTOCOL, start, clients, Codec(agreement.DIMS, found.n_clients))
    prior = agreed(place, config, folder, found.names)[0] if isinstance(config, SigmaConfig) else None
    if server is None:
        return None
    encoding = server.encoding
    assert isinstance(encoding, Encoding)
    _constants(found.spec, encoding)
    if isinstance(config, SparseConfig):
        job = SparseModel(config, found.names, relative(encoding))
        return [*sparse.lines(job), "", *_wire(found.n_clients, sparse.protocols(job))]
    if isinstance(config, SigmaConfig):
        assert prior is not None
        model = SigmaModel(config, found.names, encoding, prior.common)
        return [*sigma.lines(model), "", *_wire(found.n_clients, sigma.protocols(model))]
    return list(_lines(config, found, Model(config, found.names, encoding)))


def _vertical(place: Place, config: VerticalConfig, found: Parties) -> list[str] | None:
    """Headers at every party; then digests of ids, so that it can be said how many rows there are. No other cell is used."""
    counted = vertical.counted(place, config, found)
    if counted is None:
        return None
    train, test = vertical.held_out(config, *counted)
    job = vertical.VerticalModel(config, found.names, len(train), len(test) + len(counted[1]))
    return [*vertical.lines(job), "", *_wire(found.n_clients, vertical.protocols(job))]


def _public(spec: Spec) -> Spec:
    """The agreement on names alone, as in a private job: levels and constants that are still to be found are left out."""
    complete = {n: c for n, c in spec.columns.items() if c.kind == "numeric" or c.levels is not None}
    return replace(spec, private=True, standardise="none", columns=complete)


def _kind(spec: Spec, name: str) -> Any:
    return spec.columns[name].kind if name in spec.columns else "numeric"


def _constants(spec: Spec, encoding: Encoding) -> None:
    """Whether everything is public that a private job needs."""
    for column in encoding.columns if spec.private else ():
        declared = spec.columns.get(column.name, Column(column.name))
        if declared.kind == "categorical" and declared.levels is None:
            raise JobError(
                f"column {column.name!r}: a private job cannot ask rows for levels; give data.columns.{column.name}.levels"
            )
        if declared.kind == "numeric" and spec.standardise == "public" and declared.center is None:
            raise JobError(
                f'column {column.name!r}: standardise = "public" needs center and scale (or lower and upper) in '
                f'[data.columns.{column.name}]; or set data.standardise = "none"'
            )


def _lines(config: Config, found: Parties, model: Model) -> Iterator[str]:
    a, m, d = config.algorithm, config.model, model.encoding.size
    unknown = [c.name for c in model.encoding.columns if c.levels is None and c.name not in found.spec.columns]
    yield f"job      {config.job.method}, variant {a.variant}, {a.schedule}, rounds = {config.job.rounds}, seed {config.job.seed}"
    yield f"model    {m.family}, {m.covariance} covariance, prior precision {m.prior_precision:g}"
    yield f"clients  {found.n_clients}: {', '.join(found.names)}"
    more = "; more if columns turn out to be categorical" if unknown and not found.spec.private else ""
    yield f"columns  {d} coefficients{more}; response {found.spec.response}"
    yield ""
    yield from _privacy(config, model)
    yield ""
    settings = model.settings
    protocols = [(agreement.PROTOCOL, agreement.DIMS), (model.algorithm.PROTOCOL, settings.sizes(model.encoding.size))]
    protocols += [(certificates.PROTOCOL, certificates.DIMS)] if config.privacy is not None and not model.by_client else []
    yield from _wire(len(model.names), protocols)


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
    yield from _table(head, rows)
    yield f"         neighbours: {plan.mechanism.neighbours}; by the {plan.mechanism.accountant} accountant"


def _wire(n_clients: int, protocols: Sequence[tuple[Any, Mapping[str, int]]]) -> Iterator[str]:
    for title, way in (("each client may send", "to_server"), ("the server may send", "to_client")):
        yield f"{title} (and no row)"
        rows = []
        for protocol, dims in protocols:
            codec = Codec(dims, n_clients)
            kinds: Sequence[type[Message]] = getattr(protocol, way)
            rows += [[kind.__name__, _fields(kind, dims), f"{codec.longest((kind,)):,}"] for kind in kinds]
        yield from _table(("message", "fields", "bytes"), rows)


def _fields(kind: type[Message], dims: Any) -> str:
    def one(name: str, shape: tuple[str, ...]) -> str:
        return f"{name} ({', '.join(str(dims[s]) for s in shape)})" if shape else name

    return ", ".join(one(name, field.shape) for name, field in schema(kind).items())


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    rows = [head, *rows]
    widths = [max(len(row[j]) for row in rows) for j in range(len(head))]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()


def _local(config: AnyConfig, folder: Path, path: Path) -> int:
    """What is wrong with the rows of one's own file. Nothing leaves this process."""
    spec = parties(config, folder).spec
    own = table.load(path, text=spec.texts, response=spec.response or "y")
    if isinstance(config, VerticalConfig):
        spec = vertical.spec_of_file(config, own.names)
    check_header(own.names, spec, own.source)
    columns = tuple(_found(spec, own, name) for name in spec.covariates(own.names))
    design = encode(own, spec.encoding(columns), private=True)
    faults = design.faults
    print(f"{path}: {own.n_rows} rows, {faults.rows} with faults")
    if mark := fingerprint(path):
        print(f"  fingerprint {mark} (for [data.{path.stem}] in policy.toml, if wanted)")
    for reason, count in faults.counts:
        print(f"  {count:>6}  {reason}")
    for fault in faults.first:
        print(f"  {fault}")
    for note in design.notes:
        print(f"  note: {note}")
    return JobError.exit_code if faults.rows and not spec.private else 0


def _found(spec: Spec, own: Table, name: str) -> Column:
    """A column as far as it is public, and else as this file has it."""
    cells = own.columns[name]
    declared = spec.columns.get(name) or Column(name, cells.kind() if isinstance(cells, Text) and not spec.private else "numeric")
    if declared.kind == "categorical":
        if declared.levels is None and isinstance(cells, Text):
            return replace(declared, levels=tuple(sorted(set(cells.levels) - {""})))
        return declared
    return declared if declared.center is not None else replace(declared, center=0.0, scale=1.0)
