"""Runs a vertical job from its files to its result, by the same code in one process and on every rank of an MPI job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ...algorithms import soul
from ...algorithms.core.legs import Heard, Telling
from ...algorithms.core.messages import SERVER, RemoteFault, ServerEffects
from ...algorithms.exchanges import missing, predictions, response
from ...algorithms.exchanges import rows as alignment
from ...algorithms.exchanges.response import AuxiliarySd, Narrow
from ...algorithms.split import machine as vertical
from ...algorithms.split import private as private_split
from ...arrays import Indices
from ...data.table import Table
from ...errors import JobError, owned
from ...jobs import admitted, column_notes, convergence, incomplete
from ...jobs.publish import Fit
from ...jobs.run import Run, anyone
from ...jobs.stage import Stage
from ...jobs.watch import measuring
from . import budget, langevin, normal, own, parts, publish, replay, stages
from .common import Party, as_compared, compared, count_common, in_common
from .keys import Config
from .model import VerticalModel
from .normal import Lines
from .rows import (
    Reading,
    Rows,
    ServerRows,
    aligned,
    alignment_of,
    check_common,
    check_counts,
    check_declared,
    columns,
    held_out,
    no_response,
    response_of,
    server_rows,
    unknown,
)
from .widths import Widths

Client = vertical.Client | soul.Client


@dataclass(frozen=True)
class Aligned:
    """Holds the data of this place once all parties know which rows the job has."""

    tables: dict[int, Table]  # of its clients, rows in the agreed order
    server: ServerRows | None  # the server's rows, where it has a file; `ids` of them
    ids: tuple[str, ...]
    holder: int | None  # the client that tells the server the response, if one has to
    complete: dict[int, int]  # rows of its clients' files that lack no cell
    n_rows: int  # of all
    # train, test, new: see `Rows`
    train: Indices
    test: Indices
    new: Indices


def fit(run: Run[Config]) -> Fit | None:
    """Runs the part of one place. Returns the result at the server's place, None elsewhere."""
    aligned = _aligned(run)
    model = VerticalModel(run.config, run.names, len(aligned.train), len(aligned.test) + len(aligned.new))
    run = run.with_model(model)
    check_counts(run.config, len(aligned.train), len(aligned.new))
    # Other parties learn how many rows lack a cell, and no more.
    counted = incomplete.exchange_incomplete(run, aligned.tables, aligned.complete)
    run.hooks.notes += incomplete.notes(run.config, counted)
    if model.drops and counted and any(counts["rows"] > aligned.n_rows for counts in counted.values()):
        run.hooks.notes.append(f"{aligned.n_rows} rows are complete at all parties; all others are left out")
    rows = _rows(run, model, aligned)
    model = _worked_out(run, model, rows)
    fitted: publish.Fitted | None
    ratios, lines = dict[int, float](), dict[int, Lines]()
    clients: Mapping[int, Client]
    if model.inference == "soul":
        drawn, clients = langevin.trained(run, model, rows)
        fitted = None if drawn is None else langevin.fitted(drawn)
    else:
        server, clients = _trained(run, model, rows)
        settled: dict[str, bool | None] = {}
        fitted = None if server is None else publish.fitted(server, model)
        if model.watched:
            movements = {
                k: convergence.movement_at(k, client) for k, client in clients.items() if isinstance(client, vertical.Client)
            }
            widths = None if fitted is None else fitted.widths
            ratios, lines = _tell_widths(run, model, widths, server, rows, clients)
            doubted = [k for k in movements if rows.columns[k].tied or (k in lines and len(lines[k].off))]
            settled = convergence.exchange_settled(run, movements, doubted)
        fitted = None if fitted is None else replace(fitted, settled=settled)
    predicted, filled = None, None
    # Parts at predicted rows are sent once the fit is known.
    if model.n_test:
        start = partial(predictions.start, run.names, bool(model.output.missing_party))
        predicted, _ = run.exchange(stages.predicted(model), start, _prepared(model, rows, clients))
    if stages.by_columns(model):
        filled, _ = run.exchange(stages.filled_in(model), partial(missing.start, len(run.names)), _columns(model, rows, clients))
    certificates = {} if model.open else run.certified()
    fit = None
    if fitted is not None:
        fitted = replace(fitted, predicted=predicted, filled=filled, doubts=tuple(run.hooks.doubts))
        fit = publish.fit(model, fitted, rows)
    # The verdict is told before clients write their files, which it heads.
    judged = None if fit is None else fit.verdict
    verdicts = convergence.tell_verdict(run, judged)
    for k, client in clients.items():
        with owned(k):
            own.write(run, model, own.Own(client, rows.columns[k], ratios.get(k), lines.get(k)), verdicts[k])
    if fit is None:
        return None
    if counted:
        fit = replace(fit, more={**fit.more, "incomplete": counted})
    return replace(fit, privacy=certificates)


def _aligned(run: Run[Config]) -> Aligned:
    """Brings the parties' rows into one order, and splits them into those that train and that test."""
    config, names, by = run.config, run.names, alignment_of(run.config)
    seed, counted, common, shared = by.seed, by.counted, by.common, by.shared
    held: dict[int, Party] = {}
    check_declared(config, run.parties, run.mine)
    # Ids are compared by digests: no party sees another's.
    for k in run.mine:
        with owned(k):
            held[k] = aligned(run.parties.rows(k), config, f"client {names[k]!r}")
    complete, own_rows = {k: rows.n_rows for k, (rows, _) in held.items()}, None
    if run.place.is_server and (loaded := run.parties.server()) is not None:
        with owned(SERVER):
            own_rows = aligned(loaded, config, "data.server")
    held, own_rows = in_common(run, held, own_rows, {k: run.hooks.bindings[k].policies for k in held})
    tables = {k: rows for k, (rows, _) in held.items()}
    count_common(run, tables)
    has = {k: by.response in table.names for k, table in tables.items()}
    for k, has_response in has.items():
        if shared and not has_response:
            raise JobError(
                f"client {names[k]!r}: column {by.response!r} is missing, and this job uses the "
                'response at every client; add it, or take augmentation = "augmented" with algorithm.response = "server"'
            )
    table, server_ids = None, None
    new: tuple[int, ...] = ()
    if own_rows is not None:
        with owned(SERVER):
            table, server_ids = own_rows
            new = unknown(table, config)
    clients = {}
    for k, t in tables.items():
        with owned(k):
            labels = alignment.labels_of(response_of(t, config, names[k]), seed) if shared else ""
        clients[k] = alignment.Client(
            names[k], as_compared(config, held[k][1]), seed, has[k], labels, counted=counted, common=common, placed=by.placed
        )
    with owned(SERVER):
        rows = None if table is None else server_rows(table, config)
    server_labels = alignment.labels_of(rows.y, seed) if shared and rows is not None and not new else ""
    told = None if server_ids is None else as_compared(config, server_ids)
    start = partial(alignment.start, names, seed, told, new, server_labels, counted=counted, common=common)
    server, clients = run.exchange(compared(config), start, clients)
    n_rows = server.n_rows if server is not None else len(next(iter(clients.values())).kept)
    check_common(config, n_rows, {k: run.hooks.bindings[k].policies for k in clients})
    # Rows that lack a cell at some party are dropped at all of them.
    if common:
        for k, client in clients.items():
            tables[k] = replace(tables[k].select(np.array(client.kept, np.int64)), incomplete=tables[k].incomplete)
        if server is not None and rows is not None and server_ids is not None:
            kept = np.array(server.kept, np.int64)
            rows, server_ids = ServerRows(*rows.of(kept)), tuple(server_ids[row] for row in server.kept)
    new = anyone(server, clients).new
    train, test = held_out(config, n_rows, new)
    holder = next(iter(server.holders), None) if server is not None else next(iter(clients.values())).holder
    return Aligned(tables, rows, server_ids or (), holder, complete, n_rows, train, test, np.array(new, np.int64))


def _rows(run: Run[Config], model: VerticalModel, aligned: Aligned) -> Rows:
    """Makes each party's arrays."""
    config, server = run.config, aligned.server
    if model.told_by_client:
        server = _responded(run, model, aligned)
    arrays = {}
    for k in list(aligned.tables):
        with owned(k):
            arrays[k] = columns(Reading(aligned.tables.pop(k), config, run.names[k]), aligned.train)
    for k, column in arrays.items():
        gone = aligned.complete[k] - aligned.n_rows
        others = [f"{gone} more rows are left out: another party lacks a cell of them, or the whole row"] if gone else []
        run.note_rows(k, [*column.notes, *others, *admitted.private_notes(config, len(column.X))], column.faults, len(column.X))
    if model.open:
        degenerate = {k: column.degenerate for k, column in arrays.items()}
        run.hooks.find(column_notes.exchange_notes(run, degenerate, split=True))
    return Rows(arrays, server, aligned.train, aligned.test, aligned.new, aligned.ids)


def _responded(run: Run[Config], model: VerticalModel, aligned: Aligned) -> ServerRows | None:
    """Asks the first client that has the response for it, where the server has no file."""
    config, names, holder = run.config, run.names, aligned.holder
    if holder is None:
        raise no_response(config)
    if holder in aligned.tables and model.response not in aligned.tables[holder].names:
        raise RemoteFault(f"server: Aligned.holder is {holder}: client {names[holder]!r} has no response to tell")
    clients = {}
    for k, table in aligned.tables.items():
        with owned(k):
            labels = response_of(table, config, names[k]) if k == holder else None
            clients[k] = response.Client(names[k], labels)
    server, _ = run.exchange(stages.responded(model), lambda: response.start(holder), clients)
    if server is None:
        return None
    assert server.y is not None
    return ServerRows(server.y, None)


def _worked_out(run: Run[Config], model: VerticalModel, rows: Rows) -> VerticalModel:
    """Returns the model with rho, which the server works out from the response where the job file does not give it."""
    if not model.works_out:
        return model

    known: AuxiliarySd | None = None
    if rows.server is not None:
        computed = model.knowing(rows.server.y[rows.train])
        known = AuxiliarySd(0, computed.rho, computed.factor)

    def start() -> tuple[Telling, ServerEffects]:
        assert known is not None
        return AuxiliarySd.start([known] * len(model.names))

    heard = {k: Heard[AuxiliarySd]() for k in rows.columns}
    _, heard = run.exchange(Stage(AuxiliarySd.protocol), start, heard)
    message = known or next(iter(heard.values())).told
    assert message is not None
    return replace(model, worked_out=message.rho, factor=message.factor)


def _trained(run: Run[Config], model: VerticalModel, rows: Rows) -> tuple[vertical.Server | None, dict[int, vertical.Client]]:
    """Runs the rounds and returns the last states of this place's parties."""
    settings, names = model.settings, model.names
    likelihood = model.likelihood if model.shared else None
    sd = model.start_sd
    clients: dict[int, vertical.Client] = {}
    for k, column in rows.columns.items():
        y = column.y[rows.train] if column.y is not None else None
        site = model.site(k, column, rows.train)
        if settings.private:
            # The account must be open before the client's first message spends of it.
            plan = budget.plan(model, names[k], site.predictor.n_theta)
            run.hooks.open_budget(k, plan)
            release = budget.release(model, k, plan)
            clients[k] = private_split.client(names[k], k, settings, site, release, y, likelihood, sd)
        else:
            clients[k] = vertical.client(names[k], k, settings, site, y, likelihood, sd)

    y, offset = (None, None) if rows.server is None else rows.server.of(rows.train)
    agreed = None if y is None or not settings.lead else replay.agreed(model, y, offset)

    def start() -> tuple[vertical.Server, ServerEffects]:
        assert y is not None
        return vertical.start(settings, model.centred(y, offset), names, y, offset, sd)

    return run.with_lines(measuring(publish.measured)).exchange(stages.trained(model, agreed), start, clients)


def _tell_widths(
    run: Run[Config],
    model: VerticalModel,
    widths: Widths | None,
    server: vertical.Server | None,
    rows: Rows,
    clients: Mapping[int, Client],
) -> tuple[dict[int, float], dict[int, Lines]]:
    """Tells clients how narrow q is, and returns, of those that live here, the ratio and the widths that follow from slopes.

    The ratio is 1 where rows were not all seen.
    """
    ratios = [1.0] * len(run.names) if widths is None else list(widths.clients.values())
    slopes = server.seen.mean_slopes if server is not None and normal.is_asked(model) else np.zeros(0)
    telling = [Narrow(0, ratio, slopes) for ratio in ratios]
    heard = {k: Heard[Narrow]() for k in clients}
    _, heard = run.exchange(stages.tell_widths(model), lambda: Narrow.start(telling), heard)
    messages = {k: state.told for k, state in heard.items() if state.told is not None}
    lines = dict[int, Lines]()
    for k, narrow in messages.items():
        client = clients[k]
        if isinstance(client, vertical.Client):
            with owned(k):
                of_client = own.compute_lines(model, client, rows.columns[k], narrow.slopes)
            lines |= {} if of_client is None else {k: of_client}
    return {k: narrow.ratio for k, narrow in messages.items()}, lines


def _prepared(model: VerticalModel, rows: Rows, clients: Mapping[int, Client]) -> dict[int, predictions.Client]:
    """Returns the clients' parts at the rows that are predicted."""
    prepared = {}
    for k, client in clients.items():
        predictor = model.predictor(k, rows.columns[k], rows.predicted)
        if isinstance(client, soul.Client):
            prepared[k] = predictions.Client(*langevin.predicted(client, predictor))
            continue
        z = model.factor * client.site.mean_z(client.released, client.extra) if model.output.missing_party else None
        prepared[k] = predictions.Client(*parts.moments(model, k, client, predictor), z)
    return prepared


def _columns(model: VerticalModel, rows: Rows, clients: Mapping[int, Client]) -> dict[int, missing.Client]:
    """Returns the clients' columns and their fitted parts, for rows that lack a party."""
    out = {}
    for k, client in clients.items():
        assert not isinstance(client, soul.Client)
        predictor, X = model.predictor(k, rows.columns[k], rows.train), rows.columns[k].X
        g, variance = parts.moments(model, k, client, predictor)
        centre = X[rows.train].mean(axis=0)
        out[k] = missing.Client(X[rows.train] - centre, X[rows.predicted] - centre, g, float(variance.mean()))
    return out
