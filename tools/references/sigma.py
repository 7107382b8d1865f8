"""Long NUTS runs of the true models behind the trained priors: `make references` writes sigma.json into
benchmarks/papers/references, from where the reproductions and the tests read it.

An independent program (NumPyro): the one-dimensional Gaussian process of sigma.md, section 8, with an unknown error standard
deviation, and homicides in US counties with a proper CAR prior (the folder FEDKERN_DATA). The process by its Cholesky factor at
each lengthscale, and once more with theta integrated out; the counties by the sparse precision with the log-determinant from the
eigenvalues. What is stored are summaries.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

from papers import county_homicide, sigma_examples
from papers.common import REFERENCES

CHAINS, HIGHEST = 2, 0.99


def ran(model, *, draws, seed, target=0.9, depth=10, **data):
    """Draws of all unknowns, and what says whether they can be trusted."""
    begin = time.perf_counter()
    kernel = NUTS(model, target_accept_prob=target, max_tree_depth=depth)
    sampler = MCMC(kernel, num_warmup=draws, num_samples=draws, num_chains=CHAINS, chain_method="sequential", progress_bar=False)
    sampler.run(jax.random.key(seed), extra_fields=("diverging", "num_steps"), **data)
    extra, found = sampler.get_extra_fields(), sampler.get_samples(group_by_chain=True)
    about = az.summary(az.convert_to_dataset({k: np.asarray(v) for k, v in found.items()}), kind="diagnostics")
    checks = {
        "draws": CHAINS * draws,
        "divergences": int(np.sum(extra["diverging"])),
        "steps": float(np.mean(extra["num_steps"])),
        "r_hat": float(about["r_hat"].max()),
        "ess": float(about["ess_bulk"].min()),
        "seconds": round(time.perf_counter() - begin),
    }
    print(checks, flush=True)
    return {k: np.asarray(v).reshape(-1, *np.shape(v)[2:]) for k, v in found.items()}, checks


def moments(values) -> dict[str, Any]:
    values = np.asarray(values)
    return {"mean": values.mean(axis=0).round(5).tolist(), "sd": values.std(axis=0, ddof=1).round(5).tolist()}


def process():
    """The Gaussian process on 100 points, 15 of them observed; theta integrated out, and drawn back by its exact moments."""
    x, seen, y = sigma_examples.process()
    squares = (x[:, None] - x[None, :]) ** 2

    def model():
        phi = numpyro.sample("phi", dist.Uniform(0.2, 1.0))
        sd = numpyro.sample("sd", dist.HalfNormal(1.0))
        C = jnp.exp(-squares[np.ix_(seen, seen)] / (2 * phi**2)) + sd**2 * jnp.eye(len(seen))
        numpyro.sample("y", dist.MultivariateNormal(0.0, C), obs=y)

    found, checks = ran(model, draws=4000, seed=1, target=0.95)
    means, variances = [], []
    for phi, sd in zip(found["phi"], found["sd"]):
        K = np.exp(-squares / (2 * phi**2))
        gain = np.linalg.solve(K[np.ix_(seen, seen)] + sd**2 * np.eye(len(seen)), K[seen])
        means.append(y @ gain)
        variances.append(np.diag(K) - np.einsum("ij,ij->j", K[seen], gain))
    mean, spread = np.mean(means, axis=0), np.sqrt(np.mean(variances, axis=0) + np.var(means, axis=0))
    theta = {"mean": mean.round(5).tolist(), "sd": spread.round(5).tolist()}
    return {name: moments(found[name]) for name in ("phi", "sd")} | {"theta": theta, "checks": checks}


def counties():
    """Counts with a proper CAR prior on the map of counties: eta = offset + b + x' beta + sigma theta, phi ~ logit N(0, 2)."""
    (areas, rows), columns = county_homicide.read_map(), county_homicide.read()
    graph, y, offset, X = areas.graph, columns.y[rows], columns.offset[rows], columns.pooled()[rows]
    d = graph.degrees.astype(float)
    W = np.zeros((graph.n, graph.n))
    W[graph.rows, graph.indices] = 1
    values = jnp.asarray(np.minimum(np.linalg.eigvalsh(W / np.sqrt(np.outer(d, d))), 1.0))
    half = graph.rows < graph.indices
    first, second = jnp.asarray(graph.rows[half]), jnp.asarray(graph.indices[half])

    def model():
        # logit phi ~ N(0, variance 2), truncated to phi < HIGHEST: no gradient-based sampler would notice an end otherwise
        x = numpyro.sample("x", dist.ImproperUniform(dist.constraints.real, (), ()))
        phi = numpyro.deterministic("phi", HIGHEST * jax.nn.sigmoid(x))
        change = jnp.log(HIGHEST - phi) - jnp.log(HIGHEST) - jnp.log1p(-phi)
        numpyro.factor("phi's prior", -0.25 * jax.scipy.special.logit(phi) ** 2 + change)
        b = numpyro.sample("intercept", dist.Normal(0.0, 5.0))
        beta = numpyro.sample("beta", dist.Normal(0.0, 5.0).expand([X.shape[1]]).to_event(1))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
        # f = sigma theta + b + x' beta is what counts say something of: the posterior of f is less correlated than that of theta
        f = numpyro.sample("f", dist.ImproperUniform(dist.constraints.real, (), (graph.n,)))
        theta = f - b - X @ beta
        quadratic = jnp.sum(d * theta**2) - 2 * phi * jnp.sum(theta[first] * theta[second])
        logdet = jnp.sum(jnp.log1p(-phi * values))
        numpyro.factor("prior", 0.5 * logdet - 0.5 * quadratic / sigma**2 - graph.n * jnp.log(sigma))
        numpyro.factor("rows", jnp.sum(y * f - jnp.exp(offset + f)))

    found, checks = ran(model, draws=700, seed=2, target=0.8, depth=8)
    rate = np.exp(found["f"])
    result = {name: moments(found[name]) for name in ("phi", "intercept", "beta", "sigma")}
    result["log_rate"] = moments(found["f"])
    result["above"] = np.mean(rate > 1, axis=0).round(4).tolist()
    return result | {"checks": checks, "names": list(graph.names)}


MODELS = {"process": process, "counties": counties}


def main(names) -> None:
    path = REFERENCES / "sigma.json"
    stored = json.loads(path.read_text()) if path.exists() else {}
    for name in names or MODELS:
        print(name, flush=True)
        stored[name] = MODELS[name]()
        path.write_text(json.dumps(stored, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    numpyro.enable_x64()
    main(sys.argv[1:])
