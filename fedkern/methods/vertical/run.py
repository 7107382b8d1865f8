"""A vertical job from its files to its result. The same code for one process and for every rank of an MPI job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from ...algorithms.core.messages import SERVER, RemoteFault
from ...algorithms.exchanges import predictions as vertical_predict
from ...algorithms.exchanges import response
from ...algorithms.exchanges import rows as alignment
from ...algorithms.split import machine as vertical
from ...data.table import Table
from ...errors import JobError, owned
from ...jobs import columns as column_names
from ...jobs.hooks import RunHooks
from ...jobs.parties import Parties
from ...jobs.progress import Progress
from ...jobs.run import Output, Run
from ...jobs.watch import MeasuredWatch
from ...kernels import rng
from ...results.result import Result
from ...transports.codec import Codec
from ...transports.place import Place
from . import budget as private
from . import langevin, own, publish
from .keys import Config
from .model import VerticalModel
from .rows import Rows, ServerRows, aligned, columns, held_out, response_of, server_rows, unknown

DRAWS = 400  # of coefficients, for predictions whose moments are not known exactly


def perform(run: Run[Config]) -> Result | None:
    """The part of one place; the result at the server's, None elsewhere."""
    place, config, found, hooks, output = run.place, run.config, run.parties, run.hooks, run.output
    rows = _rows(place, config, found, hooks)
    if config.privacy is not None and len(rows.new):
        raise JobError(
            f"data.server: {len(rows.new)} rows have no response, and predictions would leave a client without noise; remove "
            "these rows at all parties"
        )
    model = VerticalModel(config, found.names, len(rows.train), len(rows.predicted))
    batch = config.algorithm.batch_size
    if batch is not None and batch > model.n_rows:
        raise JobError(f"algorithm.batch_size = {batch}: there are {model.n_rows} training rows; lower it, or leave it out")
    soul = config.algorithm.inference == "soul"
    train: Callable[..., tuple[Any, Mapping[int, Any]]] = langevin.trained if soul else _trained
    summary: Callable[..., Mapping[str, Any]] = langevin.summary if soul else own.summary
    server, clients = train(place, model, rows, hooks, output)
    for k, client in clients.items():
        hooks.write_own(k, "posterior.json", summary(model, client, rows.columns[k]))
    predicted = _predicted(place, model, rows, clients, hooks)
    certified = hooks.certified(place) if config.privacy is not None else {}
    if server is None:
        return None
    fitted = langevin.fitted(server) if soul else publish.fitted(server)
    return publish.result(model, fitted, rows, predicted, certified, hooks)


def _rows(place: Place, config: Config, found: Parties, hooks: RunHooks) -> Rows:
    """Aligns the parties' rows, and gives each party its arrays."""
    names, n = found.names, found.n_clients
    tables: dict[int, Table] = {}
    ids: dict[int, tuple[str, ...]] = {}
    for k in place.mine(n):
        with owned(k):
            tables[k], ids[k] = aligned(found.rows(k), config, f"client {names[k]!r}")
    has = {k: config.data.response in table.names for k, table in tables.items()}
    shared = config.algorithm.response == "shared"
    for k, there in has.items():
        if shared and not there:
            raise JobError(
                f"client {names[k]!r}: column {config.data.response!r} is missing, and this job uses the "
                'response at every client; add it, or take augmentation = "augmented" with algorithm.response = "server"'
            )
    table, own_ids = None, None
    new: tuple[int, ...] = ()
    if place.is_server and (loaded := found.server()) is not None:
        with owned(SERVER):
            table, own_ids = aligned(loaded, config, "data.server")
            new = unknown(table, config)
    seed = config.job.seed
    clients, counted = {}, config.privacy is None
    for k, t in tables.items():
        with owned(k):
            labels = alignment.labels_of(response_of(t, config, names[k]), seed) if shared else ""
        clients[k] = alignment.Client(names[k], ids[k], seed, has[k], labels, counted=counted)
    with owned(SERVER):
        rows = None if table is None else server_rows(table, config)
    own_labels = alignment.labels_of(rows.y, seed) if shared and rows is not None and not new else ""
    start = alignment.start(names, seed, own_ids, new, own_labels, counted=counted) if place.is_server else None
    server, clients = hooks.run(place, alignment.PROTOCOL, start, clients, Codec(alignment.DIMS, n))
    n_rows = server.n_rows if server is not None else len(next(iter(ids.values())))
    new = server.new if server is not None else next(iter(clients.values())).new
    train, test = held_out(config, n_rows, new)
    if config.data.server is None and not config.data.builtin:
        holder = (server.holders[0] if server.holders else None) if server is not None else next(iter(clients.values())).holder
        rows = _told(place, config, found, tables, holder, n_rows, hooks)
    made = {}
    for k in list(tables):
        with owned(k):
            made[k] = columns(tables.pop(k), config, train, names[k], response=shared)
    for k, column in made.items():
        hooks.write_own(k, "rows.json", {"notes": list(column.notes), "faults": asdict(column.faults)})
    if config.privacy is None:
        own_columns = {k: column.degenerate for k, column in made.items()}
        hooks.notes += column_names.exchanged(place, names, own_columns, hooks, split=True)
    return Rows(made, rows, train, test, np.array(new, np.int64), own_ids or ())


def _told(
    place: Place,
    config: Config,
    found: Parties,
    tables: Mapping[int, Table],
    holder: int | None,
    n_rows: int,
    hooks: RunHooks,
) -> ServerRows | None:
    """The response from the first client that has it, where the server has no file."""
    if holder is None:
        raise JobError(
            f"data.server is missing, and no client has a column {config.data.response!r}: give the server a file with "
            f"{config.data.id!r} and {config.data.response!r}"
        )
    if holder in tables and config.data.response not in tables[holder].names:
        raise RemoteFault(f"server: Aligned.holder is {holder}: client {found.names[holder]!r} has no response to tell")
    clients = {}
    for k, table in tables.items():
        with owned(k):
            clients[k] = response.Client(found.names[k], response_of(table, config, found.names[k]) if k == holder else None)
    start = response.start(holder) if place.is_server else None
    server, _ = hooks.run(place, response.PROTOCOL, start, clients, Codec({"n": n_rows}, found.n_clients))
    return None if server is None else ServerRows(server.y, None)


def _trained(
    place: Place, model: VerticalModel, rows: Rows, hooks: RunHooks, output: Output
) -> tuple[vertical.Server | None, dict[int, vertical.Client]]:
    """The last states of this place's parties."""
    config, settings, names = model.config, model.settings, model.names
    sd, likelihood = config.algorithm.start_sd, model.likelihood if model.shared else None
    clients: dict[int, vertical.Client] = {}
    for k, column in rows.columns.items():
        y = column.y[rows.train] if column.y is not None else None
        site = model.site(k, column, rows.train)
        if settings.private:
            clients[k] = private.client(model, hooks, k, site, y, likelihood)
        else:
            clients[k] = vertical.client(names[k], k, settings, site, y, likelihood, sd)
    start = None
    if rows.server is not None:
        start = vertical.start(settings, model.server, names, *rows.server.of(rows.train), sd)
    with Progress(settings.rounds, quiet=output.quiet) as progress:
        hooks.watch = MeasuredWatch(publish.measured, every=config.output.metrics_every, write=hooks.metric, progress=progress)
        codec = Codec(settings.dims(), len(names))
        server, clients = hooks.run(place, vertical.protocol(settings), start, clients, codec, resume=output.resume)
        hooks.watch = None
    return server, clients


def _predicted(
    place: Place, model: VerticalModel, rows: Rows, clients: Mapping[int, Any], hooks: RunHooks
) -> vertical_predict.Server | None:
    """The clients' parts at the test rows; None elsewhere than at the server, and where no row is kept for testing."""
    with_z = model.config.output.missing_party
    if not len(rows.predicted):
        return None
    ready = {}
    for k, client in clients.items():
        predictor = model.predictor(k, rows.columns[k], rows.predicted)
        if model.config.algorithm.inference == "soul":
            ready[k] = vertical_predict.Client(*langevin.predicted(client, predictor))
            continue
        normals = rng.normal(DRAWS * predictor.n_theta, key=rng.key(model.config.job.seed, "posterior"), client=k)
        mean, variance = client.site.predicted(client.released, predictor, normals.reshape(DRAWS, -1))
        z = client.site.mean_z(client.released, client.extra) if with_z else None
        ready[k] = vertical_predict.Client(mean, variance, z)
    n = len(model.names)
    start = vertical_predict.start(n, with_z) if place.is_server else None
    codec = Codec({"t": model.n_test, "n": model.n_rows}, n)
    server: Any = hooks.run(place, vertical_predict.protocol(with_z), start, ready, codec)[0]
    return server  # type: ignore[no-any-return]
