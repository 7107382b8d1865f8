"""Runs a partitioned job from agreed columns to its result, by the same code in one process and on every rank of an MPI job."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...algorithms.core.messages import SERVER
from ...algorithms.pvi import machine as pvi
from ...algorithms.pvi import noise_aware
from ...algorithms.pvi.local import Local
from ...data import far
from ...data.degenerate import Degenerate, degenerate, with_far
from ...data.design import Design, encode
from ...data.header import not_there
from ...data.table import Table
from ...errors import owned
from ...jobs import column_notes, few, incomplete
from ...jobs.formula import agreeing
from ...jobs.parties import Parties
from ...jobs.publish import Fit
from ...jobs.run import Run
from ...jobs.watch import Line, Lines
from ...models.glm import Rows, averaged, metrics
from ...results.plain import Record
from . import arrival, dispersion, linearised, own, publish, response, weights
from .keys import Config
from .model import Client, Model, Server
from .stages import noisy_sums, trained


def fit(run: Run[Config]) -> Fit | None:
    """Runs the part of one place.

    Returns
    -------
    the result at the server's place, None elsewhere
    """
    # Agree on columns: from here on every place has the same model.
    tables = run.tables()
    model = Model.of(run.config, run.names, agreeing.agreed(run, tables))
    run = run.knowing(model)
    counted = incomplete.exchange_incomplete(run, tables)
    run.hooks.notes += incomplete.notes(run.config, counted)
    # Each table becomes arrays; a fault of its rows is told to its holder alone.
    designs, degenerates = {}, {}
    for k in list(tables):
        with owned(k):
            designs[k], degenerates[k], notes = _encoded(model, run.names[k], tables.pop(k))
        run.note_rows(k, notes, designs[k].faults)
    if model.privacy is None:
        said = column_notes.exchange_notes(run, degenerates)
        run.hooks.notes += said.notes
        run.hooks.doubts += said.doubts
    # The response's units come before the machines, whose rows are in these units.
    test = _test_rows(run.parties, model) if run.place.is_server else None
    model = replace(model, response=response.exchange_level(run, model, {k: _rows(design) for k, design in designs.items()}))
    clients = _clients(run, model, designs)
    # The account must be open before the first message may spend of it.
    if model.by_client and run.place.is_server:
        run.hooks.open_budget(SERVER, model.plan("the federation"))
    server, clients = run.saying(_lines(model, test)).exchange(trained(model), model.start, clients)
    for k, client in clients.items():
        own.write(run, model, own.Own(k, client))
    # Numbers are in the data's units from here on.
    server, ended = response.end_rounds(run, model, server)
    model = replace(model, response=ended)
    told = _noisy_sums(run, model, server, clients)
    # An open job asks its clients about the released q.
    rows = {k: _rows(design) for k, design in designs.items()}
    arrived = arrival.exchange_slopes(run, model, server, rows)
    checked = replace(weights.exchange_terms(run, model, server, rows), arrived=arrived)
    checked = replace(checked, dispersed=dispersion.exchange_pearson(run, model, server, rows))
    certificates = _certified(run, model)
    if server is None:
        return None
    more: dict[str, object] = {"incomplete": counted} if counted else {}
    if model.response.variance is not None or model.response.r is not None:
        more["scale"] = model.scale
    fitted = publish.fit(model, publish.Ended(server, told, checked, tuple(run.hooks.doubts)), test)
    return replace(fitted, privacy=certificates, more={**fitted.more, **more})


def _encoded(model: Model, client: str, table: Table) -> tuple[Design, Degenerate, list[str]]:
    """Encodes a client's table.

    Remarks are written to the client's folder and nowhere else, as are faults of its rows.

    Returns
    -------
    its arrays, the columns of which nothing can be learnt, and remarks
    """
    design = encode(table, model.encoding, private=model.privacy is not None, client=client)
    nothing = degenerate(design.X, model.encoding, intercept=model.given.intercept)
    notes = [*design.notes, *incomplete.own_notes(model.config, table), *few.private_notes(model.config, table.n_rows)]
    notes += [*nothing.describe_columns(), *_not_binary(model, design), *not_there(model.ignored, table.names)]
    if model.privacy is None:
        notes += far.notes(table, model.encoding, design.y)
        counts = slice(None) if design.weights is None or design.weights.all() else design.weights > 0
        nothing = with_far(nothing, design.X[counts], model.encoding, design.y[counts])
    if model.with_noise and model.privacy is not None and model.family == "bernoulli":
        notes += linearised.longer(design.X, model.privacy.of(client).clip)
    delta = model.privacy.of(client).delta if model.privacy is not None and not model.by_client else None
    if delta is not None and delta * table.n_rows >= 1:
        notes.append(f"delta = {delta:g} is not below 1 / rows = {1 / table.n_rows:.2g}: a mechanism may then publish whole rows")
    return design, nothing, notes


def _not_binary(model: Model, design: Design) -> Iterator[str]:
    """Yields a note for each column that is declared as binary and has other values."""
    for at, share in model.declared_binary.items():
        sd = math.sqrt(share * (1 - share))
        other = int(np.abs(design.X[:, at] * sd - np.where(design.X[:, at] > 0, 1 - share, -share) > 0.05).sum())
        if other:
            name = model.encoding.names[at]
            yield f'column {name!r} is declared with shape = "binary" and has other values in {other} rows: remove the shape'


def _rows(design: Design) -> Rows:
    """Returns a design as the rows of a model."""
    return Rows(design.X, design.y, design.offset, design.weights, design.units)


def _test_rows(parties: Parties, model: Model) -> Rows | None:
    """Returns the server's test rows; None where the job has none."""
    table = parties.test()
    with owned(SERVER):
        return None if table is None else _rows(encode(table, model.encoding))


def _clients(run: Run[Config], model: Model, designs: Mapping[int, Design]) -> dict[int, Client]:
    """Makes the machines of the clients at this place, and opens their accounts."""
    clients: dict[int, Client] = {}
    if model.by_client:
        run.hooks.allow(designs, model.plan("the federation"))
    for k, design in designs.items():
        noise: dict[str, Any] = {}
        if model.privacy is not None and not model.by_client:
            plan = model.plan(model.names[k])
            plan.check_size(model.names[k], len(design.y))
            noise = {"mechanism": plan.mechanism, "source": model.source(k)}
            run.hooks.open_budget(k, plan)
            noise["design"] = model.design(model.names[k])
        # A row's coin must be unknown to others where batches hide which rows were used.
        noise["coins"] = secrets.randbits(64) if model.secret_batches else None
        noise["tells"] = arrival.tells(run, model, _rows(design))
        rows = response.standardise(_rows(design), model)
        local = Local(rows.at(run.used.home), model.settings, k, row_ids=design.row_ids, n_threads=run.threads, **noise)
        clients[k] = model.client(k, local)
    return clients


def _lines(model: Model, test: Rows | None) -> Lines[Server]:
    """Makes the function that writes a line of metrics.jsonl: the updates and, when it is due, metrics on the test rows."""
    settings, method = model.settings, averaged(private=model.privacy is not None)

    def line(server: Server, due: bool) -> Line:
        content: dict[str, Any] = {"updates": int(sum(server.updates))}
        if test is not None and due:
            q = response.to_data_units(pvi.released(server), model)
            scale = response.scale_so_far(model, server)
            content["metrics"] = dict(metrics(q, test, settings.family, scale, method))
        words = ", ".join(f"{name} {value:.4g}" for name, value in content.get("metrics", {}).items())
        return Line(content, words)

    return line


def _noisy_sums(run: Run[Config], model: Model, ended: Server | None, clients: Mapping[int, Client]) -> noise_aware.Server | None:
    """Asks clients for the sums of their noisy gradients; at the server only, and None where no posterior is made of them."""
    if not model.with_noise:
        return None
    kept = {k: noise_aware.Client(client.sums) for k, client in clients.items() if isinstance(client, pvi.Client) and client.sums}
    known = [] if ended is None else [model.known(k, ended) for k in range(len(model.names))]
    return run.exchange(noisy_sums(model), lambda: noise_aware.start(known), kept)[0]


def _certified(run: Run[Config], model: Model) -> dict[str, Record]:
    """Returns each client's certificate of what it has spent, by name; at the server only, and empty without a claim."""
    if model.privacy is None:
        return {}
    if model.by_client:
        return {name: run.hooks.certificate(SERVER) for name in model.names} if run.place.is_server else {}
    return run.certified()
