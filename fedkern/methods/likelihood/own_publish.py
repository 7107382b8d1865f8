"""What the server publishes of a job whose log-likelihoods are computed by the holders' own packages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...algorithms.hmc import machine as hmc
from ...algorithms.importance import machine as importance
from ...errors import JobError
from ...jobs.publish import Fit
from ...models.weighted import Weighted
from ...results.verdict import Verdict
from ...results.weighted import WeightedDraws
from .differently import notes, sensitivity, without
from .own_model import OwnModel
from .publish import INFERENCE, NO_WEIGHTS, verdict, walks_verdict

Array = NDArray[np.float64]


def fit(model: OwnModel, server: importance.Server, doubts: Sequence[str], alone: tuple[dict[str, object], list[str]]) -> Fit:
    """Of weighted draws."""
    found = importance.found(server)
    weights = found.posterior
    assert weights is not None  # there are rounds of draws
    assert found.log_evidence is not None
    values = model.natural(weights.draws)
    sensitive = sensitivity(weights, model.prior.without_jacobian(weights.draws), found.values.sum(axis=1), values)
    others = without(weights, found.values, values, model.names) if model.output.without else {}
    evidence, error = found.log_evidence
    more: dict[str, object] = {
        **_about(model),
        "k_hat": weights.k_hat,
        "ess": weights.effective,
        "monte_carlo_error": {"mean": found.error[0], "sd": found.error[1]},
        "rounds_to_mode": found.newton,
        "rounds_of_draws": found.rounds,
        "modes": found.modes,
        "starts": found.starts,
        "log_evidence": {"value": evidence, "error": error},
        "sensitivity": sensitive,
        **({"without": others} if others else {}),
        **alone[0],
    }
    return Fit(
        posterior=_released(model, weights),
        arrays={"draws": weights.draws, "log_ratios": weights.log_ratios},
        stop=str(server.stop),
        rounds=server.round,
        verdict=_judged(doubts, verdict(found, (), model.settings.effective)),
        clients={name: {"updates": server.round, "status": "finished"} for name in model.names},
        chains=model.output.chains,
        draws=model.output.draws,
        encoding={},
        notes=[_modes(found), *_prior_said(model), *notes(sensitive, others), *alone[1]],
        more=more,
        inference=INFERENCE,
    )


def of_chains(model: OwnModel, mode: importance.Server | None, server: hmc.Server, doubts: Sequence[str]) -> Fit:
    """Of Markov chains."""
    xi, s = hmc.draws(server), server.settings
    posterior = _walks(model, xi)
    judged = walks_verdict(posterior, server, [])
    more: dict[str, object] = {
        **_about(model),
        **({} if mode is None else {"rounds_to_mode": mode.newton}),
        "chains": {
            "acceptance": server.acceptance.tolist(),
            "step_size": server.step_size.tolist(),
            "divergences": int(server.divergences.sum()),
            "warmup": s.warmup,
            "leapfrog_steps": s.leapfrog,
        },
    }
    found = [] if mode is None else [_modes(importance.found(mode))]
    return Fit(
        posterior=posterior,
        arrays={"xi": xi},
        stop=str(server.stop),
        rounds=server.round,
        verdict=_judged(doubts, judged),
        clients={name: {"updates": server.round, "status": "finished"} for name in model.names},
        chains=s.chains,
        draws=s.draws,
        encoding={},
        notes=[*found, *_prior_said(model), NO_WEIGHTS],
        more=more,
    )


def of_variational(model: OwnModel, rounds: int, found: Weighted | None, judged: Verdict, doubts: Sequence[str]) -> Fit:
    """Of weighted draws from about a variational fit; where no client had an answer nothing is released."""
    if found is None:
        raise JobError(f"no draw has a weight, so that nothing can be published: {judged.why}")
    evidence, error = found.log_evidence
    more: dict[str, object] = {
        **_about(model),
        "k_hat": found.k_hat,
        "ess": found.effective,
        "log_evidence": {"value": evidence, "error": error},
    }
    local = "local.csv of a client has means and sds of its q(u), a normal distribution, and not of weighted draws"
    return Fit(
        posterior=_released(model, found),
        arrays={"draws": found.draws, "log_ratios": found.log_ratios},
        stop="rounds",
        rounds=rounds,
        verdict=_judged(doubts, judged),
        clients={name: {"updates": rounds, "status": "finished"} for name in model.names},
        chains=model.output.chains,
        draws=model.output.draws,
        encoding={},
        notes=[*_prior_said(model), local],
        more=more,
        inference="importance sampling about a variational fit",
    )


def _about(model: OwnModel) -> dict[str, object]:
    """What the model is, for whoever reads the result."""
    coordinates = dict(zip(model.parameters, model.prior.coordinates))
    return {"own": {"factory": model.terms.factory, "coordinates": coordinates, "local": model.local}}


def _modes(found: importance.Found) -> str:
    """How many modes there are, as far as starts tell; draws about one never find another that is far from it."""
    modes = "one mode" if found.modes == 1 else f"{found.modes} modes"
    starts = "1 start" if found.starts == 1 else f"{found.starts} starts"
    return f"{modes} from {starts} (algorithm.starts): a mode that no start leads to is in no draw"


def _prior_said(model: OwnModel) -> list[str]:
    """Where the prior is the model's, whose Jacobians nobody can tell from it."""
    if model.terms.priors is not None:
        return []
    return ["the prior is the model's own (log_prior), in coordinates that run over all real numbers"]


def _judged(doubts: Sequence[str], judged: Verdict) -> Verdict:
    if not doubts:
        return judged
    return Verdict(False, "; ".join([*doubts, *([] if judged.converged is True else [judged.why])]))


def _released(model: OwnModel, found: Weighted) -> WeightedDraws:
    """Draws of the parameters."""
    output = model.output
    chosen = found.resampled(output.chains * output.draws, importance.offset(model.seed))
    dealt = np.asarray(chosen.reshape(output.draws, output.chains).T)  # so that neighbours are in different chains
    none = np.empty((len(found.draws), 0))
    return WeightedDraws((), none, None, model.natural(found.draws), found.weights, dealt, found.log_ratios)


def _walks(model: OwnModel, xi: Array) -> WeightedDraws:
    """The same of chains."""
    chosen = np.arange(xi.shape[0] * xi.shape[1]).reshape(xi.shape[:2])
    points = xi.reshape(-1, xi.shape[2])
    none, weights = np.empty((len(points), 0)), np.full(len(points), 1 / len(points))
    return WeightedDraws((), none, None, model.natural(points), weights, chosen, None, sampled=True)
