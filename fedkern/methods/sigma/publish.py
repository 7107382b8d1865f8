"""Makes the result that the server of a spatial job publishes: its unknowns, and how they were found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import expit

from ...algorithms.core import once
from ...algorithms.core.exchange import LEAST
from ...algorithms.core.masked import ALL, describe_few
from ...algorithms.core.messages import SERVER
from ...algorithms.exchanges.sums import FitSums
from ...algorithms.exchanges.verdicts import FIGURES_OF
from ...algorithms.hmc import machine as hmc
from ...algorithms.nested import machine as nested
from ...algorithms.sfvi import machine as sfvi
from ...arrays import Array
from ...data.artifact import ServerFile
from ...errors import NumericalError
from ...finding import Finding
from ...jobs.publish import Fit
from ...kernels import rng
from ...models import psis
from ...models.weighted import Weighted
from ...results import guard, verdict
from ...results.gaussian import label
from ...results.released import Drawing
from ...results.reweighed import Reweighed
from ...results.verdict import Verdict, against, not_judged
from ...results.weighted import Draws
from . import beside, periods
from .model import SigmaModel
from .prior.keys import ABOVE, ERROR

Server = hmc.Server | sfvi.Server | nested.Server

NESTED = "nested Laplace approximation, importance weights"
FAR, WIDE = 10.0, 3.0  # of z_G, beyond which nothing was learnt
LOST_SCALE = 1e-3  # of sigma_theta, in the model's scale, below which its half-normal prior has 0.0008
END = 0.02  # of the training range: where a posterior that lies beyond piles up
FAR_LEVEL, FAR_MEAN = 2.0, 0.9  # of the response's scale (its rms): levels that a model without an intercept cannot fit
PILED = 0.2  # probability of it that is worth a note


@dataclass(frozen=True)
class Ended:
    """Holds the server's knowledge at the end."""

    server: Server  # its machine's last state
    # of a variational fit, whether each client's unknowns have settled
    settled: Mapping[str, bool | None] = field(default_factory=dict)
    weights: Reweighed | None = None  # importance weights of q
    doubts: tuple[str, ...] = ()  # why no result of these files can stand


def global_draws(model: SigmaModel, parameters: Array, ridge: Array, drawing: Drawing) -> Array:
    """Returns (c, t, P) draws of xi from a variational posterior, the same at all parties: the counters are the server's.
    `parameters`: of q(xi'); `ridge`: values of the map from xi' to xi, as clients are told them."""
    block, n = model.sfvi.block(model.layout.size), drawing.draws
    mean, scale = parameters[: block.size], block.scale(parameters)
    keys = [rng.key(drawing.seed, "posterior", c) for c in range(drawing.chains)]
    e = np.stack([rng.normal(n * block.size, key=key, client=SERVER).reshape(n, -1) for key in keys])
    deviations = e @ scale.T if block.full else e * scale
    inner, shear = mean + deviations, model.shear(ridge)
    return np.stack([shear.out(unsheared) for unsheared in inner])


def build_posterior(model: SigmaModel, server: Server) -> Draws:
    """Returns the server's unknowns in the data's units; z_G, which means nothing by itself, is left out."""
    output = model.output
    if isinstance(server, hmc.Server):
        xi = hmc.draws(server)
    elif isinstance(server, nested.Server):
        xi = _equal(nested.weighted(server), output.chains, output.draws, nested.offset(model.seed))
    else:
        xi = global_draws(model, server.parameters, server.ridge_numbers, Drawing(model.seed, output.chains, output.draws))
    return Draws(_named(model, xi), isinstance(server, hmc.Server))


def _equal(weighted: Weighted, chains: int, draws: int, offset: float) -> Array:
    """Returns (c, t, P) draws of equal weight.

    Neighbours among them are often one draw: dealt in turn, every chain has draws of all.
    """
    chosen = weighted.resampled(chains * draws, offset)
    return np.asarray(weighted.draws[chosen].reshape(draws, chains, -1).swapaxes(0, 1))


def _named(model: SigmaModel, xi: Array) -> dict[str, Array]:
    """Returns the unknowns by their published names."""
    layout, parts, c, units = model.layout, model.layout.parts, model.condition, model.units
    named: dict[str, Array] = {}
    if layout.free:
        named[model.common.condition.name] = c.lo + (c.hi - c.lo) * expit(xi[..., 0])
    if layout.mixing:
        named["rho"] = expit(xi[..., parts["rho"].start])
    power_of_dispersion = -1 if model.learns_r else 1
    for key, name, power in (("log_scale", "sigma_theta", 1), ("log_sd", model.dispersion, power_of_dispersion)):
        if parts[key].stop > parts[key].start:
            named[name] = units.scale * np.exp(power * xi[..., parts[key].start])
    if layout.n_periods:
        named["sigma_period"] = units.scale * np.exp(xi[..., parts["log_period"].start])
        effects = units.scale * layout.periods(xi)
        named |= {periods.name_effect(period): effects[..., t] for t, period in enumerate(model.periods)}
    names, R = model.published, model.coding.matrix
    standard = np.zeros((*xi.shape[:-1], model.encoding.size))
    if layout.intercept:
        standard[..., 0] = units.natural(xi[..., parts["intercept"].start])
    standard[..., 1:] = units.scale * xi[..., parts["beta"]]
    on_data, standard = standard @ (R @ model.encoding.affine()).T, standard @ R.T
    for j, name in enumerate(names):
        if j or layout.intercept:
            named[label(name)] = on_data[..., j]
    if model.encoding.standardised:
        named |= {label(name, "_std"): standard[..., j] for j, name in enumerate(names) if j or layout.intercept}
    return {name: np.ascontiguousarray(values) for name, values in named.items()}


def shared(model: SigmaModel) -> list[str]:
    """Returns the names of the server's unknowns whose figures clients are told."""
    return [name for name in _named(model, np.zeros((1, 1, model.layout.size))) if "_std" not in name]


def figures_of(model: SigmaModel, released: Draws) -> Array:
    """Returns (f, q) the figures of summary.json for the clients' pages."""
    rows = released.parameters()
    return np.array([[rows[name][which] for which in FIGURES_OF] for name in shared(model)]).reshape(-1, len(FIGURES_OF))


def told_of(model: SigmaModel, figures: Array) -> dict[str, dict[str, float]]:
    """Returns name -> these figures, at a client."""
    return {name: dict(zip(FIGURES_OF, row)) for name, row in zip(shared(model), figures.tolist())}


def said_of(model: SigmaModel, xi: Array) -> dict[str, dict[str, float]]:
    """Returns name -> mean and 95 % interval of the unknowns at draws (m, P) of xi, where the server has told none."""
    named = {name: values for name, values in _named(model, xi).items() if "_std" not in name}
    ends = {name: np.quantile(values, (0.025, 0.975)).tolist() for name, values in named.items()}
    return {name: {"mean": float(values.mean()), **dict(zip(("q025", "q975"), ends[name]))} for name, values in named.items()}


def refuse_nonsense(model: SigmaModel, parameters: Array) -> None:
    """Refuses a z_G, whose prior is N(0, I), that no posterior can have; every party calls it before any file is written. Raises
    NumericalError: it is far outside: the optimisation has diverged, though its numbers are finite."""
    where, block = model.layout.parts["z"], model.sfvi.block(model.layout.size)
    mean, sd = float(np.abs(parameters[: block.size][where]).max()), float(block.sd(parameters)[where].max())
    if mean > FAR or sd > WIDE:
        raise NumericalError(
            f"the fit has diverged: global latent numbers, whose prior is N(0, 1), have means up to {mean:.3g} and standard "
            f"deviations up to {sd:.3g}; lower algorithm.learning_rate ({model.sfvi.learning_rate:g}) or algorithm.start_sd"
        )


def measured(model: SigmaModel) -> Callable[[hmc.Server | sfvi.Server], Mapping[str, float]]:
    """Returns the function of a line of metrics: means of the server's unknowns, the ELBO, the acceptance.

    The means of chains are over their present states.
    """

    def of(server: hmc.Server | sfvi.Server) -> Mapping[str, float]:
        xi = server.walk.at if isinstance(server, hmc.Server) else sfvi.posterior_moments(server)[0][np.newaxis]
        metrics = {name: float(values.mean()) for name, values in _named(model, xi[np.newaxis]).items() if "_std" not in name}
        if isinstance(server, hmc.Server):
            metrics |= {"acceptance": float(server.acceptance.mean())} if np.isfinite(server.acceptance).all() else {}
        elif server.trace:
            metrics["elbo"] = server.trace[-1] - model.units.log_volume
        return {name: round(value, 5) for name, value in metrics.items()}

    return of


def shape_of(released: Draws) -> tuple[int, int]:
    """Returns the number of chains, and of draws of each."""
    c, t = next(iter(released.values.values())).shape if released.values else (0, 0)
    return c, t


def bare(model: SigmaModel, ended: Ended, prior: ServerFile, released: Draws) -> Fit:
    """Makes the result without anything that is judged or said of it."""
    server, shape = ended.server, shape_of(released)
    stop = "settled" if isinstance(server, sfvi.Server) and server.round < model.rounds else str(server.stop)
    return Fit(
        posterior=released,
        arrays=_arrays(server),
        stop=stop,
        rounds=server.round,
        chains=shape[0],
        draws=shape[1],
        encoding=model.encoding.to_dict(),
        more={"sigma": _about(model, prior)},
    )


@guard.check("the judging of the result", bare)
def fit(model: SigmaModel, ended: Ended, prior: ServerFile, released: Draws) -> Fit:
    """Makes the published result; here chains are judged."""
    made = bare(model, ended, prior, released)
    beside_it = beside.of(model, released) | periods.about(model, released) | _mixing(model, ended, released)
    return replace(
        made,
        verdict=_verdict(model, ended, released, prior),
        notes=_notes(model, released, prior) + _unsheared(model, prior),
        more={"sigma": made.more["sigma"] | beside_it},
        tables=periods.table(model, released),
    )


@guard.figure("the sums of the fit", lambda fitted, *_, **__: fitted)
def with_sums(fitted: Fit, query: once.Server[FitSums], names: Sequence[str], *, hides: bool) -> Fit:
    """Adds the leave-one-out density over all clients' areas, and its standard error over areas. `hides`: whether areas with a
    count that is an interval are left out."""
    total, least = FitSums.total(query.replies), LEAST
    silent = sum(reply.areas == 0 for reply in query.replies.values())
    notes = [f"{silent} clients have fewer than {least} areas with rows: they are not in the sums of the fit"] if silent else []
    if tuple(names) == (ALL,):
        notes = [describe_few(f"{least} areas with rows", "the sums of the fit")]
    if hides:
        notes.append("areas with a count that is an interval are not in the sums of the fit (output.suppressed)")
    notes += once.not_in("the sums of the fit", query, names)
    if not total.areas:
        return replace(fitted, notes=[*fitted.notes, *notes])
    spread = max(total.squares - total.density**2 / total.areas, 0.0) * total.areas / (total.areas - 1)
    sums = {
        "elpd": total.density,
        "se": spread**0.5,
        "p_loo": total.effective,
        "areas": total.areas,
        "unreliable": total.unreliable,
    }
    sums |= {"waic": -2 * total.waic, "p_waic": total.waic_effective}
    if total.unreliable:
        notes.append(
            f"the fit's density is not reliable in {total.unreliable} of {total.areas} areas (k-hat, the shape of the "
            f"weights' tail, is above {psis.UNRELIABLE:g}): their own rows move the rest of the posterior"
        )
    about = {**fitted.more["sigma"], "fit": sums}
    return replace(fitted, more={**fitted.more, "sigma": about}, notes=[*fitted.notes, *notes])


@guard.check("the verdict", not_judged("no check is known"))
def _verdict(model: SigmaModel, ended: Ended, released: Draws, prior: ServerFile) -> Verdict:
    """Judges the numbers; no result can stand of files that are in doubt, nor of a prior that is off."""
    judged = _judged(model, ended, released)
    doubts = [*ended.doubts, *_of_prior(model, released, prior)]
    return against(doubts, judged)


def _of_prior(model: SigmaModel, released: Draws, prior: ServerFile) -> list[str]:
    """Returns the doubt of a prior that is too far from the one it stands for, where the posterior of phi is."""
    if not prior.errors:
        return []
    nodes, errors = np.transpose(prior.errors)
    drawn = released.values[model.common.condition.name] if model.layout.free else np.full(1, model.condition.fixed or 0.0)
    error = float(np.interp(drawn, nodes, errors).mean())
    if error <= ABOVE * ERROR:
        return []
    remedy = 'more shared numbers (within.latents or within.error of "fedkern sigma build") make it smaller'
    if not model.common.within:
        remedy = 'a longer training makes it smaller, or a prior that is built ("fedkern sigma build")'
    return [
        f"the prior itself leaves posterior means of areas off by {error:.2g} of what independent areas have (wanted {ERROR:g}): "
        f"{remedy}"
    ]


def _judged(model: SigmaModel, ended: Ended, released: Draws) -> Verdict:
    """Judges chains by the published numbers, and a fit by all of xi and the clients' statements about theirs.

    The latent numbers of the map, which mean nothing by themselves, are not judged in chains.
    """
    server = ended.server
    if isinstance(server, hmc.Server):
        return verdict.of_chains(released.slowest(), len(server.acceptance))
    if isinstance(server, nested.Server):
        return _of_weights(model, nested.read_result(server))
    judged = settled(model, server, ended.settled)
    return _collapsed(model, sfvi.posterior_moments(server)[0]) or verdict.with_weights(judged, ended.weights)


def _collapsed(model: SigmaModel, mean: Array) -> Verdict | None:
    """Returns the verdict where q has lost a scale: so near to 0 its prior has nearly no mass. None where it has not. `mean`:
    (P,) of xi."""
    for part, name in (("log_scale", "sigma_theta"), ("log_period", "sigma_period")):
        where = model.layout.parts[part]
        if where.stop > where.start and (value := float(np.exp(mean[where.start]))) < LOST_SCALE:
            found = Finding.of("collapsed", name=name, value=model.units.scale * value, remedies=["wider-than-q"])
            return Verdict.of(False, found, name)
    return None


def _of_weights(model: SigmaModel, checks: nested.Found) -> Verdict:
    """Judges by the searches, the lattice and the weights whether the result is right."""
    if not checks.converged:
        return Verdict.of(False, checks.reason)
    return verdict.of_weights(checks.posterior, model.nested.effective)


@guard.check("whether the fit has settled", not_judged("no check is known"))
def settled(model: SigmaModel, server: sfvi.Server, bits: Mapping[str, bool | None]) -> Verdict:
    """Judges whether a fit still moves."""
    return verdict.with_clients(verdict.of_movement(server.windows.movement, unknowns(model)), bits)


def unknowns(model: SigmaModel) -> list[str]:
    """Returns the names of xi, as the optimiser has it."""
    slopes = [label(name, "_std") for name in model.encoding.names[1:]]
    called: dict[str, list[str]] = {
        "phi": [model.common.condition.name],
        "z": [f"z[{i + 1}]" for i in range(model.layout.n_global)],
        "rho": ["rho"],
        "intercept": ["intercept"],
        "beta": slopes,
        "period": [f"v[{i + 1}] of the periods" for i in range(model.layout.n_periods - 1)],
        "log_period": ["sigma_period"],
        "log_scale": ["sigma_theta"],
        "log_sd": [model.dispersion],
    }
    parts = model.layout.parts
    return [name for part, names in called.items() if parts[part].stop > parts[part].start for name in names]


def _arrays(server: Server) -> dict[str, Array]:
    """Returns the arrays of which the digest is made."""
    if isinstance(server, nested.Server):
        weighted = nested.weighted(server)
        return {"draws": weighted.draws, "log_ratios": weighted.log_ratios}
    if isinstance(server, hmc.Server):
        return {"xi": hmc.draws(server)}
    if server.ridge_numbers.any():
        return {"q": server.parameters} | {"ridge": server.ridge_numbers}
    return {"q": server.parameters}


def _about(model: SigmaModel, prior: ServerFile) -> dict[str, Any]:
    """Describes the model and its prior."""
    c = model.condition
    about: dict[str, Any] = {
        "prior": {"id": prior.common.id, "kind": prior.common.kind, "variant": prior.common.variant},
        "kind": model.kind,
        "family": model.family_of_y,
        "inference": model.inference,
        "areas": sum(prior.sizes),
        "latents": {"global": prior.common.n_global, "local": sum(prior.n_local)},
        "response": {"level": model.units.level, "scale": model.units.scale},
        "threshold": {"name": model.threshold.name, "value": model.threshold.value},
    }
    if prior.errors:
        about["prior"]["error"] = [{prior.common.condition.name: phi, "error": error} for phi, error in prior.errors]
    if model.layout.free:
        about["range"] = {"name": model.common.condition.name, "lo": c.lo, "hi": c.hi, "prior_mass": c.inside}
    return about


@guard.figure("how the fit went", {})
def _mixing(model: SigmaModel, ended: Ended, released: Draws) -> dict[str, object]:
    """Returns how well the chains have mixed, or the ELBO of the last fifth of the rounds; and the weights."""
    server = ended.server
    if isinstance(server, nested.Server):
        return {"nested": _about_weights(model, nested.read_result(server))}
    if isinstance(server, sfvi.Server):
        bound = server.last_fifth.moments
        about: dict[str, object] = {} if ended.weights is None else {"weights": ended.weights.content}
        if bound is not None:
            about |= {"elbo": bound[0] - model.units.log_volume, "elbo_error": bound[1]}
        return about
    slowest = released.slowest()
    if slowest is None:
        return {"chains": hmc.summary(server)}
    return {"chains": hmc.summary(server) | {"rhat": slowest[0], "ess": slowest[1]}}


def _about_weights(model: SigmaModel, checks: nested.Found) -> dict[str, object]:
    """Returns the numbers of a nested Laplace approximation."""
    weights, (evidence, error) = checks.posterior, checks.posterior.log_evidence
    border = checks.border if np.isfinite(checks.border) else None
    return {
        "places": checks.places,
        "border": border,
        "draws": len(weights.draws),
        "k_hat": weights.k_hat,
        "ess": weights.effective,
        "monte_carlo_error": {"mean": checks.error[0], "sd": checks.error[1]},
        "integration": checks.spread,
        "log_evidence": {"value": evidence - model.units.log_volume, "error": error},
    }


@guard.figure("the note on the shear", [])
def _unsheared(model: SigmaModel, prior: ServerFile) -> list[str]:
    """Notes that the prior's file is too old for the job's shear."""
    if model.chains or model.is_nested or not model.sfvi.sheared or prior.mean_loadings is not None:
        return []
    return [
        "the prior's file does not say how the level of the map follows from its latent numbers: algorithm.shear does nothing, "
        "and the intercept's standard deviation may be too small; make the prior anew"
    ]


@guard.figure("notes on the limits of the numbers", [])
def _notes(model: SigmaModel, released: Draws, prior: ServerFile) -> list[str]:
    """Returns notes on the limits of the numbers, and on doubtful ones."""
    notes: list[str] = [Finding.of("areas-at-clients")]
    c, name = model.condition, model.common.condition.name
    if any(error > ERROR / 10 for _, error in prior.errors):
        missed = ", ".join(f"{error:.3g} at {name} {phi:.3g}" for phi, error in prior.errors)
        where, by = "what the networks of the prior miss", "train"
        if model.common.within:
            where, by = "the prior is exact inside each client; what it misses between clients", "build"
        notes.append(
            f"{where} leaves posterior means of areas off by {missed}, relative to those of independent areas (as measured by "
            f"fedkern sigma {by}, one noisy row each)"
        )
    if model.layout.free:
        made, trained = ("built", "") if model.common.within else ("trained", "'s training")
        notes.append(f"{name} is confined to [{c.lo:g}, {c.hi:g}], on which the prior was {made}: {c.inside:.4g} of its prior")
        values, width = released.values[name], END * (c.hi - c.lo)
        for end, share in ((c.lo, float((values < c.lo + width).mean())), (c.hi, float((values > c.hi - width).mean()))):
            if share > PILED:
                notes.append(
                    f"{share:.0%} of the posterior of {name} lies at {end:g}, the end of the range of the prior{trained}: what "
                    "lies beyond is not known; a prior over a wider range may say other things"
                )
    units = model.units
    limit = FAR_MEAN if model.likelihood.record.link == "identity" else FAR_LEVEL
    if not model.layout.intercept and abs(units.pooled) > limit * units.scale:
        notes.append(
            f"the model has no intercept, and the level of the responses on the link scale is {units.pooled:.4g}: the map has to "
            "make up for it, which its prior does not foresee; take model.intercept = true"
        )
    if model.kind == "deterministic":
        notes.append('the deterministic model has no more variance than its decoder: kind = "auxiliary" adds what is missing')
    if model.inference == "sfvi-avg":
        notes.append("averaging of local steps (sfvi-avg) is not exact")
    return notes + model.warnings
