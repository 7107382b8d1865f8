"""Runs a job of the method sigma (disease maps, and other spatial data) from its files to its result.

The same code runs in one process and on every rank of an MPI job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...algorithms.core import once
from ...algorithms.core.messages import SERVER, ServerEffects
from ...algorithms.exchanges import level
from ...algorithms.exchanges.sums import FitSums
from ...algorithms.hmc import machine as hmc
from ...algorithms.nested import machine as nested
from ...algorithms.sfvi import machine as sfvi
from ...data.faults import who
from ...data.table import Table
from ...errors import JobError, owned
from ...jobs import column_notes, convergence
from ...jobs.formula import agreeing
from ...jobs.publish import Fit, judging, keep_draws
from ...jobs.run import Ended, Run, anyone
from ...jobs.watch import Line, Lines, measuring
from ...models.spatial.loadings import LevelRidge
from ...models.spatial.site import Site
from ...models.spatial.units import Units
from ...models.spatial.within_site import WithinSite
from ...results import rates
from . import borders, budget, own, publish, stages, weights
from . import files as prior  # `_nested` and `_fitted` have a local `prior`, a density, which hides it
from .keys import Config
from .model import SigmaModel
from .rows import AreaRows, Reading, needed, rows

SCATTER = 0.1  # sd of the points where chains start


def fit(run: Run[Config]) -> Fit | None:
    """Does the work of this place (a process, or an MPI rank) in the job. Returns the result at the server's place, None
    elsewhere."""
    config, names = run.config, run.names
    tables = run.tables()
    _check_headers(run, tables)  # `run.agreed` below compares covariates alone, so a missing response would be found too late
    files = prior.read(run)
    # Bind the prior before any message: a private client's answers are sent again after a crash, so a resumed run must have the
    # same prior. `fault` is the text where it has another.
    fault = "its file of the prior is not the one with which this run began"
    for party, digest in files.digests.items():
        run.hooks.bind(party, prior=(digest, fault))
    # Tables leave these mappings when they are used: their memory is freed, and a private job keeps no count without noise.
    reads = {k: Reading.of(tables.pop(k), config, names[k], files.clients[k].areas) for k in list(tables)}
    encoding = agreeing.agreed(run, {k: read.table for k, read in reads.items()})
    prior.agree(run, files)
    run.hooks.doubts += () if files.server is None else files.server.doubts
    shapes = borders.read(run, files.clients)
    model = SigmaModel(config, names, encoding, files.common)
    encoding = model.encoding
    run = run.with_model(model)  # its stages do not depend on the units, which come below
    areas: dict[int, AreaRows] = {}
    for k in list(reads):
        with owned(k):
            read = reads.pop(k)
            areas[k] = rows(read, encoding, files.clients[k])
        run.note_rows(k, areas[k].notes, areas[k].faults, len(areas[k].area))
        # Noise comes before any number computed from the counts leaves this process; from here on only noisy counts exist.
        if model.privacy is not None:
            areas[k] = budget.add_noise(run, model.privacy, model.response, k, areas[k], files.clients[k])
    # `degenerate` holds the covariates of which nothing can be learnt.
    run.hooks.find(column_notes.exchange_notes(run, {k: area_rows.degenerate for k, area_rows in areas.items()}))
    model = replace(model, units=_units(run, model, areas))
    run.know_alike(model.told)
    sites = {}
    for k, area_rows in areas.items():
        with owned(k):
            sites[k] = model.site(files.clients[k], area_rows.observed)
    server: publish.Server | None
    clients: Mapping[int, hmc.Client | sfvi.Client | nested.Client]
    settled: dict[str, bool | None] = {}  # name -> whether the client's unknowns have settled; None: the client is gone
    reweighed = None
    if model.chains:
        server, clients = _sampled(run, model, sites)
    elif model.is_nested:
        server, clients = _nested(run, model, sites)
    else:
        ridge = None if files.server is None else model.ridge(files.server.mean_loadings)
        server, clients, settled = _fitted(run, model, sites, ridge)
        # Only a variational fit is judged by weights here: a nested one has weights in its rounds.
        reweighed = weights.exchange_terms(run, model, server, clients, settled)
    fitted, known = None, None
    if server is not None:
        assert files.server is not None
        released = publish.build_posterior(model, server)
        inference = publish.NESTED if model.is_nested else ""
        kept = keep_draws(run, released, *publish.shape_of(released), inference=inference)
        ended = publish.Ended(server, settled, reweighed, tuple(run.hooks.doubts))
        fitted = replace(publish.fit(model, ended, files.server, released), kept=kept)
        with judging(run, kept):
            known = publish.figures_of(model, released)
    # Clients' files are headed by the verdict, so that it is told first.
    verdict = None if fitted is None else fitted.verdict
    verdicts = convergence.tell_figures(run, stages.judged(model), verdict, known)
    sums = {}
    for k, client in clients.items():
        with owned(k):
            sums[k] = own.write(run, model, own.Own(client, sites[k], areas[k], files.clients[k], *verdicts[k], shapes.get(k)))
    # `own.write` returns None only in jobs that ask for no sums.
    total = _summed(run, model, {k: measures for k, measures in sums.items() if measures is not None})
    if model.privacy is not None:
        certificates = run.certified()
        fitted = None if fitted is None else replace(fitted, privacy=certificates)
    return fitted if fitted is None or total is None else publish.with_sums(fitted, total, model.telling, hides=model.hides)


def _summed(run: Run[Config], model: SigmaModel, sums: Mapping[int, FitSums]) -> once.Server[FitSums] | None:
    """Adds up over clients how well areas are predicted, in jobs with output.fit; the answer is at the server's place."""
    if not model.output.fit:
        return None
    return run.collect(stages.summed(model), FitSums, sums, lambda measures: measures)


def _check_headers(run: Run[Config], tables: Mapping[int, Table]) -> None:
    """Refuses a client's file without the job's columns, or without rows, before the names of its other columns leave it."""
    for k, table in tables.items():
        with owned(k):
            begin = who(run.names[k], table.source)
            needed(run.config, table.names, begin)
            if not table.n_rows:
                raise JobError(f"{begin}: no rows; give it those of what is to be predicted, with an empty response")


def _units(run: Run[Config], model: SigmaModel, areas: Mapping[int, AreaRows]) -> Units:
    """Asks the clients for the units of the response, the same at every place; the server's have the number `n` of rows too."""
    clients = {k: level.Client(run.names[k], model.level, rows.observed) for k, rows in areas.items()}
    server, clients = run.exchange(stages.levelled(model), lambda: level.start(model.level, model.telling), clients)
    if server is not None:
        run.hooks.notes += filter(None, [server.note, *server.found])
    if server is not None and model.compares_rates:
        run.hooks.find(rates.of_exposures(model.response, model.telling, server.answers))
    units = anyone(server, clients).units
    assert isinstance(units, Units)
    return units if server is None else replace(units, n=server.rows)


def _seed(run: Run[Config], model: SigmaModel, client: int) -> int:
    """Returns the seed of a client's own random numbers: of all streams, or with secure sums a secret one.

    From a sum over clients whose random numbers it knows a server could compute by regression how each client's part depends on
    its own.
    """
    return run.secret_key(client, "fit") if model.secure else model.seed


def _sampled(run: Run[Config], model: SigmaModel, sites: Mapping[int, Site | WithinSite]) -> Ended[hmc.Server, hmc.Client]:
    """Runs chains, and returns the last states of this place's parties."""
    s, names = model.hmc, model.names
    clients = {}
    for k, site in sites.items():
        settings = replace(s, seed=_seed(run, model, k))
        clients[k] = hmc.client(names[k], k, s, site, settings.starts(k, site.size, 0.0, SCATTER), settings.seed)

    def start() -> tuple[hmc.Server, ServerEffects]:
        return hmc.start(s, model.prior, model.telling, s.starts(SERVER, model.prior.size, 0.0, SCATTER))

    return run.with_lines(measuring(publish.measured(model))).exchange(stages.fitted(model), start, clients)


def _nested(run: Run[Config], model: SigmaModel, sites: Mapping[int, Site | WithinSite]) -> Ended[nested.Server, nested.Client]:
    """Runs a nested Laplace approximation, and returns the last states of this place's parties."""
    s, names, prior = model.nested, model.names, model.standard
    clients = {}
    for k, site in sites.items():
        assert isinstance(site, WithinSite)  # `SigmaModel` refuses a nested job with a trained prior
        clients[k] = nested.client(names[k], k, s, site, prior.n_linear)
    return run.with_lines(_lines()).exchange(stages.fitted(model), lambda: nested.start(s, prior, names), clients)


def _lines() -> Lines[nested.Server]:
    """Makes the function that composes a line: a record for metrics.jsonl, and words for the progress."""
    doing = {"mode": "looking for the mode", "lattice": "around the mode", "draws": "weights"}

    # `v` holds the points of the lattice; `drawn` counts questions for weights, and `values` the draws that these are about.
    def line(server: nested.Server, due: bool) -> Line:
        places = len(server.v)
        words = f"{doing[server.phase]}, {server.drawn} questions" if server.drawn else f"{doing[server.phase]}, {places} places"
        return Line({"phase": server.phase, "places": places, "draws": len(server.values)}, words)

    return line


def _fitted(
    run: Run[Config], model: SigmaModel, sites: Mapping[int, Site | WithinSite], ridge: LevelRidge | None
) -> tuple[sfvi.Server | None, dict[int, sfvi.Client], dict[str, bool | None]]:
    """Runs a variational fit; NumericalError if it has diverged. Returns the last states of this place's parties; at the server,
    name -> whether each client's unknowns have settled (else empty)."""
    v, names = model.sfvi, model.names
    prior = model.prior if v.local_steps else None  # local steps need the gradient of the prior, which else is the server's
    clients = {
        k: sfvi.client(names[k], k, v, site, len(names), prior, model.family(site), _seed(run, model, k))
        for k, site in sites.items()
    }
    shown = run.with_lines(measuring(publish.measured(model)))
    server, clients = shown.exchange(
        stages.fitted(model), lambda: sfvi.start(v, model.prior, model.telling, ridge=ridge), clients
    )
    q = server.parameters if server is not None else next(iter(clients.values())).fitted
    assert q is not None
    publish.refuse_nonsense(model, q)
    movements = {k: convergence.movement_at(k, client) for k, client in clients.items()}
    return server, clients, convergence.exchange_settled(run, movements)
