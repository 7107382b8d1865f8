"""Runs a job that describes columns, by the same code in one process and on every rank of an MPI job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ...algorithms.core import once
from ...algorithms.core.exchange import Ask, Exchange
from ...algorithms.core.rounds import in_order
from ...algorithms.exchanges.described import AskCells, AskParts, Cells, OwnParts, Spread, Values
from ...data.faults import Faults
from ...data.header import not_there
from ...data.joined import as_agreed
from ...data.joined import notes as notes_of_joined
from ...data.lacking import fill_lacking
from ...disclosure import measures
from ...errors import owned
from ...jobs.publish import Fit
from ...jobs.run import Run
from ...jobs.stage import Stage
from . import budget, own, publish, stages
from .counts import Client
from .keys import Config
from .model import DescribeModel
from .rows import Rows

Array = NDArray[np.float64]
A = TypeVar("A", bound=Exchange)


def fit(run: Run[Config]) -> Fit | None:
    """Runs the part of one place.

    Returns
    -------
    the result at the server's place, None elsewhere
    """
    tables = run.tables()
    model, clients = DescribeModel(run.config, run.names, encoding=run.agreed(tables)), dict[int, Client]()
    run = run.with_model(model)
    for k in list(tables):
        with owned(k):
            table, lacking = fill_lacking(as_agreed(tables.pop(k), model.encoding), model.encoding)
            rows = Rows.of(run.config, model.encoding, table)
            clients[k] = Client(model, rows, run.requirement_of(k).rules)
        notes = [*(f"column {name!r} is not in this file" for name in lacking), *notes_of_joined(table)]
        run.note_rows(k, [*notes, *not_there(model.ignored, table.names)], Faults(), rows.n)
    privacy = model.config.privacy
    if privacy is None:
        ends, discrete, told, centre = _agree(run, model, clients)
        answers = _asked(run, stages.counted(model), Cells, AskCells(0, told, centre), clients, Client.cells)
    else:
        ends, discrete, told, centre = _public(model), frozenset[str](), model.all_told, np.zeros(len(model.numeric))
        noisy = {k: budget.add_noise(run, privacy, model, k, client.exact(ends)) for k, client in clients.items()}
        answers = run.collect(stages.counted(model), Cells, noisy, lambda cells: cells, AskCells(0, told, centre))
    for k, client in clients.items():
        with owned(k):
            own.write(run, model, own.Own(k, client))
    certificates = run.certified() if model.config.private else {}
    if answers is None:
        return None
    replies = dict(zip(model.telling, in_order(answers.replies)))
    facts = publish.Facts(model, ends, discrete, model.told(told), centre, replies, budget.noise(certificates))
    return replace(publish.fit(facts), privacy=certificates)


def _asked(
    run: Run[Config], stage: Stage, answer: type[A], asked: Ask, clients: Mapping[int, Client], how: Callable[[Client, A], object]
) -> once.Server[A] | None:
    """Asks each client a question, from which it makes its answer; returns the answers at the server's place, None elsewhere."""

    def answered(k: int, client: Client, question: object) -> object:
        with owned(k):
            return how(client, question)

    asking = {k: once.Client(partial(answered, k, client)) for k, client in clients.items()}
    return run.ask(stage, answer.question, asked, asking)[0]


def _agree(run: Run[Config], model: DescribeModel, clients: Mapping[int, Client]) -> tuple[Array, frozenset[str], Array, Array]:
    """Agrees on ends of bins, and on cells that all clients tell.

    Returns
    -------
    at the server's place the ends, the columns whose values are their cells, the numbers of what is told, and the columns' centres;
    elsewhere nothing of meaning
    """
    values = run.collect(stages.valued(model), Values, clients, Client.values)
    sums = run.collect(stages.spread(model), Spread, clients, Client.spread)
    ends, discrete, centre = _public(model), frozenset[str](), np.zeros(len(model.numeric))
    if values is not None and sums is not None:
        total = np.sum([reply.sums for reply in in_order(sums.replies)], axis=0).reshape(-1, 3)
        centre = np.divide(total[:, 1], total[:, 0], out=centre, where=total[:, 0] > 0)
        ends, discrete = _ends(model, [*in_order(values.replies)], total)
    told = np.zeros(0)
    for two, how in ((False, Client.parts), (True, Client.parts_of_two)):
        answers = _asked(run, stages.parted(model, two=two), OwnParts, AskParts(0, ends, told), clients, how)
        if answers is not None:
            told = model.common([reply.first for reply in in_order(answers.replies)], told)
    return ends, discrete, told, centre


def _public(model: DescribeModel) -> Array:
    """Returns the ends of bins that the job file decides; zeros of others."""
    public = [model.public_ends(name) or [0.0] * (model.bins - 1) for name in model.numeric]
    return np.array(public).reshape(len(model.numeric), model.bins - 1)


def _ends(model: DescribeModel, values: list[Values], total: Array) -> tuple[Array, frozenset[str]]:
    """Returns (columns, ends) the inner ends of bins, and the columns whose values are their cells."""
    ends, discrete = _public(model), set[str]()
    for j, name in enumerate(model.numeric):
        if model.public_ends(name) is not None:
            continue
        found = sorted({value for reply in values for value in reply.values[j, : int(reply.n[j])].tolist()})
        many = total[j, 0] > 0
        if model.here:
            many = any(reply.n[j] == 0 and reply.range[j].any() for reply in values)
        if not many and len(found) <= model.bins - 1:
            discrete.add(name)
        elif model.here:
            ranges = np.array([reply.range[j] for reply in values if reply.range[j].any()])
            found = np.linspace(ranges[:, 0].min(), ranges[:, 1].max(), model.bins - 1).tolist()
        else:
            mean, square = total[j, 1] / total[j, 0], total[j, 2] / total[j, 0]
            least = 0.0 if name == model.config.model.time else None
            found = measures.ends(mean, max(square - mean**2, 0.0) ** 0.5, least, bins=model.bins - 1).tolist()
        found = found[: model.bins - 1] or [0.0]
        ends[j] = [*found, *[found[-1]] * (model.bins - 1 - len(found))]
    return ends, frozenset(discrete)
