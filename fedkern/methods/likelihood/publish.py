"""What the server of a job publishes: the posterior, its evidence and verdict, and notes for a reader of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ...algorithms.hmc import machine as hmc
from ...algorithms.importance import machine as importance
from ...data.design import Design
from ...jobs.publish import Fit
from ...models import psis, weighted
from ...results import verdict as verdict_of
from ...results.plain import Record
from ...results.released import Drawing
from ...results.verdict import Verdict
from ...results.weighted import WeightedDraws
from . import curves
from .differently import ALONE, INTERCEPTS, SLOPES, compared, notes, sensitivity, without
from .model import Model
from .predictive import Predictive, one_row

Array = NDArray[np.float64]

INFERENCE = "importance sampling"
DIVERGENT = 0.01  # the part of the trajectories after the burn-in that may diverge
NO_WEIGHTS = "chains have no log evidence and no sensitivity to the prior: these need weights of draws"


@dataclass(frozen=True)
class Checked:
    """What clients' sums say of the model: for summary.json, for its reader, and why its intervals cannot stand."""

    content: Record = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    doubt: str = ""


@dataclass(frozen=True)
class Ended:
    """What the server has after the last round.

    Attributes
    ----------
    server : its machine's last state
    doubts : why no result of these files can stand
    checked : what clients' sums say of the model
    chains : the last state of the machine of the chains, where these are run
    """

    server: importance.Server
    doubts: tuple[str, ...] = ()
    checked: Checked = field(default_factory=Checked)
    chains: hmc.Server | None = None


def fit(model: Model, ended: Ended, test: Design | None) -> Fit:
    """What the server has at the end."""
    if ended.chains is not None:
        return _walked(model, ended, ended.chains, test)
    server, found = ended.server, importance.found(ended.server)
    weights = found.posterior
    assert weights is not None  # there are rounds of draws
    assert found.log_evidence is not None
    posterior = released(model, weights)
    evidence, error = found.log_evidence
    on_data_scale = {name: own for name, own in posterior.values.items() if "_std" not in name.partition("[")[0]}
    log_prior = model.prior.without_jacobian(weights.draws)
    sensitive = sensitivity(weights, log_prior, found.values.sum(axis=1), on_data_scale)
    alone = without(weights, found.values, on_data_scale, model.names) if model.output.without else {}
    differ = compared(found, model.encoding.names, intercept=model.encoding.intercept)
    if differ is not None and model.layout.client:
        differ = replace(differ, intercept=None)  # differences of intercepts are the model's
    more: dict[str, object] = {
        "k_hat": weights.k_hat,
        "ess": weights.effective,
        "monte_carlo_error": {"mean": found.error[0], "sd": found.error[1]},
        "rounds_to_mode": found.newton,
        "rounds_of_draws": found.rounds,
        "log_evidence": {"value": evidence - model.units.log_volume, "error": error},
        "quadrature": {"nodes": found.nodes, "at_mode": found.rule[0], "at_draws": found.rule[1]},
        "sensitivity": sensitive,
        **({"without": alone} if alone else {}),
        **({} if differ is None else {"heterogeneity": differ.content}),
        **ended.checked.content,
    }
    differing = (
        []
        if differ is None or not found.converged
        else differ.notes(INTERCEPTS, ALONE if model.hazards and not model.lifetimes else SLOPES)
    )
    metrics, scored = _scores(model, posterior, test)
    more |= scored | _hazards(model) | curves.of_draws(model, weights.draws[posterior.chosen.ravel()])
    return Fit(
        posterior=posterior,
        arrays={"draws": weights.draws, "log_ratios": weights.log_ratios},
        stop=str(server.stop),
        rounds=server.round,
        verdict=verdict(model, found, (*ended.doubts, *filter(None, [ended.checked.doubt]))),
        clients={name: {"updates": server.round, "status": "finished"} for name in model.names},
        chains=model.output.chains,
        draws=model.output.draws,
        encoding=model.encoding.to_dict(),
        metrics=metrics,
        notes=[*differing, *notes(sensitive, alone), *ended.checked.notes],
        more=more,
        inference=INFERENCE,
    )


def _hazards(model: Model) -> dict[str, str]:
    """The family, where the encoding has that of a response and the model is of times."""
    return {"hazards": model.family} if model.hazards else {}


def _scores(model: Model, posterior: WeightedDraws, test: Design | None) -> tuple[dict[str, float], dict[str, object]]:
    """Of the test rows: metrics, and what summary.json has beside them."""
    if test is None:
        return {}, {}
    drawn = posterior.groups(Drawing(model.seed))["posterior"]
    predictive = Predictive.of(drawn, model.encoding, one_row(model.family), model.terms)
    metrics, about = predictive.scores(test)
    return metrics, {"test": about}


def _walked(model: Model, ended: Ended, server: hmc.Server, test: Design | None) -> Fit:
    """The same of chains: draws of equal weight, and nothing that needs the density at them."""
    mode, s = ended.server, server.settings
    posterior = of_walks(model, server)
    metrics, scored = _scores(model, posterior, test)
    judged = of_chains(model, mode, server)
    if doubts := [*ended.doubts, *filter(None, [ended.checked.doubt])]:
        judged = Verdict(False, "; ".join([*doubts, *([] if judged.converged is True else [judged.why])]))
    more: dict[str, object] = {
        "rounds_to_mode": mode.newton,
        "quadrature": {"nodes": mode.nodes, "at_mode": float(mode.rule[0]), "at_draws": float(mode.rule[1])},
        "chains": {
            "acceptance": server.acceptance.tolist(),
            "step_size": server.step_size.tolist(),
            "divergences": int(server.divergences.sum()),
            "warmup": s.warmup,
            "leapfrog_steps": s.leapfrog,
        },
        **ended.checked.content,
        **scored,
        **_hazards(model),
        **curves.of_draws(model, hmc.draws(server).reshape(-1, model.layout.size)),
    }
    return Fit(
        posterior=posterior,
        arrays={"xi": hmc.draws(server)},
        stop=str(server.stop),
        rounds=server.round,
        verdict=judged,
        clients={name: {"updates": server.round, "status": "finished"} for name in model.names},
        chains=s.chains,
        draws=s.draws,
        encoding=model.encoding.to_dict(),
        metrics=metrics,
        notes=[NO_WEIGHTS, *ended.checked.notes],
        more=more,
    )


def of_walks(model: Model, server: hmc.Server) -> WeightedDraws:
    """The posterior on the data's scale, of chains."""
    xi = hmc.draws(server)
    chosen = np.arange(xi.shape[0] * xi.shape[1]).reshape(xi.shape[:2])
    points = xi.reshape(-1, xi.shape[2])
    theta, standard = model.coefficients(points)
    weights = np.full(len(points), 1 / len(points))
    return WeightedDraws(model.encoding.names, theta, standard, model.others(points), weights, chosen, None, sampled=True)


def of_chains(model: Model, mode: importance.Server, server: hmc.Server) -> Verdict:
    """Whether R-hat, ESS, divergences and the quadrature say that chains are right."""
    s = server.settings
    judged = verdict_of.of_chains(of_walks(model, server).slowest(), s.chains)
    divergences, trajectories = int(server.divergences.sum()), s.chains * (s.rounds - s.warmup)
    against = [unresolved] if (unresolved := importance.unresolved(mode)) else []
    if divergences > DIVERGENT * trajectories:
        against.append(
            f"{divergences} of {trajectories} trajectories diverged (at most {100 * DIVERGENT:g} %): the posterior is narrow "
            "somewhere, and chains may not enter it; narrower priors can help"
        )
    if judged.converged is False:
        against.append(f"{judged.why}: give chains more rounds (job.rounds)")
    return Verdict(False, "; ".join(against), judged.worst) if against else judged


def verdict(model: Model, found: importance.Found, doubts: tuple[str, ...]) -> Verdict:
    """Whether the weights say that the result is right, and the files and the responses that it can stand."""
    if doubts or not found.converged:
        return Verdict(False, "; ".join(filter(None, [*doubts, found.reason])))
    weights = found.posterior
    assert weights is not None
    n, wanted = len(weights.draws), model.settings.effective
    why = f"k-hat {weights.k_hat:.2f} (wanted at most {psis.UNRELIABLE:g}), {weights.effective:.0f} of {n} draws count"
    return Verdict(True, f"{why} (wanted {wanted:g})")


def released(model: Model, found: weighted.Weighted) -> WeightedDraws:
    """The posterior on the data's scale."""
    theta, standard = model.coefficients(found.draws)
    output = model.output
    n = output.chains * output.draws
    chosen = found.resampled(n, importance.offset(model.seed))
    # Neighbours among the chosen are often one draw: dealt in turn, every chain has draws of all.
    dealt = np.asarray(chosen.reshape(output.draws, output.chains).T)
    return WeightedDraws(model.encoding.names, theta, standard, model.others(found.draws), found.weights, dealt, found.log_ratios)
