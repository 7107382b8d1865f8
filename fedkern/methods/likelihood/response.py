"""Exchanges the units of the response: its pooled level, and of a measured one its spread.

Source: docs/spec/likelihood.md, section 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...algorithms.exchanges import level
from ...data.design import Design
from ...jobs.run import Run
from ...models.spatial.site import Rows as Responses
from ...models.spatial.units import Units
from .keys import Config
from .model import Model


def exchange_response(run: Run[Config], model: Model, designs: Mapping[int, Design], rows: Mapping[int, Any]) -> Model:
    """Returns the model with the response's units, the same at every place; times have that of the hazard.

    Parameters
    ----------
    rows : of each client that lives here, as `model` has read them
    """
    if not model.asks_level:
        return model
    encoding = model.encoding
    asked = level.Settings(model.level_family, encoding.response or "y", encoding.intercept)
    responses = {k: _responses(own, model.exposure(rows[k])) for k, own in designs.items()}
    clients = {k: level.Client(run.names[k], asked, responses[k], weights=own.weights) for k, own in designs.items()}
    (stage,) = model.response_stages
    server, clients = run.exchange(stage, lambda: level.start(asked, model.telling), clients)
    if server is not None and server.note:
        run.hooks.notes.append(server.note.replace("intercept, effects and map are", "the intercept is"))
    if server is not None and server.doubt:
        run.hooks.doubts.append(server.doubt)
    if server is not None and (said := model.compare_levels(server.answers)) is not None:
        run.hooks.notes += said.notes
        run.hooks.doubts += filter(None, [said.doubt])
    units = next(one.units for one in (server, *clients.values()) if one is not None and one.units is not None)
    return model.with_units(units if server is None else Units(units.level, units.scale, units.pooled, server.rows))


def _responses(design: Design, seen: np.ndarray | None) -> Responses:
    """Returns the rows as the exchange of the level takes them: without any column; `seen`: (n,) how long each row was."""
    n = len(design.y)
    offset = np.zeros(n) if design.offset is None else design.offset
    if seen is not None:
        with np.errstate(divide="ignore"):
            offset = offset + np.log(seen)
    return Responses(design.y, np.zeros(n, np.int64), np.zeros((n, 0)), offset, None)
