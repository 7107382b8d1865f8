"""Runs a job that describes columns, by the same code in one process and on every rank of an MPI job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ...algorithms.core import once
from ...algorithms.core.exchange import Answer, Ask
from ...algorithms.core.rounds import in_order
from ...algorithms.exchanges.described import AskCells, AskParts, AskSums, Cells, FewValues, Moments, OwnParts
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
from . import budget, own, publish, stages
from .counts import Client
from .keys import Config
from .model import Agreed, DescribeModel
from .rows import Rows

A = TypeVar("A", bound=Answer)
Clients = Mapping[int, Client]


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
    privacy, sums = model.privacy, None
    if privacy is None:
        agreed = _agree(run, model, clients)
        question = AskCells(0, agreed.told)
        answers = _asked(run, model, Cells, question, clients, partial(_told, run))
        if model.tells_sums:
            sums = _asked(
                run, model, Moments, AskSums(0, agreed.sums), clients, lambda k, client, question: client.moments(question)
            )
    else:
        ends = model.public_ends
        agreed = Agreed(ends, frozenset(), np.zeros((len(ends), 2)), model.numbers(model.all_told), np.zeros(0))
        question = AskCells(0, agreed.told)
        noisy = {k: budget.add_noise(run, privacy, model, k, client.exact(ends)) for k, client in clients.items()}
        answers = run.collect(stages.asking(model, Cells), Cells, noisy, lambda cells: cells, question)
    for k, client in clients.items():
        with owned(k):
            own.write(run, model, own.Own(k, client))
    certificates = run.certified() if privacy is not None else {}
    if answers is None:
        return None
    counts = dict(zip(model.telling, (reply.counts for reply in in_order(answers.replies))))
    moments = [] if sums is None else [*in_order(sums.replies)]
    of_clients = dict(zip(model.telling, moments)) if model.here else {}
    if moments:  # masked ones are all clients' together
        fields = zip(*((of_client.each, of_client.pairs) for of_client in moments))
        of_clients[publish.ALL] = Moments(0, *(np.sum(field, axis=0) for field in fields))
    counts = {publish.ALL: np.sum([*counts.values()], axis=0)} | (counts if len(counts) > 1 else {})
    facts = publish.Facts(model, agreed, counts, of_clients, budget.noise(certificates))
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


def _told(run: Run[Config], k: int, client: Client, question: AskCells) -> Cells:
    """Returns a client's counts, once its holder's account knows what is told."""
    if not client.model.whole and (account := _account(run, k)) is not None:
        with of_counts.alone(account), writing(account.folder / kept.FILE):
            kept.keep(account, client.telling(client.model.told(question.told)))
    return client.cells(question)


def _agree(run: Run[Config], model: DescribeModel, clients: Clients) -> Agreed:
    """Agrees on ends of bins, and on what all clients tell; what is returned has a meaning at the server's place alone."""
    values = run.collect(stages.asking(model, FewValues), FewValues, clients, Client.values)
    nothing = np.zeros(0)
    agreed = Agreed(model.public_ends, frozenset(), np.zeros((len(model.numeric), 2)), nothing, nothing)
    if values is not None:
        agreed = _with_ends(agreed, model, [*in_order(values.replies)])
    question = AskParts(0, agreed.ends, agreed.scale)
    answers = _asked(run, model, OwnParts, question, clients, lambda k, client, question: client.parts(question))
    if answers is None:
        return agreed
    replies = [*in_order(answers.replies)]
    tables = model.common([reply.first for reply in replies])
    return agreed._replace(told=model.numbers(tables), sums=model.common_sums(tables, [reply.sums for reply in replies]))


def _with_ends(agreed: Agreed, model: DescribeModel, replies: Sequence[FewValues]) -> Agreed:
    """Returns the same with ends of bins: values, where columns have few, else round numbers about the mean of clients' means."""
    ends, scale, values, last = agreed.ends.copy(), agreed.scale.copy(), set[str](), model.bins - 1
    for j, name in enumerate(model.numeric):
        told_values = [(int(reply.n[j]), reply.values[j].tolist()) for reply in replies]
        sign, mean, sd = np.array([reply.scale[j] for reply in replies if reply.scale[j, 0]] or [[1.0, np.nan, np.nan]]).T
        spread = float(np.sqrt(np.mean(sd**2) + np.var(mean)))
        scale[j] = np.nan_to_num([mean.mean(), 0.0 if model.here else spread])
        most = len(told_values[0][1])
        found = sorted({value for n, of_client in told_values if n <= most for value in of_client[: n if n >= 0 else -1 - n]})
        if len(found) <= last and (model.here or max(told_values)[0] <= most):
            values |= {name} if min(told_values)[0] >= 0 else set()
        elif model.here:
            found = [found[k] for k in np.linspace(0, len(found) - 1, last).round().astype(int).tolist()]
        else:
            declared = model.declared.get(name, ColumnSection())
            lower = 0.0 if declared.lower is None and (name == model.time or sign.min() > 0) else declared.lower
            found = measures.ends(float(mean.mean()), spread, lower, declared.upper, last).tolist() or found
        found = found[:last] or [0.0]
        ends[j] = [*found, *[found[-1]] * (last - len(found))]
    return agreed._replace(ends=ends, values=frozenset(values), scale=scale)
