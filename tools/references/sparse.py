"""Long NUTS runs of the sparse regression on three small federations: `make references` writes sparse.json into
benchmarks/papers/references, from where the tests read it.

An independent program (NumPyro) for the same posterior, with gamma summed and deviations integrated out: given the scales
they are Gaussian, and without them there is no funnel (24 leapfrogs a draw; d = tau lambda z takes 120 to 250 and diverges).
Coefficients of sites are drawn afterwards. Summaries are stored with their Monte-Carlo errors, and comparisons allow for
these.
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

from papers.common import REFERENCES

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
    scale = tau * numpyro.sample("lambda", dist.HalfCauchy(1.0).expand([m, p]))
    sigma_sq = numpyro.sample("sigma_sq", dist.InverseGamma(2.0, 1.0).expand([m]))
    V = R * (scale / jnp.sqrt(sigma_sq)[:, None])[:, None, :]
    L = jnp.linalg.cholesky(jnp.eye(p) + V @ V.mT)  # q ~ N(R theta, sigma^2 L L')
    z = jax.scipy.linalg.solve_triangular(L, (q - R @ theta)[..., None], lower=True)[..., 0]
    log_det = jnp.log(jnp.diagonal(L, axis1=1, axis2=2)).sum()
    numpyro.factor("rows", (-0.5 * n * jnp.log(sigma_sq) - (rss + (z**2).sum(axis=1)) / (2 * sigma_sq)).sum() - log_det)
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


def coefficients(draws, R, q, seed):
    """theta_k of every draw, (chain, draw, m, p), given the rest: N(theta + mean, covariance) of d."""
    theta, tau, scale, sigma_sq = (np.asarray(draws[name]) for name in ("theta", "tau", "lambda", "sigma_sq"))
    s = tau[..., None, :] * scale / np.sqrt(sigma_sq)[..., None]
    A = np.eye(s.shape[-1]) + s[..., :, None] * (np.asarray(R).mT @ R) * s[..., None, :]
    rest = ((q - np.einsum("kij,...j->...ki", R, theta))[..., None, :] @ R)[..., 0, :] / np.sqrt(sigma_sq)[..., None]
    L = np.linalg.cholesky(A)
    z = np.random.default_rng(seed).standard_normal(s.shape)
    u = np.linalg.solve(A, (s * rest)[..., None]) + np.linalg.solve(L.mT, z[..., None])
    return theta[..., None, :] + tau[..., None, :] * scale * u[..., 0]


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


def main(path, chains=4, warmup=1000, draws=4000):
    jax.config.update("jax_enable_x64", True)
    stored = {}
    for name, made in DATA.items():
        X, y = federation(**made)
        begin = time.perf_counter()
        kernel = NUTS(model, target_accept_prob=0.95)
        size = {"num_warmup": warmup, "num_samples": draws, "num_chains": chains}
        sampler = MCMC(kernel, **size, chain_method="sequential", progress_bar=False)
        given = moments(X, y)
        sampler.run(jax.random.key(made["seed"]), *given, extra_fields=("diverging", "num_steps"))
        extra = sampler.get_extra_fields(group_by_chain=True)
        found = sampler.get_samples(group_by_chain=True)
        found["site"] = coefficients(found, *given[:2], made["seed"])
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
    main(sys.argv[1] if len(sys.argv) > 1 else REFERENCES / "sparse.json")
