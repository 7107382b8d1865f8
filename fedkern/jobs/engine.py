"""A whole job: data, agreement, algorithm, results. The same code for one process and for every rank of an MPI job."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

from ..algorithms.core.messages import SERVER
from ..algorithms.exchanges import columns as agreement
from ..algorithms.pvi import client_level
from ..algorithms.pvi import machine as pvi
from ..algorithms.pvi.local import Local
from ..algorithms.pvi.settings import SHARDED
from ..data.degenerate import Degenerate, degenerate
from ..data.design import Design, describe, encode
from ..data.table import Table
from ..errors import JobError, owned
from ..jobs import machine
from ..methods.pvi.model import Model
from ..methods.pvi.watch import Watch
from ..methods.sigma import run as sigma
from ..methods.sparse import run as sparse
from ..methods.vertical import run as vertical
from ..models.encoding import Encoding
from ..models.expfam import Gaussian
from ..models.glm import Rows, metrics
from ..results.digest import digest
from ..results.gaussian import Posterior
from ..results.inference_data import write
from ..results.result import Result
from ..results.summary import Outcome, summary
from ..transports.codec import Codec
from ..transports.inprocess import InProcess
from . import columns
from .files import RunFolder
from .hooks import RunHooks
from .identity import job_bytes
from .load import AnyConfig, SigmaConfig, SparseConfig, VerticalConfig
from .parties import Parties, parties
from .progress import Progress

if TYPE_CHECKING:
    from ..transports.mpi import Ranks

    Place = InProcess | Ranks


FAR = 10.0  # standard deviations of the prior


@dataclass(frozen=True)
class Output:
    """Where a run writes, and how much it says.

    Attributes
    ----------
    folder : of the run's files; None writes nothing
    resume : go on from the last checkpoint in it
    quiet : no progress
    """

    folder: Path | None = None
    resume: bool = False
    quiet: bool = False


def perform(place: Place, config: AnyConfig, folder: Path, output: Output) -> Result | None:
    """The part of one place (a process, or an MPI rank) in a job whose paths are relative to `folder`.

    Returns
    -------
    the result at the server's place, None elsewhere
    """
    place.signals.advice = " before the first round; nothing is lost"
    found = parties(config, folder)
    mine = place.mine(found.n_clients)
    agree(place, config, found)
    identity = job_bytes(config, found.names)
    files = None if output.folder is None else RunFolder(output.folder, found.names, identity, config.output.own_folders(folder))
    # The bits of a BLAS product depend on its number of threads: a job uses one, and splits its own kernels instead.
    with RunHooks(config, found.names, files) as hooks, threadpool_limits(1, user_api="blas"):
        hooks.clients = tuple(mine)
        hooks.permit(place, found, quiet=output.quiet)
        if files is not None:
            files.close(mine, required=config.privacy is not None, there=output.resume)
            found = hooks.begin(place, found, resume=output.resume)
        place.hooks = hooks  # from here on they decide what others read of a fault
        hooks.note_use()
        if isinstance(config, VerticalConfig):
            return vertical.perform(place, config, found, hooks, output)
        tables = {k: found.rows(k) for k in mine}
        if isinstance(config, SigmaConfig):
            sigma.check_headers(config, found.names, tables)  # the agreement is about covariates alone
        encoding = _agreed(place, found, tables, hooks)
        if isinstance(config, SparseConfig):
            return sparse.perform(place, config, found.names, encoding, tables, hooks, output)
        if isinstance(config, SigmaConfig):
            return sigma.perform(place, config, folder, found.names, encoding, tables, hooks, output)
        model = Model(config, found.names, encoding)
        designs, own = {}, {}
        for k in mine:
            designs[k], own[k] = _encoded(model, k, tables.pop(k), hooks)
        if model.privacy is None:
            hooks.notes += columns.exchanged(place, found.names, own, hooks)
        test = _test_rows(found, model) if place.is_server else None
        server = _trained(place, model, designs, test, hooks, output)
        certified = _certified(place, model, hooks)
        if server is None:
            return None
        return _published(model, server, test, certified, hooks)


def agree(place: Place, config: AnyConfig, found: Parties) -> None:
    """JobError on a rank whose job or clients are others than rank 0's, or if there are too many ranks."""
    place.names = found.names
    place.agree(f"{config.digest} {' '.join(found.names)}".encode())
    if place.size > 1 + found.n_clients:
        raise JobError(f"{place.size} ranks for a server and {found.n_clients} clients; start at most {1 + found.n_clients}")


def _agreed(place: Place, found: Parties, tables: Mapping[int, Any], hooks: RunHooks) -> Encoding:
    """The encoding of the columns, the same at every place."""
    clients = {}
    for k, table in tables.items():
        with owned(k):
            name = found.names[k]
            clients[k] = agreement.Client(found.spec, describe(table, found.spec, name), name=name)
    start = agreement.start(found.spec, found.names) if place.is_server else None
    server, clients = hooks.run(place, agreement.PROTOCOL, start, clients, Codec(agreement.DIMS, found.n_clients))
    encoding = (server if server is not None else next(iter(clients.values()))).encoding
    assert isinstance(encoding, Encoding)
    return encoding


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


def _trained(
    place: Place, model: Model, designs: dict[int, Design], test: Rows | None, hooks: RunHooks, output: Output
) -> Any:
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


def _published(model: Model, server: Any, test: Rows | None, certified: Mapping[str, Any], hooks: RunHooks) -> Result:
    """Everything that the server publishes, in the run's folder if there is one."""
    config, files = model.config, hooks.folder
    q = model.algorithm.released(server)
    posterior = Posterior(model.encoding.names, q, model.encoding.affine() if model.encoding.standardised else None)
    draws = config.output
    notes = [*hooks.notes, *_remarks(model, server, q)]
    if files is not None:
        try:
            write(posterior, files.path / "posterior.nc", seed=config.job.seed, chains=draws.chains, draws=draws.draws)
        except JobError as error:
            notes.append(f"no posterior.nc: {error}")
    outcome = Outcome(
        stop="updates" if server.stop == "budget" and not server.refused else server.stop,
        rounds=server.round,
        clients={name: {"updates": int(server.updates[k]), "status": _status(server, k)} for k, name in enumerate(model.names)},
        lost=hooks.gone,
        metrics={} if test is None else metrics(q, test, config.model.family, config.model.scale),
        privacy=certified,
        wire=hooks.wire.as_dict(),
        digest=digest(_arrays(server, q)),
        encoding=model.encoding.to_dict(),
        versions=machine.of_a_run(),
        notes=notes,
    )
    content = summary(config.job.method, posterior, outcome)
    if files is not None:
        files.write_json("summary.json", content)
    return Result(content, posterior, None if files is None else files.path, config.job.seed, draws.chains, draws.draws)


def _remarks(model: Model, server: Any, q: Gaussian) -> list[str]:
    """What a reader of the result should know of it: clients that are not in it, and coefficients at which the prior pulls."""
    without = [name for k, name in enumerate(model.names) if k in server.refused and not server.updates[k]]
    notes = [f"{', '.join(without)}: not in the result, for no update of theirs fits their budgets"] if without else []
    precision = model.config.model.prior_precision
    away = np.abs(q.mean) * math.sqrt(precision)
    if far := [f"{name} ({by:.3g})" for name, by in zip(model.encoding.names, away) if by > FAR]:
        notes.append(
            f"so many standard deviations of their prior from zero: {', '.join(far)}. The prior pulls at them; lower "
            f"model.prior_precision = {precision:g}, or give the columns or the response in larger units"
        )
    return notes


def _arrays(server: Any, q: Gaussian) -> dict[str, Any]:
    """What the digest is of: the released h and P, and where there are sites those too."""
    sites = {"site_h": server.site_h, "site_P": server.site_P} if isinstance(server, pvi.Server) else {}
    return {"h": q.h, "P": q.P, **sites}


def _status(server: Any, client: int) -> str:
    """What became of a client."""
    return "lost" if client in server.lost else "budget spent" if client in server.refused else "finished"
