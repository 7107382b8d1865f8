"""The units of the response (docs/methods/likelihood.md, section 4): the pooled level, and of a gaussian one its spread."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...algorithms.exchanges import level
from ...data.design import Design
from ...jobs.run import Run
from ...jobs.stage import Stage
from ...models.spatial.site import Rows as Responses
from ...models.spatial.units import Units
from . import time_units
from .keys import Config
from .model import Model
from .times import Timed, exposure


def stages(model: Model) -> list[Stage]:
    """Before the rounds."""
    return [Stage(level.PROTOCOL, level.DIMS, times=level.TIMES if model.measured else {})] if model.asks_level else []


def exchanged(run: Run[Config], model: Model, designs: Mapping[int, Design], timeds: Mapping[int, Timed]) -> Units:
    """The units, the same at every place: of times that of the hazard, events by the time that rows were seen."""
    if not model.asks_level:
        return Units()
    encoding = model.encoding
    family = "poisson" if model.lifetimes else encoding.family
    asked = level.Settings(family, encoding.response or "y", encoding.intercept)
    responses = {k: _responses(own, exposure(timeds[k]) if model.lifetimes else None) for k, own in designs.items()}
    clients = {k: level.Client(run.names[k], asked, responses[k], weights=own.weights) for k, own in designs.items()}
    server, clients = run.exchange(stages(model)[0], lambda: level.start(asked, run.names), clients)
    if server is not None and server.note:
        run.hooks.notes.append(server.note.replace("intercept, effects and map are", "the intercept is"))
    if server is not None and server.doubt:
        run.hooks.doubts.append(server.doubt)
    if server is not None and model.lifetimes:
        said = time_units.of_rates(run.names, server.answers)
        run.hooks.notes += said.notes
        run.hooks.doubts += filter(None, [said.doubt])
    units = next(one.units for one in (server, *clients.values()) if one is not None and one.units is not None)
    return units if server is None else Units(units.level, units.scale, units.pooled, server.rows)


def _responses(design: Design, seen: np.ndarray | None) -> Responses:
    """As the exchange of the level takes them: without any column; `seen`: (n,) how long each row was."""
    n = len(design.y)
    offset = np.zeros(n) if design.offset is None else design.offset
    if seen is not None:
        with np.errstate(divide="ignore"):
            offset = offset + np.log(seen)
    return Responses(design.y, np.zeros(n, np.int64), np.zeros((n, 0)), offset, None)
