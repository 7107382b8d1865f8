"""Long NUTS runs of small mixed models with NumPyro: `make references` writes hierarchical.json into
benchmarks/papers/references, from where the tests read it.

The rows are those of tests/support/hierarchical.py, all clients together: y ~ Poisson or Bernoulli,
eta = o + x' beta + tau u_g, beta ~ N(0, 1), tau ~ HalfNormal(1), u_g ~ N(0, 1).
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
from support import hierarchical as h

CHAINS, DRAWS = 8, 20_000
FAMILIES = {"poisson": lambda eta: dist.Poisson(jnp.exp(eta)), "bernoulli": lambda eta: dist.Bernoulli(logits=eta)}


def model(rows, response):
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([rows.X.shape[1]]))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    u = numpyro.sample("u", dist.Normal(0, 1).expand([rows.n_groups]))
    numpyro.sample("y", response(rows.offset + rows.X @ beta + tau * u[rows.group]), obs=rows.y)


def main():
    jax.config.update("jax_enable_x64", True)
    found = {}
    for family, response in FAMILIES.items():
        rows = h.pooled(h.mixed(family))
        kernel = NUTS(model, target_accept_prob=0.95)
        sampler = MCMC(
            kernel, num_warmup=2000, num_samples=DRAWS, num_chains=CHAINS, chain_method="sequential", progress_bar=False
        )
        sampler.run(jax.random.PRNGKey(1), rows, response)
        draws = sampler.get_samples(group_by_chain=True)
        together = np.concatenate([draws["beta"], np.log(draws["tau"])[..., None], draws["u"]], axis=2)
        values = {"mean": together, "square": (together - together.mean(axis=(0, 1))) ** 2}
        found[family] = {}
        for name, value in values.items():
            by_chain = value.mean(axis=1)
            found[family][name] = by_chain.mean(axis=0).tolist()
            found[family][f"{name}_error"] = (by_chain.std(axis=0, ddof=1) / np.sqrt(CHAINS)).tolist()
    out = REFERENCES / "hierarchical.json"
    out.write_text(
        json.dumps({"order": "beta, log tau, u", "chains": CHAINS, "draws": DRAWS, "families": found}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
