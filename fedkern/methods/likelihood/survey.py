"""Fits the rows of a survey by their weights, and gives intervals the covariance of the design.

In the place of checks of the model, which are of rows and not of the population, clients tell what that covariance is made of.
Source: docs/spec/likelihood.md, section 11.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np

from ...algorithms.core import once
from ...algorithms.core.rounds import in_order
from ...algorithms.exchanges import survey
from ...algorithms.importance import machine as importance
from ...arrays import Array
from ...data.design import Design
from ...errors import JobError
from ...finding import Finding
from ...jobs.publish import Fit
from ...jobs.run import Run
from ...jobs.stage import Stage
from ...models.expfam import unpacked
from ...models.survey import Clusters, Pseudo, Scores, moved, sandwich
from ...results import verdict as verdict_of
from ...results.weighted import WeightedDraws
from . import contrasts, publish
from .keys import Config
from .model import Model
from .publish import Checked
from .steps import Steps

M = TypeVar("M", bound=Model)


def stages(model: Model) -> list[Stage]:
    """Returns the exchange before the rounds, in which the weights get their scale; none without weights of a survey."""
    return [Stage.of(survey)] if model.survey else []


def stage_of_scores(model: Model) -> Stage:
    """Returns the question after the draws."""
    P = model.size
    return Stage.asking(survey.ClusterScores, {"xi": P, "lower": P * (P + 1) // 2})


def describe(model: Model) -> Iterator[str]:
    """Yields the lines of `fedkern check` on the design."""
    if not model.survey:
        return
    psu, stratum = model.clusters
    clusters = "each row is a cluster" if psu is None else f"clusters by column {psu!r}, a label at two clients is two"
    strata = "" if stratum is None else f", in strata by column {stratum!r}, each of one client"
    yield f"survey   weights of column {model.weight!r}, scaled to the effective number of all rows; {clusters}{strata}"


def exchange_weights(run: Run[Config], model: M, designs: Mapping[int, Design]) -> M:
    """Returns the model with the scale of the weights, the same at every place. Raises JobError: the rows count as fewer
    independent ones than the model has unknowns."""
    names, column = run.names, str(model.weight)
    for stage in stages(model):
        weights = {k: np.asarray(design.weights) for k, design in designs.items()}
        clients = {k: survey.Client(float(w.sum()), float((w**2).sum())) for k, w in weights.items()}
        server, ended = run.exchange(stage, lambda: survey.start(column, names), clients)
        total, squares = next(
            state.agreed for state in (server, *ended.values()) if state is not None and state.agreed is not None
        )
        model = replace(model, weight_scale=total / squares, effective=total**2 / squares)
        if model.effective < model.size:
            raise JobError(
                f"column {column!r}: with these weights all rows count as {model.effective:.3g} independent ones, and the "
                f"model has {model.size} unknowns: look for a weight that is far larger than the others, or for another column"
            )
    return model


@dataclass(frozen=True)
class Ended:
    """Holds a client's weighted rows, and their clusters."""

    rows: Pseudo
    clusters: Clusters


def complete(run: Run[Config], model: Model, index: int, rows: Any, likelihood: Pseudo, machine: importance.Client) -> Ended:
    """Returns what a client tells its scores from; nothing is written, for draws that it was told have another width."""
    return Ended(likelihood, getattr(rows, "held", rows).clusters)


def at_mode(model: M, found: importance.Found) -> M:
    """Returns the model that knows where scores are asked for."""
    return replace(model, asked_at=found.mode)


def exchange_scores(run: Run[Config], model: Model, ended: Mapping[int, Ended]) -> Checked:
    """Asks clients for sums over their clusters; returns the covariance of the score at the server's place."""
    lower = np.tril_indices(model.size)

    def answer(client: Ended, question: survey.AskScores) -> survey.ClusterScores:
        scores = client.rows.scores(question.xi, client.clusters)
        return survey.ClusterScores(0, scores.clusters, scores.total, scores.products[lower], scores.curvature[lower])

    clients = {k: once.Client(partial(answer, client)) for k, client in ended.items()}
    question = None if model.asked_at is None else survey.AskScores(0, model.asked_at)
    server, _ = run.ask(stage_of_scores(model), survey.ClusterScores.question, question, clients)
    if server is None or question is None:
        return Checked()

    def full(lower: Array) -> Array:
        return np.asarray(unpacked(lower[np.newaxis], model.size)[0])

    sums = [
        Scores(reply.clusters, reply.total, full(reply.products), full(reply.curvature)) for reply in in_order(server.replies)
    ]
    covariance = sandwich(sums, model.prior.curvature(question.xi)[2], strata=model.clusters[1] is not None)
    clusters = sum(scores.clusters for scores in sums)
    return Checked({"survey": {"effective": model.effective, "clusters": clusters}}, covariance=covariance)


def steps(usual: Steps) -> Steps:
    """Returns the steps of rows of a kind with weights of a survey."""
    return usual._replace(complete=complete, exchange_checks=exchange_scores, make_fit=make_fit, at_mode=at_mode)


def make_fit(model: Model, ended: publish.Ended, test: Design | None) -> Fit:
    """Returns the result: the draws of the pseudo-posterior, moved to the covariance of the design."""
    assert ended.mode is not None
    assert ended.checked.covariance is not None
    sampled, clusters = importance.read_result(ended.mode), ended.checked.content["survey"]["clusters"]
    weights = sampled.posterior
    assert weights is not None
    draws_of_design = moved(weights.draws, weights.weights, ended.checked.covariance)
    ended = replace(ended, moved=replace(weights, draws=draws_of_design))
    made = publish.bare(model, ended, test)
    posterior = cast(WeightedDraws, made.posterior)
    metrics, scored = publish.scores(model, posterior, test)
    of_few = [Finding.of("few-clusters-of-survey", clusters=clusters, unknowns=model.size)] if clusters <= model.size else []
    doubts = [*ended.doubts, *model.doubts(sampled.began), *of_few]
    judged = publish.judge_draws(sampled, model.settings.counted, model.reason(sampled.reason))
    values = {name: column for name, column in posterior.values.items() if "_std" not in name.partition("[")[0]}
    return replace(
        made,
        verdict=verdict_of.against(doubts, judged),
        metrics=metrics,
        notes=[Finding.of("survey-pseudo-posterior", effective=model.effective, clusters=clusters)],
        more={
            **publish.describe_draws(sampled, levelled=False),
            **ended.checked.content,
            **publish.describe_contrasts(contrasts.of_levels(model, values)[0], posterior.weights),
            **scored,
            **made.more,
            **publish.summarised_draws(model, draws_of_design[posterior.chosen.ravel()]),
        },
    )
