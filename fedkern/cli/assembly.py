"""A whole job: data, agreement, algorithm, results. The same code for one process and for every rank of an MPI job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from ..algorithms import agreement, client_level, pvi
from ..algorithms.local import Local
from ..algorithms.messages import SERVER
from ..data.design import Design, describe, encode
from ..data.table import Table
from ..errors import JobError
from ..models.encoding import Encoding
from ..models.expfam import Gaussian
from ..models.glm import Rows, metrics
from ..results.digest import digest
from ..results.inference_data import write
from ..results.posterior import Posterior
from ..results.result import Result
from ..results.summary import Outcome, summary
from ..transports.codec import Codec
from ..transports.inprocess import InProcess
from . import info
from .config import AnyConfig, SigmaConfig, SparseConfig, VerticalConfig
from .files import RunFolder
from .hooks import RunHooks
from .model import Model
from .parties import Parties, parties
from .progress import Progress
from .sigma import assembly as sigma
from .sparse import assembly as sparse
from .vertical import assembly as vertical
from .watch import Watch

if TYPE_CHECKING:
    from ..transports.mpi import Ranks

    Place = InProcess | Ranks


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
    found = parties(config, folder)
    mine = place.mine(found.n_clients)
    identity = agreed_identity(place, config, found)
    files = None if output.folder is None else RunFolder(output.folder, found.names, identity)
    if files is not None:
        if output.resume and place.is_server and not (files.path / "job.json").exists():
            raise JobError(f"{files.path}: there is no run to resume; give the --out of the run, or leave out --resume")
        files.claim([*mine, *([SERVER] if place.is_server else [])], resume=output.resume)
    # The bits of a BLAS product depend on its number of threads: a job uses one, and splits its own kernels instead.
    with RunHooks(config, found.names, files) as hooks, threadpool_limits(1, user_api="blas"):
        place.hooks, hooks.clients = hooks, tuple(mine)  # from here on they decide what others read of a fault
        if files is not None and place.is_server:
            files.write_json("job.json", config.model_dump())
        if isinstance(config, VerticalConfig):
            return vertical.perform(place, config, found, hooks, output)
        tables = {k: found.rows(k) for k in mine}
        encoding = _agreed(place, found, tables, hooks)
        if isinstance(config, SparseConfig):
            return sparse.perform(place, config, found.names, encoding, tables, hooks, output)
        if isinstance(config, SigmaConfig):
            return sigma.perform(place, config, folder, found.names, encoding, tables, hooks, output)
        model = Model(config, found.names, encoding)
        designs = {k: _encoded(model, k, tables.pop(k), hooks) for k in mine}
        test = _test_rows(found, model) if place.is_server else None
        server = _trained(place, model, found, designs, test, hooks, output)
        certified = _certified(place, model, hooks)
        if server is None:
            return None
        return _published(model, server, test, certified, hooks)


def agreed_identity(place: Place, config: AnyConfig, found: Parties) -> bytes:
    """What every rank of the job must have in common; JobError on a rank that has something else, or if there are too many."""
    identity = f"{config.digest} {' '.join(found.names)}".encode()
    place.agree(identity)
    if place.size > 1 + found.n_clients:
        raise JobError(f"{place.size} ranks for a server and {found.n_clients} clients; start at most {1 + found.n_clients}")
    return identity


def _agreed(place: Place, found: Parties, tables: Mapping[int, Any], hooks: RunHooks) -> Encoding:
    """The encoding of the columns, the same at every place."""
    clients = {k: agreement.Client(found.spec, describe(table, found.spec, found.names[k])) for k, table in tables.items()}
    start = agreement.start(found.spec, found.names) if place.is_server else None
    server, clients = hooks.run(place, agreement.PROTOCOL, start, clients, Codec(agreement.DIMS, found.n_clients))
    encoding = (server if server is not None else next(iter(clients.values()))).encoding
    assert isinstance(encoding, Encoding)
    return encoding


def _encoded(model: Model, client: int, table: Table, hooks: RunHooks) -> Design:
    """A client's arrays. What is wrong with its rows, or remarkable, is written in its own folder and nowhere else."""
    name = model.names[client]
    design = encode(table, model.encoding, private=model.privacy is not None, client=name)
    notes = [*design.notes]
    delta = model.privacy.of(name).delta if model.privacy is not None and not model.by_client else None
    if delta is not None and delta * table.n_rows >= 1:
        notes.append(f"delta = {delta:g} is not below 1 / rows = {1 / table.n_rows:.2g}: a mechanism may then publish whole rows")
    if notes or design.faults.rows:
        hooks.write_own(client, "rows.json", {"notes": notes, "faults": asdict(design.faults)})
    return design


def _rows(design: Design) -> Rows:
    return Rows(design.X, design.y, design.offset, design.weights)


def _test_rows(found: Parties, model: Model) -> Rows | None:
    """The server's own test rows."""
    table = found.test()
    return None if table is None else _rows(encode(table, model.encoding))


def _trained(
    place: Place, model: Model, found: Parties, designs: dict[int, Design], test: Rows | None, hooks: RunHooks, output: Output
) -> Any:
    """The server's last state; None where it does not live."""
    settings, algorithm, config = model.settings, model.algorithm, model.config
    clients = {}
    for k, design in designs.items():
        noise: dict[str, Any] = {}
        if model.privacy is not None and not model.by_client:
            plan = model.plan(model.names[k])
            noise = {"mechanism": plan.mechanism, "source": model.source(k)}
            hooks.open_budget(k, found.data_name(k), plan, found.fingerprint)
        local = Local(_rows(design), settings, k, row_ids=design.row_ids, n_threads=place.n_threads or info.cores(), **noise)
        clients[k] = model.client(k, local)
    codec = Codec(settings.sizes(model.encoding.size), len(model.names))
    if not place.is_server:
        return hooks.run(place, algorithm.PROTOCOL, None, clients, codec, resume=output.resume)[0]
    start: Any
    if model.by_client:
        plan = model.plan("the federation")
        hooks.open_budget(SERVER, "federation", plan)
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
        server, _ = hooks.run(place, algorithm.PROTOCOL, start, clients, codec, resume=output.resume)
        hooks.watch = None
        return server


def _certified(place: Place, model: Model, hooks: RunHooks) -> dict[str, Mapping[str, Any]]:
    """What each client says that it has spent: client -> certificate; at the server only, and empty without a claim."""
    if model.privacy is None:
        return {}
    if model.by_client:
        return {name: hooks.certificate(SERVER, total=False) for name in model.names} if place.is_server else {}
    return hooks.certified(place)


def _published(model: Model, server: Any, test: Rows | None, certified: Mapping[str, Any], hooks: RunHooks) -> Result:
    """Everything that the server publishes, in the run's folder if there is one."""
    config, files = model.config, hooks.folder
    q = model.algorithm.released(server)
    posterior = Posterior(model.encoding.names, q, model.encoding.affine() if model.encoding.standardised else None)
    draws = config.output
    notes = list(hooks.notes)
    if files is not None:
        try:
            write(posterior, files.path / "posterior.nc", seed=config.job.seed, chains=draws.chains, draws=draws.draws)
        except JobError as error:
            notes.append(f"no posterior.nc: {error}")
    outcome = Outcome(
        stop="updates" if server.stop == "budget" and not server.refused else server.stop,
        rounds=server.round,
        clients={name: {"updates": int(server.updates[k]), "status": _status(server, k)} for k, name in enumerate(model.names)},
        metrics={} if test is None else metrics(q, test, config.model.family, config.model.scale),
        privacy=certified,
        wire=hooks.wire.as_dict(),
        digest=digest(_arrays(server, q)),
        encoding=model.encoding.to_dict(),
        versions=info.of_a_run(),
        notes=notes,
    )
    content = summary(config.job.method, posterior, outcome)
    if files is not None:
        files.write_json("summary.json", content)
    return Result(content, posterior, None if files is None else files.path, config.job.seed, draws.chains, draws.draws)


def _arrays(server: Any, q: Gaussian) -> dict[str, Any]:
    """What the digest is of: the released h and P, and where there are sites those too."""
    sites = {"site_h": server.site_h, "site_P": server.site_P} if isinstance(server, pvi.Server) else {}
    return {"h": q.h, "P": q.P, **sites}


def _status(server: Any, client: int) -> str:
    """What became of a client."""
    return "lost" if client in server.lost else "budget spent" if client in server.refused else "finished"
