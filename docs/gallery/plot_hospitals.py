"""
Three hospitals, one regression
===============================

Three hospitals want one logistic regression, and rows are to stay where they are. Each hospital fits its own against what it was
told of the others'; the posterior is that of all rows together. The job is not private: what a hospital with few rows sends would
tell them.
"""

# %%
# The rows. In a real study each hospital has its own file, and ``fedkern launch`` or ``mpirun`` starts a process beside it; here
# all are frames of one process.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fedkern

random = np.random.default_rng(7)


def hospital(n, level):
    """`level`: how ill its patients are beyond what is measured."""
    age, sex, dose = random.normal(60, 12, n).round(2), random.choice(["F", "M"], n), random.choice([0, 10, 20], n)
    logit = level + 0.05 * (age - 60) + 0.5 * (sex == "M") - 0.06 * dose
    return pd.DataFrame({"age": age, "sex": sex, "dose": dose, "died": (random.random(n) < 1 / (1 + np.exp(-logit))).astype(int)})


frames = {"north": hospital(300, -0.5), "south": hospital(150, 0.0), "west": hospital(80, -0.5)}

# %%
# The job: the tables of a job file.
job = {
    "job": {"method": "pvi", "rounds": 25},
    "data": {"response": "died", "columns": {"sex": {"kind": "categorical", "levels": ["F", "M"], "reference": "F"}}},
    "model": {"family": "bernoulli", "covariance": "full"},
}
together = fedkern.run(job, data=frames)
print(together)

# %%
# Each hospital alone, and all rows in one place, by the same model. The federated posterior is the pooled one.
alone = {name: fedkern.run(job, data={name: frame}) for name, frame in frames.items()}
pooled = fedkern.run(job, data={"pooled": pd.concat(frames.values())})
results = {**alone, "federated": together, "pooled": pooled}
rows = {name: result.table(exp=True).set_index("parameter") for name, result in results.items()}
difference = max(
    abs(together.parameters[name]["mean"] - pooled.parameters[name]["mean"]) / pooled.parameters[name]["sd"]
    for name in pooled.parameters
)
print(f"largest difference from the pooled posterior: {difference:.4f} sd")

# %%
# Odds ratios with 95 % intervals.
shown = ["sex[M vs F]", "theta[age]", "theta[dose]"]
figure, axes = plt.subplots(1, len(shown), figsize=(10, 3), sharey=True, layout="constrained")
for axis, parameter in zip(axes, shown):
    for y, (name, table) in enumerate(reversed(rows.items())):
        row = table.loc[parameter]
        colour = "tab:blue" if name in ("federated", "pooled") else "0.5"
        axis.plot([row["q025"], row["q975"]], [y, y], color=colour)
        axis.plot(row["odds_ratio"], y, "o", color=colour)
    axis.axvline(1, color="0.8", zorder=0)
    axis.set_title(parameter, loc="left", fontsize=10)
    axis.set_xlabel("odds ratio")
axes[0].set_yticks(range(len(rows)), list(reversed(rows)))
plt.show()
