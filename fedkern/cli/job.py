"""A whole job: data, agreement, algorithm, results. The same code for one process and for every rank of an MPI job."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..algorithms import agreement, certificates, client_level, global_vi, pvi
from ..algorithms.local import Local
from ..algorithms.messages import SERVER
from ..data.design import Design, describe, encode
from ..errors import BudgetSpent, JobError
from ..kernels import rng
from ..models.encoding import Encoding
from ..models.expfam import Gaussian
from ..models.glm import Rows, metrics, prior
from ..privacy.noise import KeyedSource, SecureSource, Source
from ..results.digest import digest
from ..results.posterior import Posterior
from ..results.result import Result
from ..results.summary import Outcome, summary
from ..transports.codec import Codec
from ..transports.inprocess import InProcess
from . import info, terms
from .config import Config, load
from .hooks import RunHooks
from .parties import Parties, parties

if TYPE_CHECKING:
    from ..transports.mpi import Ranks

    Place = InProcess | Ranks


def run(job: str | Path | Mapping[str, Any], /, *, out: str | Path | None = None, **sections: Mapping[str, Any]) -> Result:
    """Runs a job in this process.

    Parameters
    ----------
    job : path of a job file, or its tables
    out : folder for the run's files; by default nothing is written
    **sections : tables that override keys of the job, such as `algorithm={"damping": 0.2}`

    Returns
    -------
    Result

    Raises
    ------
    JobError
        A bad job or bad data; the text says which key, client or row, and what to do.
    BudgetSpent
        A privacy budget ended the job before `algorithm.min_updates`.
    """
    config, folder = load(job, sections=sections)
    result = perform(InProcess(), config, folder)
    assert result is not None
    return result


def place_for(options: argparse.Namespace, main: Callable[[Place], int]) -> int:
    """Runs `main` where the options say: in this process, or as one rank of an MPI job; the exit code."""
    if not options.mpi:
        return main(InProcess())
    try:
        from ..transports.driver import Timeouts
        from ..transports.launch import launch
    except ImportError as error:
        raise JobError(f"--mpi needs mpi4py and an MPI library ({error}): pip install 'fedkern[mpi]'") from None
    try:
        deadline = load(options.job, options.sets)[0].job.deadline
    except JobError:
        deadline = Timeouts().lost  # `main` says what is wrong, once for all ranks
    return launch(main, Timeouts(lost=deadline))


@dataclass(frozen=True)
class Model:
    """What all parties know once the columns are agreed."""

    config: Config
    names: tuple[str, ...]
    encoding: Encoding

    @property
    def prior(self) -> Gaussian:
        """Of all coefficients, in the form of the posterior."""
        return prior(self.encoding.size, self.config.model.prior_precision, self.config.model.covariance)

    @property
    def by_client(self) -> bool:
        """Whether whole clients are protected, by noise at the server."""
        return self.config.privacy is not None and self.config.privacy.unit == "client"

    @property
    def algorithm(self) -> Any:
        """The module of the server's and the clients' machines."""
        return global_vi if self.config.algorithm.variant == "global-vi" else client_level if self.by_client else pvi

    def plan(self, client: str) -> terms.Plan:
        """What one client may spend."""
        return terms.plan(self.config, client, self.encoding.size, len(self.names))

    def source(self, party: int) -> Source:
        """Where a party's noise and coins come from."""
        assert self.config.privacy is not None
        if self.config.privacy.noise_source == "secure":
            return SecureSource()
        return KeyedSource(rng.key(self.config.job.seed, "noise"), party)


def perform(place: Place, config: Config, folder: Path) -> Result | None:
    """The part of one place (a process, or an MPI rank) in a job.

    Returns
    -------
    the result at the server's place, None elsewhere
    """
    found = parties(config, folder)
    if place.size > 1 + found.n_clients:
        raise JobError(f"{place.size} ranks for a server and {found.n_clients} clients; start at most {1 + found.n_clients}")
    place.agree(f"{config.digest} {' '.join(found.names)}".encode())
    hooks = RunHooks(found.names, private=config.privacy is not None)
    tables = {k: found.rows(k) for k in place.mine(found.n_clients)}
    model = Model(config, found.names, _agreed(place, found, tables, hooks))
    designs = {
        k: encode(tables.pop(k), model.encoding, private=config.privacy is not None, client=found.names[k]) for k in list(tables)
    }
    test = _test_rows(found, model) if place.is_server else None
    server = _trained(place, model, designs, test, hooks)
    certified = _certificates(place, model, hooks)
    if server is None:
        return None
    return _result(model, server, test, certified, hooks)


def _agreed(place: Place, found: Parties, tables: Mapping[int, Any], hooks: RunHooks) -> Encoding:
    """The encoding of the columns, the same at every place."""
    clients = {k: agreement.Client(found.spec, describe(table, found.spec, found.names[k])) for k, table in tables.items()}
    start = agreement.start(found.spec, found.names) if place.is_server else None
    server, clients = place.run(agreement.PROTOCOL, start, clients, Codec(agreement.DIMS, found.n_clients), hooks)
    encoding = (server if server is not None else next(iter(clients.values()))).encoding
    assert encoding is not None
    return encoding


def _test_rows(found: Parties, model: Model) -> Rows | None:
    """The server's own test rows."""
    table = found.test()
    return None if table is None else _rows(encode(table, model.encoding))


def _rows(design: Design) -> Rows:
    return Rows(design.X, design.y, design.offset, design.weights)


def _trained(place: Place, model: Model, designs: dict[int, Design], test: Rows | None, hooks: RunHooks) -> Any:
    """The server's last state; None where it does not live."""
    settings, algorithm = terms.settings(model.config, model.names), model.algorithm
    private = model.config.privacy is not None
    clients = {}
    for k, design in designs.items():
        noise: dict[str, Any] = {}
        if private and not model.by_client:
            plan = model.plan(model.names[k])
            noise = {"mechanism": plan.mechanism, "source": model.source(k)}
            hooks.open_budget(k, plan)
        local = Local(_rows(design), settings, k, row_ids=design.row_ids, n_threads=place.n_threads or info.cores(), **noise)
        clients[k] = algorithm.client(model.names[k], local, model.prior)
    start = None
    if place.is_server and model.by_client:
        plan = model.plan("")
        hooks.open_budget(SERVER, plan)
        averaged = model.config.algorithm.sites == "averaged"
        start = client_level.start(settings, model.prior, len(model.names), plan.mechanism, model.source(SERVER), averaged)
    elif place.is_server:
        start = algorithm.start(settings, model.prior, len(model.names))
    codec = Codec(settings.sizes(model.encoding.size), len(model.names))
    return place.run(algorithm.PROTOCOL, start, clients, codec, hooks)[0]


def _certificates(place: Place, model: Model, hooks: RunHooks) -> dict[str, Mapping[str, Any]]:
    """What each client says that it has spent: client -> certificate; at the server only, and empty without a claim."""
    if model.config.privacy is None:
        return {}
    if model.by_client:
        return dict.fromkeys(model.names, hooks.certificate(SERVER)) if place.is_server else {}
    n = len(model.names)
    clients = {k: certificates.Client(hooks.certificate(k)) for k in place.mine(n)}
    start = certificates.start(n) if place.is_server else None
    server, _ = place.run(certificates.PROTOCOL, start, clients, Codec(certificates.DIMS, n), hooks)
    return {} if server is None else {model.names[k]: server.replies[k] for k in sorted(server.replies)}


def _result(model: Model, server: Any, test: Rows | None, certified: Mapping[str, Any], hooks: RunHooks) -> Result:
    """Everything that the server publishes."""
    config = model.config
    q = model.algorithm.released(server)
    posterior = Posterior(model.encoding.names, q, model.encoding.affine() if model.encoding.standardised else None)
    arrays = {"h": q.h, "P": q.P}
    if isinstance(server, pvi.Server):
        arrays |= {"site_h": server.site_h, "site_P": server.site_P}
    outcome = Outcome(
        stop=server.stop,
        rounds=server.round,
        clients={name: {"updates": int(server.updates[k]), "status": _status(server, k)} for k, name in enumerate(model.names)},
        metrics={} if test is None else metrics(q, test, config.model.family, config.model.scale),
        privacy=certified,
        wire=hooks.wire.as_dict(),
        digest=digest(arrays),
        encoding=model.encoding.to_dict(),
        versions=info.of_a_run(),
    )
    content = summary(config.job.method, posterior, outcome)
    return Result(content, posterior, None, config.job.seed, config.output.chains, config.output.draws)


def _status(server: Any, client: int) -> str:
    """What became of a client."""
    return "lost" if client in server.lost else "budget spent" if client in server.refused else "finished"
