"""
Against NumPyro's NUTS
======================

How far is a federated variational posterior from the one that NUTS draws on the pooled rows? The comparison is one command on any
posterior that ArviZ can read.
"""

# %%
# Four sites count events; rates depend on two covariates.
import tempfile
from pathlib import Path

import arviz as az
import jax
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd

import fedkern
from fedkern.cli.__main__ import main

random = np.random.default_rng(5)


def site(n):
    x = random.standard_normal((n, 2))
    return pd.DataFrame({"x": x[:, 0], "z": x[:, 1], "count": random.poisson(np.exp(0.3 + 0.4 * x[:, 0] - 0.2 * x[:, 1]))})


frames = {name: site(n) for name, n in (("a", 60), ("b", 90), ("c", 40), ("d", 110))}
folder = Path(tempfile.mkdtemp())
job = {
    "job": {"method": "pvi", "rounds": 25},
    "data": {"response": "count", "standardise": "none"},
    "model": {"family": "poisson", "covariance": "full"},
}
result = fedkern.run(job, data=frames, out=folder / "run")
print(result)


# %%
# The same model by NUTS.
def model(X, y):
    theta = numpyro.sample("theta", dist.Normal(0, 1).expand([2]).to_event(1))
    intercept = numpyro.sample("intercept", dist.Normal(0, 1))
    numpyro.sample("y", dist.Poisson(jax.numpy.exp(intercept + X @ theta)), obs=y)


pooled = pd.concat(frames.values())
kernel = numpyro.infer.NUTS(model)
nuts = numpyro.infer.MCMC(kernel, num_warmup=500, num_samples=1000, num_chains=2, chain_method="sequential", progress_bar=False)
nuts.run(jax.random.PRNGKey(1), pooled[["x", "z"]].to_numpy(), pooled["count"].to_numpy())
draws = nuts.get_samples(group_by_chain=True)
az.from_numpyro(nuts).to_netcdf(str(folder / "nuts.nc"))

# %%
# Differences in sds of the reference, the worst parameter first.
(folder / "names.toml").write_text('"theta[x]" = "theta[0]"\n"theta[z]" = "theta[1]"\n')
main(["report", str(folder / "run"), "--reference", str(folder / "nuts.nc"), "--names", str(folder / "names.toml")])

# %%
# And in a figure: what NUTS has drawn, and the federated posterior.
marginals = {"theta[x]": draws["theta"][..., 0], "theta[z]": draws["theta"][..., 1], "intercept": draws["intercept"]}
figure, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained")
for axis, (name, values) in zip(axes, marginals.items()):
    mean, sd = result.parameters[name]["mean"], result.parameters[name]["sd"]
    grid = np.linspace(mean - 4 * sd, mean + 4 * sd, 200)
    axis.hist(np.ravel(values), bins=40, density=True, color="0.8", label="NUTS, pooled rows")
    axis.plot(grid, np.exp(-((grid - mean) ** 2) / (2 * sd**2)) / (sd * np.sqrt(2 * np.pi)), color="tab:blue", label="federated")
    axis.set_title(name, loc="left", fontsize=10)
    axis.set_yticks([])
axes[0].legend(fontsize=8)
plt.show()
