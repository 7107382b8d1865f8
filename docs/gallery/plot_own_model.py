"""
A dose-response curve of one's own, in JAX
==========================================

At which dose is half of the effect reached? Five hospitals have tried doses of their own, some only low ones, some only high:
none of them can say. Hill's equation with parameters that all share is none of the models that come with fedkern, so somebody has
written its log-likelihood in JAX, in a package that each hospital has installed. No row leaves a hospital, and no code travels.
"""

# %%
# The package. A holder reads it and installs it, by `pip install`. Here that is done by hand, into a folder of its own: one
# module, and what says that it belongs to the distribution emax-model, 1.0.
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fedkern

MODULE = """
import jax.numpy as jnp

from fedkern.models.own import from_jax


def loglik(theta, dose, effect):
    base, gain, half, sigma = theta
    expected = base + gain * dose / (half + dose)
    return jnp.sum(-0.5 * ((effect - expected) / sigma) ** 2 - jnp.log(sigma) - 0.5 * jnp.log(2 * jnp.pi))


def make(table, options):
    return from_jax(loglik, ["base", "gain", "half", "sigma"], table["dose"], table["effect"])
"""
packages = Path(tempfile.mkdtemp())
information = packages / "emax_model-1.0.dist-info"
information.mkdir()
(packages / "emax_model.py").write_text(MODULE)
(information / "METADATA").write_text("Metadata-Version: 2.1\nName: emax-model\nVersion: 1.0\n")
(information / "RECORD").write_text("emax_model.py,,\nemax_model-1.0.dist-info/METADATA,,\n")

# %%
# The hospitals' rows.
random = np.random.default_rng(4)
truth = {"base": 2.0, "gain": 8.0, "half": 40.0, "sigma": 1.5}


def hospital(low, high, patients):
    dose = random.uniform(low, high, patients).round()
    mean = truth["base"] + truth["gain"] * dose / (truth["half"] + dose)
    return pd.DataFrame({"dose": dose, "effect": random.normal(mean, truth["sigma"])})


ranges = {"a": (0, 15), "b": (5, 30), "c": (20, 60), "d": (100, 200), "e": (150, 400)}
frames = {name: hospital(*between, 60) for name, between in ranges.items()}

# %%
# The job: which function, and a prior of each parameter. Positive ones travel as logarithms, and are published as they are.
job = {
    "job": {"method": "likelihood"},
    "model": {
        "kind": "own",
        "factory": "emax_model:make",
        "priors": {
            "base": {"kind": "normal", "sd": 10.0},
            "gain": {"kind": "normal", "sd": 10.0},
            "half": {"kind": "gamma", "shape": 2.0, "rate": 0.05},
            "sigma": {"kind": "half-normal", "sd": 5.0},
        },
    },
}
sys.path.append(str(packages))  # which an installed package does not need; sphinx-gallery (0.22) forgets it after each block
together = fedkern.run(job, data=frames)
print(together)

# %%
# What a hospital would say alone, and all of them in one place. Alone, b and c are "not converged": of their long tails the
# standard deviations are known to some percent, which the figure does not show.
sys.path.append(str(packages))
alone = {name: fedkern.run(job, data={name: frame}) for name, frame in frames.items()}
pooled = fedkern.run(job, data={"pooled": pd.concat(frames.values())})
halves = {name: result.parameters["half"] for name, result in {**alone, "federated": together, "pooled": pooled}.items()}
difference = max(abs(together.parameters[name]["mean"] - own["mean"]) / own["sd"] for name, own in pooled.parameters.items())
print(f"largest difference from the pooled posterior: {difference:.4f} sd")

# %%
# The dose of half the effect, with 95 % intervals; and the curve, of 200 draws of what all hospitals say together.
draws = together.to_arviz()["posterior"]
some = {name: np.asarray(draws[name]).ravel()[::20] for name in truth}
doses = np.linspace(0, 400, 200)
curves = some["base"][:, None] + some["gain"][:, None] * doses / (some["half"][:, None] + doses)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
for y, (name, row) in enumerate(reversed(halves.items())):
    colour = "tab:blue" if name in ("federated", "pooled") else "0.5"
    left.plot([row["q025"], row["q975"]], [y, y], color=colour)
    left.plot(row["q50"], y, "o", color=colour)
left.axvline(truth["half"], color="0.8", zorder=0)
left.set_yticks(range(len(halves)), list(reversed(halves)))
left.set_xlabel("dose of half the effect")
for name, frame in frames.items():
    right.plot(frame["dose"], frame["effect"], ".", markersize=3, label=name)
right.fill_between(doses, *np.quantile(curves, [0.025, 0.975], axis=0), color="tab:blue", alpha=0.3)
right.plot(doses, np.median(curves, axis=0), color="tab:blue")
right.set_xlabel("dose")
right.set_ylabel("effect")
right.legend(title="hospital", ncols=5, fontsize=7)
plt.show()
