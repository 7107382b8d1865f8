"""A sparse job from agreed columns to its result. The same code for one process and for every rank of an MPI job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...algorithms.exchanges import scales as scaling
from ...algorithms.gibbs import machine as gibbs
from ...algorithms.gibbs import pooled as gibbs_pooled
from ...algorithms.gibbs.settings import Settings
from ...algorithms.gibbs.sites import MarkovRandomField, Regression, Site
from ...data import lacking
from ...data.degenerate import Degenerate, degenerate
from ...data.design import encode
from ...data.table import Table
from ...errors import JobError, owned
from ...jobs import columns, machine
from ...jobs.hooks import RunHooks
from ...jobs.progress import Progress
from ...jobs.run import Run
from ...jobs.watch import SamplerWatch
from ...results import diagnostics, mixing, samples, streamed
from ...results.result import Result
from ...transports.codec import Codec
from ...transports.place import Place
from . import own, publish
from .keys import Config
from .model import SparseModel
from .streams import Streams

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Data:
    """What the clients of this place have, once scales are agreed: columns as they came, sites, and what all know."""

    values: Mapping[int, Array]
    sites: Mapping[int, Site]
    scales: Array
    psi: Array | None


def perform(run: Run[Config]) -> Result | None:
    """The part of one place; the result at the server's, None elsewhere."""
    place, config, hooks, output = run.place, run.config, run.hooks, run.output
    tables = run.tables()
    model = SparseModel(config, run.names, run.agreed(tables))
    if config.algorithm.until is not None and not diagnostics.available():
        raise JobError("algorithm.until needs ArviZ for R-hat and ESS: pip install 'fedkern[results]'")
    data = _data(place, model, tables, hooks)
    fits = own.exchanged(place, model, data.values, hooks) if config.output.site_fits else None
    with Progress(model.settings.rounds, quiet=output.quiet) as progress:
        hooks.watch = SamplerWatch(every=config.output.metrics_every, write=hooks.metric, progress=progress)
        server, clients = sampled(place, model, data, model.settings, hooks, resume=output.resume)
        hooks.watch = None
    for k, client in clients.items():
        if isinstance(client, gibbs.Client) and client.trace.count:
            hooks.write_own(k, "posterior.json", own.summary(model, client, data.values[k], data.scales))
    others = _others(place, model, data, hooks)
    if server is None:
        return None
    return publish.result(model, server, data.scales, others | ({"meta": fits} if fits else {}), hooks)


def _data(place: Place, model: SparseModel, tables: dict[int, Table], hooks: RunHooks) -> Data:
    """The clients' columns, and the scales that all agree on."""
    config, names = model.config, model.names
    values: dict[int, Array] = {}
    found: dict[int, Degenerate] = {}
    for k in list(tables):
        with owned(k):
            table, absent = tables.pop(k), list[str]()
            if config.model.missing == "impute":
                table, absent = lacking.filled(table, model.encoding)
            design = encode(table, model.encoding, missing=config.model.missing == "impute", client=names[k])
            values[k] = model.values(design, names[k])
            found[k] = degenerate(design.X[~np.isnan(design.y)], model.encoding)
            notes = [f"{name} is not in this file: every value of it is drawn by the model" for name in absent]
            notes += [*design.notes, *model.constants(values[k]), *replace(found[k], constant=()).lines()]
        if len(design.y) > len(values[k]):
            notes.append(f"{len(design.y) - len(values[k])} rows without a response were left out")
        hooks.write_own(k, "rows.json", {"notes": notes, "faults": asdict(design.faults)})
    hooks.notes += columns.exchanged(place, names, found, hooks)
    if config.model.scale != "pooled":
        scales, psi = model.known_scales(), None
    else:
        scales, psi = _pooled(place, model, values, hooks)
    threads = place.n_threads or machine.cores()
    return Data(values, {k: model.site(v, scales, psi, threads) for k, v in values.items()}, scales, psi)


def _pooled(place: Place, model: SparseModel, values: dict[int, Array], hooks: RunHooks) -> tuple[Array, Array | None]:
    scaled, n = model.scaled, len(model.names)
    clients = {k: scaling.Client(v[:, : len(scaled)], model.second_moments) for k, v in values.items()}
    told = tuple(map(model.told, scaled))
    start = scaling.start(told, model.names, model.second_moments) if place.is_server else None
    protocol = scaling.protocol(second=model.second_moments)
    server, clients = hooks.run(place, protocol, start, clients, Codec({"w": len(scaled)}, n))
    known = server if server is not None else next(iter(clients.values()))
    assert known.scales is not None
    return known.scales, known.psi


def _judge(config: Config) -> gibbs.Judge | None:
    """Whether the slowest of theta, log tau, q, log eta and logit rho has converged, as `until` wants it."""
    until = config.algorithm.until
    if until is None:
        return None

    def judge(trace: Any) -> bool:
        if isinstance(trace, Streams):
            found = [trace.streams[name].rhat_ess() for name in streamed.JUDGED]
        else:
            found = [mixing.rhat_ess(trace[name]) for name in samples.JUDGED]
        rhat = max(float(np.nanmax(r, initial=1.0)) for r, _ in found)
        ess = min(float(np.nanmin(e, initial=np.inf)) for _, e in found)
        return rhat <= until.rhat and ess >= until.ess

    return judge


def _trace(model: SparseModel, *, client: bool) -> Any:
    """What collects kept draws: all of them, or streams where there are too many coefficients."""
    if len(model.effects) <= model.config.output.largest:
        return None
    delta = model.config.output.delta
    if client:
        return Streams({"deviates": lambda d: (np.abs(d["deviation"]) > delta) * 1.0}, thinned=(), unused=("deviation",))
    derived: dict[str, Callable[[Mapping[str, Array]], Any]] = {
        "log_tau": lambda d: 0.5 * np.log(d["tau_sq"]),
        "log_eta": lambda d: np.log(d["eta"]),
        "logit_rho": lambda d: np.log(d["rho"]) - np.log1p(-d["rho"]),
        "large": lambda d: (np.abs(d["average"]) > delta) * 1.0,
    }
    if model.config.model.kind == "mrf":
        derived["partial"] = lambda d: publish.partial(d["theta"], len(model.nodes))
    if model.config.algorithm.aggregate == "sums":
        del derived["large"]
    return Streams(derived)


def sampled(
    place: Place,
    model: SparseModel,
    data: Data,
    settings: Settings,
    hooks: RunHooks,
    *,
    resume: bool = False,
    without: frozenset[int] = frozenset(),
    name: str = "gibbs",
) -> tuple[Any, dict[int, Any]]:
    """One run of the sampler: the server's last state (None elsewhere) and the clients'."""
    config, n = model.config, len(model.names)
    judge = _judge(config)
    settings = replace(settings, n_threads=place.n_threads or machine.cores())
    if config.algorithm.statistics == "pooled":
        return _at_the_server(place, model, data, settings, hooks, judge, without), {}
    clients = {k: gibbs.client(model.names[k], k, settings, site, _trace(model, client=True)) for k, site in data.sites.items()}
    protocol, codec = replace(gibbs.protocol(settings), name=name), Codec(settings.dims(), n)
    start = None
    if place.is_server or config.algorithm.topology == "allgather":
        start = gibbs.start(settings, n, judge, _trace(model, client=False), without)
    if config.algorithm.topology == "allgather":
        return hooks.run(place.gathering, replace(protocol, name=f"{name}-allgather"), start, clients, codec)
    return hooks.run(place, protocol, start, clients, codec, resume=resume)


def _at_the_server(
    place: Place,
    model: SparseModel,
    data: Data,
    settings: Settings,
    hooks: RunHooks,
    judge: gibbs.Judge | None,
    without: frozenset[int],
) -> Any:
    clients = {}
    for k, site in data.sites.items():
        assert isinstance(site, Regression | MarkovRandomField)
        clients[k] = gibbs_pooled.Client(site.factor, len(data.values[k]))
    start = None
    if place.is_server:
        trace = _trace(model, client=False)
        state = gibbs_pooled.Server(settings, model.config.model.kind, len(model.names), judge, trace, without)
        start = gibbs_pooled.start(state)
    server, _ = hooks.run(place, gibbs_pooled.PROTOCOL, start, clients, Codec(settings.dims(), len(model.names)))
    return None if server is None else server.sampled


GRID = tuple((s_tau, c0) for c0 in (0.01, 0.0025) for s_tau in (1.0, 0.3, 0.1))  # docs/methods/sparse.md, section 12


def _others(place: Place, model: SparseModel, data: Data, hooks: RunHooks) -> dict[str, Any]:
    """Further runs that a job may ask for: other priors, and the model without each client."""
    wanted, settings, names = model.config.output, model.settings, model.effects
    runs: dict[str, Any] = {}
    if wanted.sensitivity:
        rows: list[dict[str, Any]] = []
        for s_tau, c0 in GRID:
            prior = replace(settings.prior, scale_tau=s_tau, c0=c0, spike_variance=0.0)
            server, _ = sampled(place, model, data, replace(settings, prior=prior), hooks, name=f"gibbs-{len(rows)}")
            if server is not None:
                rows.append({"s_tau": s_tau, "c0": c0, "pip": publish.named(names, publish.pip(model, server))})
        runs["sensitivity"] = rows
    if wanted.leave_one_out and len(model.names) > 1:
        left = {}
        for k, name in enumerate(model.names):
            server, _ = sampled(place, model, data, settings, hooks, without=frozenset({k}), name=f"gibbs-without-{k}")
            if server is not None:
                left[name] = {
                    "pip": publish.named(names, publish.pip(model, server)),
                    "theta_std": publish.named(names, publish.means(model, server)),
                }  # fmt: skip
        runs["leave_one_out"] = left
    return runs
