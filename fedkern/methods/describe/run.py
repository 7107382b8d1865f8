"""Runs a job that describes columns, by the same code in one process and on every rank of an MPI job."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...algorithms.core import once
from ...algorithms.core.exchange import Answer, Ask
from ...algorithms.core.rounds import in_order
from ...algorithms.exchanges.described import AskCells, AskParts, AskSpread, Cells, FewValues, OwnParts, Spread
from ...data.faults import Faults
from ...data.header import not_there
from ...data.joined import as_agreed
from ...data.joined import notes as notes_of_joined
from ...data.lacking import fill_lacking
from ...disclosure import measures
from ...errors import owned
from ...jobs import holders
from ...jobs import tables as of_counts
from ...jobs.files import writing
from ...jobs.holding import told as kept
from ...jobs.holding.binding import Account
from ...jobs.holding.budget import Books
from ...jobs.keys import ColumnSection
from ...jobs.publish import Fit
from ...jobs.run import Run
from ...jobs.secret import secret
from ...privacy.masks import FEWEST
from . import budget, own, publish, stages
from .counts import Client
from .keys import Config
from .model import DescribeModel
from .rows import Rows

Array = NDArray[np.float64]
A = TypeVar("A", bound=Answer)
Clients = Mapping[int, Client]


class Agreed(NamedTuple):
    """Holds what is agreed of cells: inner ends of bins (columns, ends), the columns whose values are their cells, the numbers of
    what all clients tell, and about which centre sums are (columns,)."""

    ends: Array
    values: frozenset[str]
    told: Array
    centre: Array


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
            account = None if model.whole else _account(run, k)
            jobs = () if account is None else Books(account).values(secret(account.folder, ground=account.ground))
            clients[k] = Client(model, rows, run.requirement_of(k).rules, kept.read(account), jobs)
        notes = [*(f"column {name!r} is not in this file" for name in lacking), *notes_of_joined(table)]
        run.note_rows(k, [*notes, *not_there(model.ignored, table.names)], Faults(), rows.n)
    privacy = model.privacy
    if privacy is None:
        agreed = _agree(run, model, clients)
        asked = AskCells(0, agreed.told, agreed.centre)
        answers = _asked(run, model, Cells, asked, clients, partial(_told, run))
    else:
        agreed = Agreed(model.public_ends, frozenset(), model.numbers(model.all_told), np.zeros(len(model.numeric)))
        asked = AskCells(0, agreed.told, agreed.centre)
        noisy = {k: budget.add_noise(run, privacy, model, k, client.exact(agreed.ends)) for k, client in clients.items()}
        answers = run.collect(stages.asking(model, Cells), Cells, noisy, lambda cells: cells, asked)
    for k, client in clients.items():
        with owned(k):
            own.write(run, model, own.Own(k, client))
    certificates = run.certified() if privacy is not None else {}
    if answers is None:
        return None
    replies = dict(zip(model.telling, in_order(answers.replies)))
    told = model.told(agreed.told)
    facts = publish.Facts(model, told, agreed.ends, agreed.values, agreed.centre, replies, budget.noise(certificates))
    return replace(publish.fit(facts), privacy=certificates)


def _asked(
    run: Run[Config], model: DescribeModel, answer: type[A], asked: Ask, clients: Clients, how: Callable[[int, Client, Any], A]
) -> once.Server[A] | None:
    """Asks each client a question, from which it makes its answer; returns the answers at the server's place, None elsewhere."""

    def answered(k: int, client: Client, question: Any) -> Any:
        with owned(k):
            return how(k, client, question)

    asking = {k: once.Client(partial(answered, k, client)) for k, client in clients.items()}
    return run.ask(stages.asking(model, answer), answer.question, asked, asking)[0]


def _account(run: Run[Config], k: int) -> Account | None:
    """Returns the account of a client's data, which outlives the run; None where its holder has none."""
    return holders.standing(run.hooks.bindings[k], run.names[k])


def _told(run: Run[Config], k: int, client: Client, asked: AskCells) -> Cells:
    """Returns a client's counts, once its holder's account knows what is told."""
    if not client.model.whole and (account := _account(run, k)) is not None:
        with of_counts.alone(account), writing(account.folder / kept.FILE):
            kept.keep(account, client.telling(client.model.told(asked.told)))
    return client.cells(asked)


def _agree(run: Run[Config], model: DescribeModel, clients: Clients) -> Agreed:
    """Agrees on ends of bins, and on cells that all clients tell; what is returned has a meaning at the server's place alone."""
    values = run.collect(stages.asking(model, FewValues), FewValues, clients, Client.values)
    # Pooled means decide on ends of bins alone; a masked sum is of several clients.
    many = [reply.n > reply.values.shape[1] for reply in (() if values is None else in_order(values.replies))]
    asked = AskSpread(0, 1.0 * (np.sum(many, axis=0) >= np.full(len(model.numeric), FEWEST * model.secure)))
    sums = _asked(run, model, Spread, asked, clients, lambda k, client, question: client.spread(question))
    agreed = Agreed(np.zeros_like(model.public_ends), frozenset(), np.zeros(0), np.zeros(len(model.numeric)))
    if values is not None and sums is not None:
        total = np.sum([reply.sums for reply in in_order(sums.replies)], axis=0)
        agreed = _with_ends(agreed, model, [*in_order(values.replies)], total)
    answers = _asked(run, model, OwnParts, AskParts(0, agreed.ends), clients, lambda k, client, asked: client.parts(asked))
    if answers is None:
        return agreed
    return agreed._replace(told=model.common([reply.first for reply in in_order(answers.replies)]))


def _with_ends(agreed: Agreed, model: DescribeModel, replies: Sequence[FewValues], total: Array) -> Agreed:
    """Returns the same with ends of bins: values, where columns have few, else round numbers about pooled means."""
    ends, values, last = agreed.ends.copy(), set[str](), model.bins - 1
    rows, first, second = (total / np.maximum(total[:, :1], 1)).T
    for j, name in enumerate(model.numeric):
        told = [(int(reply.n[j]), reply.values[j].tolist()) for reply in replies]
        most = len(told[0][1])
        found = sorted({value for n, own in told if n <= most for value in own[: n if n >= 0 else -1 - n]})
        if len(found) <= last and (model.here or max(told)[0] <= most):
            values |= {name} if min(told)[0] >= 0 else set()
        elif model.here:
            found = [found[k] for k in np.linspace(0, len(found) - 1, last).round().astype(int).tolist()]
        else:
            declared = model.declared.get(name, ColumnSection())
            lower = 0.0 if name == model.time else declared.lower
            sd = max(second[j] - first[j] ** 2, 0.0) ** 0.5
            mean = float(first[j]) if rows[j] else math.nan
            found = measures.ends(mean, sd if rows[j] else math.nan, lower, declared.upper, last).tolist() or found
        found = found[:last] or [0.0]
        ends[j] = [*found, *[found[-1]] * (last - len(found))]
    return agreed._replace(ends=ends, values=frozenset(values), centre=first)
