"""Brings the parties of a regression to the same columns, and reads their rows: for rows of every kind but own models'."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...algorithms.core.messages import SERVER
from ...algorithms.importance.settings import QUESTIONS
from ...data import far
from ...data.degenerate import Degenerate, degenerate, with_far
from ...data.design import Design, check_counts, check_precisions, encode
from ...data.header import not_there
from ...data.table import Table
from ...errors import owned
from ...jobs import column_notes, incomplete
from ...jobs.formula import agreeing
from ...jobs.run import Run
from . import response, summaries, survey
from .keys import Config
from .model import Model
from .models import check_summaries, model_of
from .rows import describe_groups, times_of
from .steps import Read, Tables

ExchangeResponse = Callable[[Run[Config], Any, Mapping[int, Design], Mapping[int, Any]], Model]


def agree(run: Run[Config], tables: Tables, *, exchange_response: ExchangeResponse = response.exchange_response) -> Columns:
    """Lets the parties agree on their columns. `exchange_response`: run, model, designs, rows as the model has read them -> the
    model with the response's units. Raises OwnFault: a client's file lacks groups or times that the job asks for. Raises
    JobError: the agreed columns have no patient whose curves the job asks for, or small clients take no part in such a job."""
    check_summaries(run.config, run.names, run.summaries)
    encoding = agreeing.agreed(run, tables)  # at which sums of all clients may have been found to be too few for values
    model = model_of(run.config, run.names, encoding, run.hooks.summarised or run.summaries)
    notes = model.check_columns()
    run.hooks.notes += notes if run.place.is_server else []
    return Columns(model, exchange_response)


@dataclass(frozen=True)
class Columns:
    """Holds the model of the agreed columns, and reads rows by it."""

    # model, exchange_response: the job's model; as `agree` takes it
    model: Model
    exchange_response: ExchangeResponse

    def read_rows(self, run: Run[Config], tables: Tables) -> Read:
        """Reads the clients' rows, and exchanges notes on columns and the response's units; empties `tables`."""
        model = self.model
        counted = incomplete.exchange_incomplete(run, tables)
        run.hooks.notes += incomplete.notes(run.config, counted)
        designs: dict[int, Design] = {}
        rows: dict[int, Any] = {}
        degenerates: dict[int, Degenerate] = {}
        secret: dict[int, Table] = {}
        noted: dict[int, list[str]] = {}
        for k in list(tables):
            with owned(k):
                table = tables.pop(k)  # of large files one is in memory twice at a time
                designs[k], degenerates[k], notes = encode_rows(model, run.names[k], table)
                rows[k] = model.read(designs[k], table, run.names[k])
                if run.parties.site(k).structure is not None:
                    secret[k] = table
                notes += model.describe_rows(rows[k])
                model.check_rows(rows[k], run.names[k], table.source)
                if k in run.summaries:
                    n, p = designs[k].X.shape
                    # Masked sums are judged on all clients' rows together.
                    questions = QUESTIONS if model.secure else model.questions
                    summaries.check_rows(n, p, model.size, questions, run.names[k], table.source)
            run.note_rows(k, notes, designs[k].faults, len(designs[k].X))
            noted[k] = notes
        server = column_notes.exchange(run, degenerates)
        found = [] if server is None else column_notes.findings(run, server)
        follows = {str(finding.values["column"]): finding for finding in found if finding.id == "column-collinear"}
        if server is not None:  # of masked sums what all say
            model = replace(model, following=(tuple(follows),) if model.secure else tuple(server.following))
        run.hooks.find([finding for finding in found if finding.id != "column-collinear"])
        test = _read_test_rows(run, model)
        model = survey.exchange_weights(run, model, designs)
        model = self.exchange_response(run, model, designs, rows)
        if model.secure:  # a client may have found that its response is not as the others'
            for k, notes in noted.items():
                run.note_rows(k, notes, designs[k].faults, len(designs[k].X))
        likelihoods = {k: model.weighted(model.likelihood(rows[k], run.threads), designs[k].weights) for k in rows}
        structured = structures(run, model, rows, secret, likelihoods)
        return Read(model, rows, likelihoods, test, {"incomplete": counted} if counted else {}, follows, structured)


def structures(
    run: Run[Config], model: Model, rows: Mapping[int, Any], tables: Mapping[int, Table], likelihoods: Mapping[int, Any]
) -> dict[int, Any]:
    """Returns the likelihoods of clients with a structure of their own, of which these are the tables."""
    found = dict[int, Any]()
    for k, table in tables.items():
        from .structure import with_structure  # few clients have one

        structure = run.parties.site(k).structure
        assert structure is not None
        with owned(k):
            found[k] = with_structure(model, rows[k], table, structure, run.names[k], likelihoods[k])
    return found


def encode_rows(model: Model, client: str, table: Table) -> tuple[Design, Degenerate, list[str]]:
    """A client's arrays, columns that nothing can be learnt from, and notes on its rows: these are written in its own folder and
    nowhere else, as are faults of its rows."""
    encoding = model.encoding
    if model.counted_weights is not None:
        check_counts(table, model.counted_weights, client)
    if model.precise:
        check_precisions(table, str(model.weight), client)
    design = encode(table, encoding, client=client)
    nothing = degenerate(design.X, encoding, intercept=model.absorbs_constants)
    notes = [
        *design.notes,
        *incomplete.own_notes(model.config, table),
        *nothing.describe_columns(),
        *not_there(model.ignored, table.names),
    ]
    notes += [*far.notes(table, encoding, design.y, design.offset), *describe_groups(table, model.group_columns)]
    notes += far.repeated_ids(table, encoding.row_id)
    nothing = with_far(nothing, far.columns(table, encoding), encoding, design.y, design.offset)
    if (times := times_of(model.config)) is not None:
        others = [name for name in (times.entry, times.upper) if name is not None]
        codes = far.coded_times(table, times.time)
        notes += [*codes, *far.early_entries(table, times.time, times.entry), *far.time_notes(table, times.time, others)]
        nothing = replace(nothing, far=(*nothing.far, *([times.time] if codes else [])))
    return design, nothing, notes


def _read_test_rows(run: Run[Config], model: Model) -> Design | None:
    """The server's test rows; None elsewhere, and where the job has none."""
    if not run.place.is_server:
        return None
    table = run.parties.test()
    with owned(SERVER):
        return None if table is None else encode(table, model.encoding)
