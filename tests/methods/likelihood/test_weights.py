"""Rows that count several times, or have errors of known precision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import fedkern
from fedkern.errors import JobError
from fedkern.models.mixed import Layout, Rows
from fedkern.models.mixed.conditional import density

SMALL = {"points": 1024, "effective": 300}


def federation(n: int = 240) -> dict[str, pd.DataFrame]:
    rng, frames = np.random.default_rng(5), {}
    for name in ("ada", "bo", "cy"):
        x, ward = rng.normal(size=n).round(2), rng.integers(0, 12, n)
        eta = 0.3 + 0.5 * x + rng.normal(0, 0.5, 12)[ward]
        frames[name] = pd.DataFrame(
            {
                "x": x,
                "ward": [f"w{k}" for k in ward],
                "w": rng.integers(1, 4, n),
                "count": rng.poisson(np.exp(eta)),
                "level": np.array(["low", "mid", "top"])[np.digitize(eta + rng.logistic(size=n), [-0.5, 1])],
                "months": rng.exponential(np.exp(-eta)).round(3) + 0.001,
                "died": rng.integers(0, 2, n),
                "mass": np.exp(eta) * rng.gamma(3, 1 / 3, n),
            }
        )
    return frames


def fitted(frames: Mapping[str, pd.DataFrame], *columns: str, data: Mapping[str, Any], **model: Any) -> fedkern.Result:
    tables = {"job": {"method": "likelihood", "seed": 2}, "data": data, "model": model, "algorithm": SMALL}
    return fedkern.run(tables, data={name: frame[list(columns)] for name, frame in frames.items()})


KINDS: list[tuple[tuple[str, ...], dict[str, Any], dict[str, Any]]] = [
    (("x", "ward", "count"), {"response": "count"}, {"family": "negative-binomial", "random": {"group": "ward"}}),
    (("x", "level"), {"response": "level", "levels": ["low", "mid", "top"]}, {"family": "ordinal"}),
    (("x", "level"), {"response": "level", "levels": ["low", "mid", "top"]}, {"family": "multinomial"}),
    (("x", "months", "died"), {"time": "months", "event": "died"}, {"family": "weibull"}),
]


@pytest.mark.parametrize(("columns", "data", "model"), KINDS, ids=[case[2]["family"] for case in KINDS])
def test_frequencies_are_rows_written_so_many_times(
    columns: tuple[str, ...], data: dict[str, Any], model: dict[str, Any]
) -> None:
    frames = federation()
    for frame in frames.values():
        frame.loc[3, "w"] = 0  # a row that nobody is
    counted = fitted(frames, *columns, "w", data={**data, "weight": "w", "weight_kind": "frequency"}, **model)
    written = {name: frame.loc[frame.index.repeat(frame.w)] for name, frame in frames.items()}
    whole = fitted(written, *columns, data=data, **model)
    for name, row in counted.parameters.items():
        assert (row["mean"], row["sd"]) == (whole.parameters[name]["mean"], whole.parameters[name]["sd"])
    assert counted.summary["log_evidence"] == whole.summary["log_evidence"]


def test_precisions_with_groups_have_the_density_of_many_normal_numbers() -> None:
    """Errors of variance sigma^2 / w, and a random intercept and slope: y is normal with a covariance that is written down."""
    rng, n = np.random.default_rng(3), 14
    X, w = np.column_stack([np.ones(n), rng.normal(size=n)]), rng.uniform(0.2, 4, n)
    y, starts, root = rng.normal(size=n), np.array([0, 5, n]), np.sqrt(w)
    layout = Layout(("intercept", "x"), "gaussian", ("intercept", "x"), ())
    rows = Rows(layout, X * root[:, np.newaxis], y * root, starts, root=root)
    point = np.array([0.3, -0.2, -0.4, 0.3, -0.6, 0.1])
    T = np.array([[np.exp(-0.4), 0.0], [0.3, np.exp(-0.6)]])
    same = np.zeros((n, n))
    same[:5, :5] = same[5:, 5:] = 1.0
    covariance = same * (X @ T @ T.T @ X.T) + np.diag(np.exp(0.2) / w)
    wanted = stats.multivariate_normal.logpdf(y, X @ point[:2], covariance)
    np.testing.assert_allclose(rows.values(point[np.newaxis], 5), wanted, rtol=1e-10)
    np.testing.assert_allclose(rows.curvature(point[np.newaxis], 5)[0], wanted, rtol=1e-10)


@pytest.mark.parametrize("family", ["student", "gamma"])
def test_precisions_are_of_each_row(family: str) -> None:
    rng, n = np.random.default_rng(4), 9
    X, w = np.column_stack([np.ones(n), rng.normal(size=n)]), rng.uniform(0.2, 4, n)
    y, layout = rng.gamma(2, size=n), Layout(("intercept", "x"), family, (), ())
    point = np.array([0.3, -0.2, 0.4, 0.9][: layout.size])
    eta = X @ point[:2]
    if family == "student":
        root = np.sqrt(w)
        rows = Rows(layout, X * root[:, np.newaxis], y * root, np.array([0, n]), root=root)
        wanted = stats.t.logpdf(y, np.exp(point[3]), eta, np.exp(point[2]) / root)
    else:
        rows = Rows(layout, X, y, np.array([0, n]), trials=w)
        shape = w * np.exp(point[2])
        wanted = stats.gamma.logpdf(y, shape, scale=np.exp(eta) / shape)
    np.testing.assert_allclose(rows.values(point[np.newaxis], 1), wanted.sum(), rtol=1e-10)
    np.testing.assert_allclose(density(rows, rows.fixed(point), point[np.newaxis])[0], wanted, rtol=1e-10)
    value, gradient, curved = rows.curvature(point[np.newaxis], 1)
    steps = 1e-5 * np.eye(layout.size)
    up, down = rows.curvature(point + steps, 1), rows.curvature(point - steps, 1)
    np.testing.assert_allclose(gradient[0], (up[0] - down[0]) / 2e-5, rtol=1e-6)
    np.testing.assert_allclose(curved[0], -(up[1] - down[1]) / 2e-5, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(value, wanted.sum(), rtol=1e-10)


def test_a_gamma_response_of_means_has_its_predictive_checks() -> None:
    """Means of w numbers vary less: with their precisions nothing is odd, without them tenths are uneven."""
    rng, frames = np.random.default_rng(8), federation(600)
    for frame in frames.values():
        frame["w"] = rng.choice([1, 30], len(frame))
        frame["mass"] = np.exp(0.3 + 0.5 * frame.x) * rng.gamma(2 * frame.w) / (2 * frame.w)
    weighed = fitted(
        frames, "x", "mass", "w", data={"response": "mass", "weight": "w", "weight_kind": "precision"}, family="gamma"
    )
    assert weighed.converged is True
    assert weighed.parameters["shape"]["mean"] == pytest.approx(2.0, abs=0.2)
    assert max(abs(tenth["share"] - 0.1) for tenth in weighed.summary["predictive"]["tenths"]) < 0.03
    bare = fitted(frames, "x", "mass", data={"response": "mass"}, family="gamma")
    assert max(abs(tenth["share"] - 0.1) for tenth in bare.summary["predictive"]["tenths"]) > 0.05


def test_precisions_of_a_known_answer() -> None:
    """Weighted least squares, and the responses' own mean in summary.json."""
    frames = federation()
    rng = np.random.default_rng(6)
    for frame in frames.values():
        frame["y"] = 7 + 2 * frame.x + rng.normal(size=len(frame)) / np.sqrt(frame.w)
    result = fitted(
        frames, "x", "y", "w", data={"response": "y", "weight": "w", "weight_kind": "precision"}, family="gaussian", prior_sd=1e3
    )
    whole = pd.concat(frames.values())
    X, w = np.column_stack([np.ones(len(whole)), whole.x]), whole.w.to_numpy()
    A = X.T @ (w[:, np.newaxis] * X)
    b = np.linalg.solve(A, X.T @ (w * whole.y))
    s2 = (w * (whole.y - X @ b) ** 2).sum() / (len(whole) - 2)
    for name, mean, variance in zip(("intercept", "theta[x]"), b, s2 * np.diag(np.linalg.inv(A))):
        assert result.parameters[name]["mean"] == pytest.approx(mean, abs=0.05 * variance**0.5)
        assert result.parameters[name]["sd"] == pytest.approx(variance**0.5, rel=0.03)
    assert result.summary["predictive"]["response"]["mean"] == pytest.approx(whole.y.mean(), rel=1e-6)


WRONG: list[tuple[str, dict[str, Any], dict[str, Any], Any, str]] = [
    ("no kind", {"weight_kind": None}, {}, None, "data.weight_kind is missing"),
    ("a fraction", {"weight_kind": "frequency"}, {}, 2.5, "is no number of rows, which data.weight_kind says it is"),
    ("below 0", {"weight_kind": "frequency"}, {}, -1, "is no number of rows"),
    ("a thousand million", {"weight_kind": "frequency"}, {}, 10**9, "stand for more than 4,194,304 rows"),
    ("precision of counts", {"weight_kind": "precision"}, {}, None, 'model.family is "poisson"; take "frequency"'),
    ("precision 0", {"weight_kind": "precision"}, {"family": "gaussian"}, 0, "is no precision, which is above 0"),
    ("psu of no survey", {"weight_kind": "frequency", "psu": "ward"}, {}, None, "data.psu is of a survey's design"),
    ("no weight", {"weight": None, "weight_kind": "frequency"}, {}, None, "data.weight_kind says what data.weight is"),
]


@pytest.mark.parametrize(("data", "model", "cell", "words"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_weights_that_cannot_be_are_refused(data: dict[str, Any], model: dict[str, Any], cell: Any, words: str) -> None:
    frames = federation(60)
    if cell is not None:
        frames["bo"]["w"] = frames["bo"]["w"].astype(type(cell))
        frames["bo"].loc[7, "w"] = cell
    given = {name: value for name, value in ({"response": "count", "weight": "w"} | data).items() if value is not None}
    with pytest.raises(JobError, match=words) as refused:
        fitted(frames, "x", "count", "w", "ward", data=given, **({"family": "poisson"} | model))
    if cell is not None:
        assert "'bo'" in str(refused.value)


def test_weights_that_are_all_0_at_a_client_are_no_rows() -> None:
    frames = federation(60)
    frames["bo"]["w"] = 0
    with pytest.raises(JobError, match=r"client 'bo'.*no rows"):
        fitted(frames, "x", "count", "w", data={"response": "count", "weight": "w", "weight_kind": "frequency"}, family="poisson")


def test_rows_that_stand_for_millions_are_successes_of_trials() -> None:
    """What the refusal advises."""
    rng, frames = np.random.default_rng(9), {}
    for name in ("ada", "bo", "cy"):
        x, n = np.repeat(np.arange(20) / 10, 2), np.tile([0, 1], 20)
        frames[name] = pd.DataFrame({"x": x, "died": n, "w": rng.integers(10**6, 10**7, 40)})
    weighed = {"response": "died", "weight": "w", "weight_kind": "frequency"}
    with pytest.raises(JobError, match=r"successes of trials \(data\.trials\)"):
        fitted(frames, "x", "died", "w", data=weighed, family="bernoulli")
    counted = {name: frame.assign(died=frame.died * frame.w) for name, frame in frames.items()}
    frames = {name: frame.groupby("x", as_index=False)[["died", "w"]].sum() for name, frame in counted.items()}
    result = fitted(frames, "x", "died", "w", data={"response": "died", "trials": "w"}, family="binomial")
    whole = pd.concat(frames.values())
    X, y, n = np.column_stack([np.ones(len(whole)), whole.x]), whole.died.to_numpy(), whole.w.to_numpy()
    b = np.zeros(2)
    for _ in range(20):
        p = 1 / (1 + np.exp(-X @ b))
        b = b + np.linalg.solve(X.T @ ((n * p * (1 - p))[:, np.newaxis] * X), X.T @ (y - n * p))
    assert result.parameters["theta[x]"]["mean"] == pytest.approx(b[1], abs=0.05 * result.parameters["theta[x]"]["sd"])


def test_the_old_key_is_taken_and_named() -> None:
    job = {
        "job": {"method": "likelihood"},
        "data": {"response": "count", "weight": "w", "weight_counts": True},
        "model": {"family": "poisson"},
    }
    frames = {name: frame[["x", "count", "w"]] for name, frame in federation(60).items()}
    said = "\n".join(fedkern.check(job, data=frames, verbose=True))
    assert 'data.weight_counts is now data.weight_kind = "frequency": write that; the old key ends in version 0.3' in said
    job["data"]["weight_kind"] = "survey"
    with pytest.raises(JobError, match=r"data\.weight_counts is the old name of data\.weight_kind; give one of them"):
        fedkern.check(job, data=frames)
