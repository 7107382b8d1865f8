"""Rows of a survey: the pseudo-posterior has the mean of weighted rows and the covariance of the design."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.errors import FedkernError, JobError
from fedkern.models import levels
from fedkern.models.mixed import Layout, Rows
from fedkern.models.survey import Clusters, Pseudo, moved
from support.found import ids

DATA = {"response": "y", "weight": "w", "weight_kind": "survey"}


def sample(clients: int = 3, clusters: int = 16, size: int = 10, seed: int = 1) -> dict[str, pd.DataFrame]:
    """Clusters that differ, in two strata of each client, with weights that hang on the covariate."""
    rng, frames = np.random.default_rng(seed), {}
    for k in range(clients):
        sizes = rng.integers(size - 4, size + 5, clusters)
        cluster = np.repeat(np.arange(clusters), sizes)
        x = rng.normal(size=len(cluster)).round(3) + 0.3 * rng.normal(size=clusters)[cluster]
        eta = 0.2 + 0.6 * x + rng.normal(0, 0.8, clusters)[cluster]
        frames[f"c{k}"] = pd.DataFrame(
            {
                "x": x,
                "y": (rng.random(len(x)) < 1 / (1 + np.exp(-eta))).astype(int),
                "w": np.round(rng.choice([20.0, 55.5, 130.0], len(x)) * np.exp(0.4 * x), 1),
                "psu": [f"p{k}-{c}" for c in cluster],
                "stratum": np.where(cluster % 2, "odd", "even"),
            }
        )
    return frames


def fitted(frames: Mapping[str, pd.DataFrame], data: Mapping[str, Any] = {}, **more: Any) -> fedkern.Result:
    read = ["x", "y", "w", *(data[name] for name in ("psu", "survey_strata") if name in data)]
    tables: dict[str, Any] = {
        "job": {"method": "likelihood", "seed": 2},
        "data": {**DATA, **data},
        "model": {"family": "bernoulli", "prior_sd": 1e3, "intercept_sd": 1e3},
    }
    for section, keys in more.items():
        tables[section] = {**tables.get(section, {}), **keys}
    return fedkern.run(tables, data={name: frame[read] for name, frame in frames.items()})


def by_hand(frames: Mapping[str, pd.DataFrame], psu: str | None, strata: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Weighted logistic regression with the linearised variance of Binder (1983), as R's `survey::svyglm` has it."""
    whole = pd.concat([frame.assign(client=name) for name, frame in frames.items()], ignore_index=True)
    X, y, w = np.column_stack([np.ones(len(whole)), whole.x]), whole.y.to_numpy(), whole.w.to_numpy()
    b = np.zeros(2)
    for _ in range(30):
        p = 1 / (1 + np.exp(-X @ b))
        A = X.T @ ((w * p * (1 - p))[:, np.newaxis] * X)
        b = b + np.linalg.solve(A, X.T @ (w * (y - p)))
    scores = pd.DataFrame(w[:, np.newaxis] * X * (y - p)[:, np.newaxis])
    cluster = whole[psu] if psu else whole.index
    stratum = whole.client + whole[strata] if strata else "all"
    totals = scores.assign(c=cluster, h=stratum).groupby(["h", "c"]).sum()
    B = np.zeros((2, 2))
    for _, u in totals.groupby("h"):
        off = (u - u.mean()).to_numpy()
        B += len(u) / (len(u) - 1) * off.T @ off
    V = np.linalg.solve(A, np.linalg.solve(A, B).T)
    return b, np.sqrt(np.diag(V))


@pytest.mark.parametrize(("psu", "strata"), [(None, None), ("psu", None), ("psu", "stratum"), (None, "stratum")])
def test_intervals_are_of_the_design(psu: str | None, strata: str | None) -> None:
    frames = sample()
    given = {name: column for name, column in (("psu", psu), ("survey_strata", strata)) if column}
    result, (mean, sd) = fitted(frames, given), by_hand(frames, psu, strata)
    assert result.converged is True
    for name, b, error in zip(("intercept", "theta[x]"), mean, sd):
        assert result.parameters[name]["mean"] == pytest.approx(b, abs=0.12 * error)  # a mean of a skew posterior is no mode
        assert result.parameters[name]["sd"] == pytest.approx(error, rel=0.001)
    draws = result.posterior.groups(None)["posterior"].variables["theta"][1].ravel()
    assert draws.std() == pytest.approx(sd[1], rel=0.05)
    assert "survey-pseudo-posterior" in ids(result)
    assert not {"log_evidence", "sensitivity", "predictive", "heterogeneity"} & set(result.summary)
    with pytest.raises(JobError, match="a pseudo-posterior"):
        result.compare(result)


def test_the_unit_of_weights_is_nothing_and_a_label_at_two_clients_is_two_clusters() -> None:
    frames = sample()
    first = fitted(frames, {"psu": "psu"})
    again = {name: frame.assign(w=frame.w * 1000, psu=frame.psu.str.slice(3)) for name, frame in frames.items()}
    second = fitted(again, {"psu": "psu"})
    w = pd.concat(frames.values()).w
    assert first.summary["survey"] == {"effective": pytest.approx(w.sum() ** 2 / (w**2).sum()), "clusters": 48}
    assert second.summary["survey"]["clusters"] == 48
    for name, row in first.parameters.items():
        assert second.parameters[name]["sd"] == pytest.approx(row["sd"], rel=1e-6)
        assert second.parameters[name]["mean"] == pytest.approx(row["mean"], abs=1e-6 * row["sd"])


def test_rows_of_weight_0_count_nowhere() -> None:
    frames = sample()
    more = {name: pd.concat([frame, frame.iloc[:20].assign(w=0.0, y=1)]) for name, frame in frames.items()}
    first, second = (fitted(rows, {"psu": "psu", "survey_strata": "stratum"}) for rows in (frames, more))
    assert second.summary["survey"] == pytest.approx(first.summary["survey"])
    assert second.parameters["theta[x]"]["mean"] == pytest.approx(first.parameters["theta[x]"]["mean"], abs=0.02)


@pytest.mark.parametrize("levels_of", [None, 3])
def test_a_pseudo_likelihood_is_the_sum_of_rows_times_their_weights(levels_of: int | None) -> None:
    rng, n = np.random.default_rng(2), 40
    X, w = np.column_stack([np.ones(n), rng.normal(size=n)]), rng.choice([0.0, 0.5, 1.7, 3.0], n)
    rows: Any
    if levels_of is None:
        layout, y = Layout(("intercept", "x"), "negative-binomial", (), ()), rng.poisson(3, n).astype(float)
        rows = Rows(layout, X, y, np.array([0, n]))
    else:
        layout = Layout(levels.block_names(["a", "b", "c"], ("intercept", "x")), "multinomial")
        rows = levels.Rows(layout, X, rng.integers(0, 3, n).astype(float), 3)
    point = rng.normal(0, 0.4, (1, layout.size))
    pseudo = Pseudo.of(rows, w)
    each = [rows.of_rows(np.array([i]), whole=True) for i in range(n)]
    np.testing.assert_allclose(pseudo.values(point, 1), sum(w[i] * each[i].values(point, 1) for i in range(n)), rtol=1e-12)
    gradients = np.array([w[i] * each[i].curvature(point, 1)[1][0] for i in range(n)])
    np.testing.assert_allclose(pseudo.curvature(point, 1)[1][0], gradients.sum(axis=0), atol=1e-10)
    scores = pseudo.scores(point[0], Clusters(np.arange(n) // 4, None))
    by_cluster = np.add.reduceat(gradients, np.arange(0, n, 4))
    np.testing.assert_allclose(scores.products, by_cluster.T @ by_cluster, atol=1e-9)
    assert len(pseudo.X) == (w > 0).sum() == pseudo.weighed(point[0]).shape[1]


def test_draws_are_moved_to_a_covariance_beside_what_only_the_prior_tells_apart() -> None:
    """A direction in which draws are a thousand times as wide, and the sandwich has nothing."""
    rng, free = np.random.default_rng(0), np.array([-1.0, 1.0, 1.0, 1.0])
    S = np.diag([0.01, 0.04, 0.09, 0.02]) + 1e4 * np.outer(free, free)
    draws, weights = rng.normal(size=(3000, 4)) @ np.linalg.cholesky(S).T + 5.0, rng.dirichlet(np.ones(3000))
    half = (rng.normal(size=(4, 4)) * 0.1) @ (np.eye(4) - np.outer(free, free) / 4)
    V = half.T @ half
    found = moved(draws, weights, V)
    off = found - weights @ found
    np.testing.assert_allclose((off * weights[:, np.newaxis]).T @ off, V, atol=1e-8)
    np.testing.assert_allclose(weights @ found, weights @ draws, rtol=1e-12)
    kept = moved(draws, weights, np.cov(draws.T, aweights=weights, bias=True))
    np.testing.assert_allclose(kept, draws, atol=1e-6)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"model": {"random": {"client": True}}}, r"\[model.random\] with data.weight_kind = \"survey\""),
    ({"output": {"loo": True}}, "output.loo with data.weight_kind"),
    ({"output": {"without": True}}, "output.without with data.weight_kind"),
    ({"output": {"sites": True}}, "output.sites with data.weight_kind"),
    ({"output": {"marginal": True}}, "output.marginal with data.weight_kind"),
    ({"algorithm": {"sampler": "hmc"}}, 'set algorithm.sampler = "importance"'),
    ({"job": {"sums": "secure"}}, "needs each client's clusters"),
    ({"model": {"family": "auto"}}, "has no evidence"),
    ({"data": {"time": "x", "event": "y"}, "model": {"family": "cox"}}, 'not built for model.family = "cox"'),
    ({"data": {"trials": "x"}, "model": {"family": "binomial"}}, "both say how much a row counts"),
]


@pytest.mark.parametrize(("more", "words"), REFUSED, ids=[str(case[0]) for case in REFUSED])
def test_what_a_pseudo_posterior_has_not_is_refused(more: dict[str, Any], words: str) -> None:
    with pytest.raises(JobError, match=words):
        fitted(sample(), more.pop("data", {}), **more)


def test_designs_that_are_none_are_refused() -> None:
    frames = sample()
    frames["c1"].loc[5, "stratum"] = "lone"
    with pytest.raises(JobError, match="clusters stand in several strata of column 'stratum'"):
        fitted(frames, {"psu": "psu", "survey_strata": "stratum"})
    with pytest.raises(JobError, match="strata with one cluster"):
        fitted(frames, {"survey_strata": "stratum"})
    frames = sample()
    frames["c1"].loc[5, "psu"] = ""
    with pytest.raises(FedkernError, match="psu"):
        fitted(frames, {"psu": "psu"}, model={"missing": "error"})
    frames = sample()
    frames["c2"].loc[0, "w"] = 1e12
    with pytest.raises(JobError, match="all rows count as 1 independent ones, and the model has 2 unknowns"):
        fitted(frames)
    with pytest.raises(JobError, match="the weights of all clients' rows are 0"):
        fitted({name: frame.assign(w=0.0) for name, frame in frames.items()})


def test_a_client_of_few_clusters_tells_no_products() -> None:
    """Products of the scores of few clusters are these up to a rotation: of some rows each they are sums of rows."""
    frames, strict = sample(clusters=3, size=60), {"disclosure": {"level": "standard"}}
    assert fitted(frames, {"psu": "psu"}, **strict).converged is True
    first = frames["c1"]
    frames["c1"] = pd.concat([first, first.iloc[:1].assign(psu="alone")])
    with pytest.raises(JobError, match="7 are asked for, or 5 rows in each"):
        fitted(frames, {"psu": "psu"}, **strict)
    frames["c1"] = frames["c1"].assign(psu=frames["c1"].psu.replace("alone", first.psu.iloc[-1]))
    joined = fitted(frames, {"psu": "psu"}, **strict)
    assert (joined.converged, joined.summary["survey"]["clusters"]) == (True, 9)


def test_fewer_clusters_than_unknowns_are_a_doubt() -> None:
    frames = sample(clients=2, clusters=1)
    result = fitted(frames, {"psu": "psu"})
    assert result.converged is False
    assert "the covariance of 2 unknowns is wanted of 2 clusters" in str(result)
    assert fitted(frames).converged is True  # of rows as clusters


def test_check_says_the_design_and_what_is_told_of_it() -> None:
    frames = {name: frame[["x", "y", "w", "psu"]] for name, frame in sample().items()}
    job = {"job": {"method": "likelihood"}, "data": {**DATA, "psu": "psu"}, "model": {"family": "bernoulli"}}
    said = "\n".join(fedkern.check(job, data=frames, verbose=True))
    assert "clusters by column 'psu', a label at two clients is two" in said
    assert "ClusterScores" in said
    assert "Replicated" not in said
