"""Draws from the posterior of a regression with groups of two columns by numpyro's NUTS, on the pooled rows.

python groups_nuts.py DATA.csv FAMILY RESPONSE COVARIATE|- COLUMN:COLUMN COLUMN:.. OUT.json: a group is of several columns'
labels. The priors are those of `likelihood`. `groups_reference.py` calls it.
"""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from numpyro.infer import MCMC, NUTS


def half_student(scale):
    return dist.FoldedDistribution(dist.StudentT(3.0, 0.0, scale))


def main(path, family, response, covariate, *rest):
    *groups, out = rest
    table = pd.read_csv(path)
    y = table[response].to_numpy(float)
    codes = [pd.factorize(table[g.split(":")].astype(str).agg(":".join, axis=1))[0] for g in groups]
    x = np.zeros(len(y)) if covariate == "-" else table[covariate].to_numpy(float)
    level, scale = (y.mean(), y.std()) if family == "gaussian" else (np.log(y.mean() / (1 - y.mean())), 1.0)
    width = 1.0 if family == "gaussian" else 2.5
    z = x if covariate == "-" else (x - x.mean()) / x.std()

    def model():
        intercept = numpyro.sample("at_means", dist.Normal(level, 5 * scale))
        beta = numpyro.sample("beta", dist.Normal(0, 2.5 * scale))
        eta = intercept + beta * z
        for name, code in zip(groups, codes):
            sd = numpyro.sample(f"sd {name}", half_student(width * scale))
            u = numpyro.sample(f"u {name}", dist.Normal(jnp.zeros(code.max() + 1), 1))
            eta = eta + sd * u[code]
        if family == "gaussian":
            sigma = numpyro.sample("sigma", dist.HalfNormal(scale))
            numpyro.sample("y", dist.Normal(eta, sigma), obs=y)
        else:
            numpyro.sample("y", dist.Bernoulli(logits=eta), obs=y)

    numpyro.enable_x64()
    options = {"num_warmup": 1000, "num_samples": 5000, "num_chains": 2, "chain_method": "sequential"}
    chains = MCMC(NUTS(model, target_accept_prob=0.95), **options)
    chains.run(jax.random.PRNGKey(1))
    drawn = chains.get_samples(group_by_chain=True)
    found = {}
    for name, values in drawn.items():
        if not name.startswith("u "):
            summary = numpyro.diagnostics.summary({name: values}, group_by_chain=True)[name]
            found[name] = {key: float(summary[key]) for key in ("mean", "std", "n_eff", "r_hat")}
    if covariate != "-":
        theta = np.asarray(drawn["beta"]) / x.std()
        found["theta"] = {"mean": float(theta.mean()), "std": float(theta.std())}
    with open(out, "w") as file:
        json.dump(found, file, indent=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
