"""Runs a vertical job with inference = "soul": Langevin draws of coefficients given the mode of the auxiliary variables.

The result is labelled "conditional" wherever it is shown: it is not the posterior (docs/spec/vertical.md, section 10).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ...algorithms import soul
from ...algorithms.core.messages import ServerEffects
from ...arrays import Array
from ...jobs.run import Run
from ...jobs.watch import measuring
from ...models.expfam import Gaussian
from ...models.split.predictors import Predictor
from ...results.gaussian import Posterior
from . import parts, publish, stages
from .keys import Config
from .model import VerticalModel
from .rows import Rows


def trained(run: Run[Config], model: VerticalModel, rows: Rows) -> tuple[soul.Server | None, dict[int, soul.Client]]:
    """Runs the rounds and returns the last states of this place's parties."""
    likelihood = model.likelihood if model.shared else None
    settings, names = model.soul, model.names
    clients = {}
    for k, column in rows.columns.items():
        y = column.y[rows.train] if column.y is not None else None
        clients[k] = soul.client(names[k], k, settings, model.predictor(k, column, rows.train), y, likelihood)

    def start() -> tuple[soul.Server, ServerEffects]:
        assert rows.server is not None
        return soul.start(settings, model.likelihood, names, *rows.server.of(rows.train), model.intercept)

    return run.with_lines(measuring(measured)).exchange(stages.trained(model), start, clients)


def measured(state: soul.Server) -> Mapping[str, float]:
    """Returns the numbers of a line of metrics."""
    metrics = {"intercept": round(state.b, 5)} if state.intercept else {}
    if state.settings.dispersed:
        return metrics | {"sigma": round(math.exp(state.log_scale), 5)}
    return metrics


def predicted(client: soul.Client, predictor: Predictor) -> tuple[Array, Array]:
    """Returns (n,) mean and variance of g_j at new rows, over the conditional draws."""
    theta = soul.conditional(client)
    return parts.of_draws(theta.mean, theta.covariance, predictor.design(np.empty(0)))


def fitted(server: soul.Server) -> publish.Fitted:
    """Returns the server's result: modes of b and log sigma."""
    z, b, log_scale = server.averaged
    mode = {"intercept": b} if server.intercept else {}
    mode |= {"sigma": math.exp(log_scale)} if server.settings.dispersed else {}
    nothing = Posterior((), Gaussian(np.empty(0), np.empty(0)))
    arrays = {"z": z, "shared": np.array([b, log_scale])}
    intercept = b if server.intercept else 0.0
    return publish.Fitted(nothing, (intercept, 0.0), log_scale, arrays, server.round, str(server.stop), {"mode": mode})
