"""What only the client may see of its own coefficients; and its least-squares fit, if the job says that it may be sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...algorithms.exchanges import fits as site_fits
from ...algorithms.gibbs import machine as gibbs
from ...jobs.hooks import RunHooks
from ...kernels import rng
from ...kernels.families import BINARY, FAMILIES
from ...results import chains, meta
from ...transports.codec import Codec
from ...transports.place import Place
from .model import SparseModel
from .streams import Streams

Array = NDArray[np.float64]


def summary(model: SparseModel, client: gibbs.Client, values: Array, scales: Array) -> dict[str, Any]:
    """theta_k, sigma_k (or b_k) and the intercept on the data's scale, and P(|theta_k - theta| > delta).

    Where the chains of a sem disagree about this client, `by_mode` has the numbers of each mode, and `parameters` none.
    """
    trace = client.trace
    streamed = isinstance(trace, Streams)
    out: dict[str, Any] = {} if streamed else {"rows": len(values), "rounds": trace.count}
    out["parameters"] = _parameters(model, client, values, scales, None)
    if model.config.model.kind == "sem":
        groups = chains.groups(trace.streams["theta"] if streamed else trace["theta"])
        if len(groups) > 1:
            numbers = [_parameters(model, client, values, scales, list(group.chains)) for group in groups]
            modes = [{"chains": list(g.chains), "moved": g.moved, "parameters": own} for g, own in zip(groups, numbers)]
            note = f"the chains disagree here ({chains.counted(groups)}): numbers are given for each mode"
            out |= {"parameters": chains.blank(out["parameters"]), "by_mode": modes, "notes": [note]}
    return out


def _parameters(
    model: SparseModel, client: gibbs.Client, values: Array, scales: Array, only: list[int] | None
) -> dict[str, dict[str, float]]:
    """By name, of all chains or of some."""
    delta, factors, names = model.config.output.delta, model.factors(scales), model.effects
    if isinstance(client.trace, Streams):
        streams = [client.trace.streams[name] for name in ("theta", "deviates")]
        theta, far = streams if only is None else [stream.of(only) for stream in streams]
        rows = zip(names, (theta.mean * factors).tolist(), (theta.sd * factors).tolist(), far.mean.tolist())
        return {f"theta[{n}]": {"mean": m, "sd": s, "p_deviates": p} for n, m, s, p in rows}
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
    measured = not np.isnan(values).all(axis=0).any()  # the centre of a column that was never measured here is unknown
    if not model.is_graph and model.config.model.intercept and not model.config.model.splines and measured:
        out |= _described("intercept", ("",), _intercept(model, client, values, scales)[..., None])
    return out


def _intercept(model: SparseModel, client: gibbs.Client, values: Array, scales: Array) -> Array:
    """(c, t) draws of alpha_k on the data's scale: N(ybar - xbar' theta_k, sigma^2 / n), or the sampler's (section 7)."""
    theta = client.trace["theta"]
    w = theta.shape[-1]
    means = np.nanmean(values, axis=0)
    slopes = theta * model.factors(scales)
    if FAMILIES[model.config.model.family].domain is BINARY:
        return np.asarray(client.trace["alpha"][..., 0] - slopes @ means[:w])
    centre = means[w] - slopes @ means[:w]
    if "alpha" in client.trace.names():
        return np.asarray(centre + client.trace["alpha"][..., 0] * scales[w])
    z = rng.normal(centre.size, key=rng.key(model.config.job.seed, "posterior"), client=client.index).reshape(centre.shape)
    return np.asarray(centre + z * np.sqrt(client.trace["sigma_sq"][..., 0] / len(values)) * scales[w])


def _described(name: str, labels: tuple[str, ...], draws: Array) -> dict[str, dict[str, float]]:
    """Name -> mean, sd and 5/50/95 % of draws (c, t, P)."""
    flat = draws.reshape(-1, draws.shape[-1])
    found = [flat.mean(axis=0), flat.std(axis=0), *np.quantile(flat, (0.05, 0.5, 0.95), axis=0)]
    keys = ("mean", "sd", "q05", "q50", "q95")
    return {
        f"{name}[{label}]" if label else name: dict(zip(keys, row)) for label, row in zip(labels, np.transpose(found).tolist())
    }


def exchanged(place: Place, model: SparseModel, values: Mapping[int, Array], hooks: RunHooks) -> dict[str, Any] | None:
    """The clients' own fits with a random-effects meta-analysis of them, at the server."""
    w = model.coefficients.size
    fits = {k: meta.least_squares(v[:, :w], v[:, w]) for k, v in values.items()}
    clients = {k: site_fits.Client(*fit) for k, fit in fits.items()}
    start = site_fits.start(len(model.names)) if place.is_server else None
    server, _ = hooks.run(place, site_fits.PROTOCOL, start, clients, Codec({"w": w}, len(model.names)))
    if server is None:
        return None
    told = [server.replies[k] for k in range(len(model.names))]
    b, se = (np.array([getattr(t, name) for t in told]) for name in ("estimate", "error"))
    both = meta.combine(np.where(se > 0, b, np.nan), np.where(se > 0, se, np.nan))
    low, high = both.interval()
    rows = {
        name: {
            "mean": both.mean[j],
            "se": both.se[j],
            "q05": low[j],
            "q95": high[j],
            "i_sq": both.i_sq[j],
            "sites": int(both.sites[j]),
        }
        for j, name in enumerate(model.effects)
    }
    own = {
        name: {e: {"estimate": b[k, j], "se": se[k, j]} for j, e in enumerate(model.effects) if se[k, j] > 0}
        for k, name in enumerate(model.names)
    }
    return {"pooled": rows, "sites": own}
