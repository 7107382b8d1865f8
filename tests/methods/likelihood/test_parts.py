"""A few rows of a kind whose terms stand alone in the messages are read off them, so a job refuses them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.errors import JobError
from fedkern.kernels import mixed

N, SECRET = 300, 17


def read_off(family: str, y: np.ndarray, x: np.ndarray, upper: np.ndarray | None, numbers: list[float]) -> float:
    """The covariate of the one row whose terms do not cancel, from two honest answers."""
    X = np.column_stack([np.ones(N), x])
    points = np.array([[-0.4, 0.1, *numbers], [0.3, -0.2, *numbers]])
    ones, starts = np.ones(N), np.arange(N + 1)
    Z = np.zeros((N, 0))
    _, gradient, curved = mixed.curvature(points, X, Z, y, ones, None, starts, upper, None, family=family, nodes=1)
    both = gradient[:, :2] + curved[:, :2]  # the first column of minus the Hessian; of all other rows a constant
    return float((both[1, 1] - both[0, 1]) / (both[1, 0] - both[0, 0]))


def test_the_one_zero_and_the_one_interval_are_read_off_two_answers() -> None:
    rng = np.random.default_rng(6)
    x = rng.normal(size=N)
    y = 1.0 + rng.poisson(2.0, N)
    y[SECRET] = 0.0
    assert read_off("zero-inflated-poisson", y, x, None, [-0.7]) == pytest.approx(x[SECRET], abs=1e-6)
    time = rng.exponential(3.0, N)
    upper = np.where(rng.random(N) < 0.6, time, np.inf)
    upper[SECRET] = time[SECRET] + 2.0
    assert read_off("exponential", time, x, upper, []) == pytest.approx(x[SECRET], abs=1e-6)


def counts(zeros: int, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    y = 1 + rng.poisson(2.0, N)
    y[:zeros] = 0
    return pd.DataFrame({"x": rng.normal(size=N).round(3), "y": y})


@pytest.mark.parametrize("zeros", [1, 10])
def test_few_zeros_are_refused(zeros: int) -> None:
    job = {
        "job": {"method": "likelihood"},
        "data": {"response": "y"},
        "model": {"family": "zero-inflated-poisson"},
        "disclosure": {"level": "strict"},
    }
    with pytest.raises(JobError, match=r"client 'b'.* \d+ rows with zeros in the response, and none") as refused:
        fedkern.run(job, data={"a": counts(90), "b": counts(zeros, 2)})
    # A Poisson job advises this family where there are more zeros, so that its own advice is another, which ends.
    job["model"] = {"family": str(refused.value).split('model.family = "')[1].split('"')[0]}
    assert job["model"]["family"] == "zero-inflated-negative-binomial"
    ended = fedkern.run(job, data={"a": counts(90), "b": counts(zeros, 2)})
    assert "model.family" not in str([ended.summary["verdict"], *ended.notes])
    assert fedkern.run({**job, "model": {"family": "poisson"}}, data={"a": counts(90), "b": counts(zeros, 2)}).summary["rounds"]


def test_few_counts_above_a_hurdle_are_refused() -> None:
    """Coefficients are of these alone."""
    job = {
        "job": {"method": "likelihood"},
        "data": {"response": "y"},
        "model": {"family": "hurdle-poisson"},
        "disclosure": {"level": "strict"},
    }
    with pytest.raises(JobError, match=r"client 'b'.* 7 rows with counts above 0 in the response, and none"):
        fedkern.run(job, data={"a": counts(90), "b": counts(N - 7, 2)})


def lived(intervals: int, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=N).round(3)
    time = (rng.exponential(size=N) * 5 * np.exp(-0.4 * x)).round(3) + 0.01
    died = (time < 8).astype(int)
    time = np.minimum(time, 8.0)
    until = np.where(died == 1, time, np.nan)
    until[np.flatnonzero(died)[:intervals]] += 1.0
    return pd.DataFrame({"x": x, "time": time, "died": died, "until": until})


@pytest.mark.parametrize("intervals", [1, 10])
def test_few_intervals_are_refused(intervals: int) -> None:
    job = {
        "job": {"method": "likelihood"},
        "data": {"time": "time", "event": "died", "time_upper": "until"},
        "model": {"family": "exponential"},
        "disclosure": {"level": "strict"},
    }
    with pytest.raises(JobError, match=r"client 'b'.* \d+ rows with events in an interval"):
        fedkern.run(job, data={"a": lived(90), "b": lived(intervals, 2)})
    assert fedkern.run(job, data={"a": lived(90), "b": lived(0, 2)}).converged is True
