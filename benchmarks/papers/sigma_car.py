"""A trained prior of the Australian map, eight states: posterior means against the exact ones of the CAR model.

2,192 areas (docs/spec/sigma.md, sections 5 and 8). A network of 40 + 8 x 20 latents is trained once. Then maps with a known
truth, theta of the CAR prior at phi = 0.95 and one noisy row an area: the deterministic and the auxiliary model by federated
structured variational inference, mean-field inference on the true model, and independent areas, all against the exact posterior
by quadrature over phi. With a fifth of the areas held out.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedkern.algorithms.sfvi.machine import Settings as Variational
from fedkern.algorithms.training.fit import Tau, compare, match_variances
from fedkern.data.graph import Map
from fedkern.kernels import rng
from fedkern.models.likelihood import Likelihood
from fedkern.models.spatial.condition import Condition, Hyperprior
from fedkern.models.spatial.prior import AreaPrior
from fedkern.models.spatial.site import Layout, Rows

from . import au_sa2
from .car import Areas as Lattice
from .car import CarModel, exact_areas
from .common import UNKNOWN, Array, Index, Json, Tables, Value, append, stored, table, verdicts
from .sigma import Areas, Trained, fit, mean_field, trained, write_map

PHI, ERROR_SD, HELD_OUT, SEEDS = 0.95, 0.5, 0.2, 5
OTHERS = (0.6, 0.9, 0.98)  # other maps, one each
N_GLOBAL, N_LOCAL, GAMMA, STEPS = 40, 20, 0.8, 2_000
ROUNDS, RATE = 4_000, 0.02
MODELS = {
    "independent": "independent areas",
    "deterministic": "deterministic",
    "auxiliary": "auxiliary",
    "mean-field": "CAR, mean-field",
}


@cache
def areas() -> Map:
    """The map, islands linked to the nearest area."""
    return au_sa2.read()


@cache
def prior() -> AreaPrior:
    """Proper CAR, logit phi ~ N(0, variance 2), phi up to 0.99."""
    condition = Condition("phi", 0.0, 0.99, "log-rest", Hyperprior("logit-normal", 0.0, 2.0))
    return AreaPrior(areas().graph.indptr, areas().graph.indices, condition)


@cache
def networks(folder: Path, steps: int = STEPS) -> Trained:
    """The trained prior."""
    tables: Tables = {
        "prior": {"kind": "car", "phi": [0.0, 0.99]},
        "data": write_map(folder / "map", areas()),
        "network": {"global_latents": N_GLOBAL, "local_latents": N_LOCAL, "gamma": GAMMA},
        "training": {"steps": steps, "batch": 128},
        "auxiliary": {"draws": 4_000},
    }
    return trained(folder, tables)


@cache
def matched(folder: Path, steps: int) -> Tau:
    """tau^2 for the prior of phi."""
    return match_variances(prior(), networks(folder, steps).federation, draws=4_000)


def example(phi: float, seed: int) -> tuple[Array, Array, NDArray[np.bool_]]:
    """A map's theta (n,), its rows y (n,), and which areas are seen when a fifth is held out (n,)."""
    n, (values, vectors) = prior().n, prior().eigen
    e = rng.normal(2 * n, key=rng.key(seed, "simulate"))
    theta = (vectors @ (e[:n] / np.sqrt(1 - phi * values))) / np.sqrt(areas().graph.degrees)
    seen = rng.uniform(n, key=rng.key(seed, "partition")) >= HELD_OUT
    return theta, theta + ERROR_SD * e[n:], seen


def measured(folder: Path, steps: int, phi: float, seed: int, out: Path | None = None) -> Json:
    """One map: rms of the posterior means to the exact ones, mean posterior sds, and what is predicted where nothing was seen."""
    theta, y, seen = example(phi, seed)
    everywhere, where = np.arange(len(y)), np.flatnonzero(seen)
    truth = exact_areas(_graph(), prior().condition, y, everywhere, ERROR_SD, n_nodes=61)
    variance = prior().mean_variance()
    trained_prior = networks(folder, steps)
    fits = {kind: posterior(trained_prior, kind, y) for kind in ("deterministic", "auxiliary")}
    independent = Variational(
        rounds=ROUNDS, most=0, covariance="full", local_covariance="auto", coupled=False, draws=1, path=True, optimiser="adam",
        learning_rate=RATE, decay=0.5, initial_sd=0.1, bound=False, sheared=False, local_steps=0, seed=1, lead=0,
    )  # fmt: skip
    other = mean_field(_true_model(y, everywhere), independent)
    shrunk = variance / (variance + ERROR_SD**2)
    means = {"independent": shrunk * y} | {kind: one.mean for kind, one in fits.items()} | {"mean-field": other.mean}
    sds = {"independent": np.sqrt(shrunk) * ERROR_SD} | {kind: one.sd for kind, one in fits.items()} | {"mean-field": other.sd}
    without = posterior(trained_prior, "auxiliary", np.where(seen, y, np.nan))
    gone = np.flatnonzero(~seen)
    expected = exact_areas(_graph(), prior().condition, y[where], where, ERROR_SD, n_nodes=61, variances=False).mean[gone]
    low, high = without.low[gone], without.high[gone]
    if out is not None:
        _figures(truth.mean, np.sqrt(truth.variance), means, sds, out)
    line: Json = {
        "key": f"{phi:g}, {seed}",
        "phi": phi,
        "exact": _rms(truth.mean),
        "exact sd": float(np.sqrt(truth.variance).mean()),
    }
    for kind in MODELS:
        line[kind] = {"rms": _rms(means[kind] - truth.mean), "sd": float(sds[kind].mean())}
    line["phi posterior"] = {"exact": float(truth.weight @ truth.phi), "mean-field": float(other.phi.mean())}
    line["phi posterior"] |= {kind: float(one.summary["parameters"]["phi"]["mean"]) for kind, one in fits.items()}
    line["verdicts"] = {kind: str(one.summary["verdict"]) for kind, one in fits.items()}
    line["held out"] = {
        "rms": _rms(without.mean[gone] - expected) / _rms(expected),
        "coverage": float(np.mean((low <= theta[gone]) & (theta[gone] <= high))),
    }
    line["seconds"] = fits["auxiliary"].seconds
    return line


def posterior(prior: Trained, kind: str, y: Array) -> Areas:
    """The federated fit of a map's rows; areas whose y is missing are predicted."""
    tables: Tables = {
        "job": {"rounds": ROUNDS},
        "data": {"area": "area"},
        "model": {"kind": kind, "family": "gaussian", "scale": ERROR_SD, "spatial_scale": 1.0, "intercept": False},
        "algorithm": {"learning_rate": RATE},
    }
    return fit(prior, {"area": areas().graph.names, "y": y}, areas().client, tables)


def _true_model(y: Array, area: Index) -> CarModel:
    layout = Layout(True, 0, intercept=False, scaled=False)
    rows = Rows(y, area, np.zeros((len(y), 0)), np.zeros(len(y)))
    return CarModel(_graph(), prior().condition, layout, Likelihood("gaussian", ERROR_SD), rows)


@cache
def _graph() -> Lattice:
    return Lattice(areas().graph.indptr, areas().graph.indices)


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(values**2)))


def run(out: Path, fast: bool = False, seed: int = 1) -> Path:
    """Trains and fits what `out` does not hold yet (an interrupted reproduction goes on), and writes the tables and the figures.

    Parameters
    ----------
    out : folder for the map, trained-*, results.jsonl, table.md, means.png, spread.png
    fast : one map, 100 steps of training
    seed : of the jobs; of several, the first

    Returns
    -------
    the table's path
    """
    out.mkdir(parents=True, exist_ok=True)
    areas()  # a missing folder is said before anything is started
    path, steps = out / ("results-fast.jsonl" if fast else "results.jsonl"), 100 if fast else STEPS
    maps = range(seed, seed + SEEDS)
    wanted = [(PHI, seed)] if fast else [*((PHI, of_map) for of_map in maps), *((phi, seed) for phi in OTHERS)]
    for k, (phi, of_map) in enumerate(wanted):
        if f"{phi:g}, {of_map}" not in stored(path):
            append(path, measured(out, steps, phi, of_map, out if k == 0 else None))
            print(f"phi = {phi:g}, map {of_map}", flush=True)
    (out / "table.md").write_text(_text(list(stored(path).values()), networks(out, steps), matched(out, steps)), encoding="utf-8")
    return out / "table.md"


def _text(results: list[Json], trained_prior: Trained, tau: Tau) -> str:
    maps = [one for one in results if one["phi"] == PHI]
    lines = ["# Australian map: 2,192 areas, 8 clients, 40 + 8 x 20 latents", ""]
    kinds = [(one, kind) for one in results for kind in ("deterministic", "auxiliary")]
    lines += [verdicts({f"map {one['key']}, {kind}": one.get("verdicts", {}).get(kind, UNKNOWN) for one, kind in kinds})]
    lines += [
        f"Maps of theta from the CAR prior at phi = {PHI:g}, y = theta + N(0, sd {ERROR_SD:g}); median of {len(maps)} maps. rms:"
    ]
    lines += ["distance of the posterior means from the exact ones, which have rms"]
    lines[-1] += (
        f" {np.median([m['exact'] for m in maps]):.3f} about 0; their mean sd is {np.median([m['exact sd'] for m in maps]):.3f}."
    )
    lines += [""]
    rows: list[list[Value]] = [
        [name, *(float(np.median([m[kind][what] for m in maps])) for what in ("rms", "sd")),
         float(np.median([m[kind]["rms"] / m["independent"]["rms"] for m in maps]))]
        for kind, name in MODELS.items()
    ]  # fmt: skip
    lines += [table(["model", "rms", "mean sd", "rms / independent"], rows)]
    ratio = [
        ("auxiliary / independent", [m["auxiliary"]["rms"] / m["independent"]["rms"] for m in maps], "<= 0.6"),
        ("deterministic / auxiliary", [m["deterministic"]["rms"] / m["auxiliary"]["rms"] for m in maps], ">= 2.5"),
        ("held out: rms / rms of predicting 0", [m["held out"]["rms"] for m in maps], "<= 0.5"),
        ("held out: coverage of 90 %", [m["held out"]["coverage"] for m in maps], "0.85 to 0.95"),
    ]
    head = ["figure", "median", "smallest", "largest", "wanted"]
    lines += [table(head, [[name, float(np.median(v)), min(v), max(v), w] for name, v, w in ratio])]
    others = sorted((one for one in results if one["phi"] != PHI), key=lambda one: one["phi"])
    if others:
        rows = [
            [f"{m['phi']:g}", m["auxiliary"]["rms"] / m["independent"]["rms"], m["deterministic"]["rms"] / m["auxiliary"]["rms"],
             m["held out"]["rms"], m["held out"]["coverage"], m["phi posterior"]["exact"], m["phi posterior"]["auxiliary"]]
            for m in others
        ]  # fmt: skip
        lines += [
            "Maps of other phi, one each: the less structure of few dimensions a map has, the less 200 latents can hold.",
            "",
        ]
        heads = [
            "phi",
            "auxiliary / independent",
            "deterministic / auxiliary",
            "held out",
            "coverage",
            "E phi, exact",
            "auxiliary",
        ]
        lines += [table(heads, rows)]
    errors = [(phi, compare(prior(), trained_prior.federation, phi, draws=4_000)) for phi in (0.5, 0.9, 0.98)]
    rounds = np.median([m["seconds"] for m in maps])
    shares = ", ".join(f"{one.variance_ratio:.2f} at {phi:g}" for phi, one in errors)
    lines += [f"Training of {trained_prior.state.step:,} steps of 128 draws, with its report, {trained_prior.seconds:.0f} s;"]
    lines[-1] += f" a job of {ROUNDS:,} rounds {rounds:.0f} s."
    lines += [f"tau^2 unclipped: {100 * tau.unclipped:.1f} %. Share of the prior variance in the latents by phi: {shares}.", ""]
    return "\n".join(lines)


def _figures(exact: Array, exact_sd: Array, means: dict[str, Array], sds: dict[str, Array], out: Path) -> None:
    from matplotlib.figure import Figure

    kinds = ("mean-field", "deterministic", "auxiliary")
    for name, truth, values, label in (("means", exact, means, "posterior mean"), ("spread", exact_sd, sds, "posterior sd")):
        figure = Figure(figsize=(10, 3.6), layout="constrained")
        for ax, kind in zip(figure.subplots(1, 3, sharex=True, sharey=True), kinds):
            ax.plot(truth, values[kind], ".", ms=2)
            ends = [min(truth.min(), values[kind].min()), max(truth.max(), values[kind].max())]
            ax.plot(ends, ends, color="grey", lw=0.7)
            ax.set_title(f"{MODELS[kind]}: rms {_rms(values[kind] - truth):.3f}", fontsize=9)
            ax.set_xlabel(f"{label}, exact")
        figure.savefig(out / f"{name}.png", dpi=150)
