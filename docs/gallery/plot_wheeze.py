"""
Wheezing children, and their mothers' smoking
=============================================

Were children of smoking mothers more often wheezing? 537 children of Steubenville, Ohio, were seen each year from age 7 to 10:
2,148 rows, of which four are of one child. Rows of a child are alike beyond what is measured, so each child has an effect of its
own. Here four clinics have the children, no row leaves them, and the posterior is the one that all rows together would give.
"""

# %%
# The rows. The children's answers are published as counts of the 16 patterns of four years, from "never" to "always", for mothers
# who do not smoke and who do (Fitzmaurice and Laird, 1993, Biometrika 80:141-151): all there is to know of the 2,148 rows.
from itertools import product

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fedkern

not_smoking = [237, 10, 15, 4, 16, 2, 7, 3, 24, 3, 3, 2, 6, 2, 5, 11]
smoking = [118, 6, 8, 2, 11, 1, 6, 4, 7, 3, 3, 1, 4, 2, 4, 7]
children = [
    (smoke, pattern)
    for smoke, counts in ((0, not_smoking), (1, smoking))
    for pattern, count in zip(product((0, 1), repeat=4), counts)
    for _ in range(count)
]
order = np.random.default_rng(1).permutation(len(children))


def clinic(k):
    """Every fourth child of a shuffled list, four rows each."""
    rows = [
        {"child": f"child {i}", "age": age, "smoke": children[i][0], "wheeze": wheeze}
        for i in order[k::4]
        for age, wheeze in zip((7, 8, 9, 10), children[i][1])
    ]
    return pd.DataFrame(rows)


frames = {f"clinic-{k + 1}": clinic(k) for k in range(4)}

# %%
# The job: a logistic regression with a random intercept of each child.
job = {
    "job": {"method": "likelihood"},
    "data": {"response": "wheeze"},
    "model": {"family": "bernoulli", "random": {"group": "child"}},
}
together = fedkern.run(job, data=frames)
print(together)

# %%
# What it took, and how sure the answer is: rounds of messages, k-hat and the number of effective draws.
summary = together.summary
print({key: summary[key] for key in ("rounds_to_mode", "rounds_of_draws", "k_hat", "ess")})

# %%
# The same model on all rows in one place: the difference is that of rounding.
pooled = fedkern.run(job, data={"pooled": pd.concat(frames.values())})
difference = max(
    abs(together.parameters[name]["mean"] - own["mean"]) / own["sd"] for name, own in pooled.parameters.items() if own["sd"]
)
print(f"largest difference from the pooled posterior: {difference:.4f} sd")

# %%
# Each clinic alone could say little. Odds ratios with 95 % intervals, of a child's odds:
results = {name: fedkern.run(job, data={name: frame}) for name, frame in frames.items()}
results |= {"federated": together, "pooled": pooled}
rows = {name: result.table(exp=True).set_index("parameter") for name, result in results.items()}
shown = {"theta[smoke]": "mother smokes", "theta[age]": "a year older"}
figure, axes = plt.subplots(1, len(shown), figsize=(9, 3), sharey=True, layout="constrained")
for axis, (parameter, words) in zip(axes, shown.items()):
    for y, (name, table) in enumerate(reversed(rows.items())):
        row = table.loc[parameter]
        colour = "tab:blue" if name in ("federated", "pooled") else "0.5"
        axis.plot([row["q025"], row["q975"]], [y, y], color=colour)
        axis.plot(row["odds_ratio"], y, "o", color=colour)
    axis.axvline(1, color="0.8", zorder=0)
    axis.set_xscale("log")
    axis.set_title(words, loc="left", fontsize=10)
    axis.set_xlabel("odds ratio")
axes[0].set_yticks(range(len(rows)), list(reversed(rows)))
plt.show()
