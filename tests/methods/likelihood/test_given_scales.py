"""Constants of a column that do not fit the rows: the prior keeps its coefficient near 0, and the result does not stand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedkern
from support import few

WORDS = "center and scale in [data.columns] do not fit the rows of "


def sites(seed: int, sizes: tuple[int, ...] = (250, 200, 150), family: str = "gaussian") -> dict[str, Any]:
    pd = pytest.importorskip("pandas")
    found = {}
    for k, n in enumerate(sizes):
        random = np.random.default_rng([seed, k])
        x, z = random.normal(50 + 5 * (k - 1), 10, n), random.normal(size=n)
        mean = 0.05 * (x - 50) + 0.2 * z
        y = 100 + 10 * mean + random.normal(0, 5, n) if family == "gaussian" else random.random(n) < 1 / (1 + np.exp(-mean))
        found["abc"[k]] = pd.DataFrame({"x": x, "z": z, "y": y.astype(float)})
    return found


def verdict(clients: dict[str, Any], center: float, scale: float, family: str = "gaussian", **model: float) -> Any:
    data = {"response": "y", "columns": {"x": {"center": center, "scale": scale}}, **few.ANY}
    algorithm = {"points": 256, "effective": 50}
    job = {"job": {"method": "likelihood"}, "data": data, "model": {"family": family, **model}, "algorithm": algorithm}
    return fedkern.run(job, data=clients).summary


def test_a_scale_that_is_far_too_large_is_said_with_the_numbers_that_fit() -> None:
    """With a prior that the job gives: rows widen none of these."""
    said = verdict(sites(1, family="bernoulli"), 0.0, 1000.0, "bernoulli", prior_sd=2.5)
    assert said["converged"] is False
    assert WORDS + "'x'" in said["verdict"]
    assert "given are 0 and 1000" in said["verdict"]


@pytest.mark.parametrize("family", ["gaussian", "bernoulli"])
def test_a_scale_that_is_far_too_large_moves_nothing_by_default(family: str) -> None:
    """A default prior is wider there."""
    rows = sites(1, family=family)
    said, right = (verdict(rows, center, scale, family) for center, scale in ((0.0, 1000.0), (50.0, 10.0)))
    assert said["converged"] is True
    assert WORDS not in said["verdict"]
    own, known = (one["parameters"]["theta[x]"] for one in (said, right))
    assert abs(own["mean"] - known["mean"]) < 0.2 * known["sd"]


@pytest.mark.parametrize("family", ["gaussian", "bernoulli"])
def test_public_constants_that_nearly_fit_say_nothing(family: str) -> None:
    for seed, (center, scale) in enumerate([(50.0, 10.0), (60.0, 15.0), (40.0, 5.0), (55.0, 30.0)]):
        assert WORDS not in verdict(sites(seed, (40, 60, 30), family), center, scale, family)["verdict"]


def test_a_wrong_scale_that_moves_nothing_says_nothing() -> None:
    assert WORDS not in verdict(sites(1), 50.0, 1.0)["verdict"]


@pytest.mark.parametrize(
    ("family", "formula", "center", "scale"),
    [
        ("bernoulli", "", 50.0, 1e5),
        ("bernoulli", "y ~ x + z", 50.0, 1e5),
        ("bernoulli", "y ~ x * k", 50.0, 1e9),
        ("bernoulli", "", 1e7, 10.0),
        ("gaussian", "y ~ x * k", 50.0, 1e5),
        ("gaussian", "", 50.0, 1e9),
        ("gaussian", "y ~ x + z", 1e7, 10.0),
    ],
)
def test_a_column_that_is_lost_in_the_digits_of_messages_is_said(family: str, formula: str, center: float, scale: float) -> None:
    """A curvature of 1e-8 of the prior's is rounded to 0, and theta was 1e-6 for .05 under "converged"."""
    rows = sites(1, family=family)
    rows = {name: one.assign(k=np.where(np.arange(len(one)) % 3, "u", "v")) for name, one in rows.items()}
    model = {"formula": formula} if formula else {}
    said = verdict(rows, center, scale, family, **model)  # type: ignore[arg-type]
    if said["converged"]:  # where rows say so much that they widen the prior
        own, known = said["parameters"]["theta[x]"], verdict(rows, 50.0, 10.0, family, **model)["parameters"]["theta[x]"]  # type: ignore[arg-type]
        assert abs(own["mean"] - known["mean"]) < 0.2 * known["sd"]
    else:
        assert WORDS + "'x'" in said["verdict"]
        assert not any("separate" in note for note in said["notes"])


def test_columns_of_levels_do_not_hide_a_scale_that_is_far_too_large() -> None:
    """A column for each level, and an intercept: the rows alone do not tell them apart."""
    rows = {name: one.assign(k=np.where(np.arange(len(one)) % 3, "u", "v")) for name, one in sites(1).items()}
    said = verdict(rows, 0.0, 1000.0, prior_sd=0.5)
    assert WORDS + "'x'" in said["verdict"]
    assert WORDS not in verdict(rows, 50.0, 10.0, prior_sd=0.5)["verdict"]


def of_pvi(family: str, center: float, scale: float) -> Any:
    rows = {name: one.astype({"y": int} if family == "bernoulli" else {}) for name, one in sites(1, family=family).items()}
    data = {"response": "y", "columns": {"x": {"center": center, "scale": scale}}, **few.ANY}
    return fedkern.run({"job": {"method": "pvi"}, "data": data, "model": {"family": family}}, data=rows).summary


@pytest.mark.parametrize("family", ["gaussian", "bernoulli"])
def test_pvi_says_it_too_with_the_rows_own_numbers(family: str) -> None:
    """It said "settled", with theta 1e-9 for .05."""
    for scale in (1e3, 1e6):
        said = of_pvi(family, 50.0, scale)
        assert said["converged"] is False
        assert WORDS + "'x' (the rows' mean is about 49, their standard deviation 1" in said["verdict"]
    assert WORDS not in of_pvi(family, 60.0, 15.0)["verdict"]
