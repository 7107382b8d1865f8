"""
Heart disease in four hospitals
===============================

Which covariates explain the largest heart rate, and where does one hospital differ? A sparse hierarchical regression: every
hospital has its own coefficients around global ones that may be zero. It is sampled exactly, while rows
stay in their hospitals. (What is sent in their place can tell them where they are few: the page on what messages tell.)
"""

# %%
# With ``FEDKERN_DATA`` the rows are those of the UCI collection (Cleveland, Hungary, Switzerland, VA Long Beach). Without it they
# are simulated: four hospitals of unlike sizes, five covariates of which two matter, one of them more in one hospital.
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fedkern

random = np.random.default_rng(11)
job = {
    "job": {"method": "sparse", "seed": 1},
    "model": {"kind": "regression"},
    "algorithm": {"share_local": True, "until": {"ess": 200, "rhat": 1.02, "max_rounds": 6000}},
}


def simulated(n, slope):
    X = random.standard_normal((n, 5))
    rate = 145 - 7 * X[:, 0] + slope * X[:, 2] + 20 * random.standard_normal(n)
    return pd.DataFrame({**dict(zip(("age", "pressure", "depression", "cholesterol", "sugar"), X.T)), "rate": rate})


if Path(os.environ.get("FEDKERN_DATA", "nowhere"), "uci-heart-disease").is_dir():
    job["data"], job["model"]["missing"], frames = {"builtin": "heart-disease"}, "impute", None
else:
    job["data"] = {"response": "rate"}
    sizes = {"cleveland": (300, -4), "hungary": (290, -4), "switzerland": (120, -4), "long-beach": (200, -12)}
    frames = {name: simulated(n, slope) for name, (n, slope) in sizes.items()}
result = fedkern.run(job, data=frames)
print(result)

# %%
# How probable is it that a covariate has an effect at all, and what is it?
table = result.table()
found = table[table["pip"].notna() & (table["site"] == "")].sort_values("pip")
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
left.barh(found["parameter"], found["pip"], color="tab:blue")
left.set_xlabel("posterior inclusion probability")
left.set_xlim(0, 1)
right.errorbar(found["mean"], found["parameter"], xerr=1.96 * found["sd"], fmt="o", color="tab:blue")
right.axvline(0, color="0.8", zorder=0)
right.set_xlabel("effect on the largest heart rate, 95 % interval")
plt.show()
