"""An outcome that is coded the other way round at one client is named by a sparse job, and hospitals that differ are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import fedkern
from support.found import clients, ids

NAMES = ("ada", "bo", "cy", "di")


def frames(seed: int, m: int, n: int, other: int = -1, of_slopes: float = 0.0, tau: float = 0.5) -> dict[str, pd.DataFrame]:
    rng, made = np.random.default_rng(seed), {}
    for k in range(m):
        X = rng.normal(size=(n, 3))
        eta = -1 + tau * rng.normal() + X @ (np.array([0.8, -0.7, 0.0]) + of_slopes * rng.normal(size=3))
        y = (rng.uniform(size=n) < expit(eta)).astype(int)
        made[NAMES[k]] = pd.DataFrame({"x": X[:, 0], "z": X[:, 1], "w": X[:, 2], "died": 1 - y if k == other else y})
    return made


def fitted(data: dict[str, pd.DataFrame], **algorithm: Any) -> Any:
    job = {
        "job": {"method": "sparse", "seed": 3, "rounds": 300},
        "data": {"response": "died"},
        "model": {"family": "bernoulli"},
        "algorithm": {"burn_in": 100, "chains": 2, **algorithm},
    }
    return fedkern.run(job, data=data)


@pytest.mark.parametrize("of_slopes", [0.0, 0.3])
def test_clients_that_differ_are_not_named(of_slopes: float) -> None:
    for seed in (1, 2):
        result = fitted(frames(seed, 3, 200, of_slopes=of_slopes, tau=1.0))
        assert not ids(result) & {"response-reversed", "slopes-reversed", "outcome-reversed"}


def test_a_column_of_one_value_at_a_client_is_left_out_there() -> None:
    data = frames(1, 4, 300, other=1)
    data["cy"]["w"] = 0.0
    assert clients(fitted(data), "response-reversed") == ["bo"]


def test_where_the_server_has_sums_alone_nobody_is_named() -> None:
    result = fitted(frames(1, 3, 300, other=1), aggregate="sums")
    assert "response-reversed" not in ids(result)
