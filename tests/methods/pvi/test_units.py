"""Open regressions as they are typed: whatever the unit and the level of the response, at default keys the answer is right.

References are written for themselves: iterated weighted least squares, and the marginal likelihood of the pooled rows.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize_scalar

import fedkern
from fedkern.algorithms.core.kept import PersistentMap
from fedkern.algorithms.core.messages import RemoteFault
from fedkern.algorithms.pvi import scale
from fedkern.algorithms.pvi.messages import ScaledQUpdate, ScaledSiteDelta, SiteDelta
from fedkern.errors import JobError
from fedkern.methods import parse
from fedkern.methods.pvi.predict import predicted
from support import chosen
from support.command import mpirun
from support.interrupted import regression, run, stopped_and_resumed
from support.refusal import refusal
from support.wires import checked_and_run

Array = np.ndarray[Any, Any]


def rows(n: int, seed: int) -> tuple[Array, Array]:
    """Blood pressures of people of about sixty."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, 3)) * [1, 5, 0.1] + [0, 60, 3]
    return X, 101 + X @ [2.0, 0.4, -3.0] + 10 * random.standard_normal(n)


def frame(X: Array, y: Array) -> pd.DataFrame:
    return pd.DataFrame(X, columns=["x1", "x2", "x3"]).assign(y=y)


CLIENTS = {"a": rows(30, 1), "b": rows(22, 2), "c": rows(20, 3)}


def fitted(data: Any = CLIENTS, rounds: int = 12, algorithm: Any = None, **model: Any) -> Any:
    tables = {"job": {"method": "pvi", "rounds": rounds}, "data": {"response": "y"}, "algorithm": algorithm or {}}
    return fedkern.run({**tables, "model": {"family": "gaussian", "covariance": "full", **model}}, data=data)


def noted(result: Any) -> list[str]:
    """The notes, but for that on what another method asks."""
    return [note for note in result.summary["notes"] if not note.startswith('method = "likelihood" has')]


def type_two(data: Any = CLIENTS, sd_of_intercept: float = 5.0) -> tuple[float, Array, Array]:
    """The scale that maximises the pooled marginal likelihood, and mean and covariance of (intercept, slopes) of standardised
    columns under it; in the data's units."""
    X, y = (np.concatenate([part[i] for part in data.values()]) for i in (0, 1))
    X = np.column_stack([np.ones(len(y)), (X - X.mean(0)) / X.std(0)])
    level, unit = y.mean(), y.std()
    z, cov = (y - level) / unit, np.diag([sd_of_intercept**2, 1.0, 1.0, 1.0])

    def minus(log_sd: float) -> float:
        K = np.exp(2 * log_sd) * np.eye(len(z)) + X @ cov @ X.T
        return float(np.linalg.slogdet(K)[1] + z @ np.linalg.solve(K, z))

    sd = float(np.exp(minimize_scalar(minus, bounds=(-5, 2), method="bounded", options={"xatol": 1e-10}).x))
    S = np.linalg.inv(X.T @ X / sd**2 + np.linalg.inv(cov))
    return sd * unit, unit * (S @ X.T @ z / sd**2) + level * np.eye(4)[0], unit**2 * S


STANDARD = ("intercept_std", "theta_std[x1]", "theta_std[x2]", "theta_std[x3]")


@pytest.mark.parametrize(
    ("algorithm", "rounds"),
    [
        ({}, 5),
        ({"damping": 0.4}, 60),
        ({"schedule": "synchronous"}, 60),
        ({"schedule": "synchronous", "damping": 1.0}, 8),
        ({"schedule": "random"}, 40),
        ({"schedule": "asynchronous"}, 60),
    ],
    ids=["sequential", "damped", "synchronous", "synchronous, undamped", "random", "asynchronous"],
)
def test_the_learnt_scale_is_the_maximiser_of_the_pooled_marginal_likelihood(algorithm: dict[str, Any], rounds: int) -> None:
    scale, mean, covariance = type_two()
    result = fitted(algorithm=algorithm, rounds=rounds)
    assert result.summary["scale"] == pytest.approx(scale, rel=1e-4)
    sd = np.sqrt(np.diag(covariance))
    for name, value, own in zip(STANDARD, mean, sd):
        assert result.summary["parameters"][name]["mean"] == pytest.approx(value, abs=0.01 * own)
        assert result.summary["parameters"][name]["sd"] == pytest.approx(own, rel=1e-3)
    assert result.converged == "settled"
    assert not noted(result)


def test_of_a_mean_field_q_it_is_that_of_the_bound() -> None:
    """n scale^2 = sum of squares about q's mean + what q's spread adds."""
    result = fitted(covariance="diagonal", rounds=40)
    X, y = (np.concatenate([part[i] for part in CLIENTS.values()]) for i in (0, 1))
    X = np.column_stack([np.ones(len(y)), (X - X.mean(0)) / X.std(0)])
    q = result.posterior.q
    expected = np.mean((y - X @ q.mean) ** 2 + X**2 @ q.sd**2)
    assert result.summary["scale"] == pytest.approx(np.sqrt(expected), rel=1e-4)


def written(folder: Path) -> Path:
    """A job file."""
    return regression(folder, {name: frame(X, y) for name, (X, y) in CLIENTS.items()}, "gaussian")


def test_a_run_that_is_interrupted_learns_the_same_scale(tmp_path: Path) -> None:
    result, whole = stopped_and_resumed(written(tmp_path), tmp_path / "out", after=13)
    assert result.digest == whole.digest
    assert result.summary["scale"] == whole.summary["scale"]


def test_ranks_learn_the_same_scale(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text(path.read_text() + '[algorithm]\nschedule = "synchronous"\n')
    ended = mpirun(3, "run", path, "--out", tmp_path / "out")
    assert ended.code == 0, ended.err
    summary, alone = json.loads((tmp_path / "out" / "summary.json").read_text()), run(path, None)
    assert (summary["digest"], summary["scale"]) == (alone.digest, alone.summary["scale"])


@pytest.mark.parametrize("share", [0.0, 9.0])
def test_a_scale_that_is_not_learnt_yet_wants_more_rounds(share: float) -> None:
    data = {name: (X, share * X @ [2.0, 0.4, -3.0] + y / (1 + share)) for name, (X, y) in CLIENTS.items()}
    result, rounds = fitted(data, rounds=1), 1
    assert result.converged is False
    assert "raise job.rounds" in result.summary["verdict"]
    while result.converged is False and rounds < 8:
        rounds += 1
        result = fitted(data, rounds=rounds)
    assert result.converged == "settled"
    assert result.summary["scale"] == pytest.approx(type_two(data)[0], rel=0.02)


def test_what_is_said_of_a_response_without_a_spread_helps() -> None:
    constant = {name: (X, np.full(len(X), 5.0)) for name, (X, _) in CLIENTS.items()}
    with pytest.raises(JobError, match=r"responses have one value.* subtract a constant, or give model.scale"):
        fitted(constant)
    assert fitted(constant, scale=0.3).summary["parameters"]["intercept_std"]["mean"] == pytest.approx(5.0)
    digits = {name: (X, 1e16 + np.round(y)) for name, (X, y) in CLIENTS.items()}
    with pytest.raises(JobError, match="subtract a constant"):
        fitted(digits)
    fewer = fitted({name: (X, y - 1e16) for name, (X, y) in digits.items()})
    assert fewer.summary["scale"] == pytest.approx(type_two()[0], rel=0.05)


def test_a_scale_whose_square_is_no_number_is_refused() -> None:
    job = {"data": {"clients": ["a.csv"], "response": "y"}, "model": {"family": "gaussian", "scale": 1e-50}}
    parse(job)
    with refusal(JobError, "model.scale", "1e-160"):
        parse(job | {"model": {"family": "gaussian", "scale": 1e-160}})


def test_sums_that_cannot_be_name_their_client() -> None:
    s = chosen.pvi(family="gaussian", learn_scale=True)
    wrong = [(-1.0, 0.0, 1.0), (1.0, -1.0, 1.0), (1.0, 1.0, -1.0), (1e31, 1.0, 1.0), (1.0, 1e300, 1.0)]
    for sums in wrong:
        delta = ScaledSiteDelta(0, 0, 0, np.zeros(1), np.zeros(1), *sums)
        with refusal(RemoteFault, "4", "ScaledSiteDelta"):
            scale.add_residuals(PersistentMap(), 4, delta, s)
    with refusal(RemoteFault, "4", "SiteDelta"):
        scale.add_residuals(PersistentMap(), 4, SiteDelta(0, 0, 0, np.zeros(1), np.zeros(1)), s)
    for variance in (-1.0, 0.0, 1e-310, np.nan, np.inf):  # no job learns one below 1e-12
        with refusal(RemoteFault, "ScaledQUpdate"):
            scale.at(None, ScaledQUpdate(0, 0, np.zeros(1), np.zeros(1), variance))  # type: ignore[arg-type]


def test_where_rows_are_exact_the_scale_ends_at_what_digits_hold() -> None:
    data = {name: (X, X @ [2.0, 0.4, -3.0]) for name, (X, _) in CLIENTS.items()}
    result = fitted(data, rounds=30)
    assert 0 < result.summary["scale"] < 1e-4
    assert any("is a linear function of the others" in note for note in result.summary["notes"])
    for name, value in zip(("theta[x1]", "theta[x2]", "theta[x3]"), (2.0, 0.4, -3.0)):
        assert result.summary["parameters"][name]["mean"] == pytest.approx(value, rel=1e-4)


def test_weights_are_rows_that_come_more_than_once() -> None:
    twice = {name: (np.repeat(X, 2, axis=0), np.repeat(y, 2)) for name, (X, y) in CLIENTS.items()}
    weighed = {name: frame(X, y).assign(w=2.0) for name, (X, y) in CLIENTS.items()}
    tables = {"job": {"method": "pvi", "rounds": 12}, "data": {"response": "y", "weight": "w"}}
    result = fedkern.run({**tables, "model": {"family": "gaussian", "covariance": "full"}}, data=weighed)
    assert result.summary["scale"] == pytest.approx(fitted(twice).summary["scale"], rel=1e-9)
    assert result.summary["scale"] == pytest.approx(type_two(twice)[0], rel=1e-6)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_another_unit_of_the_response_changes_nothing_but_the_unit(covariance: str) -> None:
    data = {name: (X, y - 125) for name, (X, y) in CLIENTS.items()}
    before = fitted(data, covariance=covariance)
    given = fitted(data, covariance=covariance, scale=9.0)
    for a in (0.0, 125.0, 1e4):
        for s in (0.1, 1.0, 30.0):
            moved = {name: (X, a + s * y) for name, (X, y) in data.items()}
            for one, other in (
                (before, fitted(moved, covariance=covariance)),
                (given, fitted(moved, covariance=covariance, scale=9.0 * s)),
            ):
                for name, row in one.summary["parameters"].items():
                    found, unit = other.summary["parameters"][name], s * row["sd"]
                    shift = a if name.startswith("intercept") else 0.0
                    assert found["mean"] == pytest.approx(s * row["mean"] + shift, abs=1e-9 * max(unit, abs(found["mean"])))
                    assert found["sd"] == pytest.approx(unit, rel=1e-9)
                assert other.summary.get("scale", s) == pytest.approx(s * one.summary.get("scale", 1.0), rel=1e-9)


def test_predictions_and_test_rows_are_in_the_datas_units() -> None:
    result = fitted()
    X, y = rows(40, 9)
    found = predicted(result, (X, y))
    beta = np.linalg.lstsq(np.column_stack([np.ones(72), np.concatenate([x for x, _ in CLIENTS.values()])]),
                           np.concatenate([y for _, y in CLIENTS.values()]), rcond=None)[0]  # fmt: skip
    np.testing.assert_allclose(found.mean, beta[0] + X @ beta[1:], atol=2.0)
    assert found.scores["rmse"] == pytest.approx(np.sqrt(np.mean((y - found.mean) ** 2)))
    spread = np.log(found.linear_sd**2 + result.summary["scale"] ** 2)
    expected = np.mean(-0.5 * (y - found.mean) ** 2 / np.exp(spread) - 0.5 * spread - 0.5 * np.log(2 * np.pi))
    assert found.scores["log_likelihood"] == pytest.approx(expected, rel=1e-9)


def test_check_lists_what_is_asked(tmp_path: Path) -> None:
    checked_and_run(written(tmp_path), tmp_path / "checked", wanted=("LevelSums", "ScaledSiteDelta"))


# --- the intercept


def least_squares(X: Array, y: Array, family: str) -> tuple[Array, Array]:
    """Maximum likelihood, and standard errors."""
    X = np.column_stack([np.ones(len(X)), X])
    mean = (lambda eta: 1 / (1 + np.exp(-eta))) if family == "bernoulli" else np.exp
    b = np.zeros(X.shape[1])
    b[0] = np.log(y.mean() / (1 - y.mean())) if family == "bernoulli" else np.log(y.mean())
    for _ in range(50):
        m = mean(X @ b)
        H = (X.T * (m * (1 - m) if family == "bernoulli" else m)) @ X
        b = b + np.linalg.solve(H, X.T @ (y - m))
    return b, np.sqrt(np.diag(np.linalg.inv(H)))


def counted(family: str, n: int, level: float, seed: int = 3) -> tuple[Array, Array]:
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, 2))
    eta = level + X @ [0.6, -0.4]
    y = random.random(n) < 1 / (1 + np.exp(-eta)) if family == "bernoulli" else random.poisson(np.exp(eta))
    return X, y.astype(float)


def shared(X: Array, y: Array) -> Any:
    return {name: (X[part], y[part]) for name, part in zip("abc", np.array_split(np.arange(len(y)), 3))}


@pytest.mark.parametrize(
    ("family", "n", "level"),
    [("bernoulli", 20_000, -6.9), ("poisson", 3000, -4.0), ("poisson", 300, 9.0), ("bernoulli", 900, 3.6)],
)
def test_rare_and_frequent_events_have_the_level_that_they_have(family: str, n: int, level: float) -> None:
    X, y = counted(family, n, level)
    b, se = least_squares(X, y, family)
    found = fitted(shared(X, y), family=family).summary["parameters"]
    assert found["intercept"]["mean"] == pytest.approx(b[0], abs=0.25 * se[0])
    assert found["intercept"]["sd"] == pytest.approx(se[0], rel=0.1)


def test_ten_events_of_many_rows_are_foreseen_as_often_as_they_are_seen() -> None:
    random = np.random.default_rng(5)
    X, y = random.standard_normal((20_000, 1)), np.zeros(20_000)
    y[random.choice(20_000, 10, replace=False)] = 1
    found = fitted(shared(X, y), family="bernoulli").summary["parameters"]
    risk = 1 / (1 + np.exp(-found["intercept"]["mean"] - X[:, 0] * found["theta[x1]"]["mean"]))
    assert risk.mean() == pytest.approx(y.mean(), rel=0.15)


def test_without_any_event_the_result_says_that_the_prior_decides() -> None:
    X, _ = counted("bernoulli", 300, 0.0)
    result = fitted(shared(X, np.zeros(300)), family="bernoulli")
    assert any("every response of every client is 0" in note for note in result.summary["notes"])
    (note,) = (note for note in result.summary["notes"] if "the prior moves these" in note)
    assert "intercept (" in note
    assert "raise model.intercept_sd = 5 to " in note
    wider = fitted(shared(X, np.zeros(300)), family="bernoulli", intercept_sd=10.0)
    assert any("what is still named then is what the rows alone do not tell" in note for note in wider.summary["notes"])


def test_offsets_and_weights_move_the_level() -> None:
    random = np.random.default_rng(8)
    data = {}
    for name in "ab":
        exposure = np.exp(random.normal(6, 1, 200))
        frame = pd.DataFrame({"x": random.standard_normal(200), "log_n": np.log(exposure)})
        data[name] = frame.assign(y=random.poisson(exposure * np.exp(-8 + 0.3 * frame["x"])).astype(float), w=3.0)
    tables = {"job": {"method": "pvi", "rounds": 8}, "data": {"response": "y", "offset": "log_n", "weight": "w"}}
    narrow = {"family": "poisson", "covariance": "full", "intercept_sd": 1e-4}
    frame = pd.concat(data.values())
    level = np.log(frame["y"].sum() / np.exp(frame["log_n"]).sum())
    assert fedkern.run({**tables, "model": narrow}, data=data).summary["parameters"]["intercept_std"]["mean"] == pytest.approx(
        level, abs=1e-3
    )
    far = fedkern.run({**tables, "model": {**narrow, "intercept_centre": -5.0}}, data=data).summary["parameters"]
    assert far["intercept_std"]["mean"] == pytest.approx(-5.0, abs=1e-3)


@pytest.mark.parametrize(
    ("family", "model"),
    [
        ("bernoulli", {"prior_sd": 0.129099}),
        ("poisson", {"intercept_sd": 0.02, "intercept_centre": -1.0}),
        ("bernoulli", {"prior_sd": 0.182574, "intercept_sd": 0.1, "intercept_centre": 3.0}),
        ("gaussian", {"prior_sd": 0.158114}),
    ],
)
def test_what_a_note_on_the_prior_advises_ends_in_the_answer_of_the_rows(family: str, model: dict[str, Any]) -> None:
    X, y = counted("bernoulli", 400, 0.5) if family == "bernoulli" else counted("poisson", 400, 0.5)
    data = CLIENTS if family == "gaussian" else shared(X, y)
    notes = fitted(data, family=family, **model).summary["notes"]
    assert any(note.startswith("the prior moves these") for note in notes)
    for _ in range(4):  # far from the rows' answer the first advice may not be the last
        told = [note for note in notes if note.startswith("the prior moves these")]
        if not told:
            break
        for key, value in re.findall(r"model\.(\w+) = [-+.\de]+ to ([-+.\de]+)", told[0]):
            model = {**model, key: float(value)}
        result = fitted(data, family=family, **model)
        notes = noted(result)
    assert notes == []
    if family == "gaussian":
        _, mean, covariance = type_two()
        found = zip(STANDARD, mean, np.sqrt(np.diag(covariance)))
    else:
        b, se = least_squares(X, y, family)
        found = zip(("intercept", "theta[x1]", "theta[x2]"), b, se)
    for name, value, own in found:
        assert result.summary["parameters"][name]["mean"] == pytest.approx(value, abs=0.3 * own)


def test_the_prior_pulls_as_far_as_the_rows_alone_are_away() -> None:
    """Of age and its square a weak prior has much of the information: one step of Newton's would say a sixth of it."""
    random = np.random.default_rng(1)
    age = random.normal(60, 12, 1200)
    X = np.column_stack([age, age**2, random.normal(125, 10, 1200)])
    y = (random.random(1200) < 1 / (1 + np.exp(2 - 0.004 * (age - 60) ** 2 + 0.5))).astype(float)
    result = fitted(shared(X, y), family="bernoulli")
    found = result.summary["parameters"]
    flat, _ = least_squares((X - X.mean(axis=0)) / X.std(axis=0), y, "bernoulli")
    (note,) = (note for note in result.summary["notes"] if "the prior moves these" in note)
    said = {name: float(size) for name, size in re.findall(r"(theta\S*\[x\d\]|x\d) \(([\d.]+)\)", note)}
    for name, value in (("x1", flat[1]), ("x2", flat[2])):
        own = found[f"theta_std[{name}]"]
        (size,) = (size for key, size in said.items() if name in key)
        assert size == pytest.approx(abs(value - own["mean"]) / own["sd"], rel=0.15)
    (wider,) = re.findall(r"raise model.prior_sd = 1 to ([.\d]+)", note)
    assert "the prior moves" not in str(fitted(shared(X, y), family="bernoulli", prior_sd=float(wider)).summary["notes"])


def test_a_prior_by_its_standard_deviation() -> None:
    """Says of a prior that holds q that it does."""
    data = {"data": {"builtin": "breast-cancer"}}
    with pytest.raises(JobError, match=r"model.prior_sd = 0"):
        parse({**data, "model": {"prior_sd": 0}})
    told = parse({**data, "model": {"prior_sd": 0.005}}).tells_rows
    assert [found.id for found in told] == ["narrow-prior-tells-rows"]
    assert told[0].startswith("model.prior_sd = 0.005: the prior holds q")


def test_private_jobs_keep_their_prior() -> None:
    private = {"epsilon": 1.0, "delta": 1e-5, "clip": 1.0, "noise_multiplier": 2.0, "sampling_rate": 0.1}
    kept: Any = parse({"data": {"builtin": "breast-cancer"}, "privacy": private})
    assert (kept.model.intercept_sd, kept.model.intercept_centre, kept.model.scale) == (None, None, 1.0)
    with pytest.raises(JobError, match=r'model.scale = "learn" has no private form'):
        parse({"data": {"builtin": "breast-cancer"}, "model": {"family": "gaussian", "scale": "learn"}, "privacy": private})
    with refusal(JobError, "learn", "gaussian", "bernoulli"):
        parse({"data": {"builtin": "breast-cancer"}, "model": {"scale": "learn"}})


def test_where_the_prior_knows_most_the_result_says_so() -> None:
    """Of x, z and their product N(0, 1) makes sds half of those by the rows, and less."""
    random = np.random.default_rng(2)
    x, z = random.normal(40, 4, 300), random.normal(150, 20, 300)
    data = shared(np.column_stack([x, z, x * z]), (random.random(300) < 0.3).astype(float))
    narrow, weak = (fitted(data, family="bernoulli", prior_sd=sd, covariance="full") for sd in (1.0, 100.0))
    (note,) = (str(note) for note in narrow.summary["notes"] if "tells more of these than rows" in note)
    said = {name: float(by) for name, by in re.findall(r"(x\d) \(([\d.]+)\)", note.partition("tells more")[2])}
    assert set(said) == {"x1", "x2", "x3"}
    for name, by in said.items():
        own, rows = (one.summary["parameters"][f"theta_std[{name}]"]["sd"] for one in (narrow, weak))
        assert by == pytest.approx(rows / own, rel=0.1)
    (wider,) = re.findall(r"raise model.prior_sd = 1 to ([.\d]+)", note)
    assert "the prior" not in str(fitted(data, family="bernoulli", prior_sd=float(wider), covariance="full").summary["notes"])
