"""Shapes, precisions and dispersions far from 1 are those of maximum likelihood, and sds of coefficients with them.

Numbers of R 4.2.2 on the rows of `rows`: `glm(y ~ x, Gamma("log"))` with `gamma.shape` of MASS 7.3-58.2, `survreg` of
survival 3.5-3, `vglm(y ~ x, betaff(zero = 2))` of VGAM 1.1-7, and `optim` of `dnbinom` with its Hessian, for sds of `glm.nb` are
those of the expected information.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedkern

IN_R: dict[str, dict[str, tuple[float, float]]] = {
    "gamma": {"intercept": (0.99990675, 0.0001033379), "theta[x]": (0.30021558, 0.00011402183), "shape": (1648782.5, 301025.1)},
    "beta": {
        "intercept": (-0.0019111863, 0.00063848235),
        "theta[x]": (0.29849495, 0.00071764522),
        "precision": (175483.0, 32038.6),
    },
    "weibull": {"intercept": (-150.30832, 15.605651), "theta[x]": (-0.71286402, 0.15495587), "shape": (75.141378, 7.7820035)},
    "negative-binomial": {
        "intercept": (0.63780332, 0.25712223),
        "theta[x]": (0.26241777, 0.19874966),
        "dispersion": (25.725185, 4.0244689),
    },
}


def rows(family: str) -> pd.DataFrame:
    rng = np.random.default_rng(7)
    n = {"negative-binomial": 400}.get(family, 60)
    x = rng.normal(size=n).round(3)
    mean = np.exp(1 + 0.3 * x)
    if family == "gamma":  # of a standard deviation of a thousandth of the mean
        y = rng.gamma(1e6, mean / 1e6).round(6)
    elif family == "beta":
        p = 1 / (1 + np.exp(-0.3 * x))
        y = rng.beta(1e5 * p, 1e5 * (1 - p)).round(7)
    elif family == "weibull":
        y = (np.exp(2 + 0.01 * x) * rng.weibull(80, n)).round(5)
    else:
        y = rng.poisson(mean * rng.gamma(0.05, 20, n)).astype(float)
    return pd.DataFrame({"x": x, "y": y, "event": 1})


@pytest.mark.parametrize("family", IN_R)
def test_a_shape_far_from_1_is_that_of_rows(family: str) -> None:
    frame = rows(family)
    formula = "Surv(y, event) ~ x" if family == "weibull" else "y ~ x"
    tables = {"job": {"method": "likelihood"}, "model": {"formula": formula, "family": family}}
    result = fedkern.run(tables, data={name: frame.iloc[k::2] for k, name in enumerate("ab")})
    assert result.converged
    for name, (mean, sd) in IN_R[family].items():
        found = result.parameters[name]
        assert abs(found["mean"] - mean) < 0.35 * sd, name
        assert found["sd"] == pytest.approx(sd, rel=0.25), name
