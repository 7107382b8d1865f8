"""Runs a sparse job from agreed columns to its result, by the same code in one process and on every rank of an MPI job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...algorithms.core import once
from ...algorithms.core.messages import ServerEffects
from ...algorithms.core.rounds import in_order
from ...algorithms.exchanges import compare
from ...algorithms.exchanges import scales as scaling
from ...algorithms.exchanges.answers import SiteFit
from ...algorithms.exchanges.scales import MORE, AskMeans, ColumnMeans, ColumnValues, means_of
from ...algorithms.exchanges.sums import LAPLACE, Counts, ErrorShape, LooSums, departures
from ...algorithms.gibbs import machine as gibbs
from ...algorithms.gibbs import pooled as gibbs_pooled
from ...algorithms.gibbs.settings import Prior
from ...algorithms.gibbs.sites import MarkovRandomField, Regression, Site
from ...arrays import Array
from ...data import far, lacking
from ...data.degenerate import Degenerate, degenerate, with_far
from ...data.design import encode
from ...data.header import not_there
from ...data.table import Table
from ...errors import owned
from ...finding import Finding
from ...jobs import column_notes, convergence
from ...jobs.publish import Fit, keep_draws
from ...jobs.run import Run, anyone
from ...jobs.stage import Stage
from ...jobs.watch import Line
from ...results import meta, mixing, samples, streamed
from ...results.plain import Record
from . import own, publish, stages
from .keys import Config, against_student
from .model import OTHER_PRIORS, Columns, Scales, SparseModel
from .streams import Streams


@dataclass(frozen=True)
class Data:
    """Holds the data of this place once scales are agreed."""

    model: SparseModel  # the same everywhere
    # columns, sites: of the clients that live here: as they came, and their parts of the model
    columns: Mapping[int, Columns]
    sites: Mapping[int, Site]
    scales: Scales  # those of all clients, which are the same everywhere too, or of the clients of a further run
    imputed: Record  # client -> its rows and their missing values, at the server's place, where values may be missing
    # (M, w) number of different values of each client's columns, 3 for more, where the server's draws are made
    values: Array | None = None

    @property
    def tells(self) -> NDArray[np.bool_] | None:
        """Whether, (M, P), each client's rows tell something of a coefficient."""
        return None if self.values is None else self.model.told_by(self.values)


@dataclass(frozen=True)
class Variant:
    """Holds a further run of the sampler: its name, and the prior or the clients by which it differs."""

    name: str = ""
    prior: Prior | None = None
    without: frozenset[int] = frozenset()  # clients that the model leaves out


def fit(run: Run[Config]) -> Fit | None:
    """Runs the part of one place. Returns the result at the server's place, None elsewhere."""
    tables = run.tables()
    model = SparseModel(run.config, run.names, run.agreed(tables))
    run = run.with_model(model)
    data = _data(run, model, tables)
    fits = _site_fits(run, data) if model.output.site_fits else None
    server, clients = sampled(run.with_lines(_line), data, Variant())
    # Keep the draws before further exchanges: a loss in these must not cost them.
    released = kept = fitted = None
    if server is not None:
        released = publish.released(model, server, data.scales.each)
        kept = keep_draws(run, released, model.settings.chains, server.trace.count)
    rows = {k: own.Own(client, data.columns[k], data.scales) for k, client in clients.items()}
    left_out = _left_out(run, model, rows)
    if not (model.pooled or model.secure):  # how often a draw failed hangs on a client's rows, and on what the server asks
        server = _counted(run, server, clients)
    if model.kind == "sem":
        run.hooks.notes += _shape(run, model, rows)
    others = _others(run, data)
    others |= {name: content for name, content in (("meta", fits), ("imputed", data.imputed)) if content}
    if server is not None and released is not None and kept is not None:
        first = publish.fit(model, server, data.scales.each, released, run.hooks.doubts)
        fitted = replace(publish.with_others(first, others), kept=kept)
    verdict = None if fitted is None else fitted.verdict
    verdicts = convergence.tell_verdict(run, verdict)
    for k, record in rows.items():
        with owned(k):
            own.write(run, model, record, verdicts[k])
    return fitted if fitted is None or left_out is None else publish.with_sums(fitted, left_out, model.telling)


def _shape(run: Run[Config], model: SparseModel, rows: Mapping[int, own.Own]) -> list[str]:
    """Notes, at the server's place, errors of structural equations that are not Laplace; empty elsewhere."""

    def told(record: own.Own) -> ErrorShape:
        n = len(record.columns.values) if record.client.trace.count else 0
        ratio = own.error_ratio(model, record) if n else np.full(len(model.nodes), LAPLACE)
        return ErrorShape(0, n, ratio)

    server = run.collect(stages.shaped(model), ErrorShape, rows, told)
    return [] if server is None else publish.not_laplace(model, departures(list(in_order(server.replies))))


def _left_out(run: Run[Config], model: SparseModel, rows: Mapping[int, own.Own]) -> once.Server[LooSums] | None:
    """Asks clients for leave-one-out sums of their rows, where the job has them; the answer is at the server's place."""
    if not model.output.loo:
        return None
    return run.collect(stages.left_out(model), LooSums, rows, lambda record: own.left_out(model, record))


def _data(run: Run[Config], model: SparseModel, tables: dict[int, Table]) -> Data:
    """Encodes the clients' columns, and agrees with all parties on scales."""
    columns: dict[int, Columns] = {}
    degenerates: dict[int, Degenerate] = {}
    for k in list(tables):
        with owned(k):
            table, absent = tables.pop(k), list[str]()
            if model.imputes:
                table, absent = lacking.fill_lacking(table, model.encoding)
            design = encode(table, model.encoding, missing=model.imputes, client=run.names[k])
            columns[k] = model.columns(design, run.names[k])
            known = ~np.isnan(design.y)
            y = None if model.is_student else design.y[known]
            looked_at = far.columns(table, model.encoding, known)
            degenerates[k] = with_far(degenerate(design.X[known], model.encoding), looked_at, model.encoding, y, None)
            notes = [f"{name} is not in this file: every value of it is drawn by the model" for name in absent]
            notes += [*not_there(model.ignored, table.names), *far.notes(table, model.encoding, design.y)]
            notes += [
                *design.notes,
                *model.constants(columns[k].values),
                *replace(degenerates[k], constant=()).describe_columns(),
            ]
        rows = len(columns[k].values)
        if len(design.y) > rows:
            notes.append(f"{len(design.y) - rows} rows without a response were left out")
        notes += model.gaps(columns[k])
        run.note_rows(k, notes, design.faults, len(design.X))
    # Questions about columns come before the scales, which a wrong column would spoil for all.
    run.hooks.find(column_notes.exchange_notes(run, degenerates))
    values = _values(run, model, columns)
    if values is not None:
        run.hooks.notes += model.two_valued(values)
    scales, query = _scales(run, model, columns)
    imputed = {} if query is None else publish.imputed(model, query.sites)
    means = _means(run, model, columns) if model.measured.size else None
    if query is not None and query.moments and values is not None:
        run.hooks.find(_compared(run, model, query.moments, values, means))
    sites = {k: model.site(held, scales, run.threads, run.used.home) for k, held in columns.items()}
    return Data(model, columns, sites, scales, imputed, values)


def _values(run: Run[Config], model: SparseModel, columns: Mapping[int, Columns]) -> Array | None:
    """Asks for (M, w) the number of different values of each client's columns; at the server's place, None elsewhere."""
    server = run.collect(stages.valued(model), ColumnValues, columns, lambda held: ColumnValues(0, model.counted(held)))
    if server is None:
        return None
    numbers = np.stack([answer.values for answer in in_order(server.replies)])
    model.refuse_constants(numbers)
    return numbers


def _means(run: Run[Config], model: SparseModel, columns: Mapping[int, Columns]) -> Array | None:
    """Asks for (M, u) the centres of each client's columns, in steps of their sd; at the server's place, None elsewhere."""
    clients = {k: once.ready_client(model.located(held)) for k, held in columns.items()}
    server, _ = run.ask(stages.located(model), ColumnMeans.question, AskMeans(0), clients)
    return None if server is None else np.stack([answer.steps for answer in in_order(server.replies)])


def _compared(
    run: Run[Config], model: SparseModel, moments: Sequence[scaling.ColumnMoments], values: Array, means: Array | None
) -> list[Finding]:
    """Returns findings on sites whose column varies otherwise than the others', or about another mean.

    Left out are clients with two values of a column, since their variance is that of a share, and columns whose center and scale
    the job file gives. `values`: (M, w) number of different values of each client's columns; `means`: (M, u) of the measured
    columns, in steps as they are told.
    """
    degrees, squares = (np.array([getattr(answer, name) for answer in moments]) for name in ("degrees", "squares"))
    squares[degrees == 0] = 0.0
    variances, centres = squares / np.maximum(degrees, 1), np.zeros(squares.shape)
    if means is not None:
        centres[:, model.measured] = means_of(means, variances[:, model.measured])
    n, found = np.where(values >= MORE, degrees + 1, 0.0), list[Finding]()
    for j in np.flatnonzero(model.undeclared).tolist():
        name, of_response = model.scaled[j], model.scales_response and j == len(model.scaled) - 1
        student = of_response and not model.is_student and not against_student(model.config)
        remedies = ["student-errors", "declare-column"] if student else ["declare-column"]
        moments_of_column, owner = (n[:, j], centres[:, j], variances[:, j]), model.owner(name)
        found += compare.of_column(model.public(name), model.names, *moments_of_column, remedies, owner=owner)
        if means is not None and j in model.measured:
            run.hooks.columns += compare.by_client(owner, model.names, *moments_of_column)
    return found


def _scales(
    run: Run[Config], model: SparseModel, columns: Mapping[int, Columns], variant: Variant | None = None
) -> tuple[Scales, scaling.Server | None]:
    """Returns scales of the job file, or over all clients (or those of a further run), and the server's state behind them."""
    known = None if model.scale == "pooled" else model.known_scales()
    if known is not None and not model.exchanges_scales:
        return Scales(known), None
    name, without = (
        ("", frozenset[int]()) if variant is None else (f"scaling{variant.name.removeprefix('gibbs')}", variant.without)
    )
    w, second = len(model.scaled), model.second_moments
    tails = model.degrees if model.is_student else None
    clients = {
        k: scaling.Client(c.values[:, :w], second, completed=c.completed, known=known, tails=tails) for k, c in columns.items()
    }
    public = tuple(map(model.public, model.scaled))

    def start() -> tuple[scaling.Server, ServerEffects]:
        if model.imputes:
            return scaling.imputing(public, model.names, known, without)
        return scaling.start(public, model.names, second, without)

    server, clients = run.exchange(stages.scaled(model).with_alias(name), start, clients)
    agreed = anyone(server, clients)
    assert agreed.scales is not None
    rows = () if server is None else server.rows
    return Scales(agreed.scales, agreed.psi, rows), server


def _without(run: Run[Config], data: Data, variant: Variant) -> tuple[Data, Sequence[str]]:
    """Returns the data of a further run at its scales and Psi, and (at the server) the scales that had to stay those of all."""
    if not data.model.exchanges_scales:
        return data, ()
    scales, query = _scales(run, data.model, data.columns, variant)
    sites = {k: data.model.site(held, scales, run.threads, run.used.home) for k, held in data.columns.items()}
    kept = () if query is None else query.kept
    return replace(data, scales=scales, sites=sites), kept


def _site_fits(run: Run[Config], data: Data) -> Record | None:
    """Asks for the clients' least-squares fits, and combines them at the server."""
    model, w = data.model, data.model.coefficients.size

    def told(held: Columns) -> SiteFit:
        return SiteFit(0, *meta.least_squares(held.values[:, :w], held.values[:, w]))

    server = run.collect(stages.fitted(model), SiteFit, data.columns, told)
    if server is None:
        return None
    psi = data.scales.psi[:w, :w] if model.imputes and data.scales.psi is not None else None
    combined = publish.combine_fits(model, list(in_order(server.replies)), psi, data.imputed)
    run.hooks.notes += publish.meta_notes(combined)
    return combined


def _line(server: gibbs.Server | gibbs_pooled.Server, due: bool) -> Line | None:
    """Makes the line of metrics.jsonl, when it is due: the size of the model."""
    if not due or not isinstance(server, gibbs.Server):
        return None
    included = float(np.mean(server.values.inclusion.sum(axis=(1, 2))))
    metrics = {"included": round(included, 3), "eta": float(np.median(server.values.eta))}
    return Line({"kept": server.trace.count, "metrics": metrics}, f"about {included:.1f} included")


def _judge(data: Data) -> gibbs.Judge | None:
    """Makes the function that says whether the slowest printed quantity has converged, as `until` wants it.

    It judges the same quantities as `slowest` of the result.
    """
    until, tells = data.model.until, data.tells
    if until is None:
        return None

    def judge(trace: Any) -> bool:
        if isinstance(trace, Streams):
            mixed = {name: trace.streams[name].rhat_ess() for name in streamed.JUDGED if name in trace.streams}
        else:
            kept = {name: trace[name] for name in samples.JUDGED if name in trace.names()}
            sites = list(np.moveaxis(trace["sites"], 2, 0)) if "sites" in trace.names() else []
            numbers = [str(i) for i in range(len(sites))]
            kept |= {f"theta@{i}": drawn for i, drawn in zip(numbers, sites)}
            if tells is not None and len(tells) != len(sites):  # a client is lost
                mixed = samples.mix(kept, None, numbers)
            else:
                mixed = samples.mix(kept, tells, numbers)
        slowest = mixing.slowest(mixed)
        return slowest is not None and slowest[0] <= until.rhat and slowest[1] >= until.ess

    return judge


def _trace(model: SparseModel, *, client: bool) -> Streams | None:
    """Makes the summaries in the place of kept draws, where there are too many coefficients; None keeps all draws."""
    if len(model.effects) <= model.output.largest:
        return None
    delta = model.output.delta
    if client:
        return Streams({"deviates": lambda d: (np.abs(d["deviation"]) > delta) * 1.0}, thinned=(), unused=("deviation",))
    derived: dict[str, Callable[[Mapping[str, Array]], NDArray[np.floating[Any]]]] = {
        "log_tau": lambda d: 0.5 * np.log(d["tau_sq"]),
        "log_eta": lambda d: np.log(d["eta"]),
        "logit_rho": lambda d: np.log(d["rho"]) - np.log1p(-d["rho"]),
        "large": lambda d: (np.abs(d["average"]) > delta) * 1.0,
    }
    if model.kind == "mrf":
        derived["partial"] = lambda d: publish.partial(d["theta"], len(model.nodes))
    if model.settings.aggregate == "sums":
        del derived["large"]
    return Streams(derived)


def sampled(run: Run[Config], data: Data, variant: Variant) -> tuple[gibbs.Server | None, Mapping[int, gibbs.Client]]:
    """Runs the sampler once: returns the server's last state, None elsewhere, and the clients', as far as they sample."""
    model, stage = data.model, stages.sampled(data.model)
    prior, compares = variant.prior or model.settings.prior, model.may_be_reversed and not variant.name
    settings = replace(model.settings, n_threads=run.threads, prior=prior, compares=compares)
    judge, n, m = _judge(data), len(model.names), len(model.telling)
    if model.pooled:

        def asked() -> tuple[gibbs_pooled.Server, ServerEffects]:
            trace = _trace(model, client=False)
            state = gibbs_pooled.Server(settings, model.kind, n, judge, trace, variant.without, data.tells)
            return gibbs_pooled.start(state)

        server, _ = run.exchange(stage, asked, {k: _statistics(data, k) for k in data.sites})
        if server is None:
            return None, {}
        return server.sampled, {}

    def start() -> tuple[gibbs.Server, ServerEffects]:
        server, questions = gibbs.start(settings, m, judge, _trace(model, client=False), variant.without)
        return replace(server, rows=data.scales.rows, told=data.tells, together=n // m), questions

    clients = {
        k: gibbs.client(model.names[k], k, settings, site, _trace(model, client=True), _seed(run, model, k, variant))
        for k, site in data.sites.items()
    }
    scales = data.scales
    psi = b"" if scales.psi is None else scales.psi.tobytes()
    run.know_alike(scales.each.tobytes() + psi)
    ended, sampled = run.exchange(stage.with_alias(variant.name), start, clients)
    # Of sums the server knows one count of rounds, in each of which all took part.
    return ended and replace(ended, updates=np.resize(ended.updates, n)), sampled


def _seed(run: Run[Config], model: SparseModel, client: int, variant: Variant) -> int | None:
    """Returns a secret seed of a client's random numbers, another for each variant of the fit: two with one would tell more."""
    return run.secret_key(client, f"fit {variant.name}") if model.secret else None


def _counted(run: Run[Config], server: gibbs.Server | None, clients: Mapping[int, gibbs.Client]) -> gibbs.Server | None:
    """Adds the events of the clients' sweeps to the server's last state."""
    query = run.collect(Stage.asking(Counts), Counts, clients, lambda client: Counts(0, *map(int, client.events[:3])))
    if server is None or query is None:
        return None
    return replace(server, events=server.events + np.array(Counts.total(query.replies).each))


def _statistics(data: Data, client: int) -> gibbs_pooled.Client:
    """Makes a client that tells its sufficient statistics and takes no further part."""
    site = data.sites[client]
    assert isinstance(site, Regression | MarkovRandomField)
    return gibbs_pooled.Client(site.factor, len(data.columns[client].values))


def _others(run: Run[Config], data: Data) -> dict[str, object]:
    """Makes the further runs that a job may ask for: other priors, and the model without each client."""
    model = data.model
    wanted = model.output
    runs: dict[str, object] = {}
    # Each further run is a whole run of the sampler, with all its messages.
    if wanted.sensitivity:
        rows: list[dict[str, object]] = []
        for number, (s_tau, c0) in enumerate(OTHER_PRIORS):
            prior = replace(model.settings.prior, scale_tau=s_tau, c0=c0, spike_variance=0.0)
            server, _ = sampled(run, data, Variant(f"gibbs-{number}", prior))
            if server is not None:
                row = publish.further(model, server, data.scales.each)
                for name in ("theta_std", "theta"):
                    row.pop(name, None)
                rows.append({"s_tau": s_tau, "c0": c0, **row})
        runs["sensitivity"] = rows
    if wanted.leave_one_out and len(model.names) > 1:
        left = {}
        for k, name in enumerate(model.names):
            variant = Variant(f"gibbs-without-{k}", without=frozenset({k}))
            others, kept = _without(run, data, variant)
            server, _ = sampled(run, others, variant)
            if server is not None:
                left[name] = publish.further(model, server, others.scales.each)
                if kept:
                    left[name]["scales_of_all"] = list(kept)
        runs["leave_one_out"] = left
    return runs
