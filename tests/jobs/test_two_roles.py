"""A column that is an offset, an entry, a number of trials, a weight or a group may be a covariate as well, as in R."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.errors import JobError

N = 120
# glm, coxph (survival 3.5-3), lmer (lme4 1.1-31) and lm of R 4.2.2, on the rows of `rows`: name -> formula, family, more, numbers
IN_R: dict[str, tuple[str, str, dict[str, Any], dict[str, tuple[float, float]]]] = {
    "offset": ("n ~ x + z + offset(z)", "poisson", {}, {"theta[x]": (0.380821, 0.0918587), "theta[z]": (0.269006, 0.2532901)}),
    "data.offset": ("n ~ x + z", "poisson", {"data": {"offset": "z"}}, {"theta[z]": (0.269006, 0.2532901)}),
    "calculated": ("n ~ x + log(w) + offset(log(w))", "poisson", {}, {"theta[log(w)]": (-1.146346, 0.17783)}),
    "trials": (
        "s ~ x + t",
        "binomial",
        {"data": {"trials": "t"}},
        {"theta[x]": (0.02124, 0.04034), "theta[t]": (0.00259, 0.00586)},
    ),
    "entry": (
        "Surv(entry, time, d) ~ x + entry",
        "cox",
        {},
        {"theta[x]": (-0.156477, 0.111758), "theta[entry]": (-0.313382, 0.275244)},
    ),
    "group": ("y ~ x + t + (1 | t)", "gaussian", {}, {"theta[x]": (1.1855, 0.11327), "theta[t]": (-0.00364, 0.01835)}),
    "weight": (
        "y ~ x + w",
        "gaussian",
        {"data": {"weight": "w"}, "job": {"method": "pvi"}, "model": {"scale": 1.0}},
        {"theta[x]": (1.168709, 0.107397), "theta[w]": (0.19642, 0.205389)},
    ),
}


def rows() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    x, z, w = rng.normal(size=N).round(3), rng.uniform(0, 1, N).round(3), rng.uniform(0.5, 2, N).round(3)
    trials, time = rng.integers(20, 40, N), rng.exponential(size=N).round(4) + 0.01
    n, s = rng.poisson(np.exp(z + 0.3 * x)), rng.binomial(trials, 0.4)
    entry = (time * (np.arange(N) % 7) / 8).round(5)
    y = (x + rng.normal(size=N)).round(3)
    return pd.DataFrame({"x": x, "z": z, "w": w, "t": trials, "time": time, "n": n, "s": s, "entry": entry, "y": y, "d": 1})


def test_a_column_in_two_roles_has_the_answer_of_r() -> None:
    for formula, family, more, of_r in IN_R.values():
        clients = 1 if family == "cox" else 2  # a baseline hazard of each client is another model
        tables = {name: dict(keys) for name, keys in more.items()}
        tables["job"] = {"method": "likelihood"} | tables.get("job", {})
        tables["model"] = {"formula": formula, "family": family} | tables.get("model", {})
        result = fedkern.run(tables, data={f"c{k}": rows().iloc[k::clients] for k in range(clients)})
        for name, (mean, sd) in of_r.items():
            found = result.parameters[name]
            assert abs(found["mean"] - mean) < 0.15 * sd, (formula, name)
            assert found["sd"] == pytest.approx(sd, rel=0.1), (formula, name)


@pytest.mark.parametrize("formula", ["y ~ x + y", "y ~ x + I(y^2)", "Surv(time, d) ~ x + d", "Surv(time, d) ~ x + time"])
def test_a_response_is_no_covariate_of_its_own(formula: str) -> None:
    family = "cox" if "Surv" in formula else "gaussian"
    with pytest.raises(JobError, match="stands among the terms, and is data"):
        fedkern.run({"job": {"method": "likelihood"}, "model": {"formula": formula, "family": family}}, data={"a": rows()})
