"""Runs a job of partitioned variational inference (PVI) from its columns to its result.

The same code runs in one process and on every rank of an MPI job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...algorithms.core.messages import SERVER
from ...algorithms.pvi import machine as pvi
from ...algorithms.pvi import noise_aware
from ...algorithms.pvi.local import Local
from ...data import far
from ...data.degenerate import Degenerate, degenerate, with_far, with_response
from ...data.design import Design, check_counts, describe_counts, encode
from ...data.header import not_there
from ...data.table import Table
from ...errors import owned
from ...jobs import admitted, column_notes, incomplete, so_far
from ...jobs.formula import agreeing
from ...jobs.parties import Parties
from ...jobs.publish import Fit
from ...jobs.run import Run
from ...jobs.watch import Line, Lines
from ...models.glm import Rows, averaged, metrics
from ...printing import listed
from ...results.plain import Record
from . import arrival, case_weights, linearised, own, publish, response
from .keys import Config
from .model import Client, Model, Server
from .stages import noisy_sums, trained


def fit(run: Run[Config]) -> Fit | None:
    """Runs a job at one place, the server's or clients'. Every place comes to the same exchanges in the same order. Returns the
    result at the server's place, None elsewhere."""
    # Agree on columns: from here on every place has the same model, and may exchange what it asks for.
    tables = run.tables()
    model = Model(run.config, run.names, agreeing.agreed(run, tables))
    run = run.with_model(model)
    missing = incomplete.exchange_incomplete(run, tables)
    run.hooks.notes += incomplete.notes(run.config, missing)
    # Each table becomes arrays, and its memory is freed; a fault of its rows is told to its holder alone (`owned`).
    designs, degenerates = {}, {}
    for k in list(tables):
        n_rows = tables[k].n_rows
        with owned(k):
            designs[k], degenerates[k], notes = _encode(model, run.names[k], tables.pop(k))
        run.note_rows(k, notes, designs[k].faults, n_rows)
    if model.privacy is None:
        run.hooks.find(column_notes.exchange_notes(run, degenerates))
    test = _test_rows(run.parties, model) if run.place.is_server else None
    # The response's units come before the clients' machines, whose rows are in these units.
    model = replace(model, response=response.exchange_level(run, model, {k: _rows(design) for k, design in designs.items()}))
    clients = _clients(run, model, designs)
    # Accounts are open before the rounds, the first exchange of a private job that spends: those before tell nothing of its rows.
    # `_clients` has opened the clients' accounts; where whole clients are protected, one account at the server pays for all.
    if model.by_client and run.place.is_server:
        run.hooks.open_budget(SERVER, model.plan_of_all)
    run.know_alike(model.told)
    server, clients = run.with_lines(_lines(run, model, test)).exchange(trained(model), model.start, clients)
    for k, client in clients.items():
        with owned(k):
            own.write(run, model, own.Own(k, client))
    # From here on the server's numbers are in the data's units.
    server, data_units = response.end_rounds(run, model, server)
    model = replace(model, response=data_units)
    run.know_alike(model.told)
    noisy_sum_state = _exchange_noisy_sums(run, model, server, clients)
    # Without privacy the clients tell whether q is where the posterior of all rows is; in a private job nobody is asked.
    rows = {k: _rows(design) for k, design in designs.items()}
    arrived = arrival.exchange_slopes(run, model, server, rows)
    case_weights.exchange_weights(run, model, server, rows)
    certificates = _exchange_certificates(run, model)
    if server is None:
        return None
    more: dict[str, object] = {"incomplete": missing} if missing else {}
    if model.response.variance is not None:
        more["scale"] = model.scale
    fitted = publish.fit(model, publish.Ended(server, noisy_sum_state, arrived, tuple(run.hooks.doubts)), test)
    return replace(fitted, privacy=certificates, more={**fitted.more, **more})


def _encode(model: Model, client: str, table: Table) -> tuple[Design, Degenerate, list[str]]:
    """Encodes a client's table.

    Returns
    -------
    design : its arrays
    degenerate : columns of which nothing can be learnt, and far cells: exchanged where no privacy is claimed
    notes : for the client's folder and nowhere else, as are faults of its rows
    """
    if model.counted_weights is not None and model.privacy is None:
        check_counts(table, model.counted_weights, client)
    design = encode(table, model.encoding, private=model.privacy is not None, client=client)
    nothing = degenerate(design.X, model.encoding, intercept=model.given.intercept)
    notes = [*design.notes, *incomplete.own_notes(model.config, table), *admitted.private_notes(model.config, table.n_rows)]
    notes += [
        *nothing.describe_columns(),
        *linearised.describe_rows(model, client, design.X),
        *not_there(model.ignored, table.names),
    ]
    if model.privacy is None:
        notes += far.notes(table, model.encoding, design.y, design.offset)
        notes += far.repeated_ids(table, model.encoding.row_id)
        used_rows = slice(None) if design.weights is None or design.weights.all() else design.weights > 0
        offset = None if design.offset is None else design.offset[used_rows]
        columns = far.columns(table, model.encoding, used_rows if design.units is None else slice(None))
        nothing = with_far(nothing, columns, model.encoding, design.y[used_rows], offset)
        # Where the server gets sums alone, whose events they are is not told.
        nothing = nothing if model.secure else with_response(nothing, design.y[used_rows], model.encoding)
    elif model.counted_weights is not None:
        notes += describe_counts(table, model.counted_weights)
    delta = model.privacy.of(client).delta if model.privacy is not None and not model.by_client else None
    if delta is not None and delta * table.n_rows >= 1:
        notes.append(f"delta = {delta:g} is not below 1 / rows = {1 / table.n_rows:.2g}: a mechanism may then publish whole rows")
    return design, nothing, notes


def _rows(design: Design) -> Rows:
    """Returns a design as the rows of a model."""
    return Rows(design.X, design.y, design.offset, design.weights, design.units)


def _test_rows(parties: Parties, model: Model) -> Rows | None:
    """Returns the rows of the test file that the job gives the server; None where it gives none."""
    table = parties.test()
    with owned(SERVER):
        return None if table is None else _rows(encode(table, model.encoding))


def _clients(run: Run[Config], model: Model, designs: Mapping[int, Design]) -> dict[int, Client]:
    """Makes the machines of the clients at this place, and opens their accounts.

    Where whole clients are protected the account is the server's, and the clients' policies are only asked to allow its noise.
    """
    clients: dict[int, Client] = {}
    if model.by_client:
        run.hooks.allow(designs, model.plan_of_all)
    for k, design in designs.items():
        options: dict[str, Any] = {}
        if model.privacy is not None and not model.by_client:
            plan = model.plan(model.names[k])
            plan.check_size(model.names[k], len(design.y))
            options = {"mechanism": plan.mechanism, "source": model.source(k)}
            run.hooks.open_budget(k, plan)
            options["design"] = model.design_of_sums(model.names[k])
        # The seed of the coins that select rows into a batch, for a client whose batches hide which rows were used.
        options["coins"] = run.secret_key(k, "pvi") if model.secret_batches else None
        options["box"] = model.box
        options["tells"] = arrival.tells(run, model, _rows(design))
        rows = response.standardise(_rows(design), model)
        # The rows' arrays go to the device on which this place computes.
        local = Local(rows.at(run.used.home), model.settings, k, row_ids=design.row_ids, n_threads=run.threads, **options)
        clients[k] = model.client(k, local)
    return clients


def _lines(run: Run[Config], model: Model, test: Rows | None) -> Lines[Server]:
    """Makes the function that writes a line of metrics.jsonl: the updates and, in some rounds, metrics on the test rows.

    While clients of whom q has nothing yet are far behind the others, it writes the posterior without them.
    """
    settings, method = model.settings, averaged(private=model.privacy is not None)

    waited_for: list[str] = []

    def line(server: Server, with_metrics: bool) -> Line:
        content: dict[str, Any] = {"updates": int(sum(model.updates(server)))}
        if dropped := model.dropped(server):
            content["dropped"] = dropped
        if test is not None and with_metrics:
            q = response.to_data_units(pvi.released(server), model)
            scale = response.scale_so_far(model, server)
            content["metrics"] = dict(metrics(q, test, settings.family, scale, method))
        words = [f"{name} {value:.4g}" for name, value in content.get("metrics", {}).items()]
        if isinstance(server, pvi.Server) and server.behind:
            content["behind"] = {model.names[k]: n for k, n in server.behind.items()}
            words.append(f"{listed([*content['behind']], 3)} far behind")
        if isinstance(server, pvi.Server):
            without = [model.names[k] for k in server.behind if not server.updates[k]]
            if without or waited_for:
                waited_for[:] = without
                run.hooks.write_own(SERVER, so_far.FILE, publish.so_far(model, server, without), sync=False)
        return Line(content, ", ".join(words))

    return line


def _exchange_noisy_sums(
    run: Run[Config], model: Model, server: Server | None, clients: Mapping[int, Client]
) -> noise_aware.Server | None:
    """Asks clients for the sums of their noisy gradients. Returns the state of the server that has them; None at other places,
    and where no posterior is made of such sums."""
    if not model.with_noise:
        return None
    # Only clients with sites have sums: other variants make no such posterior.
    with_sites = {k: client for k, client in clients.items() if isinstance(client, pvi.Client)}
    answering = {k: noise_aware.Client(client.sums) for k, client in with_sites.items() if client.sums}
    known = [] if server is None else [model.known(k, server) for k in range(len(model.names))]
    return run.exchange(noisy_sums(model), lambda: noise_aware.start(known), answering)[0]


def _exchange_certificates(run: Run[Config], model: Model) -> dict[str, Record]:
    """Collects each client's certificate of the privacy that it has spent. Every place must call it. Returns name -> certificate,
    at the server's place; empty elsewhere, and in a job that claims no privacy."""
    if model.privacy is None:
        return {}
    if model.by_client:
        return {name: run.hooks.certificate(SERVER) for name in model.names} if run.place.is_server else {}
    return run.certified()
