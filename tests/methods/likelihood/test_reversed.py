"""An outcome that is coded the other way round at one client is named, and hospitals that differ are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import fedkern
from fedkern.algorithms.exchanges import compare
from fedkern.arrays import Array
from fedkern.models import survival
from fedkern.models.mixed import Layout
from fedkern.results import heterogeneity
from support.found import clients, ids, said

NAMES = ("ada", "bo", "cy", "di", "eve", "fay", "gil", "hal", "ida", "jo")
JOB: dict[str, Any] = {
    "job": {"method": "likelihood", "seed": 3},
    "data": {"response": "died"},
    "model": {"family": "bernoulli"},
    "algorithm": {"points": 1024, "effective": 300.0},
}
FAST = {"points": 512, "effective": 150.0}
REVERSED = ("response-reversed", "slopes-reversed", "slopes-reversed-of-shares", "slopes-reversed-of-levels")


def sites(
    seed: int, m: int, n: int, p: int, tau: float = 0.0, other: int = -1, of_slopes: float = 0.0, level: float = -1.0
) -> Any:
    """Columns and outcomes of m sites; `tau`: sd of their intercepts; `other`: the one that is coded the other way round."""
    rng, made = np.random.default_rng(seed), []
    beta = rng.normal(0, 0.5, p)
    for k in range(m):
        X = rng.normal(size=(int(n * rng.uniform(0.5, 1.5)), p))
        eta = level + tau * rng.normal() + X @ (beta + of_slopes * rng.normal(size=p))
        y = (rng.uniform(size=len(X)) < expit(eta)).astype(float)
        made.append((X, 1 - y if k == other else y))
    return made


def turned(result: fedkern.Result) -> list[list[str]]:
    """Clients of each doubt whether the response is coded the other way round."""
    return [list(one["clients"]) for one in said(result, "response-reversed")]


def found(made: list[tuple[Array, Array]]) -> tuple[int, ...]:
    return heterogeneity.find_reversed(*told(made))


def told_by_rates(made: list[tuple[Array, Array]]) -> tuple[int, ...]:
    return heterogeneity.mirrored(*told(made))


def told(made: list[tuple[Array, Array]]) -> tuple[float, Array, Array]:
    """The sums that sites tell where all slopes are 0."""
    chance = float(np.concatenate([y for _, y in made]).mean())
    columns = [np.column_stack([np.ones(len(X)), X]) for X, _ in made]
    g = np.stack([X.T @ (y - chance) for X, (_, y) in zip(columns, made)])
    P = np.stack([chance * (1 - chance) * X.T @ X for X in columns])
    return chance, g, P


@pytest.mark.parametrize("tau", [0.0, 1.0, 2.0])
@pytest.mark.parametrize(("m", "n", "p"), [(2, 40, 2), (3, 15, 3), (3, 300, 3), (8, 60, 10), (10, 300, 5)])
def test_sites_whose_outcomes_are_more_frequent_are_not_named(m: int, n: int, p: int, tau: float) -> None:
    assert not any(found(sites(seed, m, n, p, tau)) for seed in range(100))


def test_sites_whose_slopes_differ_are_named_next_to_never() -> None:
    """Slopes that vary as much as they are large on average: one in some hundred federations has one site that looks so."""
    named = sum(bool(found(sites(seed, 3, 300, 2, 1.0, of_slopes=0.3))) for seed in range(300))
    assert named <= 4


@pytest.mark.parametrize("level", [-2.5, -1.0, 0.0])
def test_the_site_that_is_coded_the_other_way_round_is_found(level: float) -> None:
    named = [found(sites(seed, 4, 400, 4, 0.5, other=seed % 4, level=level)) for seed in range(60)]
    assert sum(one == (seed % 4,) for seed, one in enumerate(named)) >= 45
    assert all(one in ((), (seed % 4,)) for seed, one in enumerate(named))


@pytest.mark.parametrize(("n", "slopes"), [(400, (0.5, -0.5, 0.4, 0.3)), (150, (0.5, -0.5, 0.4, 0.3)), (1000, (0.2, -0.15, 0.1))])
def test_with_few_events_the_site_is_found_by_how_often_the_outcome_is(n: int, slopes: tuple[float, ...]) -> None:
    named = []
    for seed in range(60):
        rng, made = np.random.default_rng(seed), []
        for k in range(4):
            X = rng.normal(size=(n, len(slopes)))
            y = (rng.uniform(size=n) < expit(-3 + X @ slopes)).astype(float)
            made.append((X, 1 - y if k == seed % 4 else y))
        named.append(found(made))
        assert told_by_rates(made) == (seed % 4,)
    assert sum(one == (seed % 4,) for seed, one in enumerate(named)) >= 50
    assert all(one in ((), (seed % 4,)) for seed, one in enumerate(named))


def test_a_ward_where_most_die_is_a_note_and_no_doubt() -> None:
    """Slopes are the same there as elsewhere: it differs in how often the event is."""
    noted = 0
    for seed in range(60):
        rng, made = np.random.default_rng(seed), []
        for k in range(4):
            X = rng.normal(size=(300, 3))
            made.append((X, (rng.uniform(size=300) < expit((2.6 if k == 1 else -2.6) + X @ [0.5, -0.4, 0.3])).astype(float)))
        assert found(made) == ()
        noted += told_by_rates(made) == (1,)
    assert noted >= 50


def frames(made: list[tuple[Array, Array]]) -> dict[str, pd.DataFrame]:
    return {
        name: pd.DataFrame({**{f"x{j}": x.round(3) for j, x in enumerate(X.T)}, "died": y.astype(int)})
        for name, (X, y) in zip(NAMES, made)
    }


@pytest.mark.parametrize("sampler", ["importance", "hmc"])
def test_a_job_names_the_client_and_says_what_to_do(sampler: str) -> None:
    job = JOB
    if sampler == "hmc":
        job = JOB | {"job": JOB["job"] | {"rounds": 100}, "algorithm": {"sampler": "hmc"}}
    result = fedkern.run(job, data=frames(sites(1, 3, 300, 3, 0.3, other=1)))
    assert result.converged is False
    assert turned(result) == [["bo"]]
    assert clients(result, "slopes-reversed") == ["bo"]
    assert not any("client = true" in note for note in result.summary["notes"])


def test_a_job_with_a_client_where_the_event_is_the_rule_says_what_that_may_be() -> None:
    made = [sites(4, 3, 300, 2, level=3.0 if k == 0 else -3.0)[k] for k in range(3)]  # with the same slopes
    result = fedkern.run(JOB, data=frames(made))
    assert clients(result, "outcome-reversed") == ["ada"]
    assert not turned(result)


@pytest.mark.parametrize("effects", [{"client": True}, {"group": "ward"}, {"group": "ward", "client": True}])
def test_effects_of_clients_and_groups_do_not_hide_it(effects: dict[str, Any]) -> None:
    """Which is what a note on differing intercepts advises."""
    data = {
        name: frame.assign(ward=np.arange(len(frame)) % 5) for name, frame in frames(sites(1, 4, 300, 3, 0.3, other=1)).items()
    }
    columns = {"ignore": []} if "group" in effects else {"ignore": ["ward"]}
    job = JOB | {"data": JOB["data"] | columns, "model": JOB["model"] | {"random": effects}, "algorithm": FAST}
    assert turned(fedkern.run(job, data=data)) == [["bo"]]
    right = {name: frame.assign(died=1 - frame.died) if name == "bo" else frame for name, frame in data.items()}
    result = fedkern.run(job, data=right)
    assert result.converged is True
    assert not ids(result) & {*REVERSED, "outcome-reversed"}


def test_of_two_clients_either_may_be() -> None:
    result = fedkern.run(JOB, data=frames(sites(3, 2, 400, 3, other=1)))
    assert turned(result) == [["ada", "bo"]]


@pytest.mark.parametrize("tau", [0.0, 1.5])
def test_a_job_of_hospitals_that_differ_is_not_stopped(tau: float) -> None:
    result = fedkern.run(JOB, data=frames(sites(2, 3, 200, 3, tau)))
    assert result.converged is True
    assert not ids(result) & {*REVERSED}


def test_successes_of_trials_are_looked_at_too() -> None:
    rng, data = np.random.default_rng(8), {}
    for name in NAMES[:3]:
        X = rng.normal(size=(120, 3))
        y = rng.binomial(5, expit(-0.8 + X @ [0.6, -0.5, 0.4]))
        frame = pd.DataFrame({f"x{j}": x.round(3) for j, x in enumerate(X.T)})
        data[name] = frame.assign(died=5 - y if name == "cy" else y, of=5)
    job = JOB | {"data": {"response": "died", "trials": "of"}, "model": {"family": "binomial"}}
    assert turned(fedkern.run(job, data=data)) == [["cy"]]


def others(family: str, turned: str = "", moved: str = "", m: int = 4, seed: int = 1) -> dict[str, pd.DataFrame]:
    """Shares, or scores of 0 to 4, about a level of each client; at one client turned, or one more than they are."""
    found = {}
    for k, name in enumerate(NAMES[:m]):
        rng = np.random.default_rng([seed, k])
        X = rng.normal(size=(220, 2))
        eta = 0.4 * rng.normal() + X @ [0.6, -0.5]
        if family == "beta":
            mean = expit(eta - 0.7)
            y = rng.beta(12 * mean, 12 * (1 - mean)).clip(0.001, 0.999).round(4)
            y = 1 - y if name == turned else y
        else:
            y = ((eta + rng.logistic(size=220))[:, np.newaxis] > [-1.2, -0.2, 0.7, 1.7]).sum(axis=1)
            y = 4 - y if name == turned else y + 1 if name == moved else y
        found[name] = pd.DataFrame({"x": X[:, 0].round(3), "z": X[:, 1].round(3), "y": y})
    return found


def job_of(family: str, levels: int = 5, **random: Any) -> dict[str, Any]:
    data = {"response": "y"} | ({"levels": [str(level) for level in range(levels)]} if family == "ordinal" else {})
    model = {"family": family} | ({"random": random} if random else {})
    return {"job": {"method": "likelihood", "seed": 3}, "data": data, "model": model, "algorithm": FAST}


@pytest.mark.parametrize(
    ("family", "effects"),
    [
        pytest.param("beta", {}, id="beta-effects0"),
        pytest.param("beta", {"client": True}, id="beta-effects1", marks=pytest.mark.nightly),  # a quarter of a minute
        pytest.param("ordinal", {}, id="ordinal-effects0"),
        pytest.param("ordinal", {"client": True}, id="ordinal-effects1"),
    ],
)
def test_shares_and_levels_the_other_way_round_are_found_by_slopes(family: str, effects: dict[str, Any]) -> None:
    result = fedkern.run(job_of(family, **effects), data=others(family, turned="bo"))
    assert result.converged is False
    assert turned(result) == [["bo"]]
    clean = fedkern.run(job_of(family, **effects), data=others(family))
    assert clean.converged is True
    assert not ids(clean) & {*REVERSED}


@pytest.mark.parametrize("effects", [{}, {"client": True}])
def test_a_scale_that_begins_at_another_number_lets_no_result_stand(effects: dict[str, Any]) -> None:
    result = fedkern.run(job_of("ordinal", 6, **effects), data=others("ordinal", moved="cy"))
    assert result.converged is False
    assert clients(result, "scale-begins-elsewhere") == ["cy"]


def scores(m: int, tau: float, levels: int, moved: int, rng: np.random.Generator) -> Array:
    """Numbers of 120 rows a client of each level, one more than there are."""
    cuts = np.linspace(-1.7, 1.7, levels - 1)
    made = [(tau * rng.normal() + 1.1 * rng.logistic(size=120))[:, np.newaxis] > cuts for _ in range(m)]
    return np.stack([np.bincount(one.sum(axis=1) + (k == moved), minlength=levels + 1) for k, one in enumerate(made)]) * 1.0


@pytest.mark.parametrize("m", [2, 3, 8])
@pytest.mark.parametrize("levels", [4, 5])
def test_scales_of_worse_patients_are_not_taken_for_others(m: int, levels: int) -> None:
    """Levels differ by an sd of 1 in log odds: nobody is named, and the client whose scale begins at 1 in most."""
    rng, names = np.random.default_rng([m, levels]), list(NAMES[:m])
    labels = [str(level) for level in range(levels + 1)]
    clean = [compare.of_ends("y", labels[:-1], names, scores(m, 1.0, levels, -1, rng)[:, :levels]) for _ in range(300)]
    assert sum(map(bool, clean)) <= 1
    found = [compare.of_ends("y", labels, names, scores(m, 0.5, levels, 1, rng)) for _ in range(300)]
    assert sum("'bo'" in str(one) for one in found) >= 255
    assert not any(one and "'bo'" not in str(one) for one in found)


def test_all_but_one_beginning_at_another_number_name_the_one() -> None:
    numbers = np.array([[0, 30, 40, 30], [0, 20, 50, 30], [25, 45, 30, 0], [0, 32, 40, 28]], np.float64)
    assert "at 'cy' levels are missing" in str(compare.of_ends("y", list("0123"), NAMES[:4], numbers))
    assert compare.of_ends("y", list("0123"), NAMES[:4], np.roll(numbers, 0, axis=0)[[0, 1, 3, 3]]) == []


# Survival times --------------------


def lived(seed: int, n: int = 250, other: int = -1, follow: float = 0.0, shape: float = 1.2) -> dict[str, pd.DataFrame]:
    """Four sites whose rows are lost at times of their own, with two thirds of events; `follow`: sd of the log of these times."""
    rng, made = np.random.default_rng(seed), {}
    for k, name in enumerate(NAMES[:4]):
        X = rng.normal(size=(n, 2))
        time = rng.weibull(shape, n) * np.exp(-(X @ [0.56, -0.3]) / shape) * 10
        lost = rng.exponential(16 * np.exp(follow * rng.normal()), n)
        event = (time <= lost).astype(int)
        columns = {"x": X[:, 0], "z": X[:, 1], "time": np.minimum(time, lost), "died": 1 - event if k == other else event}
        made[name] = pd.DataFrame(columns)
    return made


COX: dict[str, Any] = {
    "job": {"method": "likelihood", "seed": 3},
    "data": {"time": "time", "event": "died"},
    "model": {"family": "cox"},
    "algorithm": {"points": 1024, "effective": 300.0},
    "output": {"draws": 100, "chains": 2},
}


def test_a_site_whose_event_is_the_other_way_round_is_named() -> None:
    result = fedkern.run(COX, data=lived(1, other=3))
    assert result.converged is False
    assert clients(result, "event-reversed") == ["di"]
    assert said(result, "events-reversed-by-risk")
    honest = fedkern.run(COX, data=lived(1))
    assert honest.converged is True
    assert not ids(honest) & {"event-reversed", "events-reversed", "events-reversed-by-risk"}


def of_sites(frames: dict[str, pd.DataFrame]) -> tuple[int, ...]:
    """The finding, from partial likelihoods at the coefficients of all."""
    layout = Layout(("x", "z"), "cox")
    of = [
        survival.Rows.of(layout, one[["x", "z"]].to_numpy(), one.time.to_numpy(), one.died.to_numpy() == 1)
        for one in frames.values()
    ]
    mode = np.zeros(2)
    for _ in range(8):
        _, g, P = (np.concatenate(one) for one in zip(*(rows.curvature(mode[np.newaxis], 0) for rows in of)))
        mode = mode + np.linalg.solve(P.sum(axis=0), g.sum(axis=0))
    n = np.array([len(one) for one in frames.values()], float)
    shares = np.array([(one.died.sum() + 0.5) / (len(one) + 1) for one in frames.values()])
    return heterogeneity.find_reversed_events(n, shares, P @ mode + g, P, 0)


def test_sites_that_are_followed_for_longer_are_not_named() -> None:
    """Of 100 honest federations whose follow-up differs twofold at most one."""
    assert sum(bool(of_sites(lived(seed, n=120, follow=0.7))) for seed in range(100)) <= 1


def test_reversed_events_are_found_in_nine_of_ten_federations() -> None:
    found = [of_sites(lived(seed, other=seed % 4)) for seed in range(40)]
    assert sum(one == (seed % 4,) for seed, one in enumerate(found)) >= 34
    assert all(one in ((), (seed % 4,)) for seed, one in enumerate(found))


# The people of the Titanic, as R's table of that name counts them: by class, sex, age and outcome, the first running fastest.
TITANIC = "0 0 35 0 0 0 17 0 118 154 387 670 4 13 89 3 5 11 13 0 1 13 14 0 57 14 75 192 140 80 76 20"


@pytest.mark.parametrize("seed", [0, 9, 11])
def test_cells_of_a_table_that_are_dealt_to_sites_say_nothing_of_how_an_outcome_is_coded(seed: int) -> None:
    """The people of a cell came to a site together: their number is no evidence beyond that of one row."""
    levels = {
        "survived": ("No", "Yes"),
        "age": ("Child", "Adult"),
        "sex": ("Male", "Female"),
        "cabin": ("1st", "2nd", "3rd", "Crew"),
    }
    cells = pd.MultiIndex.from_product(levels.values(), names=levels).to_frame(index=False)
    cells["n"] = [int(count) for count in TITANIC.split()]
    site = np.random.default_rng(seed).permutation(len(cells)) % 3
    job = {
        "job": {"method": "likelihood"},
        "data": {"weight": "n", "weight_kind": "frequency"},
        "model": {"family": "bernoulli", "formula": "survived ~ cabin + sex + age"},
    }
    result = fedkern.run(job, data={name: cells[site == k].reset_index(drop=True) for k, name in enumerate(NAMES[:3])})
    assert not {*ids(result)} & {*REVERSED, "outcome-reversed", "outcome-mirrored"}
