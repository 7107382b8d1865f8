"""Long NUTS runs of mixed models with NumPyro: `make references` writes likelihood.json into
benchmarks/papers/references, from where the tests read it.

The rows are those of tests/support/mixed_federations.py, all clients together, the priors the defaults of
`method = "likelihood"` (docs/spec/likelihood.md): columns standardised, coefficients N(0, 2.5^2), the intercept
N(level, 5^2), 1 / sqrt(r) HalfNormal(1); of a Gaussian response times its pooled standard deviation. Standard deviations
of effects are HalfNormal(1), which the tests' jobs give as a prior of these; with a slope rows of T have the default, a
multivariate Student distribution.

Stored of each model: means and standard deviations, with their Monte-Carlo errors, of what its summary calls by these names: in
the columns' own units.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from papers.common import REFERENCES
from support.mixed_federations import KINDS, federation

CHAINS, WARMUP, DRAWS = 8, 1500, 6000


def rows(name, seed=1):
    """All clients' rows together, groups counted through."""
    clients = federation(name, seed)
    together = {key: np.concatenate([getattr(c, key) for c in clients]) for key in ("x", "exposed", "y")}
    groups = KINDS[name].groups
    together["group"] = np.concatenate([np.maximum(c.ward, 0) + k * groups for k, c in enumerate(clients)])
    together["client"] = np.repeat(np.arange(len(clients)), [len(c.y) for c in clients])
    return together


def model(kind, X, z, group, client, y, level, unit):
    a = numpyro.sample("a", dist.Normal(0, 5))
    b = numpyro.sample("b", dist.Normal(0, 2.5).expand([X.shape[1]]))
    eta = a + X @ b
    if kind.groups:
        d = 2 if kind.slope else 1
        tau = numpyro.sample("tau", dist.HalfNormal(1).expand([d]))
        u = numpyro.sample("u", dist.Normal(0, 1).expand([kind.clients * kind.groups, d]))
        if d == 2:
            off = numpyro.sample("off", dist.Normal(0, 1))
            for d, square in ((1, tau[0] ** 2), (2, off**2 + tau[1] ** 2)):  # Student's in the place of the normal density
                numpyro.factor(f"row {d}", 0.5 * square - 0.5 * (3 + d) * jnp.log1p(square / (3 * 2.5**2)))
            eta = eta + tau[0] * u[group, 0] + z * (off * u[group, 0] + tau[1] * u[group, 1])
        else:
            eta = eta + tau[0] * u[group, 0]
    if kind.client:
        sd = numpyro.sample("client", dist.HalfNormal(1))
        eta = eta + sd * numpyro.sample("v", dist.Normal(0, 1).expand([kind.clients]))[client]
    if kind.family == "bernoulli":
        response = dist.Bernoulli(logits=level + eta)
    elif kind.family == "poisson":
        response = dist.Poisson(jnp.exp(level + eta))
    elif kind.family == "gaussian":
        response = dist.Normal(eta, numpyro.sample("sigma", dist.HalfNormal(1)))
    else:
        root = numpyro.sample("root", dist.HalfNormal(1))
        response = dist.NegativeBinomial2(jnp.exp(level + eta), root**-2)
    numpyro.sample("y", response, obs=y)


def of_two(tau, off, centre, scale):
    """Standard deviations and correlation of intercept and slope of the column itself, where the intercept is at its 0."""
    first = np.stack([tau[..., 0] - off * centre / scale, -tau[..., 1] * centre / scale])
    second = np.stack([off, tau[..., 1]]) / scale
    sd = np.sqrt((first**2).sum(axis=0)), np.sqrt((second**2).sum(axis=0))
    correlation = (first * second).sum(axis=0) / (sd[0] * sd[1])
    return {"group_sd[intercept]": sd[0], "group_sd[x]": sd[1], "group_correlation[intercept,x]": correlation}


def fitted(name, seed):
    """Draws of what is stored, (chains, draws) each."""
    kind, data = KINDS[name], rows(name, seed)
    raw = np.column_stack([data["x"], data["exposed"]])
    centre, scale = raw.mean(axis=0), raw.std(axis=0)
    X, y, unit = (raw - centre) / scale, data["y"], 1.0
    p = y.mean()
    levels = {"bernoulli": lambda: np.log(p / (1 - p)), "gaussian": lambda: p}
    level = levels.get(kind.family, lambda: np.log(p))()
    if kind.family == "gaussian":
        unit = y.std()
        y = (y - level) / unit
    sampler = MCMC(
        NUTS(model, target_accept_prob=0.95),
        num_warmup=WARMUP,
        num_samples=DRAWS,
        num_chains=CHAINS,
        chain_method="sequential",
        progress_bar=False,
    )
    sampler.run(jax.random.PRNGKey(seed), kind, X, X[:, 0], data["group"], data["client"], y, level, unit)
    draws = {key: np.asarray(value) for key, value in sampler.get_samples(group_by_chain=True).items()}
    slopes = unit * draws["b"] / scale
    found = {
        "intercept": level + unit * draws["a"] - slopes @ centre,
        "theta[x]": slopes[..., 0],
        "theta[exposed]": slopes[..., 1],
    }
    if kind.slope:
        found |= of_two(draws["tau"], draws["off"], centre[0], scale[0])
    elif kind.groups:
        found["group_sd[intercept]"] = unit * draws["tau"][..., 0]
    if kind.client:
        found["client_sd[intercept]"] = draws["client"]
    if kind.family == "gaussian":
        found["sigma"] = unit * draws["sigma"]
    if kind.family == "negative-binomial":
        found["dispersion"] = draws["root"] ** 2
    return found


def summary(draws):
    """Mean and standard deviation with the Monte-Carlo errors that the chains show."""
    means, sd = draws.mean(axis=1), draws.std()
    squares = ((draws - draws.mean()) ** 2).mean(axis=1)
    error = squares.std(ddof=1) / np.sqrt(len(squares)) / (2 * sd)
    return [float(v) for v in (draws.mean(), sd, means.std(ddof=1) / np.sqrt(len(means)), error)]


def main():
    jax.config.update("jax_enable_x64", True)
    path = REFERENCES / "likelihood.json"
    seeds = range(1, 2)
    found = {}
    for name in sys.argv[1:] or KINDS:
        found[name] = {str(seed): {key: summary(v) for key, v in fitted(name, seed).items()} for seed in seeds}
        print(name, {key: [round(v, 4) for v in value] for key, value in found[name]["1"].items()}, flush=True)
        old = json.loads(path.read_text())["models"] if path.is_file() else {}
        content = {"order": "mean, sd, their errors", "chains": CHAINS, "draws": DRAWS, "models": old | found}
        path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
