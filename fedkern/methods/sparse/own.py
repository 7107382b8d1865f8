"""Writes the file that only the client may see: its coefficients, its noise and its intercept.

Source: docs/spec/sparse.md, sections 7 and 12.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaln

from ...algorithms.exchanges.sums import LAPLACE, NO_ROWS, LooSums
from ...algorithms.exchanges.sums import laplace_ratio as ratio
from ...algorithms.gibbs import machine as gibbs
from ...arrays import Array
from ...jobs.run import Run
from ...kernels import rng
from ...kernels.families import FAMILIES
from ...models.likelihood import cut_value
from ...printing import listed
from ...results import chains, guard, loo, selection
from ...results.plain import Record
from .keys import Config
from .model import Columns, Scales, SparseModel
from .streams import Streams


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


def write(run: Run[Config], model: SparseModel, record: Own, verdict: Record) -> None:
    """Writes posterior.json to the client's folder, headed by the server's verdict, if a draw was kept."""
    if record.client.trace.count:
        run.hooks.write_own(record.client.index, "posterior.json", {**verdict, **summary(model, record)})


def summary(model: SparseModel, record: Own) -> Record:
    """Returns theta_k, sigma_k (or b_k) and the intercept on the data's scale, and P(|theta_k - theta| > delta).

    Where the chains of a sem disagree about this client, `by_mode` has the numbers of each mode, and `parameters` none.
    """
    trace = record.client.trace
    streamed = isinstance(trace, Streams)
    out: dict[str, Any] = {} if streamed else {"rows": len(record.columns.values), "rounds": trace.count}
    out["parameters"] = _parameters(model, record, None)
    if model.kind == "sem":
        theta = trace.streams["theta"] if streamed else trace["theta"]
        groups = chains.groups(theta)
        if len(groups) > 1:
            numbers = [_parameters(model, record, list(group.chains)) for group in groups]
            modes = [{"chains": list(g.chains), "moved": g.moved, "parameters": rows} for g, rows in zip(groups, numbers)]
            note = f"the chains disagree here ({chains.describe_groups(groups)}): numbers are given for each mode"
            out |= {"parameters": chains.blank(out["parameters"]), "by_mode": modes, "notes": [note]}
    if silent := _silent(model, record):
        which = listed(silent, 6)
        note = (
            f"this client's rows tell nothing of {which}: what stands here is its prior, given what other clients' rows tell; "
            "it has neither a mean nor an sd, and neither has the intercept"
        )
        out["notes"] = [*out.get("notes", []), note]
    return out


@guard.figure("columns that tell nothing", [])
def _silent(model: SparseModel, record: Own) -> list[str]:
    """Returns the coefficients of which the client's rows tell nothing."""
    known = model.told_by(model.counted(record.columns))
    return [name for name, tells in zip(model.effects, known) if not tells]


def _without_moments(rows: dict[str, dict[str, float]], names: list[str]) -> dict[str, dict[str, float]]:
    """Removes mean and sd of coefficients that have their prior alone, whose tails have no mean, and of the intercept."""
    gone = {*(f"theta[{name}]" for name in names), "intercept"} if names else set()
    numbers = ("mean", "sd")
    return {
        name: {key: value for key, value in row.items() if name not in gone or key not in numbers} for name, row in rows.items()
    }


def _parameters(model: SparseModel, record: Own, only: list[int] | None) -> dict[str, dict[str, float]]:
    """Returns the rows by name, of all chains or of some."""
    return _without_moments(_described_all(model, record, only), _silent(model, record))


def _described_all(model: SparseModel, record: Own, only: list[int] | None) -> dict[str, dict[str, float]]:
    """Returns the same, with means and sds of everything."""
    client, scales = record.client, record.scales
    delta, factors, names = model.output.delta, model.factors(scales), model.effects
    if isinstance(client.trace, Streams):
        streams = client.trace.streams if only is None else {k: s.of(only) for k, s in client.trace.streams.items()}
        theta, far = streams["theta"], streams["deviates"]
        rows = zip(names, (theta.mean * factors).tolist(), (theta.sd * factors).tolist(), far.mean.tolist())
        out = {f"theta[{n}]": {"mean": m, "sd": s, "p_deviates": p} for n, m, s, p in rows}
        if "location" in streams:
            centre, width = record.columns.means + streams["location"].mean * scales, streams["location"].sd * scales
            out |= {f"location[{n}]": {"mean": m, "sd": s} for n, m, s in zip(model.nodes, centre.tolist(), width.tolist())}
        return out
    kept = slice(None) if only is None else only
    draws = {name: client.trace[name][kept] for name in client.trace.names()}
    out = _described("theta", names, draws["theta"] * factors)
    deviates = (np.abs(draws["deviation"]) > delta).mean(axis=(0, 1))
    for row, p in zip(out.values(), deviates.tolist()):
        row["p_deviates"] = p
    if model.is_graph:
        unit = scales
    elif model.scales_response:
        unit = scales[-1:]
    else:
        unit = np.ones(1)
    if "sigma_sq" in draws:
        out |= _described("sigma", model.nodes or ("",), np.sqrt(draws["sigma_sq"]) * unit)
    if "b" in draws:
        out |= _described("b", model.nodes, draws["b"] * unit)
    if model.locates:
        out |= _located(model, record, draws)
    measured = not np.isnan(record.columns.means).any()  # the centre of a column that was never measured here is unknown
    if not model.is_graph and model.intercept and not model.splined and measured:
        out |= _described("intercept", ("",), _intercept(model, record)[..., None])
    return out


def _located(model: SparseModel, record: Own, draws: Mapping[str, Array]) -> dict[str, dict[str, float]]:
    """Returns the locations of the nodes' columns (sem), or the intercepts of their regressions (mrf; section 8)."""
    client, means, scales = record.client, record.columns.means, record.scales
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
    return _described("intercept", model.nodes, (intercepts + z * np.sqrt(variance / len(record.columns.values))) * scales)


def _intercept(model: SparseModel, record: Own) -> Array:
    """Returns (c, t) draws of alpha_k on the data's scale: N(ybar - xbar' theta_k, sigma^2 / n), or the sampler's (section 7)."""
    client, means, scales = record.client, record.columns.means, record.scales
    theta = client.trace["theta"]
    w = theta.shape[-1]
    slopes = model.slopes(theta, record.agreed)
    if FAMILIES[model.family].binary:
        return np.asarray(client.trace["alpha"][..., 0] - slopes @ means[:w])
    centre = means[w] - slopes @ means[:w]
    if "alpha" in client.trace.names():
        return np.asarray(centre + client.trace["alpha"][..., 0] * scales[w])
    z = rng.normal(centre.size, key=rng.key(model.seed, "posterior"), client=client.index).reshape(centre.shape)
    return np.asarray(centre + z * np.sqrt(client.trace["sigma_sq"][..., 0] / len(record.columns.values)) * scales[w])


@guard.figure("the shape of errors", lambda model, record: np.full(len(model.nodes), LAPLACE))
def error_ratio(model: SparseModel, record: Own) -> Array:
    """Returns (p,) mean size over root mean square of each structural equation's residuals, at each chain's mean draw.

    It is computed for each chain, for chains may be in different modes, and averaged over the chains.
    """
    trace, values = record.client.trace, record.columns.values / record.scales
    about = values - values.mean(axis=0) if model.intercept else values
    if isinstance(trace, Streams):
        means = {name: stream.centre for name, stream in trace.streams.items()}
    else:
        means = {name: trace[name].mean(axis=1) for name in ("theta", "location") if name in trace.names()}
    B = np.eye(len(model.nodes)) - selection.matrix(means["theta"], len(model.nodes))
    centre = means.get("location", np.zeros((len(B), len(model.nodes))))
    return np.asarray(np.mean([ratio(b @ (about - location).T) for b, location in zip(B, centre)], axis=0))


def left_out(model: SparseModel, record: Own) -> LooSums:
    """Returns leave-one-out sums of the client's rows (regression), at its kept draws; of no rows without a draw."""
    trace, values = record.client.trace, record.columns.values
    if isinstance(trace, Streams) or not trace.count:
        return NO_ROWS
    w = trace["theta"].shape[-1]
    slopes = model.slopes(trace["theta"], record.agreed).reshape(-1, w)
    alpha = _intercept(model, record).reshape(-1, 1) if model.intercept else np.zeros((1, 1))
    family = FAMILIES[model.family]
    sd = 1.0 if family.binary else np.sqrt(trace["sigma_sq"][..., :1].reshape(-1, 1)) * record.scales[w]

    def density(rows: slice) -> Array:
        mean = slopes @ values[rows, :w].T + alpha
        if model.is_student:
            densities = student_density(values[rows, w], mean, sd, model.degrees)
        else:
            densities = np.asarray(family.value(values[rows, w], mean, sd, None), np.float64)
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
    named = [f"{name}[{label}]" if label else name for label in labels]
    return {name: dict(zip(keys, row)) for name, row in zip(named, np.transpose(rows).tolist())}
