"""Powers of clients' likelihoods: a posterior that is known, what the result says of it, and what has none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.errors import JobError

N = 60


def rows(seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=N)
    return pd.DataFrame({"x": x, "y": (rng.random(N) < 1 / (1 + np.exp(-0.4 - 0.8 * x))).astype(int)})


DATA = {"a": rows(1), "b": rows(2)}


def run(powers: dict[str, float], **output: Any) -> Any:
    job = {
        "job": {"method": "likelihood", "seed": 1},
        "data": {"response": "y", "standardise": "none"},
        "model": {"prior_sd": 1.0, "intercept_sd": 1.0, "intercept_centre": 0.0},
        "algorithm": {"client_weights": powers},
        "output": {"draws": 500, **output},
    }
    return fedkern.run(job, data=DATA)


def on_a_grid(powers: dict[str, float]) -> tuple[np.ndarray, np.ndarray]:
    """Means and sds of intercept and slope, by a sum over a grid."""
    grid = np.linspace(-2, 3, 251)
    b, w = np.meshgrid(grid, grid, indexing="ij")
    value = -0.5 * (b**2 + w**2)
    for name, frame in DATA.items():
        for x, y in zip(frame["x"], frame["y"]):
            value += powers[name] * (y * (b + w * x) - np.logaddexp(0, b + w * x))
    weight = np.exp(value - value.max())
    weight /= weight.sum()
    means = np.array([(weight * one).sum() for one in (b, w)])
    return means, np.sqrt([(weight * (one - mean) ** 2).sum() for one, mean in zip((b, w), means)])


def test_the_posterior_is_the_prior_times_powers_of_likelihoods() -> None:
    powers = {"a": 1.0, "b": 0.3}
    result = run(powers)
    mean, sd = on_a_grid(powers)
    found = list(result.parameters.values())
    np.testing.assert_allclose([row["mean"] for row in found], mean, atol=0.06 * sd.min())
    np.testing.assert_allclose([row["sd"] for row in found], sd, rtol=0.04)
    assert (np.abs(on_a_grid({"a": 1.0, "b": 1.0})[1] / sd - 1) > 0.08).all(), "a power of 1 is another posterior"
    assert result.summary["power_likelihood"] == {"b": 0.3}
    assert "power likelihood, wider than that of all rows: b^0.3" in str(result)


def test_a_power_of_1_is_the_likelihood_itself() -> None:
    plain, one = run({}), run({"a": 1.0})
    assert one.summary["digest"] == plain.summary["digest"]
    assert "log_evidence" in one.summary


def test_it_has_no_evidence_and_is_not_compared() -> None:
    plain, powered = run({}), run({"a": 0.5})
    assert "log_evidence" not in powered.summary
    for one, other in ((plain, powered), (powered, plain)):
        with pytest.raises(JobError, match=r"a power likelihood .* has no evidence"):
            one.compare(other)


@pytest.mark.parametrize(
    ("powers", "output", "said"),
    [
        ({"a": 0.5}, {"loo": True}, "foresees no row"),
        ({"a": 0.5}, {"without": True}, "a client's whole likelihood"),
        ({"a": 0.0}, {}, "algorithm.client_weights"),
        ({"a": 1.5}, {}, "algorithm.client_weights"),
        ({"c": 0.5}, {}, "there is no such client"),
    ],
)
def test_powers_that_cannot_be(powers: dict[str, float], output: dict[str, Any], said: str) -> None:
    with pytest.raises(JobError, match=said):
        run(powers, **output)
