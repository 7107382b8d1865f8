"""Simulation-based calibration of jobs of `method = "likelihood"`: truths from the job's own prior stand at uniform shares of the
draws. Jobs that are not "converged" are left out, which changes nothing (support.calibrated), and counted."""

from __future__ import annotations

from typing import Any

import pytest
from scipy import stats

from fedkern.models.mixed import Prior
from support.calibrated import KINDS, OF_EFFECTS, stands

DATA_SETS = 200
ERROR = 1e-3  # of the test of all parameters of a kind together
LEAST_JUDGED = 0.9  # of the data sets


def p_values(shares: dict[str, Any]) -> dict[str, float]:
    """Kolmogorov-Smirnov tests of uniform shares, and of their distance from the middle: of intervals that are too wide or too
    narrow."""
    found = {}
    for name, one in shares.items():
        found[name] = float(stats.kstest(one, "uniform").pvalue)
        found[f"{name}, width"] = float(stats.kstest(abs(2 * one - 1), "uniform").pvalue)
    return found


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_truths_of_the_prior_stand_at_uniform_shares(kind: str) -> None:
    found = stands(KINDS[kind], range(DATA_SETS))
    assert found.said["converged"] >= LEAST_JUDGED * DATA_SETS, found.said
    p = p_values(found.shares)
    assert min(p.values()) > ERROR / len(p), (p, found.said)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_negative_control_a_prior_twice_as_wide_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Prior.usual

    def wider(layout: Any, *, prior_sd: float, intercept_sd: float, intercept_centre: float) -> Prior:
        own = {"prior_sd": 2 * prior_sd, "intercept_sd": 2 * intercept_sd, "intercept_centre": intercept_centre}
        return usual(layout, **own)

    monkeypatch.setattr(Prior, "usual", wider)
    monkeypatch.setitem(OF_EFFECTS, "sd", 2.0)
    p = p_values(stands(KINDS["wards"], range(DATA_SETS // 2)).shares)
    assert min(p.values()) < ERROR / len(p), p
