"""Homicides in US counties, 49 states: a map of all clients, federated, against NUTS on the pooled data.

The model of a real map (docs/spec/sigma.md, section 9), 3,085 counties:

y ~ Poisson, eta = log expected + b + x' beta + sigma_theta theta, five covariates, theta proper CAR. The prior is built, exact
inside each state; the posterior by nested Laplace approximation of all parties, against a long NUTS run of the true model on the
pooled data.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from fedkern.data.columns import Columns
from fedkern.data.graph import Map

from . import county_homicide, sigma
from .common import Array, Column, Json, references, table, verdicts
from .sigma import Areas, Built, fit, write_map

HIGHEST = 0.99  # phi


@cache
def counties() -> tuple[Map, Columns]:
    """The map, and the rows in its order."""
    areas, rows = county_homicide.read_map()
    return areas, county_homicide.read().rows(rows)


def built(folder: Path, latents: int | str = "auto") -> Built:
    """The prior: proper CAR with logit phi ~ N(0, variance 2), as many numbers tying the states as an error of 5 % takes."""
    tables: dict[str, Json] = {
        "prior": {"kind": "car", "phi": [0.0, HIGHEST]},
        "data": write_map(folder / "map", counties()[0]),
        "within": {"latents": latents},
    }
    return sigma.built(folder, tables)


def posterior(prior: Built, seed: int = 1) -> Areas:
    """The federated fit."""
    areas, data = counties()
    assert data.offset is not None
    columns: dict[str, Column] = {"county": areas.graph.names, "y": data.y, "offset": data.offset, **covariates()}
    tables: dict[str, Json] = {
        "job": {},
        "data": {"area": "county", "offset": "offset", "standardise": "none"},
        "model": {"family": "poisson"},
        "algorithm": {"inference": "nested"},
    }
    return fit(prior, columns, areas.client, tables, seed)


def covariates() -> dict[str, Array]:
    """Name -> values."""
    data = counties()[1]
    return dict(zip((name for part in data.names for name in part), data.pooled().T))


def run(out: Path, fast: bool = False, seed: int = 1) -> Path:
    """Builds the prior, fits the counties, and writes the table and the figure.

    Parameters
    ----------
    out : folder for the map, the prior, table.md, rates.png
    fast : 40 numbers tie the states, of the 343 that an error of 5 % takes
    seed : of the jobs; of several, the first

    Returns
    -------
    the table's path
    """
    out.mkdir(parents=True, exist_ok=True)
    counties()  # a missing folder is said before anything is started
    prior = built(out, 40 if fast else "auto")
    areas = posterior(prior, seed)
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


def _text(areas: Areas, prior: Built) -> str:
    regions, data = counties()
    nuts = references("sigma")["counties"]
    lines = [f"# Homicides in {data.n_rows:,} counties, {len(regions.clients)} states as clients", ""]
    lines += [verdicts({"federated": areas.summary["verdict"]})]
    names = [*covariates()]
    exact = {"phi": nuts["phi"], "intercept": nuts["intercept"], "sigma_theta": nuts["sigma"]}
    exact |= {name: {what: nuts["beta"][what][k] for what in ("mean", "sd")} for k, name in enumerate(names)}
    rows = [[name, mean, sd, exact[name]["mean"], exact[name]["sd"]] for name, (mean, sd) in globals_of(areas).items()]
    lines += [table(["unknown", "federated: mean", "sd", "NUTS, pooled: mean", "sd"], rows)]
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
        f"{prior.latents} numbers tie the states, each of which sent {_sent(areas) / 1e6:.0f} MB. "
        f"Prior built in {prior.seconds:.0f} s; fit in {areas.summary['rounds']} rounds, {areas.seconds:.0f} s, "
        "states in turn.",
        "",
    ]
    return "\n".join(lines)


def _sent(areas: Areas) -> float:
    """Bytes that a client sent, on average."""
    return float(np.mean([one["to_server"]["bytes"] for one in areas.summary["wire"].values()]))


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
        ax.set_ylabel("federated, 49 states")
    figure.savefig(path, dpi=150)
