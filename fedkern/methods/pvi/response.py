"""The units of an open job's response, and the prior of its intercept (docs/methods/pvi.md, sections 1 and 2.1).

An open job asks its clients once for the pooled level of the response on the link scale (`algorithms.exchanges.level`). The
intercept's prior is N(level, intercept_sd^2). A Gaussian response is also fitted in units of its own, (y - level) / scale, so
that another unit of it changes nothing but the unit of what is found. What is said of the fit is in the data's units (`ended`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...algorithms.core.averaging import Trajectory
from ...algorithms.exchanges import level
from ...algorithms.pvi import client_level, dispersion, global_vi, scale
from ...algorithms.pvi import machine as pvi
from ...algorithms.pvi.messages import LearntDispersion, LearntVariance
from ...algorithms.pvi.sites import Sites
from ...jobs.run import Run
from ...jobs.stage import Stage
from ...models.encoding import Encoding
from ...models.expfam import Gaussian, pack, unpack
from ...models.glm import Rows
from ...models.spatial.site import Rows as Responses
from ...models.spatial.units import Units
from .keys import Config

Vector = NDArray[np.float64]
Server: TypeAlias = pvi.Server | global_vi.Server | client_level.Server
LEARNT = "learn"


@dataclass(frozen=True)
class Response:
    """What all parties know of it.

    Attributes
    ----------
    units : level and scale; those of the data where nothing was asked
    variance : the residual variance, once it is learnt and told, in `units`
    r : of a negative binomial, once it is learnt and told
    ended : the rounds are over: what is said is in the data's units
    """

    units: Units = field(default_factory=Units)
    variance: float | None = None
    r: float | None = None
    ended: bool = False


class Known(Protocol):
    """What a model says of itself."""

    @property
    def config(self) -> Config: ...
    @property
    def encoding(self) -> Encoding: ...
    @property
    def response(self) -> Response: ...


def measured(config: Config) -> bool:
    """Whether the response has a unit of its own in this job."""
    return config.privacy is None and config.model.family == "gaussian"


def asks(config: Config) -> bool:
    """Whether the clients are asked for the response's level."""
    m = config.model
    return config.privacy is None and (measured(config) or (m.intercept and m.intercept_centre is None))


def assumed(config: Config) -> str:
    """That a private linear job takes the size of its errors for granted; "" where the job file says it."""
    if config.privacy is None or config.model.family != "gaussian" or "scale" in config.model.model_fields_set:
        return ""
    return (
        "the job file has no model.scale, and errors are taken to have a standard deviation of 1 in the response's unit: where "
        "it is more, intervals are too narrow, and clip may cut most rows; give model.scale from what is known of such "
        "responses, and model.intercept_centre where these are not about 0"
    )


def stages(config: Config) -> list[Stage]:
    """Before the rounds."""
    return [Stage(level.PROTOCOL, level.DIMS, times=level.TIMES if measured(config) else {})] if asks(config) else []


def after(config: Config) -> list[Stage]:
    """After them."""
    if config.model.scale != LEARNT:
        return []
    return [Stage.of(scale) if measured(config) else Stage.of(dispersion)]


def words(config: Config) -> str:
    """What `check` says of the priors and the scale."""
    m = config.model
    said = f"prior precision {m.prior_precision:g}"
    if config.privacy is not None:
        return said
    if m.intercept:
        centre = "the response's pooled level" if m.intercept_centre is None else f"{m.intercept_centre:g}"
        said += f", intercept's prior about {centre} with sd {_intercept_sd(config):g}"
    if measured(config):
        said += "; units of the prior: standard deviations of the response; "
        said += "scale learnt" if m.scale == LEARNT else f"scale {m.scale:g} in the data's units"
    elif m.family == "negative-binomial":
        said += "; r (model.scale) learnt" if m.scale == LEARNT else f"; r = {m.scale:g}"
    return said


def exchanged(run: Run[Config], rows: Mapping[int, Rows]) -> Response:
    """The units, the same at every place."""
    config = run.config
    if not asks(config):
        return Response()
    m = config.model
    given = float(m.scale) if isinstance(m.scale, float) else None
    asked = level.Settings(m.family, config.data.response or "y", m.intercept, given)
    clients = {k: level.Client(run.names[k], asked, _responses(own), weights=own.weights) for k, own in rows.items()}
    server, clients = run.exchange(stages(config)[0], lambda: level.start(asked, run.names), clients)
    if server is not None and server.note:
        run.hooks.notes.append(server.note.replace("intercept, effects and map are", "the intercept is"))
    if server is not None and server.doubt and config.data.weight is None:  # weights may say that a client varies more
        run.hooks.doubts.append(server.doubt)
    units = next(one.units for one in (server, *clients.values()) if one is not None and one.units is not None)
    return Response(units)


def _responses(rows: Rows) -> Responses:
    """As the exchange of the level takes them: without any column."""
    n = len(rows)
    offset = np.zeros(n) if rows.offset is None else rows.offset
    return Responses(rows.y, np.zeros(n, np.int64), np.zeros((n, 0)), offset, None)


def standardised(rows: Rows, response: Response, config: Config) -> Rows:
    """A client's rows in the model's units: a Gaussian response less offset and level, over the scale; others as they are."""
    if not measured(config):
        return rows
    y = rows.y - (0.0 if rows.offset is None else rows.offset) - response.units.level
    return replace(rows, y=y / response.units.scale, offset=None)


def prior(model: Known, plain: Gaussian) -> Gaussian:
    """`plain`, with that of the intercept; in the data's units once the rounds are over."""
    config, response = model.config, model.response
    m, units = config.model, response.units
    found = plain
    if model.encoding.intercept and (config.privacy is None or m.intercept_sd is not None or m.intercept_centre is not None):
        P, h = plain.P.copy(), plain.h.copy()
        centre = units.level if m.intercept_centre is None else m.intercept_centre
        own = (centre - units.level) / units.scale if measured(config) else centre
        precision = 1 / _intercept_sd(config) ** 2
        if P.ndim == 1:
            P[0] = precision
        else:
            P[0, 0] = precision
        h[0] = precision * own
        found = Gaussian(h, P)
    return natural(found, model) if response.ended else found


def _intercept_sd(config: Config) -> float:
    sd = config.model.intercept_sd
    return 1 / math.sqrt(config.model.prior_precision) if sd is None else sd


def model_scale(model: Known) -> float:
    """What the machines begin with: a given scale in the model's units; of one that is learnt the response's own."""
    given, response = model.config.model.scale, model.response
    if response.ended:
        return data_scale(model, response.variance, response.r)
    if not isinstance(given, float):
        return 1.0
    return given / response.units.scale if measured(model.config) else given


def data_scale(model: Known, variance: float | None, r: float | None) -> float:
    """The scale in the data's units, where that of a learnt one is `variance` in the model's, or `r`."""
    given = model.config.model.scale
    if isinstance(given, float):
        return given
    if not measured(model.config):
        return 1.0 if r is None else r
    return math.sqrt(1.0 if variance is None else variance) * model.response.units.scale


def scale_so_far(model: Known, server: Server) -> float:
    """In the data's units, as a running server has learnt it."""
    return data_scale(model, *_so_far(server))


def _so_far(server: Server | None) -> tuple[float, float]:
    """Variance and r that a server has learnt; 1 where it learns none."""
    return (server.sites.variance, server.counts.r) if isinstance(server, pvi.Server) else (1.0, 1.0)


def exact(response: Response) -> bool:
    """Whether a learnt scale is no larger than what rounding leaves."""
    return response.variance is not None and response.variance <= scale.LEAST


def notes(response: Response, encoding: Encoding) -> list[str]:
    """That a response is no measurement; or that all are 0, of which r tells nothing."""
    if response.r is not None and response.r <= dispersion.LEAST:
        return [
            f"r (model.scale) ended at its least, {dispersion.LEAST:g}: nearly all counts are 0, and intervals are as wide as "
            "priors; give model.scale"
        ]
    if not exact(response):
        return []
    return [f"column {encoding.response!r} is a linear function of the others, up to rounding: ignore what it was computed from"]


# From the model's units to the data's --------------------


def _centre(model: Known) -> Vector:
    """theta = centre + scale x theta of the model."""
    centre = np.zeros(model.encoding.size)
    if model.encoding.intercept:
        centre[0] = model.response.units.level
    return centre


def natural(q: Gaussian, model: Known) -> Gaussian:
    """A Gaussian, or a factor of one, of the model's units in the data's."""
    if not measured(model.config):
        return q
    s, centre = model.response.units.scale, _centre(model)
    P = q.P / s**2
    return Gaussian(q.h / s + (P * centre if P.ndim == 1 else P @ centre), P)


def ended(run: Run[Config], model: Known, server: Server | None) -> tuple[Server | None, Response]:
    """After the rounds: all parties know the scale, and the server's state is in the data's units."""
    known_now = replace(model.response, ended=True)
    if run.config.model.scale == LEARNT:
        told = {k: scale.Told() for k in run.mine}
        variance, r = _so_far(server)
        learnt = LearntVariance(variance) if measured(run.config) else LearntDispersion(r)
        at_server, clients = run.exchange(after(run.config)[0], lambda: scale.tell(len(run.names), learnt), told)
        known = [one.value for one in (at_server, *clients.values()) if one is not None and one.value is not None]
        value = known[0] if known else None
        known_now = replace(known_now, variance=value) if measured(run.config) else replace(known_now, r=value)
    if server is None or not measured(run.config):
        return server, known_now
    return _in_data_units(server, model), known_now


def _in_data_units(server: Server, model: Known) -> Server:
    """The server's last state: prior, sites, q and trajectory."""
    prior, s, centre, d = natural(server.prior, model), model.response.units.scale, _centre(model), model.encoding.size
    of_points = not (model.config.algorithm.average == "half" and server.q.P.ndim == 2)

    def moved(total: Vector, n: int) -> Vector:
        """A sum of n points of the trajectory."""
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
        return server
    full = server.q.P.ndim == 2
    factors = [
        natural(Gaussian(h, unpack(P, d) if full else P), model) for h, P in zip(server.sites.h, server.sites.P, strict=True)
    ]
    h, P = (np.stack([part(one) for one in factors]) for part in (lambda one: one.h, lambda one: pack(one.P)))
    sites = Sites.of(prior, h, P, server.updates)
    return replace(server, prior=prior, sites=sites, q=natural(server.q, model), trajectory=trajectory)
