"""The first update of a job begins at its prior, where a Poisson model's expected counts are astronomic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.errors import NumericalError
from fedkern.models import expfam
from fedkern.models.expfam import Gaussian


def sites(*, skewed: bool) -> dict[str, pd.DataFrame]:
    random, found = np.random.default_rng(5), {}
    for k, name in enumerate("abc"):
        x = np.exp(1.2 * random.normal(size=120)) if skewed else random.normal(size=120)
        age = np.round(random.normal(55, 12, 120))
        y = random.poisson(np.exp(0.3 * np.tanh(x) + 0.02 * (age - 55) + 0.4 * k - 0.5))
        found[name] = pd.DataFrame({"x": x, "age": age, "square": age**2, "kind": random.choice(["p", "q", "r"], 120), "y": y})
    return found


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("model", [{}, {"covariance": "diagonal"}])
def test_a_count_model_begins_whatever_its_columns(model: dict[str, Any], skewed: bool) -> None:
    """A row nine sds out has a prior variance of a hundred: E exp of it is no number beside which others are seen."""
    found = fedkern.run({"model": {"family": "poisson", **model}, "data": {"response": "y"}}, data=sites(skewed=skewed))
    narrow = "covariance" in model  # age and its square
    assert found.converged == (False if narrow else "settled"), found.summary["verdict"]


def test_the_scale_of_a_precision_needs_no_inverse() -> None:
    """An intercept beside the column of the only site that is there: P tells their sum, and hardly anything else."""
    random = np.random.default_rng(0)
    X = np.column_stack([np.ones(30), np.ones(30), random.normal(size=(30, 2))])
    P = 1e8 * X.T @ (np.exp(8 * X[:, 2:3]) * X) + np.diag([0.04, 1.0, 1.0, 1.0])
    L = expfam.scale_of(P)
    assert (np.diag(L) > 0).all()
    assert (np.triu(L, 1) == 0).all()
    assert L[:, 0] @ L[:, 0] > 0
    plain = X.T @ X / 30 + np.eye(4)
    np.testing.assert_allclose(expfam.scale_of(plain), np.linalg.cholesky(np.linalg.inv(plain)), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(Gaussian(np.zeros(4), np.arange(1.0, 5)).scale_tril, np.diag(np.arange(1.0, 5) ** -0.5))
    improper = Gaussian(np.zeros(2), np.array([[1.0, 2.0], [2.0, 1.0]]))
    with pytest.raises(NumericalError, match="not positive definite"):
        improper.variance_of(np.ones((1, 2)))
