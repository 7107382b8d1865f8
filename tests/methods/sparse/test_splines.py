"""How well rows are foreseen without themselves where a covariate is a spline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.models.sparse import Spline

KNOTS = [-2.0, -0.7, 0.7, 2.0]


def rows(k: int, n: int = 150) -> Any:
    """Columns a, b, y: y bends with a, and columns are far from zero and of different units."""
    random = np.random.default_rng(k)
    a, b = random.normal(size=n), 40 + 7 * random.normal(size=n)
    return np.column_stack([a, b, 3 * (a**2 - 1) + a + 0.1 * (b - 40) + 20 + 0.8 * random.normal(size=n)])


def left_out(X: Any, y: Any) -> float:
    """Leave-one-out log density of least squares with a known spread of 0.8: residuals over 1 - leverage."""
    Z = np.column_stack([np.ones(len(X)), X])
    Q, _ = np.linalg.qr(Z)
    h = (Q**2).sum(axis=1)
    e, variance = (y - Q @ (Q.T @ y)) / (1 - h), 0.64 / (1 - h)
    return float((-0.5 * np.log(2 * np.pi * variance) - e**2 / (2 * variance)).sum())


@pytest.mark.parametrize("binary", [False, True])
def test_rows_are_foreseen_by_the_bent_line(tmp_path: Path, binary: bool) -> None:
    parts = [rows(k) for k in range(2)]
    spline = Spline.at(KNOTS)
    expected = sum(left_out(np.column_stack([p[:, :2], spline.columns(p[:, 0])]), p[:, 2]) for p in parts)
    if binary:
        chance = [1 / (1 + np.exp(-(p[:, 2] - 20))) for p in parts]
        for k, (p, share) in enumerate(zip(parts, chance)):
            p[:, 2] = np.random.default_rng(k + 5).random(len(p)) < share
        expected = sum(float(np.log(np.where(p[:, 2] > 0, share, 1 - share)).sum()) for p, share in zip(parts, chance))
    for k, p in enumerate(parts):
        np.savetxt(tmp_path / f"site-{k}.csv", p, delimiter=",", header="a,b,y", comments="", fmt="%.10g")
    result = fedkern.run(
        {
            "job": {"method": "sparse", "rounds": 220},
            "data": {"clients": [str(tmp_path / "site-*.csv")], "response": "y"},
            "model": {"splines": {"a": KNOTS}, "family": "bernoulli" if binary else "gaussian"},
            "algorithm": {"burn_in": 70, "chains": 2},
            "output": {"loo": True},
        }
    )
    found = result.summary["loo"]["elpd"]
    assert abs(found - expected) < 12.0, (found, expected)
