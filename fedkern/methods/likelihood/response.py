"""Exchanges the units of the response: its pooled level, and of a measured one its spread.

Source: docs/spec/likelihood.md, section 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ...algorithms.core.messages import ServerEffects
from ...algorithms.exchanges import level, odd_response
from ...data.design import Design
from ...jobs.run import Run
from ...models.spatial.site import Rows as Responses
from .keys import Config
from .model import Model

COARSE = 4.0  # the standard deviation up to which whole numbers are so few that they are uneven in tenths of a distribution
ROUNDED = 1e-12  # of a sum, that it loses
OF_LEVELS = ("column-elsewhere", "response-apart")  # findings on means alone


def exchange_response(run: Run[Config], model: Model, designs: Mapping[int, Design], rows: Mapping[int, Any]) -> Model:
    """Returns the model with the response's units, the same at every place; times have that of the hazard. `rows`: of each client
    that lives here, as `model` has read them."""
    if not model.asks_level:
        return model
    settings = model.asked_level
    responses = {k: responses_of(design, model.exposure(rows[k])) for k, design in designs.items()}
    # By a precision no row counts more often.
    weights = {k: None if model.precise else design.weights for k, design in designs.items()}
    clients = {k: level.Client(run.names[k], settings, responses[k], weights=weights[k]) for k in designs}
    stage = model.response_stages[0]
    server, clients = run.exchange(stage, lambda: level.start(settings, model.telling), clients)
    if server is not None:
        run.hooks.compare_twins(server.answers)
        run.hooks.notes += filter(None, [server.note])
        found = [*server.found, *model.compare_levels(server.answers)]
        # Of clients with effects of their own the model has it that levels differ; another unit moves spreads, too.
        expected = bool(model.layout.client) and not any(finding.doubt for finding in found)
        run.hooks.find([finding for finding in found if not (expected and finding.id in OF_LEVELS)])
    if model.compares_alone:
        _compare_alone(run, model, server, clients)
    units = next(party.units for party in (server, *clients.values()) if party is not None and party.units is not None)
    if server is None:
        return model.with_units(units)
    counts = {name: count for name, (count, _) in zip(server.clients, server.answers)}
    model = model.with_units(replace(units, n=server.rows, counts=counts))
    return model.with_coarse(_is_coarse(model, server))


def _is_coarse(model: Model, server: level.Server) -> bool:
    """Tells whether a measured response has whole numbers alone, and few, as a score: the clients' sums of it are whole."""
    if not model.measured or model.offset or server.sd > COARSE:
        return False
    return all(abs(total - round(total)) <= ROUNDED * max(abs(total), 1.0) for _, total in server.answers)


def _compare_alone(run: Run[Config], model: Model, server: level.Server | None, clients: Mapping[int, level.Client]) -> None:
    """Has each client compare its response with those of all others together; what is odd is noted for its holder alone."""
    comparing = {k: odd_response.Client(partial(_compared, model, client)) for k, client in clients.items()}

    def ask() -> tuple[odd_response.Server, ServerEffects]:
        assert server is not None
        assert server.units is not None
        numbers = (server.rows, server.units.pooled, server.sd) if model.measured else (*server.answers[0], 0.0)
        return odd_response.start(model.found_alone, f"column {model.encoding.response!r}", len(run.names), numbers)

    found, compared = run.exchange(model.response_stages[1], ask, comparing)
    if found is not None:
        run.hooks.find(found.found)
    for k, client in compared.items():
        run.hooks.own_notes.setdefault(k, []).extend(client.notes)


def _compared(model: Model, client: level.Client, first: float, second: float, third: float) -> odd_response.Compared:
    return model.compare_alone(client, (first, second, third))


def responses_of(design: Design, seen: np.ndarray | None) -> Responses:
    """Returns the rows as the exchange of the level takes them: without any column; `seen`: (n,) how long each row was."""
    n = len(design.y)
    offset = np.broadcast_to(0.0, n) if design.offset is None else design.offset
    if seen is not None:
        with np.errstate(divide="ignore"):
            offset = offset + np.log(seen)
    return Responses(design.y, np.broadcast_to(0, n), np.zeros((n, 0)), offset, None)
