"""Makes the result of a job whose log-likelihoods are computed by the holders' own packages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...algorithms.hmc import machine as hmc
from ...algorithms.importance import machine as importance
from ...data.design import Design
from ...errors import JobError
from ...finding import Finding
from ...jobs.publish import Fit
from ...models.weighted import Weighted
from ...results import guard
from ...results.verdict import Verdict, against
from ...results.weighted import WeightedDraws
from .differently import describe_sensitivity, leave_out_clients, sensitivity
from .own_model import OwnModel
from .publish import Ended, describe_draws, judge_draws, judge_walks, release_draws, released


def bare(model: OwnModel, ended: Ended, test: Design | None) -> Fit:
    """Returns the result of a job, without anything that is judged or said of it."""
    return replace(released(model, ended), more=_about(model))


@guard.check("the judging of the result", bare)
def make_fit(model: OwnModel, ended: Ended, test: Design | None) -> Fit:
    """Returns the result of a job, from weighted draws or from chains; such a job has no test rows."""
    made = bare(model, ended, test)
    if ended.chains is not None:
        return _fit_of_chains(model, made, ended.mode, ended.chains, ended.doubts)
    assert ended.mode is not None
    alone, sampled = ended.checked, importance.read_result(ended.mode)
    weights = sampled.posterior
    assert weights is not None
    values = model.natural(weights.draws)
    sensitive = sensitivity(weights, model.prior.without_jacobian(weights.draws), sampled.values.sum(axis=1), values)
    others = leave_out_clients(weights, sampled.values, values, model.names) if model.output.without else {}
    more: dict[str, object] = {
        **made.more,
        **describe_draws(sampled),
        "modes": sampled.modes,
        "starts": sampled.starts,
        "sensitivity": sensitive,
        **({"without": others} if others else {}),
        **alone.content,
    }
    return replace(
        made,
        verdict=against(ended.doubts, judge_draws(sampled, model.settings.counted, sampled.reason)),
        notes=[_modes(sampled), *_prior_said(model), *describe_sensitivity(sensitive, others), *alone.notes],
        more=more,
    )


def _fit_of_chains(model: OwnModel, made: Fit, mode: importance.Server | None, server: hmc.Server, doubts: Sequence[str]) -> Fit:
    """The result of Markov chains."""
    posterior = made.posterior
    assert isinstance(posterior, WeightedDraws)
    judged = judge_walks(posterior, server, [])
    more: dict[str, object] = {
        **made.more,
        **({} if mode is None else {"rounds_to_mode": mode.newton}),
        "chains": hmc.summary(server),
    }
    modes = [] if mode is None else [_modes(importance.read_result(mode))]
    return replace(
        made,
        verdict=against(doubts, judged),
        notes=[*modes, *_prior_said(model), Finding.of("chains-without-weights")],
        more=more,
    )


def of_variational(model: OwnModel, rounds: int, draws: Weighted | None, judged: Verdict, doubts: Sequence[str]) -> Fit:
    """Returns the result of weighted draws about a variational fit; nothing is released where no client had an answer."""
    if draws is None:
        raise JobError(f"no draw has a weight, so that nothing can be published: {judged.why}")
    evidence, error = draws.log_evidence
    more: dict[str, object] = {
        **_about(model),
        "k_hat": draws.k_hat,
        "ess": draws.effective,
        "log_evidence": {"value": evidence, "error": error},
    }
    local = "local.csv of a client has means and sds of its q(u), a normal distribution, and not of weighted draws"
    return Fit(
        posterior=release_draws(model, draws),
        arrays={"draws": draws.draws, "log_ratios": draws.log_ratios},
        stop="rounds",
        rounds=rounds,
        verdict=against(doubts, judged),
        chains=model.output.chains,
        draws=model.output.draws,
        notes=[*_prior_said(model), local],
        more=more,
        inference="importance sampling about a variational fit",
    )


def _about(model: OwnModel) -> dict[str, object]:
    """Entries of summary.json that describe the model."""
    coordinates = dict(zip(model.parameters, model.prior.coordinates))
    return {"own": {"factory": model.terms.factory, "coordinates": coordinates, "local": model.local}}


def _modes(sampled: importance.Found) -> str:
    """A note on the number of modes, as far as starts tell; draws about one never find another that is far from it."""
    modes = "one mode" if sampled.modes == 1 else f"{sampled.modes} modes"
    starts = "1 start" if sampled.starts == 1 else f"{sampled.starts} starts"
    return Finding.of("modes-of-starts", modes=modes, starts=starts)


def _prior_said(model: OwnModel) -> list[str]:
    """A note where the prior is the model's: it may hold Jacobians, which cannot be told from it."""
    if model.terms.priors is not None:
        return []
    return [Finding.of("prior-of-the-model")]
