"""Everything that the server of a job with a trained prior publishes: its own unknowns, and how they were found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ...algorithms.core.messages import SERVER
from ...algorithms.hmc import machine as hmc
from ...algorithms.sfvi import machine as sfvi
from ...data.artifact import ServerFile
from ...errors import JobError, NumericalError
from ...jobs import machine
from ...jobs.hooks import RunHooks
from ...kernels import rng
from ...models.variational import Block
from ...results.digest import digest
from ...results.draws import Draws
from ...results.gaussian import label
from ...results.inference_data import write
from ...results.result import Result
from ...results.summary import Outcome, summary
from .model import SigmaModel

Array = NDArray[np.float64]

FAR, WIDE = 10.0, 3.0  # of z_G, beyond which nothing was learnt
END = 0.02  # of the training range: where a posterior that lies beyond piles up
FAR_LEVEL, FAR_MEAN = 2.0, 0.9  # of the response's scale (its rms): levels that a model without an intercept does not foresee
PILED = 0.2  # probability of it that is worth a note


def global_draws(model: SigmaModel, block: Block, parameters: Array, chains: int, draws: int) -> Array:
    """(c, t, P) draws of xi from a variational posterior, the same at all parties: the counters are the server's."""
    mean, scale = parameters[: block.size], block.scale(parameters)
    keys = [rng.key(model.config.job.seed, "posterior", c) for c in range(chains)]
    e = np.stack([rng.normal(draws * block.size, key=key, client=SERVER).reshape(draws, -1) for key in keys])
    found: Array = mean + (e @ scale.T if block.full else e * scale)
    return found


def posterior(model: SigmaModel, server: Any) -> Draws:
    """The server's unknowns in the data's units; z_G, which means nothing by itself, is left out."""
    output = model.config.output
    if isinstance(server, hmc.Server):
        xi = hmc.draws(server)
    else:
        xi = global_draws(model, server.block, server.parameters, output.chains, output.draws)
    return Draws(_named(model, xi), isinstance(server, hmc.Server))


def _named(model: SigmaModel, xi: Array) -> dict[str, Array]:
    layout, parts, c, units = model.layout, model.layout.parts, model.condition, model.units
    found: dict[str, Array] = {}
    if layout.free:
        found[model.common.condition.name] = c.lo + (c.hi - c.lo) * expit(xi[..., 0])
    if layout.mixing:
        found["rho"] = expit(xi[..., parts["rho"].start])
    for key, name in (("log_scale", "sigma_theta"), ("log_sd", "sigma")):
        if parts[key].stop > parts[key].start:
            found[name] = units.scale * np.exp(xi[..., parts[key].start])
    names = model.encoding.names
    standard = np.zeros((*xi.shape[:-1], len(names)))
    if layout.intercept:
        standard[..., 0] = units.natural(xi[..., parts["intercept"].start])
    standard[..., 1:] = units.scale * xi[..., parts["beta"]]
    on_data = standard @ model.encoding.affine().T
    for j, name in enumerate(names):
        if j or layout.intercept:
            found[label(name)] = on_data[..., j]
    if model.encoding.standardised:
        found |= {label(name, "_std"): standard[..., j] for j, name in enumerate(names) if j or layout.intercept}
    return {name: np.ascontiguousarray(values) for name, values in found.items()}


def refuse_nonsense(model: SigmaModel, block: Block, parameters: Array) -> None:
    """Whether z_G, whose prior is N(0, I), is where a posterior can be; every party asks, before anything is written.

    Raises
    ------
    NumericalError
        It is far outside: the optimisation has diverged, though its numbers are finite.
    """
    where = model.layout.parts["z"]
    mean, sd = float(np.abs(parameters[: block.size][where]).max()), float(block.sd(parameters)[where].max())
    if mean > FAR or sd > WIDE:
        raise NumericalError(
            f"the fit has diverged: global latent numbers, whose prior is N(0, 1), have means up to {mean:.3g} and standard "
            f"deviations up to {sd:.3g}; lower algorithm.learning_rate ({model.sfvi.learning_rate:g}) or algorithm.start_sd"
        )


def measured(model: SigmaModel) -> Callable[[Any], Mapping[str, float]]:
    """For a line of metrics: the means of the server's own unknowns (of chains the present states), the ELBO, the acceptance."""

    def of(server: Any) -> Mapping[str, float]:
        sampled = isinstance(server, hmc.Server)
        xi = server.walk.at if sampled else server.parameters[np.newaxis, : server.block.size]
        found = {name: float(values.mean()) for name, values in _named(model, xi[np.newaxis]).items() if "_std" not in name}
        if sampled and np.isfinite(server.acceptance).all():
            found["acceptance"] = float(server.acceptance.mean())
        if not sampled and server.trace:
            found["elbo"] = server.trace[-1]
        return {name: round(value, 5) for name, value in found.items()}

    return of


def result(model: SigmaModel, server: Any, prior: ServerFile, hooks: RunHooks) -> Result:
    """The whole result of a job."""
    config, files = model.config, hooks.folder
    found = posterior(model, server)
    shape = next(iter(found.values.values())).shape if found.values else (0, 0)
    notes = [*hooks.notes, *_notes(model, found)]
    if files is not None:
        try:
            write(found, files.path / "posterior.nc", seed=config.job.seed, chains=shape[0], draws=shape[1])
        except JobError as error:
            notes.append(f"no posterior.nc: {error}")
    outcome = Outcome(
        stop=str(server.stop),
        rounds=server.round,
        clients={name: {"updates": int(server.updates[k]), "status": "finished"} for k, name in enumerate(model.names)},
        metrics={},
        privacy={},
        wire=hooks.wire.as_dict(),
        digest=digest(_arrays(server)),
        encoding=model.encoding.to_dict(),
        versions=machine.of_a_run(),
        notes=notes,
    )
    content = summary(config.job.method, found, outcome, {"sigma": _about(model, server, prior, found)})
    if files is not None:
        files.write_json("summary.json", content)
    return Result(content, found, None if files is None else files.path, config.job.seed, *shape)


def _arrays(server: Any) -> dict[str, Array]:
    """What the digest is of."""
    return {"xi": hmc.draws(server)} if isinstance(server, hmc.Server) else {"q": server.parameters}


def _about(model: SigmaModel, server: Any, prior: ServerFile, found: Draws) -> dict[str, Any]:
    m, c = model.config.model, model.condition
    told: dict[str, Any] = {
        "prior": {"id": prior.common.id, "kind": prior.common.kind, "variant": prior.common.variant},
        "kind": m.kind,
        "family": m.family,
        "inference": model.config.algorithm.inference,
        "areas": sum(prior.sizes),
        "latents": {"global": prior.common.n_global, "local": sum(prior.n_local)},
        "response": {"level": model.units.level, "scale": model.units.scale},
    }
    if model.layout.free:
        told["range"] = {"name": model.common.condition.name, "lo": c.lo, "hi": c.hi, "prior_mass": c.inside}
    if isinstance(server, hmc.Server):
        told["chains"] = {
            "acceptance": server.acceptance.tolist(),
            "step_size": server.step_size.tolist(),
            "divergences": int(server.divergences.sum()),
            "warmup": model.hmc.warmup,
            "leapfrog_steps": model.hmc.leapfrog,
        }
        slowest = found.slowest()
        told["chains"] |= {} if slowest is None else {"rhat": slowest[0], "ess": slowest[1]}
    elif isinstance(server, sfvi.Server) and server.trace:
        told["elbo"] = server.trace[-1]
    return told


def _notes(model: SigmaModel, found: Draws) -> list[str]:
    """What the numbers are not, and what should make one think."""
    notes = ["the areas' posteriors are in each client's own folder: they have no message"]
    c, name = model.condition, model.common.condition.name
    if model.layout.free:
        notes.append(f"{name} is confined to [{c.lo:g}, {c.hi:g}], on which the prior was trained: {c.inside:.4g} of its prior")
        values, width = found.values[name], END * (c.hi - c.lo)
        for end, share in ((c.lo, float((values < c.lo + width).mean())), (c.hi, float((values > c.hi - width).mean()))):
            if share > PILED:
                notes.append(
                    f"{share:.0%} of the posterior of {name} lies at {end:g}, the end of the range of the prior's "
                    "training: what lies beyond is not known; a prior over a wider range may say other things"
                )
    units, limit = model.units, FAR_MEAN if model.likelihood.record.link == "identity" else FAR_LEVEL
    if not model.layout.intercept and abs(units.pooled) > limit * units.scale:
        notes.append(
            f"the model has no intercept, and the level of the responses on the link scale is {units.pooled:.4g}: the map has to "
            "make up for it, which its prior does not foresee; take model.intercept = true"
        )
    if model.config.model.kind == "deterministic":
        notes.append('the deterministic model has no more variance than its decoder: kind = "auxiliary" adds what is missing')
    if model.config.algorithm.inference == "sfvi-avg":
        notes.append("averaging of local steps (sfvi-avg) is not exact")
    return notes
