"""
How long do implants last?
==========================

Four hospitals put in the same kind of hip, and want to know how the risk of a revision changes with the years, and whether it is
higher in heavier patients. No row leaves a hospital. All share one hazard, so that the result is a curve with its interval, and
not only a ratio. The rows here are simulated, so that the truth is known.
"""

# %%
# The rows: each patient's body mass index, years until a revision or the last visit, and which of the two it was. Things that
# wear out have a hazard that rises: here with the power .8 of the time.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fedkern

SHAPE, EFFECT = 1.8, 0.05  # of the hazard, and of a unit of the index on its logarithm


def hospital(k, patients=250):
    rng = np.random.default_rng([7, k])
    bmi = rng.normal(27, 4, patients)
    rate = np.exp(EFFECT * (bmi - 27)) * 12.0**-SHAPE
    years = (rng.exponential(size=patients) / rate) ** (1 / SHAPE)
    seen = rng.uniform(2, 20, patients)
    return pd.DataFrame({"bmi": bmi, "years": np.minimum(years, seen).round(3) + 0.001, "revised": (years <= seen).astype(int)})


frames = {f"hospital-{k + 1}": hospital(k) for k in range(4)}
at = [float(t) for t in range(1, 20, 2)]


def fitted(family, **model):
    job = {
        "job": {"method": "likelihood"},
        "data": {"time": "years", "event": "revised"},
        "model": {"family": family, **model},
        "output": {"survival_at": at, "restricted_mean": 15.0},
    }
    return fedkern.run(job, data=frames)


# %%
# A constant hazard is the simplest thought. The first line of its result says that the rows have none.
constant = fitted("exponential")
print(constant.summary["verdict"])

# %%
# A Weibull model has a hazard that rises or falls with a power of the time.
weibull = fitted("weibull")
print(weibull)

# %%
# A piecewise one assumes next to nothing: a level for each piece of time, each near that of the piece before.
pieces = fitted("piecewise", cuts=[4.0, 7.0, 11.0, 15.0])
for name, other in (("exponential", constant), ("piecewise", pieces)):
    print(f"log Bayes factor of Weibull against {name}: {weibull.compare(other)['log_bayes_factor']:.1f}")

# %%
# Of the first 15 years, how many does an implant last, in a patient with the average index?
for name, result in (("Weibull", weibull), ("piecewise", pieces)):
    row = result.summary["restricted_mean"]
    print(f"{name}: {row['mean']:.2f} ({row['q025']:.2f} to {row['q975']:.2f})")

# %%
# The curves: both models' with their 95 % intervals, the constant hazard's, and the truth.
t = np.linspace(0, 19, 200)
fig, axes = plt.subplots(figsize=(7, 4.2))
axes.plot(t, np.exp(-((t / 12) ** SHAPE)), "k--", lw=1, label="truth")
for result, colour, label in ((constant, "C3", "exponential"), (weibull, "C0", "Weibull"), (pieces, "C2", "piecewise")):
    rows = pd.DataFrame(result.summary["survival"])
    axes.plot(rows.time, rows["mean"], color=colour, marker="o", ms=3, label=label)
    axes.fill_between(rows.time, rows.q025, rows.q975, color=colour, alpha=0.15, lw=0)
axes.set(xlabel="years", ylabel="probability of no revision", ylim=(0, 1.02), xlim=(0, 19.5))
axes.legend(frameon=False)
plt.show()
