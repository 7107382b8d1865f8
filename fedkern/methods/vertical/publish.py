"""Everything that the server of a vertical job publishes: its own parameters, and how well new rows are predicted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...algorithms.exchanges import predictions as vertical_predict
from ...algorithms.split import machine as vertical
from ...errors import JobError
from ...jobs import machine
from ...jobs.hooks import RunHooks
from ...kernels.families import BINARY
from ...models.expfam import Gaussian
from ...models.split import predictive
from ...results.digest import digest
from ...results.gaussian import Posterior
from ...results.inference_data import write
from ...results.result import Result
from ...results.summary import Outcome, summary
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
    prediction: dict[str, Any] = {}
    if predicted is not None:
        prediction, table = _predicted(model, fit, rows, predicted)
        if files is not None and rows.ids:
            files.write_csv("predictions.csv", table)
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
        versions=machine.of_a_run(),
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


def _predicted(
    model: VerticalModel, fit: Fitted, rows: Rows, predicted: vertical_predict.Server
) -> tuple[dict[str, Any], dict[str, Sequence[Any]]]:
    """Scores of the test rows under every rule, their reliability, and scores as if a party were missing; and the predictions of
    all rows that have some, column by column.
    """
    assert rows.server is not None
    likelihood, w, wanted = model.likelihood, fit.log_scale, model.config.output
    J, rho = len(model.names), 0.0 if model.network else model.config.model.rho
    y, offset = rows.server.of(rows.predicted)
    (b, spread), tested = fit.intercept, slice(len(rows.test))
    shift = b + (np.zeros(len(y)) if offset is None else offset)
    mean, variance = predicted.mean.sum(axis=0) + shift, predicted.variance.sum(axis=0) + spread

    def scores(m: Array, v: Array) -> dict[str, float]:
        return predictive.scores(likelihood, y[tested], m[tested], v[tested], w)

    under = {rule: predictive.spread(rule, variance, J, rho) for rule in predictive.RULES}
    p = predictive.predicted(likelihood, mean, under[wanted.rule])
    table: dict[str, Sequence[Any]] = {
        model.config.data.id: [rows.ids[row] for row in rows.predicted] if rows.ids else [],
        model.config.data.response: ["" if np.isnan(value) else f"{value:g}" for value in y],
        "predicted": p.tolist(),
        "predictor_mean": mean.tolist(),
        "predictor_sd": np.sqrt(under[wanted.rule]).tolist(),
    }
    without = {}
    for k, name in enumerate(model.names if wanted.missing_party else ()):
        ways = predictive.without(k, predicted.mean, predicted.variance, predicted.moments(), rho)
        filled = {way: (m + shift, v + spread) for way, (m, v) in ways.items()}
        table[f"predicted_without_{name}"] = predictive.predicted(likelihood, *filled["conditional"]).tolist()
        without[name] = {way: scores(m, v) for way, (m, v) in filled.items()} if len(rows.test) else {}
    if not len(rows.test):
        return {}, table
    out: dict[str, Any] = {"rule": wanted.rule, "rows": len(rows.test)}
    out["rules"] = {rule: scores(mean, v) for rule, v in under.items()}
    if likelihood.record.domain is BINARY:
        out["reliability"] = predictive.reliability(p[tested], y[tested])
    return out | ({"without": without} if without else {}), table
