"""An outcome that is coded the other way round at one client is named by a partitioned job, and hospitals that differ are not."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import fedkern
from fedkern.arrays import Array
from fedkern.results import heterogeneity, other_way
from support.found import clients, ids

NAMES = ("ada", "bo", "cy", "di", "eve", "fay")
SEEN = (3, 11)  # of the first 60 the second looks so


def sites(seed: int, m: int, n: int, p: int = 3, **more: float) -> list[tuple[Array, Array]]:
    """Columns and outcomes of m sites. `tau`: sd of intercepts; `other`: the site that is coded the other way round; `mixed`: the
    first column has two values, the second a tail."""
    rng, made = np.random.default_rng(seed), []
    beta = rng.normal(0, more.get("sd", 0.5), p)
    for k in range(m):
        X = rng.normal(size=(int(n * rng.uniform(0.5, 1.5)), p))
        if more.get("mixed"):
            X[:, 0], X[:, 1] = (X[:, 0] > 0.85) / 0.4 - 0.5, rng.gamma(1.0, size=len(X)) - 1
        own = beta + more.get("of_slopes", 0.0) * rng.normal(size=p)
        eta = more.get("level", -1.0) + more.get("tau", 0.0) * rng.normal() + X @ own
        y = (rng.uniform(size=len(X)) < expit(eta)).astype(float)
        made.append((X, 1 - y if k == more.get("other", -1) else y))
    return made


def frames(made: list[tuple[Array, Array]]) -> dict[str, pd.DataFrame]:
    return {
        name: pd.DataFrame({**{f"x{j}": x.round(3) for j, x in enumerate(X.T)}, "died": y.astype(int)})
        for name, (X, y) in zip(NAMES, made)
    }


def fitted(rows: dict[str, pd.DataFrame], /, model: dict[str, Any] | None = None, **sections: dict[str, Any]) -> Any:
    return fedkern.run(
        {
            "job": {"method": "pvi", "seed": 3} | sections.pop("job", {}),
            "data": {"response": "died"} | sections.pop("data", {}),
            "model": {"family": "bernoulli"} | (model or {}),
            **sections,
        },
        data=rows,
    )


def at_zero(made: list[tuple[Array, Array]]) -> tuple[float, Array, Array]:
    """The sums where all slopes are 0, from rows."""
    chance = float(np.concatenate([y for _, y in made]).mean())
    columns = [np.column_stack([np.ones(len(X)), X]) for X, _ in made]
    g = np.stack([X.T @ (y - chance) for X, (_, y) in zip(columns, made)])
    return chance, g, np.stack([chance * (1 - chance) * X.T @ X for X in columns])


def at_mode(made: list[tuple[Array, Array]]) -> tuple[Array, Array, Array]:
    """The mode of all rows (a ridge of .1), with each site's gradient and curvature there."""
    columns = [np.column_stack([np.ones(len(X)), X]) for X, _ in made]
    every, y = np.vstack(columns), np.concatenate([y for _, y in made])
    mode = np.zeros(every.shape[1])
    for _ in range(20):
        p = expit(every @ mode)
        A = (every * (p * (1 - p))[:, None]).T @ every + 0.1 * np.eye(len(mode))
        mode = mode + np.linalg.solve(A, every.T @ (y - p) - 0.1 * mode)
    chances = [expit(X @ mode) for X in columns]
    g = np.stack([X.T @ (own - p) for X, p, (_, own) in zip(columns, chances, made)])
    return mode, g, np.stack([(X * (p * (1 - p))[:, None]).T @ X for X, p in zip(columns, chances)])


def sums(made: list[tuple[Array, Array]]) -> other_way.Sums:
    return other_way.where_slopes_are_0(*at_mode(made), columns=range(1, made[0][0].shape[1] + 1))


def test_sums_without_weights_follow_from_those_at_the_mode() -> None:
    """Of normal columns: numbers of rows, rates, means and covariances of columns, and of outcomes with them."""
    made = sites(5, 3, 4000, sd=0.8, tau=1.0)
    found, (chance, g, P) = sums(made), at_zero(made)
    assert found.chance == pytest.approx(chance, abs=0.003)
    np.testing.assert_allclose(found.P / P[:, :1, :1], P / P[:, :1, :1], atol=0.05)
    np.testing.assert_allclose(found.g / P[:, :1, 0], g / P[:, :1, 0], atol=0.05)


SHAPES = [
    (3, 100, {"tau": 1.0}), (3, 300, {"tau": 2.0, "mixed": 1.0}), (6, 300, {"tau": 2.0}),
    (4, 300, {"tau": 0.5, "of_slopes": 0.3}), (3, 300, {"tau": 1.0, "sd": 1.0, "mixed": 1.0}),
]  # fmt: skip


@pytest.mark.parametrize(("m", "n", "more"), SHAPES)
def test_hospitals_that_differ_are_not_named(m: int, n: int, more: dict[str, float]) -> None:
    named = [other_way.find(sums(sites(seed, m, n, **more)), NAMES, "died") for seed in range(20)]
    assert sum(one is not None and bool(one.doubt) for one in named) <= 1


def test_weights_of_rows_are_why_the_sums_at_the_mode_themselves_are_not_asked() -> None:
    """The negative control: of hospitals whose rates differ much some look turned by the sums that rows have at the mode."""
    named = 0
    for seed in SEEN:
        mode, g, P = at_mode(made := sites(seed, 6, 300, tau=2.0))
        named += bool(heterogeneity.find_opposed(P @ mode + g, P))
        assert heterogeneity.find_reversed(*sums(made)) == ()
    assert named == 1


@pytest.mark.parametrize(("m", "n", "least"), [(3, 300, 11), (4, 300, 11), (6, 300, 11), (3, 1000, 14)])
def test_the_site_is_found_as_often_as_from_rows(m: int, n: int, least: int) -> None:
    right = from_rows = 0
    for seed in range(20):
        made = sites(seed, m, n, tau=0.5, other=seed % m)
        found = heterogeneity.find_reversed(*sums(made))
        assert found in ((), (seed % m,))
        right += bool(found)
        from_rows += bool(heterogeneity.find_reversed(*at_zero(made)))
    assert right >= least
    assert abs(right - from_rows) <= 2


@pytest.mark.parametrize(
    ("model", "sections"),
    [({}, {}), ({"covariance": "diagonal"}, {"job": {"rounds": 30}}), ({}, {"algorithm": {"variant": "global-vi"}})],
    ids=["default", "diagonal", "one posterior"],
)
def test_a_job_names_the_client_and_says_what_to_do(model: dict[str, Any], sections: Any) -> None:
    turned, right = (frames(sites(1, 4, 300, tau=0.3, other=other)) for other in (1, -1))
    result = fitted(turned, model, **sections)
    assert result.converged is False
    assert clients(result, "response-reversed") == ["bo"]
    assert clients(result, "slopes-reversed") == ["bo"]
    # It advises no method and no key that would hide it.
    assert not any("sparse" in note for note in result.summary["notes"])
    clean = fitted(right, model, **sections)
    assert not ids(clean) & {"response-reversed", "slopes-reversed", "outcome-reversed"}


def test_a_client_without_an_event_hides_no_other() -> None:
    """The sums where slopes are 0 are approximate: such a client seems to have less than no event, whose log odds are none."""
    made = sites(3, 4, 600, tau=0.3, other=1, sd=1.5)
    made[3] = made[3][0], np.zeros(len(made[3][0]))
    chance, g, P = sums(made)
    assert P[3, 0, 0] / (1 - chance) + g[3, 0] < -0.5
    result = fitted(frames(made))
    assert result.converged is False
    assert clients(result, "response-reversed") == ["bo"]


def test_a_site_that_knows_nothing_hides_no_other() -> None:
    """Of three sites, one without rows or with constant columns alone, two are compared; of four, three."""
    for m, who in ((2, (0, 1)), (3, (1,))):
        made = sites(1, m, 1000, tau=0.3, other=1)
        constant = np.zeros((200, 3)), (np.arange(200) < 60).astype(float)
        for silent in ((np.zeros((0, 3)), np.zeros(0)), constant):
            chance, g, P = at_zero([*made, silent])
            assert heterogeneity.find_reversed(chance, g, P) == who
            assert heterogeneity.find_opposed(g, P) == who
    made = sites(1, 3, 300, level=-3.0, other=1)
    assert heterogeneity.mirrored(*at_zero([*made, (np.zeros((0, 3)), np.zeros(0))])) == (1,)
    mode, g, P = at_mode([*made, (np.zeros((0, 3)), np.zeros(0))])
    assert not other_way.where_slopes_are_0(mode, g, P, range(1, 4)).P[3].any()


def test_numbers_that_are_none_are_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    data = frames(sites(1, 4, 300, tau=0.3))
    of_all, (chance, g, P) = sums(sites(1, 4, 300)), at_zero(sites(1, 4, 300))
    g[2, 1] = np.nan
    for compare in (lambda: heterogeneity.find_reversed(chance, g, P), lambda: heterogeneity.find_opposed(g, P)):
        with pytest.raises(FloatingPointError):
            compare()
    for ends_in_nan in (lambda *_: other_way.Sums(chance, g, P), lambda *_: (np.log(-np.ones(1)), of_all)[1]):
        monkeypatch.setattr(other_way, "where_slopes_are_0", ends_in_nan)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as a user may have it: NumPy's warning alone is no end of a check
            result = fitted(data)
        assert result.converged == "not judged"
        assert "failed-checks" in ids(result)


def test_where_it_is_not_looked_for() -> None:
    """Without an intercept, with an offset, in a job of masks: as in the other method."""
    data = frames(sites(1, 4, 300, tau=0.3, other=1))
    assert "response-reversed" not in ids(fitted(data, {"intercept": False}))
    more = {name: frame.assign(o=0.1) for name, frame in data.items()}
    assert "response-reversed" not in ids(fitted(more, data={"offset": "o"}))


@pytest.mark.parametrize(("family", "named"), [("bernoulli", ["bo", "cy"]), ("poisson", ["bo"])])
def test_clients_with_one_response_in_all_rows_are_named(family: str, named: list[str]) -> None:
    """No event, or only events; of counts 1 in each row says something."""
    rows = frames(sites(5, 4, 80))
    rows["bo"]["died"], rows["cy"]["died"] = 0, 1
    result = fitted(rows, {"family": family})
    assert clients(result, "no-event-or-only-events-at") == named
    assert "no-event-or-only-events-at" not in ids(fitted(frames(sites(5, 4, 80)), {"family": family}))
    if family == "bernoulli":
        assert "no-event-or-only-events-at" not in ids(fitted(rows, job={"sums": "secure"}))
