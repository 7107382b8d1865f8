"""Long NUTS runs of the sparse regression on three small federations: `make references` writes sparse.json beside this file.

An independent program (NumPyro) for the same posterior: gamma summed out, deviations non-centred, d = tau lambda z. NUTS is slow
in this funnel, so every summary is stored with its Monte-Carlo error, and comparisons allow for it.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import logsumexp
from numpyro.infer import MCMC, NUTS

DATA = {
    "equal sites": {"seed": 1, "n": (40, 40, 40), "effects": (1.0, -0.6, 0.3, 0, 0, 0), "site": 0.0, "noise": 1.0},
    "a deviating site": {"seed": 2, "n": (60, 45, 50, 40), "effects": (0.5, 0.25, 0, 0, 0, 0, 0, 0), "site": 0.8, "noise": 1.0},
    "few rows": {"seed": 3, "n": (12, 9, 15), "effects": (0.8, 0, 0.4, 0), "site": 0.3, "noise": 0.7},
}
C0 = 0.01


def federation(seed, n, effects, site, noise):
    """Rows rounded to what the file holds. The last site's second effect is off by `site`."""
    rng, p = np.random.default_rng(seed), len(effects)
    mix = 0.3 * np.ones((p, p)) + 0.7 * np.eye(p)
    X = [np.round(rng.standard_normal((n_k, p)) @ np.linalg.cholesky(mix).T, 3) for n_k in n]
    theta = [np.array(effects) + (k == len(n) - 1) * site * (np.arange(p) == 1) for k in range(len(n))]
    y = [np.round(X_k @ theta_k + noise * rng.standard_normal(len(X_k)), 3) for X_k, theta_k in zip(X, theta)]
    return X, y


def model(R, q, rss, n):
    m, p = q.shape
    eta = numpyro.sample("eta", dist.InverseGamma(2.0, 1.0))
    rho = numpyro.sample("rho", dist.Beta(1.0, 1.0))
    theta = numpyro.sample("theta", dist.ImproperUniform(dist.constraints.real, (), (p,)))
    slab, spike = (dist.Normal(0, jnp.sqrt(v)).log_prob(theta) for v in (eta, C0 * eta))
    parts = jnp.stack([jnp.log(rho) + slab, jnp.log1p(-rho) + spike])
    numpyro.factor("theta given gamma", logsumexp(parts, axis=0).sum())
    numpyro.deterministic("inclusion", jnp.exp(parts[0] - logsumexp(parts, axis=0)))
    tau = numpyro.sample("tau", dist.HalfCauchy(1.0).expand([p]))
    scale = numpyro.sample("lambda", dist.HalfCauchy(1.0).expand([m, p]))
    z = numpyro.sample("z", dist.Normal(0, 1).expand([m, p]))
    sigma_sq = numpyro.sample("sigma_sq", dist.InverseGamma(2.0, 1.0).expand([m]))
    site = numpyro.deterministic("site", theta + tau * scale * z)
    squares = rss + ((q - jnp.einsum("kij,kj->ki", R, site)) ** 2).sum(axis=1)
    numpyro.factor("rows", (-0.5 * n * jnp.log(sigma_sq) - squares / (2 * sigma_sq)).sum())
    numpyro.deterministic("log_tau_sq", 2 * jnp.log(tau))
    numpyro.deterministic("log_eta", jnp.log(eta))
    numpyro.deterministic("log_sigma_sq", jnp.log(sigma_sq))


def moments(X, y):
    """R, q, rss of centred rows, and n - 1: the intercepts are integrated out."""
    R, q, rss = [], [], []
    for X_k, y_k in zip(X, y):
        Q_k, R_k = np.linalg.qr(X_k - X_k.mean(axis=0))
        y_k = y_k - y_k.mean()
        R.append(R_k), q.append(Q_k.T @ y_k), rss.append(y_k @ y_k - q[-1] @ q[-1])
    return tuple(jnp.asarray(np.array(a)) for a in (R, q, rss, [len(y_k) - 1.0 for y_k in y]))


def summaries(draws):
    """name -> mean, sd and the Monte-Carlo errors of both, from (chain, draw, ...) arrays."""
    out = {}
    for name in ("theta", "site", "inclusion", "log_tau_sq", "log_eta", "rho", "log_sigma_sq"):
        a = np.asarray(draws[name])
        mean, sd = a.mean(axis=(0, 1)), a.std(axis=(0, 1))
        error, of_square = (az.mcse({"x": x}, method="mean")["x"].values for x in (a, (a - mean) ** 2))
        numbers = {"mean": mean, "sd": sd, "mean_error": error, "sd_error": of_square / (2 * sd)}
        out[name] = {key: np.round(value, 5).tolist() for key, value in numbers.items()}
    return out


def main(path, chains=4, warmup=1000, draws=2500):
    jax.config.update("jax_enable_x64", True)
    stored = {}
    for name, made in DATA.items():
        X, y = federation(**made)
        begin = time.perf_counter()
        kernel = NUTS(model, target_accept_prob=0.97, max_tree_depth=9)
        size = {"num_warmup": warmup, "num_samples": draws, "num_chains": chains}
        sampler = MCMC(kernel, **size, chain_method="sequential", progress_bar=False)
        sampler.run(jax.random.key(made["seed"]), *moments(X, y), extra_fields=("diverging", "num_steps"))
        extra = sampler.get_extra_fields(group_by_chain=True)
        found = sampler.get_samples(group_by_chain=True)
        theta = {"x": np.asarray(found["theta"])}
        stored[name] = {
            "X": [X_k.tolist() for X_k in X],
            "y": [y_k.tolist() for y_k in y],
            "c0": C0,
            "chains": chains,
            "draws": draws,
            "divergences": int(extra["diverging"].sum()),
            "leapfrogs": float(extra["num_steps"].mean()),
            "rhat": float(az.rhat(theta)["x"].max()),
            "ess": float(az.ess(theta)["x"].min()),
            "posterior": summaries(found),
        }
        short = {key: stored[name][key] for key in ("divergences", "leapfrogs", "rhat", "ess")}
        print(name, short, f"{time.perf_counter() - begin:.0f} s", flush=True)
    Path(path).write_text(json.dumps(stored, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_suffix(".json"))
