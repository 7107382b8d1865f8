"""Times that are equal but for rounding are one: at a client, between clients, and beside the times that a job names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.data.rounded import join_rounded

AT = 0.3
MADE = {"as written": "time", "birth + follow-up - birth": "age", "tenths that were added": "tenths"}
# R 4.2.2, survival 3.5-3: coxph(Surv(age, event) ~ x + strata(g)), ties by Efron, timefix = TRUE. FALSE: -717.2979 and 1.142973.
R_NULL, R_SLOPE = -720.5762, 1.129225


def rows() -> pd.DataFrame:
    i = np.arange(240)
    x = np.sin(i * 1.7)
    k = np.maximum(1, np.round(((i * 7) % 10 + 1) * np.exp(-0.4 * x)))
    birth = 20 + i * 0.37
    tenths = np.array([sum([0.1] * int(n)) for n in k])
    return pd.DataFrame(
        {
            "x": x,
            "event": ((i % 3 > 0) | (x > 0.6)).astype(int),
            "time": k / 10,
            "age": birth + k / 10 - birth,
            "tenths": tenths,
            "site": np.where((i // 3) % 2, "b", "a"),
        }
    )


def run(family: str, time: str, **more: Any) -> Any:
    frames = {name: own[["x", "event", time]].rename(columns={time: "time"}) for name, own in rows().groupby("site")}
    job: dict[str, Any] = {
        "job": {"method": "likelihood", "seed": 3},
        "data": {"time": "time", "event": "event"},
        "model": {"family": family, "prior_sd": 30.0, **more.pop("model", {})},
        "algorithm": {"points": 1024, "effective": 300.0},
        "output": {"draws": 200, "chains": 2, **more},
    }
    return fedkern.run(job, data=frames)


def test_the_rounding_is_there() -> None:
    table = rows()
    assert len(table["time"].unique()) < len(table["tenths"].unique()) + 1 < len(table["age"].unique())
    assert (table["tenths"] != table["time"]).any()


def test_ties_of_a_cox_model_are_those_of_r() -> None:
    at = {name: run("cox", time, survival_at=[AT]).summary for name, time in MADE.items()}
    for summary in at.values():
        assert summary["null_log_likelihood"] == pytest.approx(R_NULL, abs=0.06)
        assert summary["parameters"]["theta[x]"]["mean"] == pytest.approx(R_SLOPE, abs=0.02)
    curves = [summary["survival"][0]["mean"] for summary in at.values()]
    assert curves == pytest.approx([curves[0]] * 3, abs=0.01)  # drawn with secret numbers; without the step at .3: .1 more


@pytest.mark.parametrize("more", [{"family": "weibull"}, {"family": "piecewise", "model": {"cuts": [0.3, 0.7]}}])
def test_a_shared_hazard_has_the_same_rows_on_either_side_of_a_cut(more: dict[str, Any]) -> None:
    family, others = more["family"], {name: one for name, one in more.items() if name != "family"}
    evidence = [run(family, time, **others).summary["log_evidence"]["value"] for time in MADE.values()]
    assert evidence == pytest.approx([evidence[0]] * 3, abs=1e-6)


def test_rows_that_follow_one_another_are_not_at_risk_twice() -> None:
    """A row that ends at t + 1e-16 where the next one of the same person begins."""
    table = rows()
    half = 0.1 + 0.2 - 1e-17
    first = table.assign(since=0.0, time=np.minimum(table["time"], 0.3), event=table["event"] * (table["time"] <= 0.3))
    second = table[table["time"] > 0.3].assign(since=half)
    assert half != 0.3
    whole, split = [], []
    for frames, into in ((table.assign(since=0.0), whole), (pd.concat([first, second]), split)):
        clients = {name: own[["x", "event", "since", "time"]] for name, own in frames.groupby("site")}
        job = {
            "job": {"method": "likelihood", "seed": 3},
            "data": {"time": "time", "event": "event", "entry": "since"},
            "model": {"family": "cox"},
            "algorithm": {"points": 1024, "effective": 300.0},
        }
        into.append(fedkern.run(job, data=clients).summary["null_log_likelihood"])
    assert whole == split


@pytest.mark.parametrize("seed", range(10))
def test_rounding_never_parts_a_tie(seed: int) -> None:
    """Wherever the times lie, and whatever client has them; a grid of nine digits parts some of them."""
    rng = np.random.default_rng(seed)
    true = np.concatenate([rng.uniform(0.01, 20, 60), np.unique(np.round(rng.uniform(0.01, 20, 60), 2))])
    named = (float(true[70]), float(true[75]))
    clients = []
    for _ in range(3):
        at = rng.integers(0, len(true), 400)
        birth = rng.uniform(0, 40000, len(at))
        age = np.where(rng.random(len(at)) < 0.5, birth + true[at] - birth, true[at] * (1 + rng.normal(size=len(at)) * 1e-13))
        for public in ((), named):
            (fixed,) = join_rounded(public, age)
            for k in np.unique(at):
                assert len(np.unique(fixed[at == k])) == 1
            assert len(np.unique(fixed)) == len(np.unique(at))
            assert np.abs(fixed - age).max() < 1e-9
        clients.append((fixed, at))
    for fixed, at in clients:
        for t, k in zip(named, (70, 75)):
            assert (fixed[at == k] == t).all()
            np.testing.assert_array_equal(fixed[at != k] < t, true[at[at != k]] < t)


def test_times_that_differ_stay_as_they_are() -> None:
    time = np.array([1.0, 1.0 + 1e-6, 2.0, np.nan, np.inf])
    assert join_rounded((), time)[0].tobytes() == time.tobytes()
    nothing = np.array([1e-30, 1.0, 2.0])  # a time that is next to nothing is a fault of its row, and no 0
    assert join_rounded((), nothing)[0].tolist() == nothing.tolist()
    assert join_rounded((), np.full(2, np.nan))[0].size == 2


def test_an_upper_end_one_unit_in_the_last_place_below_its_time_is_that_time() -> None:
    table = rows()
    clients = {}
    for name, own in table.groupby("site"):
        upper = np.where(own["event"] == 1, np.nextafter(own["time"], 0), np.nan)
        clients[name] = own[["x", "event", "time"]].assign(upper=upper)
    job: dict[str, Any] = {
        "job": {"method": "likelihood", "seed": 3},
        "data": {"time": "time", "event": "event", "time_upper": "upper"},
        "model": {"family": "weibull", "prior_sd": 30.0},
        "algorithm": {"points": 1024, "effective": 300.0},
        "output": {"draws": 200, "chains": 2},
    }
    summary = fedkern.run(job, data=clients).summary
    assert summary["log_evidence"]["value"] == pytest.approx(run("weibull", "time").summary["log_evidence"]["value"], abs=1e-6)
