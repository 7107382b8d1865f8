"""Writes the file that only the client may see: its coefficients, its noise and its intercept.

Source: docs/spec/sparse.md, sections 7 and 12.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from ...algorithms.exchanges.sums import LAPLACE, NO_ROWS, LooSums
from ...algorithms.exchanges.sums import laplace_ratio as ratio
from ...algorithms.gibbs import machine as gibbs
from ...jobs.run import Run
from ...kernels import rng
from ...kernels.families import FAMILIES
from ...models.likelihood import cut_value
from ...results import chains, guard, loo, selection
from ...results.plain import Record
from .keys import Config
from .model import Columns, Scales, SparseModel
from .streams import Streams

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Own:
    """Holds a client's machine at the end, its columns as they came, and the agreed scales."""

    client: gibbs.Client
    columns: Columns
    agreed: Scales

    @property
    def scales(self) -> Array:
        """The (w,) scales of all clients."""
        return self.agreed.each


def write(run: Run[Config], model: SparseModel, own: Own, said: Record) -> None:
    """Writes posterior.json to the client's folder, headed by the server's verdict, if a draw was kept."""
    if own.client.trace.count:
        run.hooks.write_own(own.client.index, "posterior.json", {**said, **summary(model, own)})


def summary(model: SparseModel, own: Own) -> Record:
    """Returns theta_k, sigma_k (or b_k) and the intercept on the data's scale, and P(|theta_k - theta| > delta).

    Where the chains of a sem disagree about this client, `by_mode` has the numbers of each mode, and `parameters` none.
    """
    trace = own.client.trace
    streamed = isinstance(trace, Streams)
    out: dict[str, Any] = {} if streamed else {"rows": len(own.columns.values), "rounds": trace.count}
    out["parameters"] = _parameters(model, own, None)
    if model.kind == "sem":
        groups = chains.groups(trace.streams["theta"] if streamed else trace["theta"])
        if len(groups) > 1:
            numbers = [_parameters(model, own, list(group.chains)) for group in groups]
            modes = [{"chains": list(g.chains), "moved": g.moved, "parameters": rows} for g, rows in zip(groups, numbers)]
            note = f"the chains disagree here ({chains.describe_groups(groups)}): numbers are given for each mode"
            out |= {"parameters": chains.blank(out["parameters"]), "by_mode": modes, "notes": [note]}
    if silent := _silent(model, own):
        which = ", ".join(silent[:6]) + (f" and {len(silent) - 6} more" if len(silent) > 6 else "")
        note = (
            f"this client's rows tell nothing of {which}: what stands here is its prior, given what other clients' rows tell; "
            "it has neither a mean nor an sd, and neither has the intercept"
        )
        out["notes"] = [*out.get("notes", []), note]
    return out


@guard.figure("columns that tell nothing", [])
def _silent(model: SparseModel, own: Own) -> list[str]:
    """Returns the coefficients of which the client's rows tell nothing."""
    told = model.told_by(model.counted(own.columns))
    return [name for name, there in zip(model.effects, told) if not there]


def _without_moments(rows: dict[str, dict[str, float]], names: list[str]) -> dict[str, dict[str, float]]:
    """Removes mean and sd of coefficients that have their prior alone, whose tails have no mean, and of the intercept."""
    gone = {*(f"theta[{name}]" for name in names), "intercept"} if names else set()
    numbers = ("mean", "sd")
    return {
        name: {key: value for key, value in row.items() if name not in gone or key not in numbers} for name, row in rows.items()
    }


def _parameters(model: SparseModel, own: Own, only: list[int] | None) -> dict[str, dict[str, float]]:
    """Returns the rows by name, of all chains or of some."""
    return _without_moments(_described_all(model, own, only), _silent(model, own))


def _described_all(model: SparseModel, own: Own, only: list[int] | None) -> dict[str, dict[str, float]]:
    """Returns the same, with means and sds of everything."""
    client, scales = own.client, own.scales
    delta, factors, names = model.output.delta, model.factors(scales), model.effects
    if isinstance(client.trace, Streams):
        streams = client.trace.streams if only is None else {k: s.of(only) for k, s in client.trace.streams.items()}
        theta, far = streams["theta"], streams["deviates"]
        rows = zip(names, (theta.mean * factors).tolist(), (theta.sd * factors).tolist(), far.mean.tolist())
        out = {f"theta[{n}]": {"mean": m, "sd": s, "p_deviates": p} for n, m, s, p in rows}
        if "location" in streams:
            at, width = own.columns.means + streams["location"].mean * scales, streams["location"].sd * scales
            out |= {f"location[{n}]": {"mean": m, "sd": s} for n, m, s in zip(model.nodes, at.tolist(), width.tolist())}
        return out
    draws = {name: client.trace[name] if only is None else client.trace[name][only] for name in client.trace.names()}
    out = _described("theta", names, draws["theta"] * factors)
    deviates = (np.abs(draws["deviation"]) > delta).mean(axis=(0, 1))
    for row, p in zip(out.values(), deviates.tolist()):
        row["p_deviates"] = p
    unit = scales if model.is_graph else scales[-1:] if model.scales_response else np.ones(1)
    if "sigma_sq" in draws:
        out |= _described("sigma", model.nodes or ("",), np.sqrt(draws["sigma_sq"]) * unit)
    if "b" in draws:
        out |= _described("b", model.nodes, draws["b"] * unit)
    if model.locates:
        out |= _located(model, own, draws)
    measured = not np.isnan(own.columns.means).any()  # the centre of a column that was never measured here is unknown
    if not model.is_graph and model.intercept and not model.splined and measured:
        out |= _described("intercept", ("",), _intercept(model, own)[..., None])
    return out


def _located(model: SparseModel, own: Own, draws: Mapping[str, Array]) -> dict[str, dict[str, float]]:
    """Returns the locations of the nodes' columns (sem), or the intercepts of their regressions (mrf; section 8)."""
    client, means, scales = own.client, own.columns.means, own.scales
    if "location" in draws:
        return _described("location", model.nodes, means + draws["location"] * scales)
    if np.isnan(means).any():  # the centre of a column that was never measured here is unknown
        return {}
    theta, variance = selection.matrix(draws["theta"], len(scales)), draws["sigma_sq"]
    standard = means / scales
    intercepts = standard - theta @ standard
    if "alpha" in draws:  # the sampler's, about these means
        return _described("intercept", model.nodes, (intercepts + draws["alpha"]) * scales)
    z = rng.normal(variance.size, key=rng.key(model.seed, "posterior"), client=client.index).reshape(variance.shape)
    return _described("intercept", model.nodes, (intercepts + z * np.sqrt(variance / len(own.columns.values))) * scales)


def _intercept(model: SparseModel, own: Own) -> Array:
    """Returns (c, t) draws of alpha_k on the data's scale: N(ybar - xbar' theta_k, sigma^2 / n), or the sampler's (section 7)."""
    client, means, scales = own.client, own.columns.means, own.scales
    theta = client.trace["theta"]
    w = theta.shape[-1]
    slopes = model.slopes(theta, own.agreed)
    if FAMILIES[model.family].binary:
        return np.asarray(client.trace["alpha"][..., 0] - slopes @ means[:w])
    centre = means[w] - slopes @ means[:w]
    if "alpha" in client.trace.names():
        return np.asarray(centre + client.trace["alpha"][..., 0] * scales[w])
    z = rng.normal(centre.size, key=rng.key(model.seed, "posterior"), client=client.index).reshape(centre.shape)
    return np.asarray(centre + z * np.sqrt(client.trace["sigma_sq"][..., 0] / len(own.columns.values)) * scales[w])


@guard.figure("the shape of errors", lambda model, own: np.full(len(model.nodes), LAPLACE))
def error_ratio(model: SparseModel, own: Own) -> Array:
    """Returns (p,) mean size over root mean square of each structural equation's residuals, at each chain's mean draw.

    It is computed for each chain, for chains may be in different modes, and averaged over the chains.
    """
    trace, values = own.client.trace, own.columns.values / own.scales
    about = values - values.mean(axis=0) if model.intercept else values
    means = {
        name: trace.streams[name].centre if isinstance(trace, Streams) else trace[name].mean(axis=1)
        for name in ("theta", "location")
        if name in (trace.streams if isinstance(trace, Streams) else trace.names())
    }
    B = np.eye(len(model.nodes)) - selection.matrix(means["theta"], len(model.nodes))
    centre = means.get("location", np.zeros((len(B), len(model.nodes))))
    return np.asarray(np.mean([ratio(b @ (about - at).T) for b, at in zip(B, centre)], axis=0))


def left_out(model: SparseModel, own: Own) -> LooSums:
    """Returns leave-one-out sums of the client's rows (regression), at its kept draws; of no rows without a draw."""
    trace, values = own.client.trace, own.columns.values
    if isinstance(trace, Streams) or not trace.count:
        return NO_ROWS
    w = trace["theta"].shape[-1]
    slopes = model.slopes(trace["theta"], own.agreed).reshape(-1, w)
    alpha = _intercept(model, own).reshape(-1, 1) if model.intercept else np.zeros((1, 1))
    family = FAMILIES[model.family]
    sd = 1.0 if family.binary else np.sqrt(trace["sigma_sq"][..., :1].reshape(-1, 1)) * own.scales[w]

    def density(at: slice) -> Array:
        mean = slopes @ values[at, :w].T + alpha
        if model.is_student:
            densities = student_density(values[at, w], mean, sd, model.degrees)
        else:
            densities = np.asarray(family.value(values[at, w], mean, sd, None), np.float64)
        return cut_value(densities) if model.secure else densities

    return loo.sums(len(values), density)


def student_density(y: Array, mean: Array, scale: Array | float, degrees: float) -> Array:
    """Returns the log-density of y, which is `mean` plus `scale` times Student's t."""
    z = (y - mean) / scale
    constant = gammaln((degrees + 1) / 2) - gammaln(degrees / 2) - 0.5 * np.log(degrees * np.pi)
    return np.asarray(constant - np.log(scale) - 0.5 * (degrees + 1) * np.log1p(z**2 / degrees))


def _described(name: str, labels: tuple[str, ...], draws: Array) -> dict[str, dict[str, float]]:
    """Returns name -> mean, sd and 5/50/95 % of draws (c, t, P)."""
    flat = draws.reshape(-1, draws.shape[-1])
    rows = [flat.mean(axis=0), flat.std(axis=0), *np.quantile(flat, (0.05, 0.5, 0.95), axis=0)]
    keys = ("mean", "sd", "q05", "q50", "q95")
    return {
        f"{name}[{label}]" if label else name: dict(zip(keys, row)) for label, row in zip(labels, np.transpose(rows).tolist())
    }
