"""A simulated map of 36 areas in four clients over eight periods: posteriors of a job beside NUTS on the pooled rows.

    python benchmarks/sigma_periods.py [--rounds 3000] [--interaction] [--inference nested hmc sfvi]

Prints, for each hyperparameter, the intercept, the periods' effects and the areas' rates, how far the posterior mean is from that
of NUTS in its sds, and the ratio of sds. `--interaction`: rows have an effect of their own too (model.overdispersion). Needs
NumPyro.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from pathlib import Path

import numpy as np

import fedkern
from fedkern.jobs.run import Output
from fedkern.methods.sigma.prior import build
from fedkern.methods.sigma.prior.keys import parse
from fedkern.models.spatial.site import walk

SIDE, T, CLIENTS = 6, 8, ("a", "b", "c", "d")
PHI, LEVEL, SD_THETA, SD_PERIOD, SD_EXTRA, TOP = 0.9, 0.2, 0.5, 0.3, 0.3, 0.99


def adjacency() -> np.ndarray:
    """Of the squares."""
    W = np.zeros((SIDE**2, SIDE**2))
    for i in range(SIDE**2):
        for j in ([i + 1] if (i + 1) % SIDE else []) + ([i + SIDE] if i + SIDE < SIDE**2 else []):
            W[i, j] = W[j, i] = 1
    return W


def owner(i: int) -> str:
    """A quarter of the map for each client."""
    return CLIENTS[2 * (i // SIDE >= SIDE // 2) + (i % SIDE >= SIDE // 2)]


def simulated(seed: int, interaction: bool) -> tuple[np.ndarray, np.ndarray]:
    """(36, 8) counts and expected counts."""
    rng, W = np.random.default_rng(seed), adjacency()
    theta = np.linalg.solve(np.linalg.cholesky(np.diag(W.sum(0)) - PHI * W).T, rng.standard_normal(SIDE**2))
    gamma = SD_PERIOD * walk(T) @ rng.standard_normal(T - 1)
    expected = rng.uniform(2, 12, (SIDE**2, T))
    eta = LEVEL + SD_THETA * theta[:, None] + gamma + interaction * SD_EXTRA * rng.standard_normal((SIDE**2, T))
    return rng.poisson(expected * np.exp(eta)).astype(float), expected


def nuts(y: np.ndarray, expected: np.ndarray, level: float, interaction: bool, draws: int) -> dict[str, np.ndarray]:
    """Draws of the pooled model; `level`: about which the intercept's prior is."""
    import jax
    import jax.numpy as jnp
    import numpyro
    from numpyro import distributions as dist
    from numpyro.infer import MCMC, NUTS, init_to_median

    jax.config.update("jax_enable_x64", True)
    numpyro.set_host_device_count(1)
    degree = adjacency().sum(0) ** 0.5
    values, vectors = (jnp.asarray(one) for one in np.linalg.eigh(adjacency() / np.outer(degree, degree)))
    B = jnp.asarray(walk(T))

    def model() -> None:
        x = numpyro.sample("x", dist.Normal(0, 10))
        phi = numpyro.deterministic("phi", TOP * jax.nn.sigmoid(x))
        logit = jnp.log(phi) - jnp.log1p(-phi)
        prior = -(logit**2) / 4 - jnp.log(phi * (1 - phi)) + jnp.log(phi * (TOP - phi) / TOP)
        numpyro.factor("phi_prior", prior - dist.Normal(0, 10).log_prob(x))
        b = numpyro.sample("intercept", dist.Normal(level, 5))
        scale = numpyro.sample("sigma_theta", dist.HalfNormal(1))
        period = numpyro.sample("sigma_period", dist.HalfNormal(1))
        z = numpyro.sample("z", dist.Normal(0, 1).expand([SIDE**2]))
        v = numpyro.sample("v", dist.Normal(0, 1).expand([T - 1]))
        theta = vectors @ (z / jnp.sqrt(1 - phi * values)) / degree
        gamma = numpyro.deterministic("gamma", period * B @ v)
        areas = numpyro.deterministic("areas", b + scale * theta)
        eta = areas[:, None] + gamma
        if interaction:
            extra = numpyro.sample("sigma_extra", dist.HalfNormal(1))
            eta = eta + extra * numpyro.sample("e", dist.Normal(0, 1).expand([SIDE**2, T]))
        numpyro.sample("y", dist.Poisson(expected * jnp.exp(eta)), obs=y)

    kernel = NUTS(model, target_accept_prob=0.9, init_strategy=init_to_median)
    run = MCMC(kernel, num_warmup=1000, num_samples=draws, num_chains=2, chain_method="sequential", progress_bar=False)
    run.run(jax.random.PRNGKey(1))
    found = {name: np.asarray(values) for name, values in run.get_samples().items()}
    names = ("phi", "intercept", "sigma_theta", "sigma_period", *(["sigma_extra"] if interaction else []))
    return {name: found[name] for name in (*names, "gamma", "areas")}


def written(folder: Path, y: np.ndarray, expected: np.ndarray) -> None:
    """The map's prior and the clients' rows."""
    areas = range(SIDE**2)
    (folder / "areas.csv").write_text("area,client\n" + "".join(f"s{i},{owner(i)}\n" for i in areas))
    W = adjacency()
    (folder / "edges.csv").write_text("i,j\n" + "".join(f"s{i},s{j}\n" for i in areas for j in areas if i < j and W[i, j]))
    data = {"areas": "areas.csv", "area": "area", "client": "client", "adjacency": "edges.csv"}
    tables = {"prior": {"kind": "car"}, "data": data, "within": {"error": 0.01}}
    build.perform(parse(tables), folder, Output(folder / "prior", quiet=True))
    (folder / "rows").mkdir()
    for client in CLIENTS:
        rows = [f"s{i},{2001 + t},{y[i, t]:g},{float(expected[i, t])!r}" for i in areas if owner(i) == client for t in range(T)]
        (folder / "rows" / f"{client}.csv").write_text("\n".join(["area,year,cases,expected", *rows]) + "\n")


def job(folder: Path, inference: str, rounds: int, interaction: bool) -> dict[str, dict[str, object]]:
    """The tables of a job file."""
    return {
        "job": {"method": "sigma", "seed": 1, "rounds": rounds},
        "data": {
            "clients": str(folder / "rows" / "*.csv"), "area": "area", "response": "cases", "exposure": "expected",
            "period": "year", "periods": list(range(2001, 2001 + T)),
        },
        "model": {"prior": str(folder / "prior"), "overdispersion": interaction},
        "algorithm": {"inference": inference},
    }  # fmt: skip


def posterior(folder: Path, result: fedkern.Result) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Means and sds, as published and in the clients' folders."""
    found = {}
    for name, of in result.parameters.items():
        found[name] = np.array(of["mean"]), np.array(of["sd"])
    periods = [found[f"period[{2001 + t}]"] for t in range(T)]
    found["gamma"] = np.array([mean for mean, _ in periods]), np.array([sd for _, sd in periods])
    mean, sd = np.empty(SIDE**2), np.empty(SIDE**2)
    for client in CLIENTS:
        with (folder / f"client-{client}" / "areas.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                i = int(row["area"][1:])
                mean[i], sd[i] = float(row["rate_mean"]), float(row["rate_sd"])
    found["areas"] = mean, sd
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--interaction", action="store_true")
    parser.add_argument("--inference", nargs="+", default=["nested", "hmc", "sfvi"])
    a = parser.parse_args()
    y, expected = simulated(4, a.interaction)
    began = time.perf_counter()
    truth = nuts(y, expected, float(np.log(y.sum() / expected.sum())), a.interaction, a.draws)
    truth["areas"] = np.exp(truth["areas"])
    took = f"2 x {a.draws} draws, {time.perf_counter() - began:.0f} s"
    print(f"36 areas, 8 periods, interaction: {a.interaction}; NUTS: {took}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written(folder, y, expected)
        for inference in a.inference:
            began = time.perf_counter()
            result = fedkern.run(job(folder, inference, a.rounds, a.interaction), out=folder / inference)
            print(f"{inference}, {a.rounds} rounds, {time.perf_counter() - began:.0f} s: {result.converged}", flush=True)
            for name, (mean, sd) in posterior(folder / inference, result).items():
                if name in truth:
                    off = (mean - truth[name].mean(axis=0)) / truth[name].std(axis=0)
                    ratio = sd / truth[name].std(axis=0)
                    line = f"  {name:<13} off by {np.sqrt(np.mean(off**2)):.3f} sd (most {np.abs(off).max():.3f})"
                    print(f"{line}, sd ratio {np.mean(ratio):.3f} ({np.min(ratio):.3f} to {np.max(ratio):.3f})", flush=True)


if __name__ == "__main__":
    main()
