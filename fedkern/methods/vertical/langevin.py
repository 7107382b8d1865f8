"""A vertical job with inference = "soul": Langevin draws of coefficients given the mode of the auxiliary variables.

What comes of it is labelled "conditional" wherever it is shown: it is not the posterior (docs/methods/vertical.md, section 10).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...algorithms.soul import machine as soul
from ...jobs.hooks import RunHooks
from ...jobs.progress import Progress
from ...jobs.run import Output
from ...jobs.watch import MeasuredWatch
from ...models.expfam import Gaussian
from ...models.split.predictors import Predictor
from ...results.gaussian import Posterior
from ...transports.codec import Codec
from ...transports.place import Place
from . import own, publish
from .model import VerticalModel
from .rows import Columns, Rows

Array = NDArray[np.float64]


def trained(
    place: Place, model: VerticalModel, rows: Rows, hooks: RunHooks, output: Output
) -> tuple[soul.Server | None, dict[int, soul.Client]]:
    """The last states of this place's parties."""
    settings, names, likelihood = model.soul, model.names, model.likelihood if model.shared else None
    clients = {}
    for k, column in rows.columns.items():
        y = column.y[rows.train] if column.y is not None else None
        clients[k] = soul.client(names[k], k, settings, model.predictor(k, column, rows.train), y, likelihood)
    start = None
    if rows.server is not None:
        start = soul.start(settings, model.likelihood, names, *rows.server.of(rows.train), model.config.model.intercept)
    with Progress(settings.rounds, quiet=output.quiet) as progress:
        every = model.config.output.metrics_every
        hooks.watch = MeasuredWatch(measured, every=every, write=hooks.metric, progress=progress)
        codec = Codec(settings.dims(), len(names))
        server, clients = hooks.run(place, soul.protocol(settings), start, clients, codec, resume=output.resume)
        hooks.watch = None
    return server, clients


def measured(state: soul.Server) -> Mapping[str, float]:
    """For a line of metrics."""
    metrics = {"intercept": round(state.b, 5)} if state.intercept else {}
    return metrics | ({"sigma": round(math.exp(state.log_scale), 5)} if state.settings.dispersed else {})


def predicted(client: soul.Client, predictor: Predictor) -> tuple[Array, Array]:
    """(n,) mean and variance of g_j at new rows, of the conditional draws."""
    found, H = soul.conditional(client), predictor.design(np.empty(0))
    return H @ found.mean, np.einsum("ij,jk,ik->i", H, found.covariance, H)


def summary(model: VerticalModel, client: soul.Client, columns: Columns) -> dict[str, Any]:
    """What only the client may see: its conditional draws."""
    found = soul.conditional(client)
    sd = np.sqrt(np.diag(found.covariance))
    return {
        "label": found.label,
        "rows": model.n_rows,
        "rounds": client.round,
        "encoding": columns.encoding.to_dict(),
        "parameters": own.slopes(columns, found.mean, sd),
    }


def fitted(server: soul.Server) -> publish.Fitted:
    """What the server has: modes of b and log sigma."""
    z, b, log_scale = server.averaged
    mode = {"intercept": b} if server.intercept else {}
    mode |= {"sigma": math.exp(log_scale)} if server.settings.dispersed else {}
    nothing = Posterior((), Gaussian(np.empty(0), np.empty(0)))
    arrays = {"z": z, "shared": np.array([b, log_scale])}
    return publish.Fitted(
        nothing, (b if server.intercept else 0.0, 0.0), log_scale, arrays, server.round, str(server.stop), {"mode": mode}
    )
