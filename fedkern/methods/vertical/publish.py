"""Makes the result that the server of a vertical job publishes: its parameters, and how well new rows are predicted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...algorithms.core.windows import Movement
from ...algorithms.exchanges import missing, predictions
from ...algorithms.split import machine as vertical
from ...arrays import Array
from ...finding import Finding
from ...jobs import convergence
from ...jobs.publish import Fit
from ...models.expfam import Gaussian
from ...models.glm import Rows as Tested
from ...models.glm import on_average, reliability
from ...models.split import predictive
from ...results import guard
from ...results.gaussian import Posterior
from ...results.plain import Record
from ...results.verdict import Check, Verdict, against, not_judged, of_movement, with_clients
from . import normal
from .model import PRODUCT, VerticalModel
from .normal import Lines
from .rows import Rows
from .undivided import Undivided
from .widths import Pulls, Widths, measure_pulls, measure_widths, parts_of

AS_IT_IS = Undivided()


@dataclass(frozen=True)
class Fitted:
    """Holds the server's knowledge at the end, whatever the inference."""

    posterior: Posterior  # of the intercept and log sigma, as far as they have one
    intercept: tuple[float, float]  # mean and variance
    log_scale: float  # of a gaussian response
    arrays: Mapping[str, Array]  # from which the digest is made
    rounds: int
    stop: str
    more: Record  # for summary.json
    predicted: predictions.Server | None = None  # the clients' parts at the rows that are predicted; None without such rows
    filled: missing.Server | None = None  # each party's part at these rows by the others' columns, where the job asks for it
    movement: Movement | None = None  # of the intercept and log sigma, where the fit is variational
    doubts: tuple[str, ...] = ()  # reasons why no result of these files can stand
    # whether each client's unknowns have settled; empty where clients do not say it
    settled: Mapping[str, bool | None] = field(default_factory=dict)
    # conversion to the undivided model's numbers, which are published; `arrays` are not converted
    undivided: Undivided = AS_IT_IS
    widths: Widths | None = None  # the rows' information about standard deviations, in open variational jobs
    pulls: Pulls | None = None
    lines: Lines | None = None  # how wide the intercept's posterior is, in open logistic ones
    # name -> mean and standard deviation of q, those of the undivided model
    of_q: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def fitted(server: vertical.Server, model: VerticalModel) -> Fitted:
    """Takes the result from a variational fit's last state."""
    shared = server.shared
    held = {"intercept": shared.intercept, "log_sigma": shared.likelihood.dispersed}
    names = tuple(name for name, is_held in held.items() if is_held)
    mean, sd = shared.block.moments(server.released)
    b, w = shared.split(mean) if names else (0.0, 0.0)
    spread = float(sd[0]) ** 2 if shared.intercept and server.settings.model != "none" else 0.0
    bound = server.last_fifth.moments
    more: dict[str, object] = {} if bound is None else {"elbo": bound[0], "elbo_error": bound[1]}
    arrays = {"shared": server.released, "Z": server.Z}
    if model.works_out:
        arrays["rho"] = np.array([model.rho])
    movement, to = convergence.movement_of(server), _undivided(server, model, b)
    mean, sd = _published(names, to, mean, sd)
    lines = _lines(server, model, to) if normal.is_asked(model) and shared.intercept else None
    widths = measure_widths(server, model, to, *shared.split(mean)) if model.watched and server.y is not None else None
    pulls = measure_pulls(server, model, parts_of(server, model)) if model.watched else None
    of_q = dict(zip(names, zip(mean.tolist(), sd.tolist())))
    if widths is not None and shared.intercept:
        more["sd_of_q"] = dict(zip(names, sd.tolist()))
        sd = sd / np.where(np.array(names) == "intercept", widths.intercept, 1.0)
    posterior = Posterior(names, Gaussian(sd**-2.0 * mean, sd**-2.0))
    out = Fitted(posterior, (b, spread), w, arrays, server.round, str(server.stop), more, movement=movement)
    return replace(out, undivided=to, widths=widths, pulls=pulls, lines=lines, of_q=of_q)


def _undivided(server: vertical.Server, model: VerticalModel, b: float) -> Undivided:
    """Returns the conversion from q to the published numbers; `b` is the intercept of q."""
    if server.y is None:
        return AS_IT_IS
    parts = parts_of(server, model) if model.corrected else None
    offset = 0.0 if server.offset is None else server.offset
    eta = None if parts is None else b + parts.sum(axis=0) + offset
    return model.undivided(server.y, eta)


@guard.check("the width along lines", None)
def _lines(server: vertical.Server, model: VerticalModel, to: Undivided) -> Lines | None:
    """Computes how wide the posterior of the intercept is."""
    shared = server.shared
    mean, sd = _published(("intercept",), to, *(x[:1] for x in shared.block.moments(server.released)))
    ones = np.ones((model.n_rows, 1))
    of_intercept = normal.Own(ones, mean, sd[:, None], shared.prior_mean, shared.prior_sd)
    return normal.measure_lines(of_intercept, ["intercept"], server.seen.mean_slopes)


def _published(names: Sequence[str], to: Undivided, mean: Array, sd: Array) -> tuple[Array, Array]:
    """Converts means and sds of intercept and log sigma to the published ones."""
    mean, sd = mean.copy(), sd.copy()
    for k, name in enumerate(names):
        if name == "intercept":
            mean[k], slope = to.intercept(float(mean[k]))
        else:
            mean[k], slope = to.log_scale(float(mean[k]))
        sd[k] *= slope
    return mean, sd


def measured(server: vertical.Server) -> Mapping[str, float]:
    """Returns the numbers of a line of metrics."""
    shared = server.shared
    b, log_scale = shared.split(server.parameters[: shared.block.size]) if shared.block.size else (0.0, 0.0)
    metrics = {"intercept": round(b, 5)} if shared.intercept else {}
    if shared.likelihood.dispersed:
        return metrics | {"sigma": round(math.exp(log_scale), 5)}
    return metrics


def bare(model: VerticalModel, fitted: Fitted, rows: Rows) -> Fit:
    """Makes the result without anything that is judged or said of it."""
    output, predicted = model.output, fitted.predicted
    moments = {} if predicted is None else {"mean": predicted.mean, "variance": predicted.variance}
    inference = "langevin" if model.inference == "soul" else ""
    stop = "settled" if model.until_settled and fitted.rounds < model.rounds else fitted.stop
    return Fit(
        posterior=fitted.posterior,
        arrays={**fitted.arrays, **moments},
        stop=stop,
        rounds=fitted.rounds,
        chains=output.chains,
        draws=output.draws,
        encoding={"id": model.id, "response": model.response, "rows": model.n_rows, "test_rows": model.n_test},
        more={"inference": _inference(model), **fitted.more},
        drawn=bool(fitted.posterior.names),
        inference=inference,
    )


@guard.check("the judging of the result", bare)
def fit(model: VerticalModel, fitted: Fitted, rows: Rows) -> Fit:
    """Makes the published result, apart from the certificates."""
    made, output, predicted = bare(model, fitted, rows), model.output, fitted.predicted
    # Predictions need the parts of all clients, which come after the fit.
    scores, table = ({}, {}) if predicted is None else _predictions(model, fitted, rows)
    tables = {"predictions.csv": table} if rows.ids and table else {}
    more = {"inference": made.more["inference"], **_content(fitted.widths), **fitted.more}
    more |= {name: content for name, content in (("lines", _intercept(fitted)), ("prediction", scores)) if content}
    return replace(
        made,
        verdict=against(fitted.doubts, _verdict(model, fitted)),
        metrics=scores.get("rules", {}).get(output.rule, {}),
        notes=[
            *_of_responses(model, rows),
            *too_fine(fitted.movement, fitted.posterior.sd, fitted.posterior.names, model.learning_rate),
            *_of_widths(fitted),
            *_about(model),
        ],
        more=more,
        tables=tables,
    )


@guard.figure("notes on the responses", [])
def _of_responses(model: VerticalModel, rows: Rows) -> list[str]:
    """Returns the model's notes on the responses that it was fitted to."""
    assert rows.server is not None
    return list(model.warnings(rows.server.y[rows.train]))


@guard.check("the verdict", not_judged("no check is known"))
def _verdict(model: VerticalModel, fitted: Fitted) -> Verdict:
    """Judges the server's unknowns, and adds the clients' statements about theirs.

    In a private job clients make none: its verdict may be that the server's unknowns still move, and never that all have settled.
    """
    if model.network:
        return not_judged("optimised")
    if model.inference == "soul":
        return not_judged("conditional")
    judged = of_movement(fitted.movement, fitted.posterior.names)
    if not model.watched and judged.converged is not False:
        return not_judged("private: each client alone sees whether its coefficients have settled; the server's own numbers have")
    if len(model.names) > 1:
        judged = judged.also(Check(Finding.of("narrow-where-correlated"), "settled"))
    judged = _of_clients(model, judged, fitted)
    if judged.converged is not False:  # else the numbers that these look at are not the last ones
        pulls = [] if fitted.pulls is None else fitted.pulls.checks
        judged = judged.also(*normal.checks(fitted.lines, _intercept(fitted)), *pulls)
    return judged if fitted.widths is None else judged.also(*fitted.widths.checks)


def _of_clients(model: VerticalModel, of_server: Verdict, fitted: Fitted) -> Verdict:
    """Adds the clients' statements to a verdict."""
    words = "have not settled"
    words += ", or have no normal posterior" if normal.is_asked(model) else ""
    words += ", or are of a text column's levels, which go with the intercept" if model.ties else ""
    return with_clients(of_server, fitted.settled, words)


@guard.figure("the intercept along lines", {})
def _intercept(fitted: Fitted) -> dict[str, dict[str, float]]:
    """Returns the intercept's quantiles where it has no normal posterior."""
    along = fitted.lines
    return {} if along is None else along.content(fitted.of_q)


FINE = 10.0  # times a standard deviation that a step of the optimiser may be


@guard.figure("notes on the learning rate", ())
def too_fine(movement: Movement | None, sds: Array, names: Sequence[str], rate: float) -> Iterator[str]:
    """Notes unknowns that are known far better than the optimiser's steps are small, as with counts near 1e5.

    A first line that is `false` then does not say that numbers are wrong. (No rate made such a job settle. With a narrow q at the
    start its numbers were right: section 11.)
    """
    if movement is None:
        return
    for name, sd, noise in zip(names, sds.tolist(), movement.noise.tolist()):
        if noise > 1 and rate > FINE * sd:
            yield (
                f"{name}: its standard deviation, {sd:.2g}, is far below algorithm.learning_rate = {rate:g}, the size of the "
                "optimiser's steps, so that it cannot be seen whether it has settled. This alone does not say that numbers are "
                f"wrong. With algorithm.learning_rate = {5 * sd:.1g} and algorithm.start_sd = {1.5 * sd:.1g} means and standard "
                "deviations come out right, while the first line may go on to say that it cannot see it"
            )


@guard.figure("notes on the widths", [])
def _of_widths(fitted: Fitted) -> list[str]:
    """Returns notes about widths and counts, beside the verdict."""
    return [] if fitted.widths is None else fitted.widths.notes


def _inference(model: VerticalModel) -> dict[str, Any]:
    """Returns the entry of summary.json about the fit."""
    about: dict[str, object] = {"kind": model.kind, "family": model.family, "rows": model.n_rows}
    if model.network:
        return about
    return about | {
        "augmentation": model.augmentation, "rho": model.rho, "inference": model.inference, "auxiliary": model.family_of_z
    }  # fmt: skip


@guard.figure("the widths", {})
def _content(widths: Widths | None) -> dict[str, Any]:
    """Returns the entries of summary.json about the widths."""
    if widths is None:
        return {}
    ratios = {"intercept": widths.intercept, **{f"client {name}": ratio for name, ratio in widths.clients.items()}}
    if widths.counts is None:
        return {"widths": ratios}
    return {"widths": ratios} | {"dispersion": widths.counts.content}


@guard.figure("notes on the limits of the numbers", [])
def _about(model: VerticalModel) -> list[str]:
    """Returns notes on the limits of the numbers."""
    if model.network:
        return ["a split network has point estimates: its predictions know no uncertainty of the weights"]
    notes: list[str] = [Finding.of("coefficients-at-clients")]
    if model.inference == "sfvi" and len(model.names) > 1:
        notes.append(PRODUCT)
    if model.inference == "sfvi":
        notes.append(model.about_rho())
    if not model.open:
        notes.append("each client's noise protects its own columns, one row's values at a time; nothing protects the response")
    if model.inference == "soul":
        notes.append("draws are conditional on the mode of the auxiliary variables, and much narrower than the posterior")
    if model.free_weights:
        notes.append("the networks' weights have no prior and may have learnt the rows by heart; model.weight_sd gives them one")
    if model.power and model.output.bound:
        notes.append("the ELBO of power likelihoods bounds their log normaliser, which is not a log evidence")
    if model.unpredicted is not None:
        notes.append(model.unpredicted)
    return notes


@guard.figure("predictions", ({}, {}))
def _predictions(model: VerticalModel, fitted: Fitted, rows: Rows) -> tuple[dict[str, Any], dict[str, Sequence[Any]]]:
    """Scores the test rows, and returns the predictions of all predicted rows, column by column.

    Scores are given under every rule, with their reliability, and as if a party were missing.
    """
    predicted = fitted.predicted
    assert rows.server is not None
    assert predicted is not None
    likelihood, wanted, to = model.likelihood, model.output, fitted.undivided
    w = to.log_scale(fitted.log_scale)[0]
    rho = 0.0 if model.network else model.rho
    J = len(model.names)
    y, offset = rows.server.of(rows.predicted)
    known = np.zeros(len(y)) if offset is None else offset
    (b, spread), tested = fitted.intercept, slice(len(rows.test))
    corrected, slope = to.intercept(b)
    mean, variance = (x.sum(axis=0) for x in (predicted.mean, predicted.variance))
    augmented = mean / to.factor + (b + known), variance / to.factor**2 + spread
    shift, spread = corrected + known, spread * slope**2
    mean, variance = mean + shift, variance + spread

    def scores(m: Array, v: Array, log_scale: float = w) -> dict[str, float]:
        return predictive.scores(likelihood, y[tested], m[tested], v[tested], log_scale)

    def ruled(rule: str) -> tuple[Array, Array, float]:
        m, v, scale = (*augmented, fitted.log_scale) if rule == "augmented" else (mean, variance, w)
        return m, predictive.spread(rule, v, J, rho), scale

    under = {rule: ruled(rule) for rule in predictive.RULES}
    p = predictive.predicted(likelihood, *under[wanted.rule][:2])
    ids = [rows.ids[row] for row in rows.predicted] if rows.ids else []
    table: dict[str, Sequence[object]] = {
        model.id: ids,
        model.response: np.where(np.isnan(y), "", [f"{value:g}" for value in y]).tolist(),
        "predicted": p.tolist(),
        "predictor_mean": under[wanted.rule][0].tolist(),
        "predictor_sd": np.sqrt(under[wanted.rule][1]).tolist(),
    }
    without = {}
    missing = model.names if wanted.missing_party else ()
    for k, name in enumerate(missing):
        ways = dict(predictive.without(k, predicted.mean, predicted.variance, predicted.moments(), to.factor * rho))
        if fitted.filled is not None:
            part, left = fitted.filled.missing(k)
            mean_here, variance_here = (np.delete(x, k, axis=0).sum(axis=0) for x in (predicted.mean, predicted.variance))
            ways |= {"columns": (mean_here + part, variance_here + left)}
        filled = {way: (m + shift, v + spread) for way, (m, v) in ways.items()}
        m, v = filled["conditional"]  # whose variance has one rho^2 in it
        filled["conditional"] = m - to.low / J, v
        best = "conditional" if fitted.filled is None else "columns"
        table[f"predicted_without_{name}"] = predictive.predicted(likelihood, *filled[best]).tolist()
        without[name] = {way: scores(m, v) for way, (m, v) in filled.items()} if len(rows.test) else {}
    if not len(rows.test):
        return {}, table
    out: dict[str, object] = {"rule": wanted.rule, "rows": len(rows.test)}
    out["rules"] = {rule: scores(*moments) for rule, moments in under.items()}
    if (likelihood.record.binary or likelihood.record.linear) and likelihood.record.predictive is not None:
        out["guess"] = on_average(Tested(y[tested, None], y[tested]), likelihood.record.name, 0.0)
    if likelihood.record.binary:
        out["reliability"] = reliability(p[tested], y[tested])
    if without:
        out["without"] = without
    return out, table
