"""What a client of a Cox model computes of its own rows: baseline hazards, Schoenfeld's residuals, concordance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import kstest

from fedkern.models import survival
from fedkern.models.mixed import Layout

NAMES = ("x1", "x2")


def table(n: int = 60, seed: int = 0, entry: bool = True) -> dict[str, Any]:
    """Ties, two strata, late entry, weights and an offset."""
    rng = np.random.default_rng(seed)
    time = 1.0 + np.floor(6 * rng.exponential(size=n))
    return {
        "X": rng.standard_normal((n, 2)), "time": time, "event": rng.random(n) < 0.6,
        "entry": time * rng.random(n) - 0.5 if entry else None, "strata": rng.integers(0, 2, n),
        "weights": rng.uniform(0.3, 2.0, n), "offset": 0.3 * rng.standard_normal(n),
    }  # fmt: skip


def rows_of(given: dict[str, Any]) -> survival.Rows:
    return survival.Rows.of(Layout(NAMES, "cox"), **given)


@pytest.mark.parametrize("entry", [False, True])
def test_increments_of_the_hazard_are_gamma_variables_with_breslows_means(entry: bool) -> None:
    given = table(entry=entry)
    rows, beta, S = rows_of(given), np.array([0.4, -0.6]), 4000
    uniform = np.random.default_rng(1).random((S, len(rows.sets.ends)))
    found = survival.baseline(rows, np.tile(beta, (S, 1)), uniform)
    X, w = given["X"], given["weights"]
    eta = (X - w @ X / w.sum()) @ beta + given["offset"] - w @ given["offset"] / w.sum()
    at = 0
    for s in (0, 1):
        total, mine = 0.0, given["strata"] == s
        for t in np.unique(given["time"][given["event"] & mine]):
            late = np.ones(len(X), bool) if given["entry"] is None else given["entry"] < t
            risk, dying = mine & late & (given["time"] >= t), mine & given["event"] & (given["time"] == t)
            e, d = w * np.exp(eta), dying.sum()
            total += sum(w[dying].mean() / (e[risk].sum() - m / d * e[dying].sum()) for m in range(d))
            assert (found.stratum[at], found.time[at], found.events[at], found.at_risk[at]) == (s, t, d, risk.sum())
            sd = (found.hazard[2, at] - found.hazard[1, at]) / 4
            assert found.hazard[0, at] == pytest.approx(total, abs=6 * sd / S**0.5 + 0.01 * total)
            at += 1
    assert at == len(found.time)
    assert (found.survival[1] <= found.survival[0]).all()
    assert (found.survival[0] <= found.survival[2]).all()


@pytest.mark.parametrize("entry", [False, True])
def test_concordance_is_that_of_all_pairs(entry: bool) -> None:
    given = table(seed=3, entry=entry)
    rows, beta = rows_of(given), np.array([0.4, -0.6])
    eta = given["X"] @ beta + given["offset"]
    begin = np.full(len(eta), -np.inf) if given["entry"] is None else given["entry"]
    pairs = right = 0.0
    for i in np.flatnonzero(given["event"]):
        t = given["time"][i]
        later = (given["time"] > t) | ((given["time"] == t) & ~given["event"])
        others = later & (begin < t) & (given["strata"] == given["strata"][i])
        pairs, right = pairs + others.sum(), right + (eta[others] < eta[i]).sum()
    assert survival.concordance(rows, beta) == (pairs, right)


@pytest.mark.parametrize("entry", [False, True])
def test_the_score_of_a_slope_in_time_is_that_of_a_column_that_changes_with_it(entry: bool) -> None:
    """Every time of an event as a stratum of its own, whose rows have g x as further columns."""
    given = table(entry=entry)
    rows, beta = rows_of(given), np.array([0.4, -0.6])
    times = np.unique(given["time"][given["event"]])
    parts: dict[str, list[Any]] = {name: [] for name in ("X", "time", "event", "strata", "weights", "offset")}
    for s in (0, 1):
        for place, t in enumerate(times):
            late = np.ones(len(given["X"]), bool) if given["entry"] is None else given["entry"] < t
            risk = (given["strata"] == s) & late & (given["time"] >= t)
            x, g = given["X"][risk], place / (len(times) - 1) - 0.5
            parts["X"].append(np.hstack([x, g * x]))
            parts["time"].append(np.full(risk.sum(), t))
            parts["event"].append(given["event"][risk] & (given["time"][risk] == t))
            parts["strata"].append(np.full(risk.sum(), 2 * place + s))
            parts["weights"].append(given["weights"][risk])
            parts["offset"].append(given["offset"][risk])
    longer = {name: np.concatenate(one) for name, one in parts.items()}
    whole = survival.Rows.of(Layout(("a", "b", "c", "d"), "cox"), **longer)
    _, (gradient,), (H,) = whole.curvature(np.concatenate([beta, np.zeros(2)])[np.newaxis], 1)
    back = H[2:, :2] @ np.linalg.inv(H[:2, :2])
    score, information = survival.schoenfeld(rows, beta)
    np.testing.assert_allclose(score, gradient[2:] - back @ gradient[:2], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(information, np.diag(H[2:, 2:] - back @ H[:2, 2:]), rtol=1e-8)


def test_z_of_proportional_hazards_is_standard_normal_and_of_others_is_not() -> None:
    """Two clients a job, whose coefficients differ from each other, which is no slope in time."""
    rng, z, bent = np.random.default_rng(4), [], []
    for changes, out in ((False, z), (True, bent)):
        for _ in range(150 if not changes else 10):
            sums = np.zeros(2)
            for slope in (0.3, 0.8):
                x = rng.standard_normal((100, 2))
                life = rng.exponential(size=100) * np.exp(-slope * x[:, 0])
                if changes:  # the effect is strong at first, and turns
                    life = np.where(life < 0.5, life, 0.5 + rng.exponential(size=100) * np.exp(1.5 * x[:, 0]))
                seen = rng.exponential(2.0, 100)
                rows = survival.Rows.of(Layout(NAMES, "cox"), x, np.minimum(life, seen), life <= seen)
                score, information = survival.schoenfeld(rows, np.array([0.5, 0.0]))
                sums += score[0], information[0]
            out.append(sums[0] / sums[1] ** 0.5)
    assert kstest(z, "norm").pvalue > 0.01
    assert np.mean(bent) < -3


def test_rows_that_weigh_nothing_are_none() -> None:
    given = table()
    given["weights"][:20] = 0.0
    some = {name: None if one is None else one[20:] for name, one in given.items()}
    points = np.array([[0.3, 0.1], [-1.0, 2.0]])
    for one, other in zip(rows_of(given).curvature(points, 1), rows_of(some).curvature(points, 1)):
        np.testing.assert_array_equal(one, other)


def test_what_all_rows_have_in_common_takes_no_digits() -> None:
    """A year, or a moment in seconds."""
    given = table()
    points = np.array([[0.3, 0.1], [-1.0, 2.0]])
    near = rows_of(given).curvature(points, 1)
    given["X"] = given["X"] + np.array([2**30, -(2**20)])
    for one, other in zip(rows_of(given).curvature(points, 1), near):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-5)


def test_who_enters_at_the_time_of_an_event_is_not_at_risk_there() -> None:
    """A row is at risk in (entry, time], as in R's survival. PHReg of statsmodels 0.15 counts [entry, time]: with entries at
    times of events its estimates are others, here (.3136, -.2762): ours with entries that are a little earlier."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 2))
    time = np.ceil(rng.exponential(size=200) * np.exp(-X @ [0.6, -0.4]) * 8)
    event = rng.random(200) < 0.7
    entry = np.minimum(np.floor(time * rng.random(200) * 0.9), time - 1)

    def fitted(begin: np.ndarray) -> np.ndarray:
        rows, beta = survival.Rows.of(Layout(NAMES, "cox"), X, time, event, begin), np.zeros(2)
        for _ in range(20):
            _, gradient, H = rows.curvature(beta[np.newaxis], 1)
            beta = beta + np.linalg.solve(H[0], gradient[0])
        return beta

    np.testing.assert_allclose(fitted(entry - 1e-6), [0.31360373, -0.276185], atol=1e-7)
    np.testing.assert_allclose(fitted(entry), [0.30311457, -0.23750237], atol=1e-7)  # PHReg's with entry + 1e-6


@pytest.mark.parametrize("strata", [False, True])
def test_cumulative_hazards_and_restricted_means_are_of_the_baseline_curve(strata: bool) -> None:
    """At columns of 0, which are not the client's means; behind the last event the curve stays."""
    given = table(seed=5) | {"X": table(seed=5)["X"] + 0.7}
    if not strata:
        given["strata"] = None
    rows, S = rows_of(given), 300
    draws = np.array([0.4, -0.6]) + 0.05 * np.random.default_rng(2).standard_normal((S, 2))
    uniform = np.random.default_rng(1).random((S, len(rows.sets.ends)))
    base = survival.baseline(rows, draws, uniform)
    at = np.array([2.0, 5.5, 1e6])
    w = given["weights"]
    centre = w @ given["X"] / w.sum()
    found = survival.cumulative(rows, draws, uniform, at) * np.exp(draws @ centre)[:, np.newaxis]
    labels = np.zeros(60, np.int64) if given["strata"] is None else given["strata"]
    wanted = np.zeros(3)
    for one in np.unique(labels):
        mine = base.stratum == one
        steps = np.append(0.0, base.hazard[0, mine])
        wanted += (labels == one).mean() * steps[np.searchsorted(base.time[mine], at, side="right")]
    np.testing.assert_allclose(found.mean(axis=0), wanted, rtol=1e-12)
    for one, (mean, low, high) in survival.restricted_means(rows, draws, uniform, 7.0).items():
        mine = (base.stratum == one) & (base.time < 7)
        lengths = np.diff([0.0, *base.time[mine], 7.0])
        assert mean == pytest.approx((lengths * np.append(1.0, base.survival[0, mine])).sum(), rel=1e-12)
        assert low < mean < high
