"""Trained priors of three clients against a Gaussian process: covariances, draws, and a posterior.

A curve on 100 points (docs/spec/sigma.md, section 8). Three variants of the networks, five seeds: the error of the
covariance at three lengthscales, with 10,000 stored draws and with fresh ones. Then 15 noisy rows of a sine: federated
structured variational inference, against the exact posterior by quadrature and a long NUTS run of the true model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fedkern.algorithms.training import training as training
from fedkern.algorithms.training.fit import compare
from fedkern.kernels import rng
from fedkern.models.spatial.condition import Condition
from fedkern.models.spatial.prior import GpPrior

from . import sigma_examples
from .car import Exact, exact_process
from .common import Array, Index, Json, Tables, references, table, verdicts
from .sigma import Areas, Trained, fit, trained

GROUPS, LENGTHSCALES, SEEDS = (34, 33, 33), (0.2, 0.5, 0.8), 5
PUBLISHED = {"printed": (0.8, 0.12, 0.3), "amended": (0.65, 0.08, 0.2), "multiplicative": (0.15, 0.15, 0.15)}
CROSS = 0.2  # largest error of a correlation between two clients that "multiplicative" may have
FITTED = (("printed", False), ("amended", False), ("multiplicative", False), ("multiplicative", True))  # and if auxiliary
ROUNDS = 6_000


@dataclass(frozen=True)
class Cell:
    """One training."""

    variant: str
    seed: int
    steps: int = 20_000
    draws: int | None = None
    entries: int = 512

    @property
    def prior(self) -> GpPrior:
        x = np.linspace(0, 1, sum(GROUPS))[:, None]
        return GpPrior(x, Condition("lengthscale", 0.2, 1.0, "unit" if self.variant == "multiplicative" else "identity"))

    def tables(self) -> Tables:
        """Of the prior file."""
        training: Json = {"steps": self.steps, "batch": 32, "table": self.entries, "seed": self.seed}
        training |= {"draws": "none" if self.draws is None else self.draws}
        network: Json = {"variant": self.variant, "gamma": 0.5}
        if self.variant != "multiplicative":
            training |= {"learning_rate": 1e-3, "decay": 0.0, "warmup": 0.0}
            network |= {"condition": "identity"}
        network["start"] = "analytic" if self.variant == "multiplicative" else "random"
        prior = {"kind": "gp", "lengthscale": [0.2, 1.0], "grid": {"points": sum(GROUPS), "cuts": [0.34, 0.67]}}
        return {"prior": prior, "network": network, "training": training, "auxiliary": {"floor": 1e-4}}

    def run(self, folder: Path) -> Trained:
        return trained(folder, self.tables())


def cells(fast: bool, first: int = 1) -> list[Cell]:
    """All trainings; `fast`: one seed, fresh draws."""
    if fast:
        return [Cell(variant, first) for variant in PUBLISHED]
    stored = [Cell(variant, first, draws=10_000) for variant in PUBLISHED]
    return [Cell(variant, seed) for variant in PUBLISHED for seed in range(first, first + SEEDS)] + stored


@cache
def exact(scale: float = 1.0) -> Exact:
    """The posterior under the true process of what is `scale` times as small; the error's sd ~ HalfNormal(1) there."""
    _, seen, y = sigma_examples.process()
    prior = Cell("printed", 1).prior
    return exact_process(lambda phi: prior.covariance(phi) / scale**2, prior.condition, y / scale, seen)


def posterior(cell: Cell, folder: Path, auxiliary: bool) -> Areas:
    """The federated fit with one trained prior, error standard deviation unknown."""
    x, seen, y = sigma_examples.process()
    kind = "auxiliary" if auxiliary else "deterministic"
    tables: Tables = {
        "job": {"rounds": ROUNDS},
        "data": {"location": ["x"]},
        "model": {"kind": kind, "family": "gaussian", "spatial_scale": 1.0, "intercept": False},
        "algorithm": {"learning_rate": 0.01},
    }
    return fit(cell.run(folder), {"x": x[seen], "y": y}, np.repeat(np.arange(len(GROUPS)), GROUPS)[seen], tables)


def distance(areas: Areas) -> dict[str, float]:
    """From the exact posterior: mean and largest |difference of means| over its sd; mean ratio of sds; of the error's sd.

    The job's error has the prior HalfNormal(s), s the spread of the responses: that of the exact posterior too.
    """
    s = float(areas.summary["sigma"]["response"]["scale"])
    truth = exact(s)
    sd = s * np.sqrt(truth.variance)
    off = np.abs(areas.mean - s * truth.mean) / sd
    return {
        "mean": float(off.mean()),
        "largest": float(off.max()),
        "sd": float((areas.sd / sd).mean()),
        "error sd": float(areas.summary["parameters"]["sigma"]["mean"]),
        "exact error sd": s * float(truth.weight @ truth.sd),
    }


def measured(cell: Cell, folder: Path) -> Json:
    """Errors of the covariance, the ELBO on common draws and the times of one training."""
    prior = cell.run(folder)
    seen = [compare(cell.prior, prior.federation, phi) for phi in LENGTHSCALES]
    common = cell.prior.table(512, 99)
    common = replace(common, phi=cell.prior.condition.network(common.phi))
    elbo = training.objective(prior.federation.architecture, prior.state, common, seed=99)["elbo"]
    return {
        "error": [one.error for one in seen],
        "cross": max(one.largest_cross_correlation for one in seen),
        "local": seen[0].local_share,
        "elbo": elbo,
        "seconds": prior.seconds,
    }


def run(out: Path, fast: bool = False, seed: int = 1) -> Path:
    """Trains what `out` does not hold yet (an interrupted reproduction goes on), and writes the tables and the figures.

    Parameters
    ----------
    out : folder for trained-*, table.md, covariance.png, draws.png, posterior.png
    fast : one seed of each variant, trained on fresh draws
    seed : of the jobs; of several, the first

    Returns
    -------
    the table's path
    """
    out.mkdir(parents=True, exist_ok=True)
    trainings = {cell: measured(cell, out) for cell in cells(fast, seed)}
    best = Cell("multiplicative", seed)
    fits = {(v, a): posterior(Cell(v, seed), out, a) for v, a in FITTED}
    (out / "table.md").write_text(_text(trainings, fits), encoding="utf-8")
    _covariances(best, out)
    _draws(best, out)
    _bands(fits[best.variant, False], out / "posterior.png")
    return out / "table.md"


def _text(trainings: dict[Cell, Json], fits: dict[tuple[str, bool], Areas]) -> str:
    lines = ["# A Gaussian process of three clients", ""]
    called = {(v, a): f"{v}, {'auxiliary' if a else 'deterministic'}" for v, a in fits}
    lines += [verdicts({called[key]: areas.summary["verdict"] for key, areas in fits.items()})]
    lines += [
        "Relative Frobenius error of the covariance at lengthscales 0.2 / 0.5 / 0.8, median over the seeds; 20,000 x 32 draws.",
        "",
    ]
    head = ["variant", "draws", "seeds", "error", "to reach", "largest between clients", "share of z_L", "ELBO", "seconds"]
    rows = []
    for draws in dict.fromkeys(cell.draws for cell in trainings):
        for variant, wanted in PUBLISHED.items():
            of = [m for cell, m in trainings.items() if (cell.variant, cell.draws) == (variant, draws)]
            error = np.median([m["error"] for m in of], axis=0)
            medians = {name: float(np.median([m[name] for m in of])) for name in ("cross", "local", "elbo")}
            seconds = float(np.median([m["seconds"] for m in of]))
            rows.append([
                variant, "fresh" if draws is None else f"{draws:,} stored", str(len(of)),
                " / ".join(f"{e:.3f}" for e in error), " / ".join(f"{e:g}" for e in wanted), f"{medians['cross']:.3f}",
                f"{medians['local']:.2g}", f"{medians['elbo']:.2f}", f"{seconds:.1f}",
            ])  # fmt: skip
    lines += [table(head, rows)]
    lines += ['"Largest between clients": the largest error of a correlation between points of two clients, over the three']
    lines += [f"lengthscales; `multiplicative` is to reach {CROSS:g}. Five linear factors: 0.017 / 0.006 / 0.005. Seconds: of"]
    lines += ["`fedkern sigma train`, with its report.", ""]
    lines += ["## Posterior of the curve", ""]
    lines += [
        "y = sin(x) + 0.2 e at 15 points, against the exact posterior under the process: mean and largest difference of the"
    ]
    lines += [
        "means over the exact sd, mean ratio of the sds, mean of the error's sd (by quadrature; variational, federated).",
        "",
    ]
    head = ["variant", "model", "mean", "largest", "sd", "error sd"]
    rows = [
        [v, "auxiliary" if a else "deterministic", f"{d['mean']:.3f}", f"{d['largest']:.3f}", f"{d['sd']:.3f}",
         f"{d['exact error sd']:.3f}; {d['error sd']:.3f}"]
        for (v, a), d in ((key, distance(areas)) for key, areas in fits.items())
    ]  # fmt: skip
    lines += [table(head, rows)]
    nuts = references("sigma").get("process")
    if nuts:
        off = np.abs(np.array(nuts["theta"]["mean"]) - exact().mean) / np.sqrt(exact().variance)
        lines += [
            f"NUTS of the process ({nuts['checks']['draws']:,} draws) against the quadrature: means within {off.max():.3f} sd.",
            "",
        ]
        lines += ["White noise tau^2 beside a smooth curve looks like error: the auxiliary model is for maps, not for this.", ""]
    return "\n".join(lines)


def _covariances(cell: Cell, out: Path) -> None:
    from matplotlib.figure import Figure

    federation = cell.run(out).federation
    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots(2, 3)
    for k, phi in enumerate(LENGTHSCALES):
        one = compare(cell.prior, federation, phi)
        for row, (matrix, name) in enumerate(((one.true, "process"), (one.sigma, "trained"))):
            ax = axes[row, k]
            shown = ax.imshow(matrix, vmin=0, vmax=1.1, cmap="viridis")
            ax.set_title(f"{name}, {phi:g}" + (f": error {one.error:.3f}" if row else ""), fontsize=9)
            for end in federation.ends[1:-1]:
                ax.axhline(end - 0.5, color="white", lw=0.5)
                ax.axvline(end - 0.5, color="white", lw=0.5)
    figure.colorbar(shown, ax=axes, shrink=0.7, label="covariance")
    figure.savefig(out / "covariance.png", dpi=150)


def _draws(cell: Cell, out: Path, n: int = 25) -> None:
    from matplotlib.figure import Figure

    federation, x = cell.run(out).federation, cell.prior.x[:, 0]
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots(2, 3, sharey=True)
    for k, phi in enumerate(LENGTHSCALES):
        true = np.linalg.cholesky(cell.prior.covariance(phi) + 1e-6 * np.eye(len(x)))
        e = rng.normal(n * len(x), key=rng.key(1, "posterior", 9)).reshape(n, -1)
        curves = [e @ true.T, next(iter(federation.draws(np.full(n, phi), 1)))]
        for row, (values, name) in enumerate(zip(curves, ("process", "trained prior"))):
            axes[row, k].plot(x, values.T, lw=0.6)
            axes[row, k].set_title(f"{name}, lengthscale {phi:g}", fontsize=9)
            _borders(axes[row, k], x, federation.ends)
    figure.savefig(out / "draws.png", dpi=150)


def _borders(ax: Any, x: Array, ends: Sequence[int] | Index) -> None:
    for end in ends[1:-1]:
        ax.axvline((x[end - 1] + x[end]) / 2, color="grey", lw=0.5, ls="--")


def _bands(areas: Areas, path: Path) -> None:
    from matplotlib.figure import Figure

    x, seen, y = sigma_examples.process()
    s = float(areas.summary["sigma"]["response"]["scale"])
    truth = exact(s)
    figure = Figure(figsize=(7, 4), layout="constrained")
    ax = figure.subplots()
    ax.fill_between(x, areas.low, areas.high, alpha=0.25, color="C0", label="trained prior, federated: 90 %")
    ax.plot(x, areas.mean, color="C0")
    for p in (0.05, 0.95):
        ax.plot(x, s * truth.quantile(p), color="C1", lw=1, ls="--")
    ax.plot(x, s * truth.mean, color="C1", lw=1, label="process, exact")
    ax.plot(x, np.sin(x), color="black", lw=1, ls=":", label="sin x")
    ax.plot(x[seen], y, "k.", label="rows")
    _borders(ax, x, np.concatenate([[0], np.cumsum(GROUPS)]))
    ax.legend(fontsize=8)
    ax.set_xlabel("x")
    figure.savefig(path, dpi=150)
