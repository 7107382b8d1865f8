"""
What a privacy budget buys
==========================

The same regression with differential privacy at several budgets. Each client adds noise of its own to every update, so that
nobody has to be trusted; what that costs is seen in the posterior.
"""

# %%
# Two clients with a thousand rows each. A private job asks no row what a column is: constants come from the job.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fedkern

random = np.random.default_rng(3)
theta = np.array([1.0, -0.5])


def client(n):
    X = random.standard_normal((n, 2))
    y = random.random(n) < 1 / (1 + np.exp(-X @ theta))
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y.astype(int)})


frames = {"ada": client(1000), "bea": client(1000)}
job = {
    "job": {"method": "pvi", "rounds": 40, "seed": 1},
    "data": {"response": "y", "columns": {"a": {"center": 0, "scale": 1}, "b": {"center": 0, "scale": 1}}},
    "algorithm": {"local_steps": 5, "learning_rate": 0.5},
}
private = {**job, "algorithm": {**job["algorithm"], "posterior": "noise-aware"}}
privacy = {"delta": 1e-5, "clip": 2.0, "sampling_rate": 0.1, "calibrate": True}

# %%
# ``calibrate`` finds the noise with which all rounds fit the budget. What was spent stands in each client's certificate. With
# ``posterior = "noise-aware"`` the released posterior contains the noise.
results = {"no noise": fedkern.run(job, data=frames)}
for epsilon in (8.0, 2.0, 0.5):
    results[f"epsilon {epsilon:g}"] = fedkern.run(private, data=frames, privacy={**privacy, "epsilon": epsilon})
for name, result in results.items():
    print(f"{name:>12}  {result.summary['verdict']}")
    for client_name, certificate in result.privacy.items():
        claim = f"({certificate['epsilon']:.3f}, {certificate['delta']:g})"
        print(f"{name:>12}  {client_name}: {claim}, noise {certificate['noise_multiplier']:.3g} times the clip")

# %%
# The noise moves the means, and the intervals say by how much: they are the wider the smaller the budget is.
figure, axis = plt.subplots(figsize=(7, 3), layout="constrained")
for k, parameter in enumerate(("theta[a]", "theta[b]")):
    for y, result in enumerate(results.values()):
        row = result.parameters[parameter]
        axis.errorbar(row["mean"], y + 0.2 * k, xerr=1.96 * row["sd"], fmt="o", color=f"C{k}", label="" if y else parameter)
    axis.axvline(theta[k], color=f"C{k}", linestyle=":", linewidth=1)
axis.set_yticks(range(len(results)), list(results))
axis.set_xlabel("coefficient, 95 % interval; dotted: truth")
axis.legend(loc="lower left")
plt.show()
