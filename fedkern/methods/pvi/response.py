"""Defines the units of an open job's response and the prior of its intercept (docs/spec/pvi.md, sections 1 and 2.1).

An open job asks its clients once for the pooled level of the response on the link scale (`algorithms.exchanges.level`). The
intercept's prior is N(level, intercept_sd^2). A Gaussian response is also fitted as (y - level) / scale, so that another unit of
it changes the unit of the result and nothing else. After the rounds (`ended`) every reported number is in the data's units.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

import numpy as np

from ...algorithms.core.windows import Trajectory
from ...algorithms.exchanges import level
from ...algorithms.pvi import client_level, global_vi, scale
from ...algorithms.pvi import machine as pvi
from ...algorithms.pvi.machine import Sites
from ...arrays import Vector
from ...jobs.run import Run
from ...jobs.stage import Stage
from ...models.encoding import Encoding
from ...models.expfam import Gaussian, pack, unpack
from ...models.glm import Rows
from ...models.spatial.site import Rows as Responses
from ...models.spatial.units import Units
from ...results import guard
from .keys import Config

Server: TypeAlias = pvi.Server | global_vi.Server | client_level.Server


@dataclass(frozen=True)
class Given:
    """Holds the job file's statements about the response and the priors."""

    # family, column: of the response
    family: str
    column: str
    open: bool  # whether the job is not private
    intercept: bool  # whether the model has one
    # centre, sd: of the intercept's prior; None where the data, or `precision`, decide
    centre: float | None
    sd: float | None
    precision: float  # of the coefficients' priors
    scale: float | None  # in the data's units; None where it is learnt

    @property
    def learnt(self) -> bool:
        """Whether the scale is learnt."""
        return self.scale is None

    @property
    def measured(self) -> bool:
        """Whether this job fits the response in a unit of its own."""
        return self.open and self.family == "gaussian"

    @property
    def asks(self) -> bool:
        """Whether the clients are asked for the response's level."""
        return self.open and (self.measured or (self.intercept and self.centre is None))

    @property
    def spread(self) -> float:
        """The standard deviation of the intercept's prior."""
        return 1 / math.sqrt(self.precision) if self.sd is None else self.sd

    @property
    def words(self) -> str:
        """The text of `check` about the priors and the scale."""
        text = f"prior precision {self.precision:g}"
        if not self.open:
            return f"{text}, errors' standard deviation {self.scale:g}" if self.family == "gaussian" else text
        if self.intercept:
            centre = "the response's pooled level" if self.centre is None else f"{self.centre:g}"
            text += f", intercept's prior about {centre} with sd {self.spread:g}"
        if self.measured:
            text += "; units of the prior: standard deviations of the response; "
            text += "scale learnt" if self.scale is None else f"scale {self.scale:g} in the data's units"
        elif self.family == "negative-binomial":
            text += f"; r = {self.scale:g}"
        return text


@dataclass(frozen=True)
class Response:
    """Holds what all parties know of the response."""

    units: Units = field(default_factory=Units)  # level and scale; those of the data where nothing was asked
    variance: float | None = None  # the residual variance in `units`, once it is learnt and told
    ended: bool = False  # whether the rounds are over, so that numbers are in the data's units


class Known(Protocol):
    """Lists the properties of a model that this module reads."""

    @property
    def given(self) -> Given: ...
    @property
    def weight(self) -> str | None: ...
    @property
    def averaged(self) -> bool: ...
    @property
    def encoding(self) -> Encoding: ...
    @property
    def response(self) -> Response: ...
    @property
    def secure(self) -> bool: ...
    @property
    def telling(self) -> tuple[str, ...]: ...


def stages(model: Known) -> list[Stage]:
    """Returns the stage before the rounds, in which clients are asked for the response's level."""
    if not model.given.asks:
        return []
    stage = Stage(level.PROTOCOL, level.DIMS, times=level.TIMES if model.given.measured else {})
    return [stage.with_sums(level.SUMS, secure=model.secure)]


def after(given: Given) -> list[Stage]:
    """Returns the stage after the rounds, in which clients are told the learnt scale."""
    return [Stage.of(scale)] if given.learnt else []


def exchange_level(run: Run[Config], model: Known, rows: Mapping[int, Rows]) -> Response:
    """Asks the clients for the response's level and scale; every place gets the same units."""
    given = model.given
    if not given.asks:
        return Response()
    level_settings = level.Settings(given.family, given.column, given.intercept, given.scale, masked=model.secure)
    clients = {
        k: level.Client(run.names[k], level_settings, _responses(client_rows), weights=client_rows.weights)
        for k, client_rows in rows.items()
    }
    server, clients = run.exchange(stages(model)[0], lambda: level.start(level_settings, model.telling), clients)
    if server is not None:
        run.hooks.compare_twins(server.answers)
        run.hooks.notes += filter(None, [server.note])
        # Weights may say that a client varies more.
        run.hooks.find(place for place in server.found if model.weight is None or not place.doubt)
    units = next(place.units for place in (server, *clients.values()) if place is not None and place.units is not None)
    return Response(units)


def _responses(rows: Rows) -> Responses:
    """Returns a client's responses as the exchange of the level takes them, without any column."""
    n = len(rows)
    offset = np.zeros(n) if rows.offset is None else rows.offset
    return Responses(rows.y, np.zeros(n, np.int64), np.zeros((n, 0)), offset, None)


def standardise(rows: Rows, model: Known) -> Rows:
    """Returns a client's rows in the model's units: a Gaussian response less offset and level, over the scale; others
    unchanged."""
    response = model.response
    if not model.given.measured:
        return rows
    y = rows.y - (0.0 if rows.offset is None else rows.offset) - response.units.level
    return replace(rows, y=y / response.units.scale, offset=None)


def prior(model: Known, plain: Gaussian) -> Gaussian:
    """Returns `plain` with the intercept's prior in it; in the data's units once the rounds are over."""
    given, response = model.given, model.response
    units, made = response.units, plain
    if model.encoding.intercept and (given.open or given.sd is not None or given.centre is not None):
        P, h = plain.P.copy(), plain.h.copy()
        centre = units.level if given.centre is None else given.centre
        standardised_centre = (centre - units.level) / units.scale if given.measured else centre
        precision = 1 / given.spread**2
        if P.ndim == 1:
            P[0] = precision
        else:
            P[0, 0] = precision
        h[0] = precision * standardised_centre
        made = Gaussian(h, P)
    return to_data_units(made, model) if response.ended else made


def model_scale(model: Known) -> float:
    """Returns the scale with which machines begin: a given one in the model's units, 1 for one that is learnt."""
    given, response = model.given, model.response
    if response.ended:
        return data_scale(model, response.variance)
    if given.scale is None:
        return 1.0
    return given.scale / response.units.scale if given.measured else given.scale


def data_scale(model: Known, variance: float | None) -> float:
    """Returns the scale in the data's units. `variance`: a learnt error variance, in the model's units."""
    given = model.given
    if given.scale is not None:
        return given.scale
    return math.sqrt(1.0 if variance is None else variance) * model.response.units.scale


def scale_so_far(model: Known, server: Server) -> float:
    """Returns the scale that a running server has learnt so far, in the data's units."""
    return data_scale(model, _so_far(server))


def _so_far(server: Server | None) -> float:
    """Returns the variance that a server has learnt; 1 where it learns none."""
    return server.sites.variance if isinstance(server, pvi.Server) else 1.0


def is_exact(response: Response) -> bool:
    """Returns whether a learnt scale is no larger than rounding leaves, as of a response that others determine."""
    return response.variance is not None and response.variance <= scale.LEAST


@guard.figure("notes on the response's units", [])
def notes(response: Response, encoding: Encoding) -> list[str]:
    """Returns the note that the response is a function of other columns."""
    if not is_exact(response):
        return []
    return [f"column {encoding.response!r} is a linear function of the others, up to rounding: ignore what it was computed from"]


# From the model's units to the data's --------------------


def centre_of(model: Known) -> Vector:
    """Returns the centre of theta = centre + scale x theta of the model."""
    centre = np.zeros(model.encoding.size)
    if model.encoding.intercept:
        centre[0] = model.response.units.level
    return centre


def to_data_units(q: Gaussian, model: Known) -> Gaussian:
    """Converts a Gaussian, or a factor of one, from the model's units to the data's."""
    if not model.given.measured:
        return q
    s, centre = model.response.units.scale, centre_of(model)
    P = q.P / s**2
    return Gaussian(q.h / s + (P * centre if P.ndim == 1 else P @ centre), P)


def end_rounds(run: Run[Config], model: Known, server: Server | None) -> tuple[Server | None, Response]:
    """Ends the rounds: tells all parties the learnt scale, and converts the server's state to the data's units. Returns the
    server's last state (None at clients), and the response with its learnt scale."""
    known_now, given = replace(model.response, ended=True), model.given
    for stage in after(given):
        scales = {k: scale.Told() for k in run.mine}
        at_server, clients = run.exchange(stage, lambda: scale.tell(len(run.names), _so_far(server)), scales)
        known = [place.value for place in (at_server, *clients.values()) if place is not None and place.value is not None]
        known_now = replace(known_now, variance=known[0] if known else None)
    if server is None or not given.measured:
        return server, known_now
    return in_data_units(server, model), known_now


def in_data_units(server: Server, model: Known) -> Server:
    """Converts the server's last state to the data's units: prior, sites, q and trajectory."""
    prior, s, centre, d = to_data_units(server.prior, model), model.response.units.scale, centre_of(model), model.encoding.size
    of_points = not (model.averaged and server.q.P.ndim == 2)

    def moved(total: Vector, n: int) -> Vector:
        """Converts a sum of n points of the trajectory."""
        if of_points:
            return np.concatenate([s * total[:d] + n * centre, total[d:] + n * math.log(s)])
        P = total[d:] / s**2
        return np.concatenate([total[:d] / s + unpack(P, d) @ centre, P])

    path = server.trajectory
    kept = tuple(moved(total, i * path.stride) for i, total in enumerate(path.kept))
    trajectory = Trajectory(moved(path.total, path.count), path.count, path.stride, kept)
    if isinstance(server, global_vi.Server):
        return replace(server, prior=prior, lam=moved(server.lam, 1), trajectory=trajectory)
    if not isinstance(server, pvi.Server):
        # A site is a factor of q, and changes its units as q does.
        return server
    full = server.q.P.ndim == 2
    factors = [
        to_data_units(Gaussian(h, unpack(P, d) if full else P), model)
        for h, P in zip(server.sites.h, server.sites.P, strict=True)
    ]
    h, P = (
        np.stack([part(gaussian) for gaussian in factors])
        for part in (lambda gaussian: gaussian.h, lambda gaussian: pack(gaussian.P))
    )
    sites = Sites.of(prior, h, P)
    return replace(server, prior=prior, sites=sites, q=to_data_units(server.q, model), trajectory=trajectory)
