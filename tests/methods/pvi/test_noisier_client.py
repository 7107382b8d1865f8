"""A linear job has one error variance: where a client's is another the first line says so, and its remedy ends well."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern

SIZES = {"a": (60, 6.0, 3.0), "b": (300, 1.0, 1.0), "c": (200, 1.2, 1.0)}  # rows, standard deviations of the errors and of x
SAID = "errors do not vary alike at all clients"


def federation(seed: int, sizes: dict[str, tuple[int, float, float]] = SIZES, **slopes: float) -> dict[str, pd.DataFrame]:
    random, frames = np.random.default_rng(seed), {}
    for name, (n, sd, wide) in sizes.items():
        x = random.normal(0, wide, n)
        frames[name] = pd.DataFrame({"x": x, "y": 10 + slopes.get(name, 0.5) * x + random.normal(0, sd, n)})
    return frames


def fitted(frames: dict[str, pd.DataFrame], **data: Any) -> Any:
    tables = {"job": {"method": "pvi"}, "data": {"response": "y", **data}, "model": {"family": "gaussian"}}
    return fedkern.run({**tables, "output": {"reweigh": False}}, data=frames)


def obeyed(summary: dict[str, Any], frames: dict[str, pd.DataFrame]) -> Any:
    """The job again, with the weights that the first line or a note gives."""
    found = re.search(r"data\.weight names: (.*?) \(times", " ".join([summary["verdict"], *summary["notes"]]))
    assert found is not None
    by = {name: float(weight) for weight, name in (part.split(" at ") for part in found.group(1).split(", "))}
    weighted = {name: one.assign(w=by.get(name, by.get("the others"))) for name, one in frames.items()}
    return fitted(weighted, weight="w")


def own_variances(frames: dict[str, pd.DataFrame]) -> tuple[float, float]:
    """The slope and its standard error by least squares, each client with the error variance of its own fit."""
    total, right = np.zeros((2, 2)), np.zeros(2)
    for one in frames.values():
        X, y = np.column_stack([np.ones(len(one)), one["x"]]), one["y"].to_numpy()
        variance = ((y - X @ np.linalg.lstsq(X, y, rcond=None)[0]) ** 2).sum() / (len(y) - 2)
        total, right = total + X.T @ X / variance, right + X.T @ y / variance
    return float(np.linalg.solve(total, right)[1]), float(np.sqrt(np.linalg.inv(total)[1, 1]))


def test_the_noisier_client_is_named_and_the_remedy_ends_in_the_right_interval() -> None:
    frames = federation(1)
    summary = fitted(frames).summary
    assert summary["converged"] is False
    assert re.search(rf"{SAID}: their standard deviation is [\d.]+ times at a that at the others", summary["verdict"])
    assert re.search(r"the interval of x is about 1\.\d times too narrow", summary["verdict"])
    again = obeyed(summary, frames)
    assert again.summary["converged"] == "settled"
    assert not [text for text in again.summary["notes"] if SAID in text or "sum to far more" in text]
    slope, error = own_variances(frames)
    found = again.parameters["theta[x]"]
    assert abs(found["mean"] - slope) < 0.15 * error
    assert found["sd"] == pytest.approx(error, rel=0.05)


def test_the_largest_client_may_be_the_noisier_one() -> None:
    frames = federation(2, {"a": (100, 1.0, 1.0), "b": (500, 4.0, 2.0), "c": (80, 1.0, 1.0)})
    summary = fitted(frames).summary
    assert " times at b that at the others" in summary["verdict"]
    again = obeyed(summary, frames)
    assert again.summary["converged"] == "settled"
    assert not [text for text in again.summary["notes"] if "sum to far more" in text], "weights are about 1 over all rows"


def test_where_intervals_are_right_all_the_same_it_is_a_note() -> None:
    """Of one design: what one has too little the other has too much."""
    frames = federation(3, {"a": (300, 2.5, 1.0), "b": (300, 1.0, 1.0), "c": (300, 1.0, 1.0)})
    summary = fitted(frames).summary
    assert summary["converged"] == "settled"
    assert any(text.startswith(SAID) and "at a that at the others" in text for text in summary["notes"])
    alike = federation(3, {"a": (300, 1.3, 1.0), "b": (300, 1.0, 1.0), "c": (300, 1.0, 1.0)})
    assert SAID not in " ".join(fitted(alike).summary["notes"])


def test_slopes_that_differ_are_no_noise() -> None:
    frames = federation(4, dict.fromkeys(SIZES, (200, 1.0, 1.0)), a=3.0)
    summary = fitted(frames).summary
    assert not [text for text in (summary["verdict"], *summary["notes"]) if SAID in text]
    assert any("sites differ by more than chance" in text for text in summary["notes"])


@pytest.mark.nightly
def test_intervals_cover_once_the_remedy_is_taken() -> None:
    """60 federations: of the defaults 57 % cover; and no slopes are said to differ where they do not."""
    cover, differ, found = 0, 0, 0
    for seed in range(60):
        frames = federation(seed)
        first = fitted(frames)
        found += first.summary["converged"] is False
        again = obeyed(first.summary, frames)
        row = again.parameters["theta[x]"]
        cover += row["q05"] < 0.5 < row["q95"]
        both = (*first.summary["notes"], *again.summary["notes"])
        differ += any("sites differ" in text for text in both)
    assert found == 60
    assert 48 <= cover <= 59
    assert differ <= 4
