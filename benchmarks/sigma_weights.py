"""What importance weights say of a settled spatial fit, against what is right (docs/concepts/convergence.md).

    python benchmarks/sigma_weights.py [gp] [grid] [scotland] [carolina] [--rounds 8000] [--draws 4000]

A whole job each: a Gaussian process of 60 points, a 4 x 4 map (Gaussian responses, exact by quadrature of the lengthscale or
phi and sigma_theta), lip cancer in Scotland and sudden infant deaths in North Carolina (Poisson, by NUTS of the pooled rows,
numpyro). Priors are built with an error of 0.01. For each unknown: the sd of q over the right one, the change of it that the
weights foresee with its Monte-Carlo error, and the change that is right; "holds" where these differ by no more than 5 % and 3
errors. Maps are read from $FEDKERN_DATA.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fedkern
from fedkern.arrays import Array
from fedkern.jobs.run import Output
from fedkern.methods.sigma.prior import build
from fedkern.methods.sigma.prior.keys import parse
from fedkern.models.spatial.condition import Condition, Hyperprior
from fedkern.models.spatial.prior import AreaPrior, GpPrior
from fedkern.models.spatial.site import Layout, SigmaPrior
from papers.common import write_csv

Moments = dict[str, tuple[float, float]]

PHI = Condition("phi", 0.0, 0.99, "log-rest", Hyperprior("logit-normal"))
LENGTH = Condition("lengthscale", 0.05, 0.5, "log-unit")
ERROR = 0.01  # of the prior, between clients


@dataclass(frozen=True)
class Case:
    """A map and its responses, areas in the order of their clients; `model` and `data` of the job file, `kind` of the prior's."""

    client: list[str]
    columns: dict[str, list[Any]]
    kind: dict[str, Any]
    place: dict[str, Any]
    data: dict[str, Any]
    model: dict[str, Any]
    right: Callable[[], Moments]
    pairs: NDArray[np.int64] | None = None
    areas: dict[str, list[Any]] = field(default_factory=dict)


def rows_of(pairs: NDArray[np.int64], n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Compressed rows of pairs that are there once."""
    both = np.concatenate([pairs, pairs[:, ::-1]])
    both = both[np.lexsort((both[:, 1], both[:, 0]))]
    ends = np.concatenate([[0], np.cumsum(np.bincount(both[:, 0], minlength=n))])
    return ends.astype(np.int64), np.ascontiguousarray(both[:, 1])


def exact(prior: AreaPrior | GpPrior, y: Array, sd: float) -> Moments:
    """b given (phi, sigma_theta) is normal, and these two are summed over a grid."""
    condition, found = prior.condition, []
    server = SigmaPrior(Layout(True, 0), condition)
    for x in np.linspace(-7, 9, 81):
        phi = float(condition.at(x)[0])
        values, vectors = np.linalg.eigh(prior.covariance(phi))
        turned, one = vectors.T @ y, vectors.T @ np.ones(len(y))
        for log in np.linspace(-5, 2.5, 91):
            w = 1 / (np.exp(2 * log) * values + sd**2)
            precision = float(one @ (w * one)) + server.coefficient_sd**-2
            mean = float(one @ (w * turned)) / precision
            density = 0.5 * (float(np.log(w).sum()) - np.log(precision) - float(turned @ (w * turned)) + precision * mean**2)
            density += server.log_prior_grad(np.array([x, 0.0, log]))[0]
            found.append((density, mean, 1 / precision, phi, np.exp(log)))
    table = np.array(found)
    weight = np.exp(table[:, 0] - table[:, 0].max())
    weight /= weight.sum()
    out = {}
    for name, column, own in (("intercept", 1, table[:, 2]), (condition.name, 3, 0.0), ("sigma_theta", 4, 0.0)):
        mean = float(weight @ table[:, column])
        out[name] = mean, float(np.sqrt(weight @ ((table[:, column] - mean) ** 2 + own)))
    return out


def nuts(prior: AreaPrior, y: Array, offset: Array, X: Array, draws: int) -> Moments:
    """Of the CAR model of all rows, by numpyro; intercept about the pooled level."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    jax.config.update("jax_enable_x64", True)
    n, condition = len(y), prior.condition
    W, D = np.zeros((n, n)), np.maximum(np.diff(prior.indptr), 1).astype(float)
    W[np.repeat(np.arange(n), np.diff(prior.indptr)), prior.indices] = 1
    values, vectors = np.linalg.eigh(W / np.sqrt(np.outer(D, D)))
    offset = offset + np.log(y.sum() / np.exp(offset).sum())

    def model() -> None:
        x = numpyro.sample("x", dist.Normal(0, 3))
        share = jax.nn.sigmoid(x)
        phi = condition.lo + (condition.hi - condition.lo) * share
        logit = jnp.log(phi / (1 - phi))
        prior_of_x = -0.5 * logit**2 / condition.hyperprior.variance - jnp.log(phi) - jnp.log1p(-phi)
        numpyro.factor("phi prior", prior_of_x + jnp.log(share * (1 - share)) + 0.5 * (x / 3) ** 2)
        scale = numpyro.sample("sigma_theta", dist.HalfNormal(1.0))
        b = numpyro.sample("intercept", dist.Normal(0, 5))
        beta = numpyro.sample("beta", dist.Normal(0, 5).expand([X.shape[1]]))
        z = numpyro.sample("z", dist.Normal(0, 1).expand([n]))
        theta = (vectors @ (z / jnp.sqrt(1 - phi * values))) / jnp.sqrt(D)
        numpyro.deterministic("phi", phi)
        numpyro.sample("y", dist.Poisson(jnp.exp(offset + b + X @ beta + scale * theta)), obs=y)

    kernel = numpyro.infer.NUTS(model, target_accept_prob=0.9)
    sampler = numpyro.infer.MCMC(
        kernel, num_warmup=1000, num_samples=draws, num_chains=4, chain_method="sequential", progress_bar=False
    )
    sampler.run(jax.random.PRNGKey(0))
    found = sampler.get_samples(group_by_chain=True)
    chains = {name: np.asarray(found[name]) for name in ("intercept", "phi", "sigma_theta")}
    rhat = max(float(numpyro.diagnostics.split_gelman_rubin(one)) for one in chains.values())
    ess = min(float(numpyro.diagnostics.effective_sample_size(one)) for one in chains.values())
    print(f"  NUTS: 4 x {draws:,} draws, R-hat at most {rhat:.4f}, ESS at least {ess:,.0f}", flush=True)
    return {name: (float(one.mean()), float(one.std())) for name, one in chains.items()}


def gp(draws: int) -> Case:
    """60 points on a line, three clients."""
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(size=(60, 1)), axis=0)
    prior = GpPrior(x, LENGTH, "matern32")
    root = np.linalg.cholesky(prior.covariance(0.15) + 1e-9 * np.eye(60))
    y = root @ rng.standard_normal(60) + 0.5 * rng.standard_normal(60)
    sd, y = 0.5 / y.std(), (y - y.mean()) / y.std()
    columns = {"x": x[:, 0].tolist(), "y": y.tolist()}
    kind = {"kind": "gp", "kernel": "matern32", "lengthscale": [LENGTH.lo, LENGTH.hi]}
    model = {"family": "gaussian", "scale": sd}
    place, data = {"areas": "areas.csv", "x": "x"}, {"location": ["x"], "response": "y"}
    client = [f"c{k // 20}" for k in range(60)]
    return Case(client, columns, kind, place, data, model, lambda: exact(prior, y, sd), areas={"x": columns["x"]})


def squares(draws: int) -> Case:
    """4 x 4 areas, a row a client."""
    number = np.arange(16).reshape(4, 4)
    beside = ((number[1:], number[:-1]), (number[:, 1:], number[:, :-1]))
    pairs = np.concatenate([np.stack([a.ravel(), b.ravel()], 1) for a, b in beside])
    prior, rng = AreaPrior(*rows_of(pairs, 16), PHI), np.random.default_rng(1)
    y = np.linalg.cholesky(prior.covariance(0.9)) @ rng.standard_normal(16) + 0.5 * rng.standard_normal(16)
    sd, y = 0.5 / y.std(), (y - y.mean()) / y.std()
    names = [f"a{k}" for k in range(16)]
    columns = {"area": names, "y": y.tolist()}
    model, data = {"family": "gaussian", "scale": sd}, {"area": "area", "response": "y"}
    client = [f"c{k // 4}" for k in range(16)]
    return Case(client, columns, {"kind": "car"}, {}, data, model, lambda: exact(prior, y, sd), pairs, {"area": names})


def counted(table: Sequence[dict[str, str]], pairs: NDArray[np.int64], keys: dict[str, str], by: str, draws: int) -> Case:
    """A map of counts, two clients on either side of the median of the column `by`."""
    side = np.array([float(one[by]) for one in table])
    order = np.argsort(side >= np.median(side), kind="stable")
    place, n = np.argsort(order), len(table)
    pairs = np.unique(np.sort(place[pairs], axis=1), axis=0)
    prior = AreaPrior(*rows_of(pairs, n), PHI)
    y = np.array([float(table[k][keys["y"]]) for k in order])
    exposure = np.array([float(table[k][keys["exposure"]]) for k in order])
    names = [table[k][keys["area"]] for k in order]
    columns: dict[str, list[Any]] = {"area": names, "y": y.astype(int).tolist(), "e": exposure.tolist()}
    X = np.zeros((n, 0))
    if "x" in keys:
        x = np.array([float(table[k][keys["x"]]) for k in order])
        columns["x"], X = x.tolist(), ((x - x.mean()) / x.std())[:, np.newaxis]
    client = ["low" if one < np.median(side) else "upper" for one in side[order]]
    data, model = {"area": "area", "response": "y", "exposure": "e"}, {"family": "poisson"}
    return Case(
        client, columns, {"kind": "car"}, {"islands": "independent"}, data, model,
        lambda: nuts(prior, y, np.log(exposure), X, draws), pairs, {"area": names},
    )  # fmt: skip


def read(folder: str, table: str, edges: str, base: int) -> tuple[list[dict[str, str]], NDArray[np.int64]]:
    """A table and its pairs, whose numbers begin at `base`."""
    data = Path(os.environ["FEDKERN_DATA"]) / folder
    with (data / table).open(newline="") as file:
        lines = list(csv.DictReader(file))
    with (data / edges).open(newline="") as file:
        pairs = np.array([(int(one["i"]) - base, int(one["j"]) - base) for one in csv.DictReader(file)])
    return lines, np.unique(np.sort(pairs, axis=1), axis=0)


def scotland(draws: int) -> Case:
    """Lip cancer, with the share of outdoor workers."""
    table, pairs = read("scotland-lip-cancer", "lip.csv", "edges_clayton_kaldor132.csv", 1)
    keys = {"area": "name", "y": "observed", "exposure": "expected", "x": "pcaff"}
    return counted(table, pairs, keys, "latitude", draws)


def carolina(draws: int) -> Case:
    """Sudden infant deaths, 1974 to 1978."""
    table, pairs = read("nc-sids", "nc_sids.csv", "edges_ncCR85.csv", 0)
    return counted(table, pairs, {"area": "name", "y": "SID74", "exposure": "BIR74"}, "lon", draws)


CASES = {"gp": gp, "grid": squares, "scotland": scotland, "carolina": carolina}


def fitted(case: Case, folder: Path, rounds: int) -> Any:
    """The result of a whole job."""
    write_csv(folder / "areas.csv", {**case.areas, "client": case.client})
    place = case.place
    if case.pairs is not None:
        names = case.areas["area"]
        write_csv(folder / "edges.csv", {"one": [names[i] for i, _ in case.pairs], "other": [names[j] for _, j in case.pairs]})
        place = {"areas": "areas.csv", "area": "area", "adjacency": "edges.csv", **place}
    tables = {"prior": case.kind, "data": {"client": "client", **place}, "within": {"error": ERROR}}
    built = build.perform(parse(tables), folder, Output(folder / "prior", quiet=True))
    files = []
    for client in dict.fromkeys(case.client):
        mine = [k for k, one in enumerate(case.client) if one == client]
        files.append(write_csv(folder / "rows" / f"{client}.csv", {n: [v[k] for k in mine] for n, v in case.columns.items()}))
    job = {
        "job": {"method": "sigma", "seed": 1, "rounds": rounds},
        "data": {"clients": files, **case.data},
        "model": {**case.model, "prior": str(folder / "prior")},
    }
    began = time.perf_counter()
    result = fedkern.run(job, out=folder / "run")
    took = time.perf_counter() - began
    print(f"  {built.latents} latents, {result.summary['rounds']:,} rounds, {took:.0f} s with weights", flush=True)
    print(f"  {result.summary['verdict']}", flush=True)
    return result.summary


def main() -> None:
    """The cases that are named, or all."""
    options = argparse.ArgumentParser()
    options.add_argument("cases", nargs="*", choices=[*CASES, []], default=list(CASES))
    options.add_argument("--rounds", type=int, default=8000)
    options.add_argument("--draws", type=int, default=4000)
    o = options.parse_args()
    for name in o.cases:
        case = CASES[name](o.draws)
        print(f"{name}: {CASES[name].__doc__}", flush=True)
        with TemporaryDirectory() as folder:
            summary = fitted(case, Path(folder), o.rounds)
        right, found = case.right(), summary["sigma"].get("weights", {"moves": {}})
        if found["moves"]:
            print(f"  {found['draws']:,} draws are worth {found['effective']:,.0f} equal ones, k-hat {found['k_hat']:.2f}")
        for unknown, (mean, sd) in right.items():
            own = summary["parameters"].get(f"{unknown}_std", summary["parameters"][unknown])  # as the fit has it
            line = f"  {unknown}: mean {mean:.3f} sd {sd:.3f}; sd of q {own['sd'] / sd:.2f} of it"
            if unknown in found["moves"]:
                moved, change = found["moves"][unknown], sd / own["sd"] - 1
                holds = abs(moved["sd"] - change) <= 0.05 + 3 * moved["sd_error"]
                line += f"; weights say {100 * moved['sd']:+.1f} ± {100 * moved['sd_error']:.1f} %, right {100 * change:+.1f} %"
                line += f": {'holds' if holds else 'DOES NOT HOLD'}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
