"""Kept draws, and what summary.json says of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedkern.results import diagnostics
from fedkern.results.samples import Samples

RANDOM = np.random.default_rng(3)


def made(c: int = 2, t: int = 50, **changes: Any) -> Samples:
    p = 3
    theta = RANDOM.normal(size=(c, t, p)) + np.array([1.0, 0.0, -0.3])
    inclusion = RANDOM.uniform(size=(c, t, p))
    inclusion[..., 0] = 1.0  # always included
    content: dict[str, Any] = {
        "names": ("age", "sex", "bp"),
        "theta": theta,
        "tau_sq": np.exp(RANDOM.normal(size=(c, t, p))),
        "inclusion": inclusion,
        "average": theta + 0.1 * RANDOM.normal(size=(c, t, p)),
        "eta": np.exp(RANDOM.normal(size=(c, t, 1))),
        "rho": RANDOM.uniform(size=(c, t, 1)),
        "scale": np.array([2.0, 1.0, 0.5]),
        "sites": {"clinic-b": theta + 0.15 * RANDOM.normal(size=(c, t, p))},
    }
    return Samples(**(content | changes))


def test_names_and_numbers() -> None:
    s = made()
    found = s.parameters()
    both = ["{}[age]{}", "{}[sex]{}", "{}[bp]{}", "{}_std[age]{}", "{}_std[bp]{}"]
    names = [name.format("theta", "") for name in both] + [name.format("average", "") for name in both]
    names += ["tau[age]", "tau[sex]", "tau[bp]", "eta", "rho", "negligible"]
    assert list(found) == names + [name.format("theta", "@clinic-b") for name in both]

    draws = s.theta[..., 2].ravel()
    expected = {"mean": draws.mean(), "sd": draws.std(ddof=1)}
    expected |= dict(zip(("q05", "q50", "q95"), np.quantile(draws, [0.05, 0.5, 0.95])))
    assert {k: found["theta_std[bp]"][k] for k in expected} == pytest.approx(expected)
    assert {k: found["theta[bp]"][k] for k in expected} == pytest.approx({k: v / 2 for k, v in expected.items()})
    assert found["theta_std[bp]"]["pip"] == pytest.approx(s.inclusion[..., 2].mean())
    rhat, ess = diagnostics.rhat_ess(s.theta)
    pip_rhat, pip_ess = diagnostics.rhat_ess(s.inclusion)
    for name in ("theta[bp]", "theta_std[bp]"):
        assert (found[name]["rhat"], found[name]["ess"]) == (rhat[2], ess[2])
    assert (found["theta[sex]"]["pip_rhat"], found["theta[sex]"]["pip_ess"]) == (pip_rhat[1], pip_ess[1])
    assert "pip" not in found["theta[bp]"]  # it belongs to the standardised scale

    assert found["average_std[age]"]["p_positive"] == np.mean(s.average[..., 0] > 0)
    assert found["average_std[age]"]["p_large"] == np.mean(abs(s.average[..., 0]) > 0.2)
    assert found["tau[sex]"]["mean"] == pytest.approx(np.sqrt(s.tau_sq[..., 1]).mean())
    assert found["negligible"]["q50"] == pytest.approx(np.median(0.2 * np.sqrt(s.eta)))
    d = s.sites["clinic-b"] - s.theta
    assert found["theta_std[age]@clinic-b"]["p_deviates"] == np.mean(abs(d[..., 0]) > 0.2)
    assert found["theta[sex]@clinic-b"]["p_deviates"] == np.mean(abs(d[..., 1]) > 0.2)


def test_an_always_included_coefficient_has_pip_one_and_no_diagnostics_of_it() -> None:
    found = made().parameters()["theta_std[age]"]
    assert found["pip"] == 1.0
    assert "pip_ess" not in found
    assert found["ess"] > 0


def test_equal_scales_have_one_name() -> None:
    found = made(scale=np.ones(3), sites={}).parameters()
    assert [name for name in found if "_std" in name or "@" in name] == []
    assert {"pip", "ess", "mean"} <= found["theta[age]"].keys()
    assert {"p_positive", "p_large"} <= found["average[age]"].keys()


def test_several_etas_and_rhos_are_named_after_their_equation_or_coefficient() -> None:
    s = made(kind="mrf", nodes=("A", "B"), names=("B -> A", "A -> B"), scale=np.ones(2), sites={})
    arrays = {name: getattr(s, name)[..., :2] for name in ("theta", "tau_sq", "inclusion", "average")}
    two = np.repeat(s.eta, 2, axis=-1)
    found = replace(s, **arrays, eta=two, rho=two / 9).parameters()
    assert {"theta[B -> A]", "eta[A]", "eta[B]", "rho[B]", "negligible[A]"} <= found.keys()
    coordinate = made(eta=np.repeat(made().eta, 3, axis=-1)).parameters()
    assert {"eta[age]", "rho", "negligible[bp]"} <= coordinate.keys()


def test_a_fixed_spike_is_what_counts_as_negligible() -> None:
    found = made(negligible=0.1).parameters()["negligible"]
    assert [found[key] for key in ("mean", "q05", "q95")] == pytest.approx([0.1, 0.1, 0.1])
    assert "rhat" not in found  # a number of the job has no chains


def test_the_slowest_quantity() -> None:
    s = made(4, 200)
    stuck = s.inclusion.copy()
    stuck[:, :, 2] = np.clip(np.repeat(stuck[:, ::20, 2], 20, axis=1) + 0.2 * (np.arange(4) == 1)[:, None], 0, 1)
    rhat, ess, name = replace(s, inclusion=stuck).slowest()  # type: ignore[misc]
    assert name == "inclusion[bp]"
    assert ess == diagnostics.rhat_ess(stuck)[1][2]
    assert rhat == np.nanmax(np.concatenate([r for r, _ in replace(s, inclusion=stuck, sites={}, average=None).mixing.values()]))
    assert replace(s, eta=np.repeat(s.eta[:, ::50], 50, axis=1)).slowest()[2] == "log_eta"  # type: ignore[index]


def test_all_draws_by_name() -> None:
    s = made()
    assert list(s.arrays) == ["theta", "tau_sq", "inclusion", "average", "eta", "rho", "theta@clinic-b"]
    np.testing.assert_allclose(s.pip, s.inclusion.mean(axis=(0, 1)))
