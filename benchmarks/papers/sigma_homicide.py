"""Homicides in US counties, 49 states: a trained prior, federated, against NUTS on the pooled data.

The model of a real map (docs/methods/sigma.md, section 9), 3,085 counties:

y ~ Poisson, eta = log expected + b + x' beta + sigma_theta theta, five covariates. Federated structured variational inference
with the auxiliary model, against a long NUTS run of the true model on the pooled data.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from fedkern.data.columns import Columns
from fedkern.data.graph import Map

from . import county_homicide
from .common import Array, Column, Json, references, table, verdicts
from .sigma import Areas, Trained, fit, trained, write_map

N_GLOBAL, N_LOCAL, GAMMA, STEPS, ROUNDS = 40, 20, 0.8, 500, 16_000
HIGHEST = 0.99  # phi


@cache
def counties() -> tuple[Map, Columns]:
    """The map, and the rows in its order."""
    areas, rows = county_homicide.read_map()
    return areas, county_homicide.read().rows(rows)


def networks(folder: Path, steps: int) -> Trained:
    """The trained prior, proper CAR with logit phi ~ N(0, variance 2): 40 global latents, and 20 of each state."""
    tables: dict[str, Json] = {
        "prior": {"kind": "car", "phi": [0.0, HIGHEST]},
        "data": write_map(folder / "map", counties()[0]),
        "network": {"global_latents": N_GLOBAL, "local_latents": N_LOCAL, "gamma": GAMMA},
        "training": {"steps": steps, "batch": 128},
        "auxiliary": {"draws": 2_000},
    }
    return trained(folder, tables)


def posterior(prior: Trained, rounds: int) -> Areas:
    """The federated fit of the auxiliary model."""
    areas, data = counties()
    assert data.offset is not None
    columns: dict[str, Column] = {"county": areas.graph.names, "y": data.y, "offset": data.offset, **covariates()}
    tables: dict[str, Json] = {
        "job": {"rounds": rounds},
        "data": {"area": "county", "offset": "offset", "standardise": "none"},
        "model": {"family": "poisson"},
        "algorithm": {"learning_rate": 0.005},
    }
    return fit(prior, columns, areas.client, tables)


def covariates() -> dict[str, Array]:
    """Name -> values."""
    data = counties()[1]
    return dict(zip((name for part in data.names for name in part), data.pooled().T))


def run(out: Path, fast: bool = False) -> Path:
    """Trains the prior, unless `out` holds it, fits the counties, and writes the table and the figure.

    Parameters
    ----------
    out : folder for the map, trained-*, table.md, rates.png
    fast : 20 steps of training, 300 rounds

    Returns
    -------
    the table's path
    """
    out.mkdir(parents=True, exist_ok=True)
    counties()  # a missing folder is said before anything is started
    steps = 20 if fast else STEPS
    prior = networks(out, steps)
    areas = posterior(prior, 300 if fast else ROUNDS)
    (out / "table.md").write_text(_text(areas, prior), encoding="utf-8")
    _figure(areas, out / "rates.png")
    return out / "table.md"


def globals_of(areas: Areas) -> dict[str, tuple[float, float]]:
    """Mean and sd of what the server publishes."""
    shown = {"phi": "phi", "intercept": "intercept"} | {name: f"theta[{name}]" for name in covariates()}
    rows = {name: areas.summary["parameters"][key] for name, key in (shown | {"sigma_theta": "sigma_theta"}).items()}
    return {name: (row["mean"], row["sd"]) for name, row in rows.items()}


def against(areas: Areas, nuts: Json) -> dict[str, float]:
    """Log rates of all counties: distance of the means in NUTS's sds, ratio of the sds, and of P(rate > 1)."""
    mean, sd = (np.array(nuts["log_rate"][what]) for what in ("mean", "sd"))
    ours, spread = areas.log_rate
    off = np.abs(ours - mean) / sd
    return {
        "mean": float(off.mean()),
        "largest": float(off.max()),
        "correlation": float(np.corrcoef(ours, mean)[0, 1]),
        "sd": float((spread / sd).mean()),
        "above": float(np.abs(areas.above - np.array(nuts["above"])).mean()),
    }


def _text(areas: Areas, prior: Trained) -> str:
    regions, data = counties()
    nuts = references("sigma")["counties"]
    lines = [f"# Homicides in {data.n_rows:,} counties, {len(regions.clients)} states as clients", ""]
    lines += [verdicts({"trained prior": areas.summary["verdict"]})]
    names = [*covariates()]
    exact = {"phi": nuts["phi"], "intercept": nuts["intercept"], "sigma_theta": nuts["sigma"]}
    exact |= {name: {what: nuts["beta"][what][k] for what in ("mean", "sd")} for k, name in enumerate(names)}
    rows = [[name, mean, sd, exact[name]["mean"], exact[name]["sd"]] for name, (mean, sd) in globals_of(areas).items()]
    lines += [table(["unknown", "trained prior: mean", "sd", "NUTS, pooled: mean", "sd"], rows)]
    off = against(areas, nuts)
    lines += ["Log rates of the counties against NUTS on the pooled data: means differ by"]
    lines[-1] += f" {off['mean']:.3f} sd on average and {off['largest']:.2f} at most (correlation {off['correlation']:.4f});"
    lines += [f"sds are {off['sd']:.3f} times NUTS's; P(rate > 1) differs by {off['above']:.4f} on average."]
    lines += ["Mean and sd of a log rate are from those of the rate in the client's own table, as if it were log-normal.", ""]
    if np.mean(areas.draws["phi"] > 0.98 * HIGHEST) > 0.2:
        lines += [
            f"phi is at the end of its range, {HIGHEST:g}: the map would take a smoother prior than a CAR prior can be.",
            "",
        ]
    checks = nuts["checks"]
    lines += [f"NUTS: {checks['draws']:,} draws, largest R-hat {checks['r_hat']:.3f}, smallest ESS {checks['ess']:.0f},"]
    lines[-1] += f" {checks['seconds']:,} s."
    lines += [
        f"Training of {prior.state.step:,} steps, with its report: {prior.seconds:.0f} s; fit {areas.seconds:.0f} s.",
        "",
    ]
    return "\n".join(lines)


def _figure(areas: Areas, path: Path) -> None:
    from matplotlib.figure import Figure

    nuts = references("sigma")["counties"]
    figure = Figure(figsize=(9, 4), layout="constrained")
    for ax, what, values in zip(figure.subplots(1, 2), ("mean", "sd"), areas.log_rate):
        exact = np.array(nuts["log_rate"][what])
        ax.plot(exact, values, ".", ms=2)
        ends = [min(exact.min(), values.min()), max(exact.max(), values.max())]
        ax.plot(ends, ends, color="grey", lw=0.7)
        ax.set_xlabel(f"log rate, posterior {what}: NUTS, pooled")
        ax.set_ylabel("trained prior, federated")
    figure.savefig(path, dpi=150)
