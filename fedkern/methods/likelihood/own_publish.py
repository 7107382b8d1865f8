"""Makes the result of a job whose log-likelihoods are computed by the holders' own packages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

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
from .publish import INFERENCE, Ended, judge_draws, judge_walks

Array = NDArray[np.float64]


def bare(model: OwnModel, ended: Ended, test: Design | None) -> Fit:
    """Returns the result of a job, without anything that is judged or said of it."""
    walked, server = ended.chains, ended.mode if ended.chains is None else ended.chains
    assert server is not None
    if walked is None:
        assert ended.mode is not None
        weights = importance.read_result(ended.mode).posterior
        assert weights is not None  # there are rounds of draws
        posterior, arrays = _released(model, weights), {"draws": weights.draws, "log_ratios": weights.log_ratios}
    else:
        xi = hmc.draws(walked)
        posterior, arrays = _walks(model, xi), {"xi": xi}
    return Fit(
        posterior=posterior,
        arrays=arrays,
        stop=str(server.stop),
        rounds=server.round,
        chains=model.output.chains if walked is None else walked.settings.chains,
        draws=model.output.draws if walked is None else walked.settings.draws,
        more=_about(model),
        inference=INFERENCE if walked is None else "",
    )


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
    assert sampled.log_evidence is not None
    values = model.natural(weights.draws)
    sensitive = sensitivity(weights, model.prior.without_jacobian(weights.draws), sampled.values.sum(axis=1), values)
    others = leave_out_clients(weights, sampled.values, values, model.names) if model.output.without else {}
    evidence, error = sampled.log_evidence
    more: dict[str, object] = {
        **made.more,
        "k_hat": weights.k_hat,
        "ess": weights.effective,
        "monte_carlo_error": {"mean": sampled.error[0], "sd": sampled.error[1]},
        "rounds_to_mode": sampled.newton,
        "rounds_of_draws": sampled.rounds,
        "modes": sampled.modes,
        "starts": sampled.starts,
        "log_evidence": {"value": evidence, "error": error},
        "sensitivity": sensitive,
        **({"without": others} if others else {}),
        **alone.content,
    }
    return replace(
        made,
        verdict=against(ended.doubts, judge_draws(sampled, (), model.settings.effective, sampled.reason)),
        notes=[_modes(sampled), *_prior_said(model), *describe_sensitivity(sensitive, others), *alone.notes],
        more=more,
    )


def _fit_of_chains(model: OwnModel, made: Fit, mode: importance.Server | None, server: hmc.Server, doubts: Sequence[str]) -> Fit:
    """The result of Markov chains."""
    s, posterior = server.settings, made.posterior
    assert isinstance(posterior, WeightedDraws)
    judged = judge_walks(posterior, server, [])
    more: dict[str, object] = {
        **made.more,
        **({} if mode is None else {"rounds_to_mode": mode.newton}),
        "chains": {
            "acceptance": server.acceptance.tolist(),
            "step_size": server.step_size.tolist(),
            "divergences": int(server.divergences.sum()),
            "warmup": s.warmup,
            "leapfrog_steps": s.leapfrog,
        },
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
        posterior=_released(model, draws),
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


def _released(model: OwnModel, weights: Weighted) -> WeightedDraws:
    """The posterior of weighted draws."""
    output = model.output
    chosen = weights.resampled(output.chains * output.draws, importance.offset(model.seed))
    dealt = np.asarray(chosen.reshape(output.draws, output.chains).T)  # so that neighbours are in different chains
    none = np.empty((len(weights.draws), 0))
    return WeightedDraws((), none, None, model.natural(weights.draws), weights.weights, dealt, weights.log_ratios)


def _walks(model: OwnModel, xi: Array) -> WeightedDraws:
    """The posterior of chains."""
    chosen = np.arange(xi.shape[0] * xi.shape[1]).reshape(xi.shape[:2])
    points = xi.reshape(-1, xi.shape[2])
    none, weights = np.empty((len(points), 0)), np.full(len(points), 1 / len(points))
    return WeightedDraws((), none, None, model.natural(points), weights, chosen, None, sampled=True)
