"""A partitioned job from agreed columns to its result. The same code for one process and for every rank of an MPI job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ...algorithms.core.messages import SERVER
from ...algorithms.pvi import client_level
from ...algorithms.pvi.local import Local
from ...algorithms.pvi.settings import SHARDED
from ...data.degenerate import Degenerate, degenerate
from ...data.design import Design, encode
from ...data.table import Table
from ...errors import owned
from ...jobs import columns, machine
from ...jobs.hooks import RunHooks
from ...jobs.parties import Parties
from ...jobs.progress import Progress
from ...jobs.run import Output, Run
from ...jobs.watch import Watch
from ...models.glm import Rows, metrics
from ...results.result import Result
from ...transports.codec import Codec
from ...transports.place import Place
from . import publish
from .keys import Config
from .model import Model


def perform(run: Run[Config]) -> Result | None:
    """The part of one place; the result at the server's, None elsewhere."""
    place, found, hooks, output = run.place, run.parties, run.hooks, run.output
    tables = run.tables()
    model = Model(run.config, run.names, run.agreed(tables))
    designs, own = {}, {}
    for k in list(tables):
        designs[k], own[k] = _encoded(model, k, tables.pop(k), hooks)
    if model.privacy is None:
        hooks.notes += columns.exchanged(place, found.names, own, hooks)
    test = _test_rows(found, model) if place.is_server else None
    server = _trained(place, model, designs, test, hooks, output)
    certified = _certified(place, model, hooks)
    if server is None:
        return None
    return publish.result(model, server, test, certified, hooks)


def _encoded(model: Model, client: int, table: Table, hooks: RunHooks) -> tuple[Design, Degenerate]:
    """A client's arrays, and columns that nothing can be learnt from. What is wrong with its rows, or remarkable, is written in
    its own folder and nowhere else."""
    name = model.names[client]
    with owned(client):
        design = encode(table, model.encoding, private=model.privacy is not None, client=name)
        own = degenerate(design.X, model.encoding, intercept=model.config.model.intercept)
    notes = [*design.notes, *own.lines()]
    delta = model.privacy.of(name).delta if model.privacy is not None and not model.by_client else None
    if delta is not None and delta * table.n_rows >= 1:
        notes.append(f"delta = {delta:g} is not below 1 / rows = {1 / table.n_rows:.2g}: a mechanism may then publish whole rows")
    hooks.write_own(client, "rows.json", {"notes": notes, "faults": asdict(design.faults)})
    return design, own


def _rows(design: Design) -> Rows:
    return Rows(design.X, design.y, design.offset, design.weights)


def _test_rows(found: Parties, model: Model) -> Rows | None:
    """The server's own test rows."""
    table = found.test()
    with owned(SERVER):
        return None if table is None else _rows(encode(table, model.encoding))


def _trained(place: Place, model: Model, designs: dict[int, Design], test: Rows | None, hooks: RunHooks, output: Output) -> Any:
    """The server's last state; None where it does not live."""
    settings, algorithm, config = model.settings, model.algorithm, model.config
    clients = {}
    if model.by_client:
        hooks.allow(designs, model.plan("the federation"))
    for k, design in designs.items():
        noise: dict[str, Any] = {}
        if model.privacy is not None and not model.by_client:
            plan = model.plan(model.names[k])
            plan.check_size(model.names[k], len(design.y))
            noise = {"mechanism": plan.mechanism, "source": model.source(k)}
            hooks.open_budget(k, plan)
        local = Local(_rows(design), settings, k, row_ids=design.row_ids, n_threads=place.n_threads or machine.cores(), **noise)
        clients[k] = model.client(k, local)
    codec = Codec(settings.sizes(model.encoding.size), len(model.names))
    if not place.is_server:
        server, clients = hooks.run(place, model.protocol, None, clients, codec, resume=output.resume)
        _tell_failures(model, clients, hooks)
        return server
    start: Any
    if model.by_client:
        plan = model.plan("the federation")
        hooks.open_budget(SERVER, plan)
        averaged = config.algorithm.sites == "averaged"
        start = client_level.start(settings, model.prior, len(model.names), plan.mechanism, model.source(SERVER), averaged)
    else:
        start = algorithm.start(settings, model.prior, len(model.names))
    with Progress(settings.rounds, quiet=output.quiet) as progress:
        hooks.watch = Watch(
            algorithm.released,
            None if test is None else lambda q: metrics(q, test, settings.family, settings.scale),
            every=config.output.metrics_every,
            write=hooks.metric,
            progress=progress,
            timed=model.privacy is None,
        )
        server, clients = hooks.run(place, model.protocol, start, clients, codec, resume=output.resume)
        hooks.watch = None
    _tell_failures(model, clients, hooks)
    return server


def _tell_failures(model: Model, clients: Mapping[int, Any], hooks: RunHooks) -> None:
    """How often a client's optimisers failed, in its own folder, where that may show nowhere else."""
    silent = model.by_client or (model.privacy is not None and model.settings.variant in SHARDED)
    for k, client in clients.items() if silent else ():
        content = {"updates": client.updates, "optimisers": model.settings.shards * client.updates, "failed": client.failed}
        hooks.write_own(k, "optimiser.json", content)


def _certified(place: Place, model: Model, hooks: RunHooks) -> dict[str, Mapping[str, Any]]:
    """What each client says that it has spent: client -> certificate; at the server only, and empty without a claim."""
    if model.privacy is None:
        return {}
    if model.by_client:
        return {name: hooks.certificate(SERVER) for name in model.names} if place.is_server else {}
    return hooks.certified(place)
