"""What importance weights say of fits that have settled: the figures of docs/develop/measured.md, "Is a settled fit right?".

    python benchmarks/fit_weights.py [36-areas] [counts] [vertical]

"36-areas": `fedkern simulate sigma --clients 4 --rows 9` with a built prior. "counts": a small map with random networks for its
prior, phi and sigma_theta known, beside HMC. "vertical": 200 rows of two clients; weights over all unknowns, which no job
computes: here both clients' states lie in one process.
"""

from __future__ import annotations

import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import logsumexp

import fedkern
from fedkern.data.columns import Columns
from fedkern.data.simulate.federations import Settings, simulate
from fedkern.jobs.run import Output
from fedkern.kernels import rng
from fedkern.methods.sigma.prior import build
from fedkern.methods.sigma.prior.keys import parse
from fedkern.methods.vertical import run as vertical_run
from fedkern.results.reweighed import Reweighed, reweigh
from papers import vertical

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support import sigma_artifacts as artifacts

DRAWS = 400
AT, WEIGHT = np.polynomial.hermite_e.hermegauss(31)
"""Nodes for the sum of the auxiliary variables of a row, which is N(sum of the parts, J rho^2)."""


def said(name: str, began: float, result: Any) -> None:
    seconds, summary = time.perf_counter() - began, result.summary
    print(f"{name}: {summary['rounds']} rounds, {seconds:.0f} s; {summary['verdict']}", flush=True)


def areas_36(folder: Path) -> None:
    """A slow ridge: q's intercept is too sure of itself."""
    path = simulate("sigma", folder / "sim", Settings(clients=4, rows=9))
    raw = tomllib.loads((folder / "sim" / "prior.toml").read_text())
    build.perform(parse(raw), folder / "sim", Output(folder / "sim" / "prior", quiet=True))
    for rounds in (60, 1000, 5000):
        began = time.perf_counter()
        said("36 areas", began, fedkern.run(path, job={"rounds": rounds}))


def counts(folder: Path) -> None:
    """One global unknown beside three latent numbers."""
    artifacts.written(folder / "prior")
    rows = artifacts.counts(folder / "rows", covariate=False)
    tables = {"data": {"clients": [rows], "area": "district", "response": "cases", "exposure": "expected"}}
    tables["model"] = {"prior": str(folder / "prior"), "phi": 0.5, "spatial_scale": 0.5}
    for name, rounds, algorithm in (("fit", "until", {}), ("HMC", 3000, {"inference": "hmc"})):
        began = time.perf_counter()
        job = {"method": "sigma", "seed": 3, "rounds": rounds}
        result = fedkern.run({"job": job, **tables, "algorithm": algorithm})
        said(name, began, result)
        row = result.parameters["intercept"]
        print(f"    intercept {row['mean']:.4f}, sd {row['sd']:.4f}")


def split(folder: Path) -> None:
    """Two clients, three and two independent columns."""
    random = np.random.default_rng(5)
    X = (random.normal(size=(200, 3)), random.normal(size=(200, 2)))
    eta = 0.3 + np.hstack(X) @ np.array([0.5, -0.4, 0.3, 0.6, -0.5])
    y = {"gaussian": eta + 0.7 * random.normal(size=200), "bernoulli": (random.random(200) < 1 / (1 + np.exp(-eta))) * 1.0}
    for family, rho, more in (("gaussian", 0.1, {"scale": 0.7}), ("gaussian", 0.5, {"scale": 0.7}), ("bernoulli", 0.5, {})):
        began, ended = time.perf_counter(), {}
        fitted = vertical_run._trained

        def kept(run: Any, model: Any, rows: Any, fitted: Any = fitted, ended: dict[str, Any] = ended) -> Any:
            ended["all"] = model, *fitted(run, model, rows)
            return ended["all"][1:]

        vertical_run._trained = kept
        tables = vertical.job(folder, Columns(X, (("a", "b", "c"), ("d", "e")), y[family]), 1, 20_000,
                              model={"family": family, "rho": rho, **more})  # fmt: skip
        said(f"{family}, rho {rho}", began, fedkern.run({**tables, "job": {**tables["job"], "rounds": "until"}}))
        vertical_run._trained = fitted
        for draws in (400, 4000):
            print(f"    {draws} draws: {weights(*ended['all'], draws).words}", flush=True)


def weights(model: Any, server: Any, clients: Any, draws: int = DRAWS) -> Reweighed:
    """Of all parties' unknowns together, the auxiliary variables integrated out (augmented models)."""
    shared, q = server.shared, server.released
    n = shared.block.size
    eps = rng.normal(draws * n, key=rng.key(1, "user")).reshape(draws, n)
    values = np.array([shared.block.sample(q, e) for e in eps]).reshape(draws, n)
    ratios = np.array([shared.bound(q, e, v) for e, v in zip(eps, values)])
    names, columns, total = ["intercept", "sigma"][:n], [values], np.zeros((draws, len(server.y)))
    for k, one in clients.items():
        site, part = one.site, one.released[one.site.parts["theta"]]
        d = site.predictor.n_theta
        e = rng.normal(draws * d, key=rng.key(1, "user"), client=k).reshape(draws, d)
        theta = np.array([site.block.sample(part, row) for row in e])
        total += np.array([site.predictor.coefficients(t) for t in theta]) @ site.predictor.design(np.zeros(0)).T
        ratios += [site.predictor.log_prior(t) - site.block.log_density(part, row) for t, row in zip(theta, e)]
        columns.append(theta)
        names += [f"theta[{k}, {j}]" for j in range(d)]
    spread = model.config.model.rho * np.sqrt(len(clients)) * AT[:, np.newaxis]
    for i, v in enumerate(values):
        b, w = shared.split(v)
        log = shared.likelihood.value(server.y, b + total[i] + spread, w)
        ratios[i] += logsumexp(log, b=(WEIGHT / WEIGHT.sum())[:, np.newaxis], axis=0).sum()
    return reweigh(names, np.hstack(columns), ratios)


PARTS = {"36-areas": areas_36, "counts": counts, "vertical": split}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            PARTS[part](Path(folder))
