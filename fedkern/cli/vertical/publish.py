"""Everything that the server of a vertical job publishes: its own parameters, and how well new rows are predicted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...algorithms import vertical, vertical_predict
from ...errors import JobError
from ...models import predictive
from ...models.expfam import Gaussian
from ...results.digest import digest
from ...results.inference_data import write
from ...results.posterior import Posterior
from ...results.result import Result
from ...results.summary import Outcome, summary
from .. import info
from ..hooks import RunHooks
from .model import VerticalModel
from .rows import ServerRows

Array = NDArray[np.float64]
Index = NDArray[np.int64]


def result(
    model: VerticalModel,
    server: vertical.Server,
    rows: ServerRows,
    split: tuple[Index, Index],
    predicted: vertical_predict.Server | None,
    hooks: RunHooks,
) -> Result:
    """The whole result of a job."""
    config, files = model.config, hooks.folder
    posterior = _posterior(server)
    notes = [*hooks.notes, *model.warnings(rows.y[split[0]]), *_about(model)]
    if files is not None and posterior.names:
        try:
            write(
                posterior,
                files.path / "posterior.nc",
                seed=config.job.seed,
                chains=config.output.chains,
                draws=config.output.draws,
            )
        except JobError as error:
            notes.append(f"no posterior.nc: {error}")
    prediction = {} if predicted is None else _scored(model, server, rows, split[1], predicted)
    outcome = Outcome(
        stop=str(server.stop),
        rounds=server.round,
        clients={name: {"updates": server.round, "status": "finished"} for name in model.names},
        metrics=prediction.get("rules", {}).get(config.output.rule, {}),
        privacy={},
        wire=hooks.wire.as_dict(),
        digest=digest(_arrays(server, predicted)),
        encoding={"id": config.data.id, "response": config.data.response, "rows": model.n_rows, "test_rows": model.n_test},
        versions=info.of_a_run(),
        notes=notes,
    )
    more: dict[str, Any] = {"inference": _inference(model)} | ({"prediction": prediction} if prediction else {})
    if np.isfinite(server.bound):
        more["elbo"] = server.bound
    content = summary(config.job.method, posterior, outcome, more)
    if files is not None:
        files.write_json("summary.json", content)
    path = None if files is None else files.path
    return Result(content, posterior, path, config.job.seed, config.output.chains, config.output.draws)


def _posterior(server: vertical.Server) -> Posterior:
    """Of the intercept and log sigma."""
    shared = server.shared
    names = (*(("intercept",) if shared.intercept else ()), *(("log_sigma",) if shared.likelihood.dispersed else ()))
    mean, sd = shared.block.moments(server.released)
    P = sd**-2.0
    return Posterior(names, Gaussian(P * mean, P))


def _inference(model: VerticalModel) -> dict[str, Any]:
    m, a = model.config.model, model.config.algorithm
    told: dict[str, Any] = {"kind": m.kind, "family": m.family, "rows": model.n_rows}
    if model.network:
        return told
    return told | {"augmentation": m.augmentation, "rho": m.rho, "inference": a.inference, "auxiliary": a.auxiliary}


def _about(model: VerticalModel) -> list[str]:
    """What the numbers are not."""
    if model.network:
        return ["a split network has point estimates: its predictions know no uncertainty of the weights"]
    notes = ["each client's coefficients are in its own folder: they have no message"]
    if model.power and model.config.output.bound:
        notes.append("the ELBO of power likelihoods bounds their log normaliser, which is not a log evidence")
    return notes


def moments(server: vertical.Server, predicted: vertical_predict.Server, offset: Array | None) -> tuple[Array, Array]:
    """(t,) mean and variance of the linear predictor at the test rows under the posterior."""
    shared = server.shared
    mean, sd = shared.block.moments(server.released)
    total, variance = predicted.mean.sum(axis=0), predicted.variance.sum(axis=0)
    if shared.intercept:
        total, variance = total + mean[0], variance + (0.0 if server.settings.model == "none" else sd[0] ** 2)
    return (total if offset is None else total + offset), variance


def _scored(
    model: VerticalModel, server: vertical.Server, rows: ServerRows, test: Index, predicted: vertical_predict.Server
) -> dict[str, Any]:
    """Scores of the test rows under every rule, reliability, and the scores of rows that lack a party."""
    y, likelihood = rows.y[test], model.likelihood
    offset = None if rows.offset is None else rows.offset[test]
    J, rho = len(model.names), 0.0 if model.network else model.config.model.rho
    mean, variance = moments(server, predicted, offset)
    w = server.shared.split(server.released[: server.shared.block.size])[1]
    rules = {
        rule: predictive.scores(likelihood, y, mean, predictive.spread(rule, variance, J, rho), w) for rule in predictive.RULES
    }
    out: dict[str, Any] = {"rule": model.config.output.rule, "rows": len(test), "rules": rules}
    if likelihood.family == "bernoulli":
        chosen = predictive.spread(model.config.output.rule, variance, J, rho)
        out["reliability"] = predictive.reliability(predictive.predicted(likelihood, mean, chosen), y)
    if model.config.output.missing_party:
        out["without"] = _without(model, server, predicted, y, offset, w)
    return out


def _without(
    model: VerticalModel, server: vertical.Server, predicted: vertical_predict.Server, y: Array, offset: Array | None, w: float
) -> Mapping[str, Any]:
    """Party -> scores of the rows if it were missing."""
    centre, sd = server.shared.block.moments(server.released)
    b = (float(centre[0]), float(sd[0]) ** 2) if server.shared.intercept else (0.0, 0.0)
    shift = b[0] + (0.0 if offset is None else offset)
    rho = 0.0 if model.network else model.config.model.rho
    out: dict[str, Any] = {}
    for k, name in enumerate(model.names):
        ways = predictive.without(k, predicted.mean, predicted.variance, predicted.moments(), rho)
        out[name] = {
            way: predictive.scores(model.likelihood, y, mean + shift, variance + b[1], w)
            for way, (mean, variance) in ways.items()
        }
    return out


def _arrays(server: vertical.Server, predicted: vertical_predict.Server | None) -> dict[str, Array]:
    """What the digest is of."""
    found = {"shared": server.released, "Z": server.Z}
    return found if predicted is None else found | {"mean": predicted.mean, "variance": predicted.variance}
