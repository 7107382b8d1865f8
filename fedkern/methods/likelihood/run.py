"""Runs a job from its files to its result. The same code runs in one process and at every rank of an MPI job."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...algorithms.core import once
from ...algorithms.core.messages import ServerEffects
from ...algorithms.hmc import machine as hmc
from ...algorithms.importance import machine as importance
from ...algorithms.importance import single_values, telling
from ...algorithms.importance.single_values import AskSingleValues, SingleValues
from ...errors import owned
from ...jobs.publish import Fit
from ...jobs.run import Run
from . import by_evidence, differently, dispersion, lines, publish
from .keys import Config
from .kinds import steps_of
from .model import TOLD
from .rows import sizes_of
from .stages import stage_of_chains, stage_of_draws, stage_of_mode, stage_of_single_values, stage_of_telling
from .steps import Machine, Read

LOG = logging.getLogger(__name__)


def fit(run: Run[Config]) -> Fit | None:
    """Runs the part of one place in a job; returns the result at the server's place, None elsewhere."""
    steps = steps_of(run.config)
    tables = run.tables()
    opening = steps.agree(run, tables)
    run = run.with_model(opening.model)  # from here on the exchanges of this model are allowed
    read = opening.read_rows(run, tables)
    if steps.fit is not None:
        return steps.fit(run, read)
    if read.model.secure:
        run.know_alike(read.model.told)
    mode, at_mode = _find_mode_and_draw(run, read) if read.model.has_mode else (None, {})
    read = _at_prior(read, mode, at_mode)
    if others := by_evidence.others(read.model):
        tried = [by_evidence.Drawn(read, mode, at_mode)]
        for model in others:
            other = by_evidence.of_model(run, read, model)
            drawn = _find_mode_and_draw(run, other, f"importance-{model.family}")
            tried.append(by_evidence.Drawn(_at_prior(other, *drawn), *drawn))
        read, mode, at_mode = by_evidence.choose(run, tried)
    if mode is not None and read.follows:
        found = importance.read_result(mode)
        run.hooks.find(read.follows[name] for name in differently.decided_by_prior(read.model, found, [*read.follows]))
    singly = _exchange_single_values(run, read, mode, at_mode) if read.model.settings.singly else None
    chains, machines = _walk(run, read, mode, at_mode) if read.model.chains else (None, at_mode)
    ended: dict[int, Any] = {}
    for k, machine in machines.items():
        with owned(k):  # a fault here is this client's: its own folder gets the whole of it
            ended[k] = steps.complete(run, read.model, k, read.rows[k], read.likelihoods[k], machine)
    if mode is not None and steps.at_mode is not None:
        read = read._replace(model=steps.at_mode(read.model, importance.read_result(mode)))
    checked = steps.exchange_checks(run, read.model, ended)
    if not run.place.is_server:
        return None
    n_rows = sum(sizes_of(read.rows, run.sizes))
    at_end = publish.Ended(mode, tuple(run.hooks.doubts), checked, chains, singly, run.sizes, n_rows)
    result = steps.make_fit(read.model, at_end, read.test)
    result = replace(result, more={**result.more, **read.content})
    if not read.model.keeps_points:
        return result
    from . import extended

    return extended.keep(run, read.model, at_end, result)


def _find_mode_and_draw(
    run: Run[Config], read: Read, alias: str = ""
) -> tuple[importance.Server | None, Mapping[int, importance.Client]]:
    """The last states of server and clients after the way to the mode and, without chains, the rounds of draws."""
    model, shown = read.model, run.with_lines(lines.to_mode_and_draws())
    answering = {**read.likelihoods, **read.structured}
    clients = {k: model.client(k, likelihood, run.requirement_of(k).rules) for k, likelihood in answering.items()}
    start: Callable[[], tuple[importance.Server, ServerEffects]] = model.start
    if model.asks_dispersion:  # so that it is said before anybody waits for draws
        mode, clients = shown.exchange(stage_of_mode(model), partial(model.start, model.mode_alone), clients)
        dispersion.say(run, model, mode, read.rows)
        start = partial(importance.go_on, mode, model.settings)
    server, ended = shown.exchange(stage_of_draws(model).with_alias(alias), start, clients)
    for k, client in ended.items():
        if client.refused:
            LOG.warning("client %r: %d question was about few of its rows, and had no answer", run.names[k], client.refused)
    return server, ended


def _at_prior(read: Read, mode: importance.Server | None, at_mode: Mapping[int, importance.Client]) -> Read:
    """Returns the rows with the model whose prior the server has taken, as every client has heard."""
    known = {machine.widened for machine in (mode, *at_mode.values()) if machine is not None}
    return read._replace(model=replace(read.model, widened=max(known))) if any(known) else read


def _exchange_single_values(
    run: Run[Config], read: Read, mode: importance.Server | None, at_mode: Mapping[int, importance.Client]
) -> NDArray[np.float64] | None:
    """Returns the clients' own log-likelihoods (N, J) at the draws, at the server's place; None elsewhere."""
    model, clients = read.model, dict[int, once.Client[AskSingleValues, SingleValues]]()
    for k, machine in at_mode.items():
        assert machine.values is not None  # there were draws
        clients[k] = once.Client(single_values.answer_of(machine.values, model.settings.most_questions))
    question = None if mode is None else AskSingleValues(sum(len(piece.xi) for piece in mode.draws) // mode.settings.per_question)
    replies, _ = run.ask(stage_of_single_values(model), single_values.QUESTION, question, clients)
    if mode is None or replies is None:
        return None
    sums = importance.read_result(mode).values[:, 0]
    return single_values.read([replies.replies[k] for k in range(len(run.names))], sums)


def _walk(
    run: Run[Config], read: Read, mode: importance.Server | None, at_mode: Mapping[int, importance.Client]
) -> tuple[hmc.Server | None, Mapping[int, Machine]]:
    """The last states of server and clients after the chains; where clients need draws, those of clients that were told some."""
    model = read.model
    walkers = {k: model.walker(k, likelihood, at_mode.get(k)) for k, likelihood in read.likelihoods.items()}
    server, clients = run.with_lines(lines.of_chains()).exchange(stage_of_chains(model), lambda: model.walk(mode), walkers)
    if not model.tells_draws:
        return server, clients

    def tell() -> tuple[telling.Teller, ServerEffects]:
        assert server is not None
        assert mode is not None
        xi = hmc.draws(server).reshape(-1, model.size)
        some = xi[np.linspace(0, len(xi) - 1, TOLD).round().astype(int)]  # spread over all chains
        right = publish.judge_chains(model, mode, server).converged is True
        return telling.start(len(run.names), mode.round, mode.nodes, some, converged=right)

    return server, run.exchange(stage_of_telling(model), tell, at_mode)[1]
