"""A job with a trained prior, from its files to its result. The same code for one process and for every rank of an MPI job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ...algorithms.core.messages import SERVER
from ...algorithms.exchanges import level
from ...algorithms.exchanges import prior as prior_agreement
from ...algorithms.hmc import machine as hmc
from ...algorithms.sfvi import machine as sfvi
from ...data.artifact import ClientFile, ServerFile, read_client, read_server
from ...data.faults import who
from ...data.table import Table
from ...errors import JobError, owned
from ...jobs import columns
from ...jobs.hooks import RunHooks
from ...jobs.progress import Progress
from ...jobs.run import Output, Run
from ...jobs.watch import MeasuredWatch
from ...models.spatial.site import Site
from ...models.spatial.units import Units
from ...results.result import Result
from ...transports.codec import Codec
from ...transports.place import Place
from . import own, publish
from .keys import Config
from .model import SigmaModel
from .points import extended
from .rows import AreaRows, needed, rows

SCATTER = 0.1  # sd of the places where chains start


def perform(run: Run[Config]) -> Result | None:
    """The part of one place; the result at the server's, None elsewhere."""
    place, config, names, hooks, output = run.place, run.config, run.names, run.hooks, run.output
    tables = run.tables()
    check_headers(config, names, tables)  # the agreement is about covariates alone
    encoding = run.agreed(tables)
    server_file, files = agreed(place, config, run.folder, names, hooks)
    common = server_file.common if server_file is not None else next(iter(files.values())).common
    model = SigmaModel(config, names, encoding, common)
    areas: dict[int, AreaRows] = {}
    for k in list(tables):
        with owned(k):
            files[k] = extended(files[k], tables[k], config, f"client {names[k]!r}")
            areas[k] = rows(tables.pop(k), config, encoding, files[k], names[k])
        hooks.write_own(k, "rows.json", {"notes": list(areas[k].notes), "faults": asdict(areas[k].faults)})
    hooks.notes += columns.exchanged(place, names, {k: own_rows.degenerate for k, own_rows in areas.items()}, hooks)
    model = replace(model, units=_units(place, model, areas, hooks))
    sites = {}
    for k, own_rows in areas.items():
        with owned(k):
            sites[k] = model.site(files[k], own_rows.observed)
    server, clients = _fitted(place, model, sites, hooks, output)
    if not model.chains:
        q = server.parameters if server is not None else next(iter(clients.values())).fitted
        publish.refuse_nonsense(model, model.sfvi.block(model.layout.size), q)
    for k, client in clients.items():
        own.write(model, client, sites[k], areas[k], files[k], hooks)
    if server is None:
        return None
    assert server_file is not None
    return publish.result(model, server, server_file, hooks)


def check_headers(config: Config, names: tuple[str, ...], tables: Mapping[int, Table]) -> None:
    """Whether every client's file has the columns that the job names, and rows: before the names of others leave it."""
    for k, table in tables.items():
        with owned(k):
            begin = who(names[k], table.source)
            needed(config, table.names, begin)
            if not table.n_rows:
                raise JobError(f"{begin}: no rows; give it those of what is to be predicted, with an empty response")


def agreed(
    place: Place, config: Config, folder: Path, names: tuple[str, ...], hooks: RunHooks | None = None
) -> tuple[ServerFile | None, dict[int, ClientFile]]:
    """Every party's own file of the prior, all of one training.

    Raises
    ------
    JobError
        A file is missing, altered, of another client or of another training; or the clients are not those of the prior.
    """
    path = folder / config.model.prior
    files = {k: read_client(path, names[k]) for k in place.mine(len(names))}
    server_file, start = None, None
    if place.is_server:
        server_file = read_server(path)
        if server_file.clients != names:
            unknown = sorted(set(names) ^ set(server_file.clients))
            what = f"{', '.join(unknown[:6])} on one side only" if unknown else "the same clients in another order"
            raise JobError(
                f"{path}: this prior was trained for {len(server_file.clients)} clients, the job has {len(names)} ({what}); name "
                "the files as the prior's clients, or give data.names; a client without data needs a file with its areas, and "
                "empty responses"
            )
        start = prior_agreement.start(names, server_file.common.id, server_file.digests)
    if hooks is not None:
        own = {k: file.digest for k, file in files.items()} | ({SERVER: server_file.common.id} if server_file else {})
        fault = "its file of the prior is of another training than the one with which this run began"
        for party, digest in own.items():
            hooks.bind(party, prior=(digest, fault))
    clients = {k: prior_agreement.Client(names[k], file.common.id, file.digest, str(path)) for k, file in files.items()}
    runner = place.run if hooks is None else lambda *job: hooks.run(place, *job)
    runner(prior_agreement.PROTOCOL, start, clients, Codec(prior_agreement.DIMS, len(names)))
    return server_file, files


def _units(place: Place, model: SigmaModel, areas: Mapping[int, AreaRows], hooks: RunHooks) -> Units:
    """The units of the response, the same at every place."""
    names = model.names
    clients = {k: level.Client(names[k], model.level, rows.observed) for k, rows in areas.items()}
    start = level.start(model.level, names) if place.is_server else None
    server, clients = hooks.run(place, level.PROTOCOL, start, clients, Codec(level.DIMS, len(names)))
    units = (server if server is not None else next(iter(clients.values()))).units
    assert isinstance(units, Units)
    return units


def _fitted(
    place: Place, model: SigmaModel, sites: Mapping[int, Site], hooks: RunHooks, output: Output
) -> tuple[Any, Mapping[int, Any]]:
    """The last states of this place's parties."""
    names, config = model.names, model.config
    start: Any = None
    clients: dict[int, Any] = {}
    protocol: Any
    if model.chains:
        s = model.hmc
        for k, site in sites.items():
            clients[k] = hmc.client(names[k], k, s, site, s.starts(k, site.size, 0.0, SCATTER))
        if place.is_server:
            start = hmc.start(s, model.prior, names, s.starts(SERVER, model.prior.size, 0.0, SCATTER))
        protocol, sizes, rounds = hmc.protocol(s), s.sizes(model.layout.size), s.rounds
    else:
        v = model.sfvi
        prior = model.prior if v.local_steps else None
        for k, site in sites.items():
            clients[k] = sfvi.client(names[k], k, v, site, len(names), prior, model.family(site))
        if place.is_server:
            start = sfvi.start(v, model.prior, names)
        protocol, sizes, rounds = sfvi.protocol(v), v.sizes(model.layout.size), v.rounds
    with Progress(rounds, quiet=output.quiet) as progress:
        measured = publish.measured(model)
        hooks.watch = MeasuredWatch(measured, every=config.output.metrics_every, write=hooks.metric, progress=progress)
        found = hooks.run(place, protocol, start, clients, Codec(sizes, len(names)), resume=output.resume)
        hooks.watch = None
    return found
