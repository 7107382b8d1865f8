"""Levels of a text column stand beside an intercept that the server has: both come out as wide as they are."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import fedkern
from fedkern.data import memory
from fedkern.jobs.load import config_of
from fedkern.methods.vertical import keys
from fedkern.methods.vertical.rows import Reading, columns
from oracles.vertical_undivided import exact

SHARES = {"fm": (0.5, 0.5), "abcd": (0.4, 0.3, 0.2, 0.1)}


def frames_of(family, levels, n, clients=2):
    """Clients with a numeric column each, the second with a text column beside it; and the server's rows."""
    random = np.random.default_rng(3)
    X, at = random.standard_normal((n, clients)), random.choice(len(levels), n, p=SHARES[levels])
    eta = X.sum(axis=1) * 0.4 + at * 0.5 / len(levels) - 0.3
    y = random.poisson(np.exp(eta)) if family == "poisson" else random.random(n) < expit(eta)
    y = eta + 0.7 * random.standard_normal(n) if family == "gaussian" else y
    ids = [f"p{i}" for i in range(n)]
    frames = {name: pd.DataFrame({"id": ids, f"x{name}": X[:, k]}) for k, name in enumerate("ABC"[:clients])}
    frames["B"]["ward"] = [levels[k] for k in at]
    return frames, pd.DataFrame({"id": ids, "y": y.astype(float)}), X, at


def want_of(family, X, at, n_levels, y):
    """Means and sds of the intercept at the average row, slopes and levels, with one coefficient N(0, sd 1) for every level."""
    n, hot = len(y), np.eye(n_levels)[at]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    Z = np.column_stack([np.ones(n), X, hot])
    to = np.eye(Z.shape[1])
    to[0, -n_levels:] = hot.mean(axis=0)
    to[-n_levels:, -n_levels:] -= hot.mean(axis=0)
    if family == "gaussian":
        left = y - Z @ np.linalg.lstsq(Z, y, rcond=None)[0]
        s2 = left @ left / (n - np.linalg.matrix_rank(Z))
        prior = np.ones(Z.shape[1])
        prior[0] = 1 / 25
        covariance = np.linalg.inv(Z.T @ Z / s2 + np.diag(prior))
        mean = covariance @ (Z.T @ y / s2 + prior * np.eye(Z.shape[1])[0] * y.mean())
        return to @ mean, np.sqrt(np.diag(to @ covariance @ to.T))
    level = np.log(y.mean()) if family == "poisson" else np.log(y.mean() / (1 - y.mean()))
    return exact(family, (X, hot), y, level, 5.0, to)


@pytest.mark.parametrize(
    ("family", "levels", "clients"),
    [
        ("bernoulli", "fm", 2),
        ("gaussian", "abcd", 3),
        pytest.param("bernoulli", "abcd", 3, marks=pytest.mark.nightly),
        pytest.param("poisson", "fm", 2, marks=pytest.mark.nightly),
        pytest.param("poisson", "abcd", 3, marks=pytest.mark.nightly),
        pytest.param("gaussian", "fm", 2, marks=pytest.mark.nightly),
    ],
)
def test_levels_and_intercept_are_those_of_the_pooled_rows(tmp_path, family, levels, clients):
    """At all defaults. With a coefficient for each level both had sds a seventh to a twentieth of the right ones."""
    frames, server, X, at = frames_of(family, levels, 300, clients)
    tables = {"job": {"method": "vertical", "seed": 1}, "data": {"id": "id", "response": "y"}, "model": {"family": family}}
    result = fedkern.run(tables, data=frames, server=server, out=tmp_path / "run")
    assert result.summary["stop"] == "settled"
    assert result.summary["rounds"] < 20_000
    read = {k: json.loads((tmp_path / "run" / f"client-{k}" / "posterior.json").read_text()) for k in frames}
    found = [result.summary["parameters"]["intercept"], *(read[k]["parameters"][f"theta_std[x{k}]"] for k in frames)]
    found += [read["B"]["parameters"][f"theta[ward={level}]"] for level in levels]
    mean, sd = np.array([[one["mean"], one["sd"]] for one in found]).T
    want, right = want_of(family, X, at, len(levels), server["y"].to_numpy())
    np.testing.assert_array_less(np.abs(mean - want) / right, 0.12)
    np.testing.assert_allclose(sd, right, rtol=0.08)
    # new rows, one of each level
    new = {k: pd.DataFrame({"id": list(levels), f"x{k}": 0.5}) for k in frames}
    new["B"]["ward"] = list(levels)
    centred = (0.5 - X.mean(axis=0)) / X.std(axis=0)
    k = 1 + clients
    linear = result.prediction(new).linear_mean
    np.testing.assert_allclose(linear, mean[0] + centred @ mean[1:k] + mean[k:], rtol=1e-9)
    np.testing.assert_allclose(linear, want[0] + centred @ want[1:k] + want[k:], atol=0.05)


@pytest.mark.parametrize(
    ("sections", "tied", "contrasts"),
    [
        ({}, False, True),
        ({"model": {"kind": "multilevel"}}, False, True),
        ({"model": {"prior": {"mean": 0.5}}}, True, False),
        ({"model": {"intercept": False}}, False, False),
        ({"model": {"kind": "bayes-network"}}, False, False),
        ({"privacy": {"epsilon": 3.0, "delta": 1e-5}, "job": {"method": "vertical", "rounds": 10}}, False, False),
    ],
)
def test_which_jobs_have_contrasts(sections, tied, contrasts):
    """Not private ones, whose rules ask for a row's own terms; nor those in which no intercept stands beside the levels."""
    data = {"clients": ["a.csv"], "id": "id", "response": "y", "server": "y.csv"}
    data |= {"columns": {"g": {"levels": ["a", "b"]}}}
    data |= {"group": "w"} if sections.get("model", {}).get("kind") == "multilevel" else {"ignore": ["w"]}
    config = config_of(keys, {"job": {"method": "vertical"}, "data": data, **sections})
    table = memory.table(pd.DataFrame({"id": list("pqrs"), "g": list("aabb"), "w": list("uvuv")}), "A")
    found = columns(Reading(table, config, "A"), np.arange(4))
    assert (found.tied, found.contrasts is not None) == (tied, contrasts)
    assert found.X.shape == (4, 1 if contrasts else 2)
    if contrasts:
        np.testing.assert_allclose(found.X.sum(), 0, atol=1e-15)
