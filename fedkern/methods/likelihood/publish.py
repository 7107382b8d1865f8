"""Makes the result that the server publishes: the posterior, its evidence and verdict, and notes for a reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from ...algorithms.hmc import machine as hmc
from ...algorithms.importance import machine as importance
from ...arrays import Array
from ...data.design import Design
from ...finding import Finding
from ...jobs.publish import Fit
from ...kernels.families import one_trial
from ...models import weighted
from ...results import guard, loo, unseen
from ...results import verdict as verdict_of
from ...results.other_way import Reversed
from ...results.plain import Record
from ...results.released import Drawing
from ...results.verdict import Check, Verdict
from ...results.weighted import WeightedDraws, summarised
from . import contrasts, summaries, varying
from .differently import (
    compare_clients,
    describe_sensitivity,
    doubt_scales,
    find_reversed,
    leave_out_clients,
    not_reached,
    sensitivity,
    untold,
)
from .level_predictive import predictive_of
from .model import TOLD, Model
from .own_model import OwnModel

INFERENCE = "importance sampling"
SAID = 0.01  # probability from which on it is said
DIVERGENT = 0.01  # the part of the trajectories after the burn-in that may diverge


@dataclass(frozen=True)
class Checked:
    """Holds the findings of clients' sums: entries of summary.json, notes for its reader, and why its intervals cannot stand.

    `events`: of survival times, number of a client -> its `rows` and `events`; `covariance`: of xi
    by a survey's design.
    """

    content: Record = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    doubt: str = ""
    events: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    covariance: Array | None = None


def join(*parts: Checked) -> Checked:
    """Returns several checks as one: entries and notes in order, and the first doubt."""
    content = {name: entry for part in parts for name, entry in part.content.items()}
    doubts = [part.doubt for part in parts if part.doubt]
    events = {k: counts for part in parts for k, counts in part.events.items()}
    return Checked(content, tuple(note for part in parts for note in part.notes), doubts[0] if doubts else "", events)


@dataclass(frozen=True)
class Ended:
    """Holds the states and findings of the server after the last round."""

    mode: importance.Server | None  # the last state of its machine of the mode and the draws; None where no mode is looked for
    doubts: tuple[str, ...] = ()  # why no result of these files can stand
    checked: Checked = field(default_factory=Checked)  # what clients' sums say of the model
    chains: hmc.Server | None = None  # the last state of the machine of the chains, where these are run
    # (N, J) the clients' own log-likelihoods at the draws, where the job has secure sums and names them
    singly: Array | None = None
    sizes: tuple[int, ...] = ()  # of each client the number of rows, where the server was told them
    n_rows: int = 0  # of all clients, where they are here or have told it; else 0
    moved: weighted.Weighted | None = None  # the draws of a survey with the covariance of its design

    @property
    def rows_in_summary(self) -> Record:
        """The number of rows of the fit, where checks of the model have left out clients of few rows."""
        left_out = self.checked.content.get("uncounted", 0)
        return {"rows": self.n_rows} if left_out and self.n_rows else {}


def released(model: Model | OwnModel, ended: Ended) -> Fit:
    """Returns the posterior of weighted draws, or of chains, and nothing else."""
    if (walked := ended.chains) is not None:
        return Fit(
            posterior=release_walks(model, walked),
            arrays={"xi": hmc.draws(walked)},
            stop=str(walked.stop),
            rounds=walked.round,
            chains=walked.settings.chains,
            draws=walked.settings.draws,
        )
    assert ended.mode is not None
    weights = ended.moved or importance.read_result(ended.mode).posterior
    assert weights is not None  # there are rounds of draws
    return Fit(
        posterior=release_draws(model, weights),
        arrays={"draws": weights.draws, "log_ratios": weights.log_ratios},
        stop=str(ended.mode.stop),
        rounds=ended.mode.round,
        chains=model.output.chains,
        draws=model.output.draws,
        inference=INFERENCE,
    )


def bare(model: Model, ended: Ended, test: Design | None) -> Fit:
    """Returns the result of a job, without anything that is judged or said of it."""
    assert ended.mode is not None
    data = {} if ended.chains else model.data_in_summary(importance.read_result(ended.mode).began)
    return replace(
        released(model, ended),
        encoding=model.encoding.to_dict(),
        more={**model.kind_in_summary, **model.priors_in_summary, **data},
    )


@guard.check("the judging of the result", bare)
def make_fit(model: Model, ended: Ended, test: Design | None) -> Fit:
    """Returns the result of a job, from weighted draws or from chains; `test`: the server's test rows."""
    assert ended.mode is not None
    if ended.chains is not None:
        return _fit_of_chains(model, ended, ended.mode, ended.chains, test)
    made, sampled = bare(model, ended, test), importance.read_result(ended.mode)
    weights, posterior = sampled.posterior, cast(WeightedDraws, made.posterior)
    assert weights is not None
    on_data_scale = {name: draws for name, draws in posterior.values.items() if "_std" not in name.partition("[")[0]}
    # Wherever effects are compared a level's coefficient says what it is compared with.
    against, levels = contrasts.of_levels(model, on_data_scale)
    posterior_of = {name: draws for name, draws in on_data_scale.items() if name not in levels} | against
    log_prior = model.prior.without_jacobian(weights.draws)
    sensitive = sensitivity(weights, log_prior, sampled.values.sum(axis=1), posterior_of)
    of_clients = sampled.values if ended.singly is None else ended.singly
    posterior = replace(posterior, own_sums=_own_sums(model, ended, of_clients))
    blank = untold(model, sampled)
    published = posterior.without(blank)
    alone = leave_out_clients(weights, of_clients, posterior_of, model.names) if model.output.without else {}
    differ = compare_clients(sampled, model)
    if differ is not None and model.layout.client:
        differ = replace(differ, intercept=None)  # differences of intercepts are the model's
    more: dict[str, object] = {
        **_of_draws(model, sampled),
        "quadrature": {"nodes": sampled.nodes, "at_mode": sampled.rule[0], "at_draws": sampled.rule[1]},
        "sensitivity": sensitive,
        **_named(blank),
        **describe_contrasts(contrasts.of_levels(model, published.values)[0], posterior.weights),
        **({"without": alone} if alone else {}),
        **({} if differ is None else {"heterogeneity": differ.content}),
        **ended.checked.content,
        **ended.rows_in_summary,
        **_left_out(model, ended.checked.content, weights, sampled.values),
        **summaries.content(sampled, model.names, model.summaries, ended.sizes),
    }
    intercepts = "client-effects" if model.takes_client else "level-of-site"
    other_way = find_reversed(sampled, model, ended.checked.events)
    # Counts that vary more than the model makes them make sites differ as well: the family is mended first.
    unchecked = model.all_by_summary and model.family in varying.WITHOUT_DISPERSION
    judged = sampled.converged and not ended.checked.doubt and not unchecked
    differing = [] if differ is None or not judged else differ.notes(intercepts, model.free_slopes)
    if other_way is not None:  # where it is so, an intercept of each client would mend nothing
        differing = [other_way.note, *([] if other_way.doubt else differing)]
    metrics, scored = scores(model, posterior, test)
    more |= {**scored, **made.more, **summarised_draws(model, weights.draws[posterior.chosen.ravel()])}
    return replace(
        made,
        posterior=published,
        verdict=summaries.judged(
            verdict_of.against(
                _doubts(model, ended, sampled, other_way),
                judge_draws(sampled, model.settings.counted, model.reason(sampled.reason)),
            ),
            sampled,
            may_sign=model.may_sign,
            unchecked=unchecked,
            joined=bool(model.encoding.joined),
        ),
        metrics=metrics,
        notes=[
            *_unseen(model),
            *differing,
            *_of_blank(blank),
            *describe_sensitivity(sensitive, alone, model, sampled),
            *_tails(model, posterior),
            *ended.checked.notes,
        ],
        more=more,
    )


def _own_sums(model: Model, ended: Ended, values: Array) -> dict[str, Array]:
    """Returns client -> (N,) the log-likelihood of its rows at draws, from values (N, J), or (N, 1) of all.

    Values are none of rows where a job ends with corrected quadratics, and of a client that takes part by a summary.
    """
    assert ended.mode is not None
    if (ended.singly is None and ended.mode.unsure) or values.shape[1] != len(model.names):  # secure sums have one column
        return {}
    volumes = {k: model.units.log_volume_of(name) for k, name in enumerate(model.names) if k not in model.summaries}
    return {model.names[k]: values[:, k] - volume for k, volume in volumes.items() if volume is not None}


def _of_draws(model: Model, sampled: importance.Found) -> Record:
    """Returns the entries of summary.json on the draws; a power of a likelihood has no evidence, and is named."""
    levelled = not (model.layout.drawn or model.client_weights)
    entries = dict(describe_draws(sampled, model.units.log_volume, levelled=levelled))
    if model.client_weights:
        entries["power_likelihood"] = model.client_weights
    return entries


def describe_draws(sampled: importance.Found, log_volume: float = 0.0, *, levelled: bool = True) -> Record:
    """Returns the entries of summary.json on weighted draws and the way to them; `log_volume`: of the units of the rows.

    Without `levelled` likelihoods are known up to a constant or a power, and no evidence is.
    """
    weights, known = sampled.posterior, sampled.log_evidence
    assert weights is not None
    assert known is not None
    evidence = {"log_evidence": {"value": known[0] - log_volume, "error": known[1]}} if levelled else {}
    return {
        "k_hat": weights.k_hat,
        "ess": weights.effective,
        "monte_carlo_error": {"mean": sampled.error[0], "sd": sampled.error[1]},
        "rounds_to_mode": sampled.newton,
        "rounds_of_draws": sampled.rounds,
        **evidence,
    }


@guard.figure("what the draws say of the model's own terms", {})
def summarised_draws(model: Model, draws: Array) -> Record:
    """Returns the entries of summary.json that a model makes of its draws."""
    return model.summarise_draws(draws)


def _unseen(model: Model) -> list[str]:
    """The note on what secure sums hide."""
    return [unseen.describe("secure sums hide each client's own numbers")] if model.secure else []


@guard.figure("leave-one-out sums at all draws", {})
def _left_out(model: Model, content: Record, weights: weighted.Weighted, values: Array) -> Record:
    """`loo` of summary.json, where the log-likelihood of all rows is known at more draws than clients were told.

    With effects of groups or clients rows do not add up to it, nor without the rows of a client whose answer was refused. Rows of
    clients that take part by a summary are not in it.
    """
    values = values[:, [k for k in range(values.shape[1]) if k not in model.summaries]].sum(axis=1)
    if not content.get("loo") or model.layout.group or model.layout.client:
        return {}
    if content["loo"]["rows"] != content.get("predictive", {}).get("rows"):
        return {}
    resampled = weights.resampled(TOLD, importance.offset(model.seed))
    terms = np.where(weights.weights > 0, values, 0.0)  # where it is not finite, the weight is 0
    mean = float(weights.weights @ terms)
    variance = float(weights.weights @ (terms - mean) ** 2)
    return {"loo": loo.corrected(content["loo"], float(values[resampled].mean()), mean, variance)}


@guard.figure("notes on the tails", [])
def _tails(model: Model, posterior: WeightedDraws) -> list[str]:
    """Notes on a student response whose mean, or variance, may not exist."""
    if model.family != "student":
        return []
    nu = np.full(len(posterior.weights), model.nu) if model.nu is not None else posterior.values["nu"]
    without_mean, without_variance = (float(posterior.weights @ (nu <= most)) for most in (1.0, 2.0))
    if without_mean >= SAID:
        return [Finding.of("no-mean-of-errors", p=without_mean)]
    if without_variance >= SAID:
        return [Finding.of("no-variance-of-errors", p=without_variance)]
    return []


@guard.figure("contrasts", {})
def describe_contrasts(contrasts_of: Mapping[str, Array], weights: Array) -> dict[str, object]:
    """Returns levels against their references, as the parameters are summarised."""
    return {"contrasts": {name: summarised(draws, weights) for name, draws in contrasts_of.items()}} if contrasts_of else {}


def _named(blank: Sequence[str]) -> dict[str, object]:
    """Returns the entry of summary.json that names coefficients of which rows say nothing; none where there are none."""
    return {"not_estimated": [*blank]} if blank else {}


def _of_blank(blank: Sequence[str]) -> list[str]:
    """Returns the note on coefficients of which rows say nothing."""
    return [Finding.of("not-estimated", names=[*blank])] if blank else []


@guard.figure("scores of the test rows", ({}, {}))
def scores(model: Model, posterior: WeightedDraws, test: Design | None) -> tuple[dict[str, float], dict[str, object]]:
    """Returns metrics of the test rows, and the entries of summary.json beside them."""
    if test is None:
        return {}, {}
    drawn = posterior.groups(Drawing(model.seed))["posterior"]
    family = one_trial(model.family)
    predictive = predictive_of(family).of(drawn, model.encoding, family, model.terms, model.nu)
    metrics, about = predictive.scores(test)
    return metrics, {"test": about}


def _fit_of_chains(model: Model, ended: Ended, mode: importance.Server, server: hmc.Server, test: Design | None) -> Fit:
    """The result of chains: draws of equal weight, and nothing that needs the density at them."""
    made = bare(model, ended, test)
    posterior = cast(WeightedDraws, made.posterior)
    metrics, scored = scores(model, posterior, test)
    judged = judge_chains(model, mode, server)
    at_mode = importance.read_result(mode)
    blank = untold(model, at_mode)
    published = posterior.without(blank)
    other_way = find_reversed(at_mode, model, ended.checked.events)
    judged = verdict_of.against(_doubts(model, ended, at_mode, other_way), judged)
    more: dict[str, object] = {
        "rounds_to_mode": mode.newton,
        "quadrature": {"nodes": mode.nodes, "at_mode": float(mode.rule[0]), "at_draws": float(mode.rule[1])},
        "chains": hmc.summary(server),
        **_named(blank),
        **describe_contrasts(contrasts.of_levels(model, published.values)[0], posterior.weights),
        **ended.checked.content,
        **ended.rows_in_summary,
        **scored,
        **made.more,
        **summarised_draws(model, hmc.draws(server).reshape(-1, model.layout.size)),
    }
    return replace(
        made,
        posterior=published,
        verdict=judged,
        metrics=metrics,
        notes=[
            *_unseen(model),
            *([] if other_way is None else [other_way.note]),
            *_of_blank(blank),
            Finding.of("chains-without-weights"),
            *_tails(model, posterior),
            *ended.checked.notes,
        ],
        more=more,
    )


def _doubts(model: Model, ended: Ended, at_mode: importance.Found, other_way: Reversed | None) -> list[str]:
    """Returns why no result of these files can stand: doubts of rows, of given scales, of a turned response, of the checks."""
    turned = "" if other_way is None else other_way.doubt
    found = filter(None, [doubt_scales(at_mode, model), not_reached(model, at_mode), turned, ended.checked.doubt])
    return [*ended.doubts, *model.doubts(at_mode.began), *found]


def release_walks(model: Model | OwnModel, server: hmc.Server) -> WeightedDraws:
    """Returns the posterior of chains, on the data's scale."""
    xi = hmc.draws(server)
    chosen = np.arange(xi.shape[0] * xi.shape[1]).reshape(xi.shape[:2])
    points = xi.reshape(-1, xi.shape[2])
    theta, standard, others = model.at_references(points)
    weights = np.full(len(points), 1 / len(points))
    return WeightedDraws(model.published, theta, standard, others, weights, chosen, None, sampled=True)


def judge_chains(model: Model, mode: importance.Server, server: hmc.Server) -> Verdict:
    """Returns whether R-hat, ESS, divergences and the quadrature say that chains are right."""
    unresolved = importance.unresolved(mode)
    judged = judge_walks(release_walks(model, server), server, [unresolved] if unresolved else [])
    if judged.converged is not False:
        return judged
    why = model.reason(judged.why)
    return judged if why == judged.why else Verdict.of(False, why)


@guard.check("R-hat", verdict_of.not_judged("no check is known"))
def judge_walks(posterior: WeightedDraws, server: hmc.Server, against: list[str]) -> Verdict:
    """Returns whether R-hat, ESS and divergences say that chains are right; `against`: other reasons that they are not."""
    s = server.settings
    judged = verdict_of.against(against, verdict_of.of_chains(posterior.slowest(), s.chains))
    divergences, trajectories = int(server.divergences.sum()), s.chains * (s.rounds - s.warmup)
    if divergences > DIVERGENT * trajectories:
        found = Finding.of("divergent", divergences=divergences, trajectories=trajectories, most=100 * DIVERGENT)
        judged = judged.also(Check(found, False))
    if any(check.worst and check.word is False for check in judged.checks):
        judged = judged.also(Check(Finding.of("chains-want-rounds"), False))
    return judged


@guard.check("the weights", verdict_of.not_judged("no check is known"))
def judge_draws(sampled: importance.Found, wanted: float, reason: str) -> Verdict:
    """Returns whether the result of weighted draws is right, by their weights.

    Parameters
    ----------
    wanted : the number of effective draws that the job asks for
    reason : why they are not right; "" where they are
    """
    if not sampled.converged:
        return Verdict.of(False, reason)
    assert sampled.posterior is not None
    return verdict_of.of_weights(sampled.posterior, wanted)


def release_draws(model: Model | OwnModel, weights: weighted.Weighted) -> WeightedDraws:
    """Returns the posterior of weighted draws, on the data's scale."""
    theta, standard, others = model.at_references(weights.draws)
    output = model.output
    n = output.chains * output.draws
    chosen = weights.resampled(n, importance.offset(model.seed))
    # Neighbours among the chosen are often one draw: dealt in turn, every chain has draws of all.
    dealt = np.asarray(chosen.reshape(output.draws, output.chains).T)
    return WeightedDraws(model.published, theta, standard, others, weights.weights, dealt, weights.log_ratios)
