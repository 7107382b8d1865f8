"""A job from agreed columns to its result. The same code for one process and for every rank of an MPI job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...algorithms.core.messages import SERVER, ServerEffects
from ...algorithms.hmc import machine as hmc
from ...algorithms.importance import machine as importance
from ...algorithms.importance import telling
from ...data import far
from ...data.degenerate import Degenerate, degenerate, with_far
from ...data.design import Design, encode
from ...data.header import not_there
from ...data.table import Table
from ...errors import owned
from ...jobs import column_notes, incomplete
from ...jobs.formula import agreeing
from ...jobs.publish import Fit
from ...jobs.run import Run
from . import checks, level_checks, lifetimes, lines, own, own_run, publish, response, survival
from .keys import Config
from .model import TOLD, Model
from .own_model import terms
from .rows import Held, check_file, check_slopes, held
from .rows import notes as row_notes
from .stages import sampled, told, walked
from .times import Timed, timed
from .times import notes as time_notes


def fit(run: Run[Config]) -> Fit | None:
    """The part of one place; what comes of it at the server's, None elsewhere."""
    if (own_terms := terms(run.config)) is not None:
        return own_run.fit(run, own_terms)
    tables = run.tables()
    for k, table in tables.items():  # before anything leaves: a file without groups, or times, is none of this job
        with owned(k):
            check_file(run.config, table, run.parties.spec, run.names[k])
    model = Model.of(run.config, run.names, agreeing.agreed(run, tables))
    run = run.knowing(model)
    counted = incomplete.exchanged(run, tables)
    run.hooks.notes += incomplete.notes(run.config, counted)
    designs: dict[int, Design] = {}
    holds: dict[int, Held] = {}
    timeds: dict[int, Timed] = {}
    degenerates: dict[int, Degenerate] = {}
    for k in list(tables):
        with owned(k):
            table = tables.pop(k)
            designs[k], degenerates[k], notes = _encoded(model, run.names[k], table)
            if model.times is not None:
                timeds[k] = timed(model.times, designs[k], table, run.names[k])
                notes += time_notes(timeds[k], exposed=model.lifetimes)
            if model.times is None or model.lifetimes:
                holds[k] = held(designs[k], table, model.group)
                if model.output.marginal and model.encoding.formula is not None:
                    holds[k] = replace(holds[k], table=table)
                check_slopes(holds[k], model.slopes, run.names[k], table.source)
        run.note_rows(k, notes, designs[k].faults)
    said = column_notes.exchanged(run, degenerates)
    run.hooks.notes += said.notes
    run.hooks.doubts += said.doubts
    test = _test_rows(run, model)
    model = model.knowing(response.exchanged(run, model, designs, timeds), level_checks.shares(run, model, designs))
    if model.lifetimes:
        lived = {k: model.lived(holds[k], own_rows, run.threads) for k, own_rows in timeds.items()}
        rows, hazards = {}, {}
    else:
        lived = {}
        rows = {k: model.of_responses(own_rows, run.threads) for k, own_rows in holds.items()}
        hazards = {k: model.timed(own_rows, run.threads) for k, own_rows in timeds.items()}
    clients = {k: model.client(k, own_rows) for k, own_rows in (rows | hazards | lived).items()}
    server, clients = run.saying(lines.to_mode_and_draws()).exchange(sampled(model), model.start, clients)
    chains = None
    if model.chains:
        chains, clients = _walked(run, model, server, clients)
    owns, ended, ends = {}, {}, {}
    for k, client in clients.items():
        with owned(k):
            if k in hazards:
                assert client.told is not None
                ended[k] = survival.Ended(hazards[k], timeds[k].labels, client.told, client.nodes, client.converged)
                survival.write(run, model, k, ended[k])
                continue
            if k in lived:
                ends[k] = lifetimes.completed(model, k, holds[k], timeds[k], lived[k], client)
                own.write(run, model, ends[k].own)
                continue
            owns[k] = own.completed(model, k, holds[k], rows[k], client)
            own.write(run, model, owns[k])
    if model.lifetimes:
        checked = lifetimes.exchanged(run, model, ends, at_server=server is not None)
    elif model.hazards:
        checked = survival.exchanged(run, model, ended, at_server=server is not None)
    else:
        checked = checks.exchanged(run, model, owns, at_server=server is not None)
    if server is None:
        return None
    fitted = publish.fit(model, publish.Ended(server, tuple(run.hooks.doubts), checked, chains), test)
    more: dict[str, Any] = {"incomplete": counted} if counted else {}
    return replace(fitted, more={**fitted.more, **more})


def _walked(
    run: Run[Config], model: Model, mode: importance.Server | None, clients: Mapping[int, importance.Client]
) -> tuple[hmc.Server | None, dict[int, importance.Client]]:
    """The chains, from the mode; then the clients are told what they know their own effects by."""

    def start() -> tuple[hmc.Server, ServerEffects]:
        assert mode is not None
        return model.walk(mode)

    server, _ = run.saying(lines.of_chains()).exchange(
        walked(model), start, {k: model.walker(client) for k, client in clients.items()}
    )

    def tell() -> tuple[telling.Teller, ServerEffects]:
        assert server is not None
        assert mode is not None
        xi = hmc.draws(server).reshape(-1, model.layout.size)
        some = xi[np.linspace(0, len(xi) - 1, TOLD).round().astype(int)]
        right = publish.of_chains(model, mode, server).converged is True
        return telling.start(len(run.names), mode.round, mode.nodes, some, converged=right)

    return server, run.exchange(told(model), tell, clients)[1]


def _encoded(model: Model, client: str, table: Table) -> tuple[Design, Degenerate, list[str]]:
    """A client's arrays, columns that nothing can be learnt from, and what is remarkable: written in its own folder and nowhere
    else, as what is wrong with its rows."""
    encoding = model.encoding
    design = encode(table, encoding, client=client)
    nothing = degenerate(design.X, encoding, intercept=encoding.intercept or model.hazards)
    notes = [
        *design.notes,
        *incomplete.own_notes(model.config, table),
        *nothing.describe_columns(),
        *not_there(model.ignored, table.names),
    ]
    notes += [*far.notes(table, encoding, design.y), *row_notes(table, model.group)]
    return design, with_far(nothing, design.X, encoding, design.y), notes


def _test_rows(run: Run[Config], model: Model) -> Design | None:
    """The server's own test rows."""
    if not run.place.is_server:
        return None
    table = run.parties.test()
    with owned(SERVER):
        return None if table is None else encode(table, model.encoding)
