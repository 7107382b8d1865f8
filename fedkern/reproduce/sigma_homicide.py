"""Homicides in 3,085 US counties, 49 states as clients: the model of a real map (sigma.md, section 9) with a trained CAR prior.

y ~ Poisson, eta = log expected + b + x' beta + sigma_theta theta, five covariates. Federated structured variational inference
with the auxiliary model, against a long NUTS run of the true model on the pooled data.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ..algorithms.sfvi.settings import Settings as Variational
from ..algorithms.training import training as training
from ..algorithms.training.fit import match_variances
from ..data.columns import Columns
from ..data.graph import Map
from ..data.sets import county_homicide
from ..kernels import mlp
from ..models.likelihood import Likelihood
from ..models.spatial.condition import Condition, Hyperprior
from ..models.spatial.prior import AreaPrior
from ..models.spatial.site import Layout
from .sigma import Array, Posterior, Trained, fit, references, sites, split, trained
from .sparse import table

N_GLOBAL, N_LOCAL, GAMMA, STEPS = 40, 20, 0.8, 500
FIT = Variational(rounds=6_000, learning_rate=0.02, seed=1)


@cache
def counties() -> tuple[Map, Columns]:
    """The map, and the rows in its order."""
    areas, rows = county_homicide.read_map()
    return areas, county_homicide.read().rows(rows)


@cache
def prior() -> AreaPrior:
    """Proper CAR, logit phi ~ N(0, variance 2), phi up to 0.99."""
    areas, _ = counties()
    condition = Condition("phi", 0.0, 0.99, "log-rest", Hyperprior("logit-normal", 0.0, 2.0))
    return AreaPrior(areas.graph.indptr, areas.graph.indices, condition)


def networks(folder: Path, steps: int) -> Trained:
    """The trained prior: 40 global latents, and of each state 20 or as many as it has counties."""
    sizes = counties()[0].sizes
    architecture = mlp.Architecture("multiplicative", sizes, 1, N_GLOBAL, tuple(min(N_LOCAL, n) for n in sizes))
    settings = training.Settings(steps, 128, 3e-5, decay=0.7, warmup=0.0, gamma=GAMMA)
    return trained(folder, architecture, prior(), prior().training_sd(), settings, nodes=8, start="analytic")


def posterior(folder: Path, steps: int, settings: Variational) -> Posterior:
    """The federated fit of the auxiliary model."""
    _, data = counties()
    federation, X = networks(folder, steps).federation, data.pooled()
    tau = match_variances(prior(), federation, draws=2_000)
    layout = Layout(True, N_GLOBAL, n_beta=X.shape[1])
    rows = split(federation, data.y, np.arange(data.n_rows), X, data.offset)
    return fit(sites(federation, layout, Likelihood("poisson"), rows, tau), settings, X)


def run(out: Path, fast: bool = False) -> Path:
    """Trains the prior, unless `out` holds it, fits the counties, and writes the table and the figure.

    Parameters
    ----------
    out : folder for trained-*.npz, table.md, rates.png
    fast : 20 steps of training, 300 rounds

    Returns
    -------
    the table's path
    """
    out.mkdir(parents=True, exist_ok=True)
    counties()  # a missing folder is said before anything is started
    steps = 20 if fast else STEPS
    made = networks(out, steps)
    found = posterior(out, steps, Variational(rounds=300, learning_rate=0.02, seed=1) if fast else FIT)
    (out / "table.md").write_text(_text(found, made), encoding="utf-8")
    _figure(found, out / "rates.png")
    return out / "table.md"


def globals_of(found: Posterior) -> dict[str, Array]:
    """Draws of what the server publishes."""
    _, data = counties()
    layout = Layout(True, N_GLOBAL, n_beta=data.pooled().shape[1])
    names = [name for part in data.names for name in part]
    out = {"phi": found.phi, "intercept": found.xi[:, layout.parts["intercept"].start]}
    out |= {name: found.xi[:, layout.parts["beta"].start + k] for k, name in enumerate(names)}
    return out | {"sigma_theta": layout.scale(found.xi)}


def against(found: Posterior, nuts: dict[str, Any]) -> dict[str, float]:
    """Log rates of all counties: distance of the means in NUTS's sds, ratio of the sds, and of P(rate > 1)."""
    mean, sd = (np.array(nuts["log_rate"][what]) for what in ("mean", "sd"))
    off = np.abs(found.eta.mean(axis=0) - mean) / sd
    return {
        "mean": float(off.mean()),
        "largest": float(off.max()),
        "correlation": float(np.corrcoef(found.eta.mean(axis=0), mean)[0, 1]),
        "sd": float((found.eta.std(axis=0) / sd).mean()),
        "above": float(np.abs((found.eta > 0).mean(axis=0) - np.array(nuts["above"])).mean()),
    }


def _text(found: Posterior, made: Trained) -> str:
    areas, data = counties()
    nuts = references()["counties"]
    lines = [f"# Homicides in {data.n_rows:,} counties, {len(areas.clients)} states as clients", ""]
    names = [name for part in data.names for name in part]
    exact = {"phi": nuts["phi"], "intercept": nuts["intercept"], "sigma_theta": nuts["sigma"]}
    exact |= {name: {what: nuts["beta"][what][k] for what in ("mean", "sd")} for k, name in enumerate(names)}
    rows = [
        [name, float(values.mean()), float(values.std()), exact[name]["mean"], exact[name]["sd"]]
        for name, values in globals_of(found).items()
    ]
    lines += [table(["unknown", "trained prior: mean", "sd", "NUTS, pooled: mean", "sd"], rows)]
    off = against(found, nuts)
    lines += ["Log rates of the counties against NUTS on the pooled data: means differ by"]
    lines[-1] += f" {off['mean']:.3f} sd on average and {off['largest']:.2f} at most (correlation {off['correlation']:.4f});"
    lines += [f"sds are {off['sd']:.3f} times NUTS's; P(rate > 1) differs by {off['above']:.4f} on average.", ""]
    hi = prior().condition.hi
    if np.mean(found.phi > 0.98 * hi) > 0.2:
        lines += [f"phi is at the end of its range, {hi:g}: the map would take a smoother prior than a CAR prior can be.", ""]
    checks = nuts["checks"]
    lines += [f"NUTS: {checks['draws']:,} draws, largest R-hat {checks['r_hat']:.3f}, smallest ESS {checks['ess']:.0f},"]
    lines[-1] += f" {checks['seconds']:,} s."
    lines += [
        f"Training: start {made.seconds[0]:.0f} s, {made.state.step:,} steps {made.seconds[1]:.0f} s; fit {found.seconds:.0f} s.",
        "",
    ]
    return "\n".join(lines)


def _figure(found: Posterior, path: Path) -> None:
    from matplotlib.figure import Figure

    nuts = references()["counties"]
    figure = Figure(figsize=(9, 4), layout="constrained")
    pairs = (("mean", found.eta.mean(axis=0)), ("sd", found.eta.std(axis=0)))
    for ax, (what, values) in zip(figure.subplots(1, 2), pairs):
        exact = np.array(nuts["log_rate"][what])
        ax.plot(exact, values, ".", ms=2)
        ends = [min(exact.min(), values.min()), max(exact.max(), values.max())]
        ax.plot(ends, ends, color="grey", lw=0.7)
        ax.set_xlabel(f"log rate, posterior {what}: NUTS, pooled")
        ax.set_ylabel("trained prior, federated")
    figure.savefig(path, dpi=150)
