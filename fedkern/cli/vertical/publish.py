"""Everything that the server of a vertical job publishes: its own parameters, and how well new rows are predicted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
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
from .rows import Rows

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Fitted:
    """What the server has at the end, whatever the inference.

    Attributes
    ----------
    posterior : of the intercept and log sigma, as far as they have one
    intercept : mean and variance
    log_scale : of a gaussian response
    arrays : what the digest is of
    more : for summary.json
    """

    posterior: Posterior
    intercept: tuple[float, float]
    log_scale: float
    arrays: Mapping[str, Array]
    rounds: int
    stop: str
    more: Mapping[str, Any]


def fitted(server: vertical.Server) -> Fitted:
    """Of a variational fit."""
    shared = server.shared
    names = (*(("intercept",) if shared.intercept else ()), *(("log_sigma",) if shared.likelihood.dispersed else ()))
    mean, sd = shared.block.moments(server.released)
    b, w = shared.split(mean) if names else (0.0, 0.0)
    spread = float(sd[0]) ** 2 if shared.intercept and server.settings.model != "none" else 0.0
    more = {"elbo": server.bound} if np.isfinite(server.bound) else {}
    posterior = Posterior(names, Gaussian(sd**-2.0 * mean, sd**-2.0))
    return Fitted(posterior, (b, spread), w, {"shared": server.released, "Z": server.Z}, server.round, str(server.stop), more)


def measured(server: vertical.Server) -> Mapping[str, float]:
    """For a line of metrics."""
    shared = server.shared
    b, log_scale = shared.split(server.parameters[: shared.block.size]) if shared.block.size else (0.0, 0.0)
    metrics = {"intercept": round(b, 5)} if shared.intercept else {}
    return metrics | ({"sigma": round(math.exp(log_scale), 5)} if shared.likelihood.dispersed else {})


def result(
    model: VerticalModel,
    fit: Fitted,
    rows: Rows,
    predicted: vertical_predict.Server | None,
    certified: Mapping[str, Any],
    hooks: RunHooks,
) -> Result:
    """The whole result of a job."""
    assert rows.server is not None
    config, files = model.config, hooks.folder
    posterior, draws = fit.posterior, config.output
    notes = [*hooks.notes, *model.warnings(rows.server.y[rows.train]), *_about(model)]
    if files is not None and posterior.names:
        try:
            write(posterior, files.path / "posterior.nc", seed=config.job.seed, chains=draws.chains, draws=draws.draws)
        except JobError as error:
            notes.append(f"no posterior.nc: {error}")
    prediction = {} if predicted is None else _scored(model, fit, *rows.server.of(rows.test), predicted)
    told = {} if predicted is None else {"mean": predicted.mean, "variance": predicted.variance}
    outcome = Outcome(
        stop=fit.stop,
        rounds=fit.rounds,
        clients={name: {"updates": fit.rounds, "status": "finished"} for name in model.names},
        metrics=prediction.get("rules", {}).get(config.output.rule, {}),
        privacy=certified,
        wire=hooks.wire.as_dict(),
        digest=digest({**fit.arrays, **told}),
        encoding={"id": config.data.id, "response": config.data.response, "rows": model.n_rows, "test_rows": model.n_test},
        versions=info.of_a_run(),
        notes=notes,
    )
    more: dict[str, Any] = {"inference": _inference(model), **fit.more} | ({"prediction": prediction} if prediction else {})
    content = summary(config.job.method, posterior, outcome, more)
    if files is not None:
        files.write_json("summary.json", content)
    path = None if files is None else files.path
    return Result(content, posterior, path, config.job.seed, draws.chains, draws.draws)


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
    if model.config.privacy is not None:
        notes.append("each client's noise protects its own columns, one row's values at a time; nothing protects the response")
    if model.config.algorithm.inference == "soul":
        notes.append("draws are conditional on the mode of the auxiliary variables, and much narrower than the posterior")
    if model.config.model.kind == "bayes-network" and model.config.model.weight_sd is None:
        notes.append("the networks' weights have no prior and may have learnt the rows by heart; model.weight_sd gives them one")
    if model.power and model.config.output.bound:
        notes.append("the ELBO of power likelihoods bounds their log normaliser, which is not a log evidence")
    return notes


def _scored(
    model: VerticalModel, fit: Fitted, y: Array, offset: Array | None, predicted: vertical_predict.Server
) -> dict[str, Any]:
    """Scores of the test rows under every rule, reliability, and the scores of rows that lack a party."""
    likelihood, w, wanted = model.likelihood, fit.log_scale, model.config.output
    J, rho = len(model.names), 0.0 if model.network else model.config.model.rho
    b, spread = fit.intercept
    shift = b + (0.0 if offset is None else offset)
    mean, variance = predicted.mean.sum(axis=0) + shift, predicted.variance.sum(axis=0) + spread
    under = {rule: predictive.spread(rule, variance, J, rho) for rule in predictive.RULES}
    rules = {rule: predictive.scores(likelihood, y, mean, v, w) for rule, v in under.items()}
    out: dict[str, Any] = {"rule": wanted.rule, "rows": len(y), "rules": rules}
    if likelihood.family == "bernoulli":
        out["reliability"] = predictive.reliability(predictive.predicted(likelihood, mean, under[wanted.rule]), y)
    if wanted.missing_party:
        without = {}
        for k, name in enumerate(model.names):
            ways = predictive.without(k, predicted.mean, predicted.variance, predicted.moments(), rho)
            without[name] = {way: predictive.scores(likelihood, y, m + shift, v + spread, w) for way, (m, v) in ways.items()}
        out["without"] = without
    return out
