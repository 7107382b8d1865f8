"""The r of a negative binomial job, learnt: against the maximiser of the pooled bound, which is written here for itself."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import nbinom

import fedkern
from fedkern.algorithms.core.messages import RemoteFault
from fedkern.algorithms.core.persistent import PersistentMap
from fedkern.algorithms.pvi import dispersion
from fedkern.algorithms.pvi.dispersion import LEAST, MOST, Learnt, Told
from fedkern.algorithms.pvi.local import Local
from fedkern.algorithms.pvi.messages import CountsQUpdate, CountsSiteDelta, QUpdate, SiteDelta
from fedkern.errors import JobError
from fedkern.methods import parse
from fedkern.models.expfam import Gaussian
from fedkern.models.glm import Rows
from oracles.differences import four_point
from support import chosen, few
from support.command import mpirun
from support.interrupted import regression, run, stopped_and_resumed
from support.wires import checked_and_run

Array = np.ndarray[Any, Any]
TRUTH = np.array([0.8, 0.4, -0.2])
SLOPES = {"theta[x]": TRUTH[1], "theta[z]": TRUTH[2]}


def counts(r: float, seed: int = 3, rows: int = 80, level: float = TRUTH[0]) -> dict[str, pd.DataFrame]:
    """Of three clients; Poisson where r is infinite."""
    random = np.random.default_rng(seed)
    frames = {}
    for name in "abc":
        X = random.normal(size=(rows, 2))
        mean = np.exp(level + X @ TRUTH[1:])
        frailty = random.gamma(r, 1 / r, rows) if r < np.inf else 1.0
        frames[name] = pd.DataFrame({"x": X[:, 0], "z": X[:, 1], "y": random.poisson(mean * frailty)})
    return frames


def fitted(data: Any, rounds: Any = "until", algorithm: Any = None, weight: str | None = None, **model: Any) -> Any:
    job = {"method": "pvi", "seed": 1} | ({} if rounds == "until" else {"rounds": rounds})
    held = {"response": "y", **few.ANY, **({"weight": weight} if weight else {})}
    tables = {"job": job, "data": held, "algorithm": algorithm or {}}
    return fedkern.run({**tables, "model": {"family": "negative-binomial", **model}}, data=data)


NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


class Pooled:
    """The bound of all rows, with standardised columns, at each r at its best Gaussian; and the r where it is largest."""

    def __init__(self, data: dict[str, pd.DataFrame]) -> None:
        rows = pd.concat(data.values())
        X, self.y = rows[["x", "z"]].to_numpy(), rows["y"].to_numpy(float)
        self.X = np.column_stack([np.ones(len(X)), (X - X.mean(0)) / X.std(0)])
        self.P0, self.m0 = np.diag([1 / 25, 1.0, 1.0]), np.array([np.log(self.y.mean()), 0, 0])
        self.mean, self.P = self.m0, np.eye(3) * len(X)
        found = minimize_scalar(lambda u: -self.bound(np.exp(u)), bounds=(-7, 9), method="bounded", options={"xatol": 1e-9})
        self.r = float(np.exp(found.x))
        self.bound(self.r)
        self.sd = np.sqrt(np.diag(np.linalg.inv(self.P)))

    def _rows(self, m: Array, P: Array) -> Array:
        """(n, nodes) each row's predictor."""
        S = np.linalg.inv(P)
        return np.asarray((self.X @ m)[:, None] + np.sqrt(np.einsum("ij,jk,ik->i", self.X, S, self.X))[:, None] * NODES)

    def bound(self, r: float) -> float:
        m, P, y = self.mean, self.P, self.y[:, None]
        for _ in range(100):
            mu = np.exp(self._rows(m, P))
            slope, curvature = ((y - mu) * r / (r + mu)) @ WEIGHTS, ((y + r) * mu * r / (r + mu) ** 2) @ WEIGHTS
            new = (self.X.T * curvature) @ self.X + self.P0
            step = np.linalg.solve(new, self.X.T @ slope - self.P0 @ (m - self.m0))
            still = max(np.abs(step).max(), np.abs(new - P).max() / np.abs(P).max())
            m, P = m + step, new
            if still < 1e-12:
                break
        self.mean, self.P = m, P
        mu = np.exp(self._rows(m, P))
        fit = float((nbinom.logpmf(y, r, r / (r + mu)) @ WEIGHTS).sum())
        away, S = m - self.m0, np.linalg.inv(P)
        return fit - 0.5 * float(away @ self.P0 @ away + np.trace(self.P0 @ S) + np.linalg.slogdet(P)[1])


def agrees(result: Any, pooled: Pooled, to: float = 2e-3) -> None:
    assert result.summary["scale"] == pytest.approx(pooled.r, rel=to)
    for name, value, own in zip(("intercept_std", "theta_std[x]", "theta_std[z]"), pooled.mean, pooled.sd):
        assert result.parameters[name]["mean"] == pytest.approx(value, abs=0.01 * own)
        assert result.parameters[name]["sd"] == pytest.approx(own, rel=2e-3)


@pytest.mark.parametrize("r", [0.3, 1.0, 3.0, 30.0])
def test_the_default_learns_r_where_the_pooled_bound_is_largest(r: float) -> None:
    data = counts(r)
    result = fitted(data)
    assert result.converged == "settled", result.summary["verdict"]
    assert result.summary["rounds"] <= 24
    pooled = Pooled(data)
    assert 0.4 < pooled.r / r < 2.5
    agrees(result, pooled, to=0.02)  # rounds end once standard deviations move by less than 1 %
    agrees(fitted(data, rounds=25), pooled, to=1e-5)


@pytest.mark.parametrize(
    ("algorithm", "rounds"),
    [
        pytest.param({"damping": 0.4}, 60, marks=pytest.mark.nightly),
        ({"schedule": "synchronous"}, 60),
        pytest.param({"schedule": "synchronous", "damping": 1.0}, 30, marks=pytest.mark.nightly),
        pytest.param({"schedule": "random"}, 40, marks=pytest.mark.nightly),
        ({"schedule": "asynchronous"}, 60),
    ],
    ids=["damped", "synchronous", "synchronous, undamped", "random", "asynchronous"],
)
def test_whatever_the_schedule(algorithm: dict[str, Any], rounds: int) -> None:
    for r in (0.3, 3.0):
        data = counts(r)
        result = fitted(data, rounds=rounds, algorithm=algorithm)
        agrees(result, Pooled(data), to=1e-4)
        assert result.converged == "settled", result.summary["verdict"]


def test_of_a_mean_field_q_it_is_that_of_the_bound() -> None:
    data = counts(1.0)
    result = fitted(data, rounds=40, covariance="diagonal")
    rows = pd.concat(data.values())
    X = rows[["x", "z"]].to_numpy()
    X, y = np.column_stack([np.ones(len(X)), (X - X.mean(0)) / X.std(0)]), rows["y"].to_numpy(float)
    q = result.posterior.q
    mu = np.exp((X @ q.mean)[:, None] + np.sqrt(X**2 @ q.sd**2)[:, None] * NODES)

    def value(u: Array) -> float:
        return float((nbinom.logpmf(y[:, None], np.exp(u[0]), 1 / (1 + mu / np.exp(u[0]))) @ WEIGHTS).sum())

    assert abs(four_point(value, np.log([result.summary["scale"]]))[0]) < 1e-3


def test_weights_are_rows_that_come_more_than_once() -> None:
    once = counts(1.0)
    twice = {name: pd.concat([frame, frame]) for name, frame in once.items()}
    weighed = {name: frame.assign(w=2.0) for name, frame in once.items()}
    one, other = fitted(weighed, 25, weight="w"), fitted(twice, 25)
    assert one.summary["scale"] == pytest.approx(other.summary["scale"], rel=1e-7)
    assert one.parameters["theta[x]"]["sd"] == pytest.approx(other.parameters["theta[x]"]["sd"], rel=1e-7)


@pytest.mark.parametrize("r", [2e-3, 0.4, 7.0, 300.0])
@pytest.mark.parametrize("largest", [8, 400_000])
def test_derivatives_are_those_of_the_expected_log_likelihood(r: float, largest: int) -> None:
    random = np.random.default_rng(2)
    X, offset, weights = random.normal(size=(50, 2)), random.normal(size=50), random.uniform(0, 2, 50)
    y = np.append(random.integers(0, 8, 49), largest).astype(float)
    offset[-1] = np.log(largest)
    q = Gaussian(np.array([30.0, -8.0]), np.array([[100.0, 10], [10, 40]]))
    eta = (X @ q.mean + offset)[:, None] + np.sqrt(q.variance_of(X))[:, None] * NODES

    def value(u: float) -> float:
        found = nbinom.logpmf(y[:, None], np.exp(u), 1 / (1 + np.exp(eta - u)))
        return float(weights @ (found @ WEIGHTS))

    h = 1e-3
    u = np.log(r)
    at = [value(u + k * h) for k in (-2, -1, 0, 1, 2)]
    slope, curvature = dispersion.derivatives(Rows(X, y, offset, weights), q, r)
    rounding = 1e-13 * np.abs(at).max()
    assert slope == pytest.approx((at[0] - 8 * at[1] + 8 * at[3] - at[4]) / 12 / h, rel=1e-6, abs=10 * rounding / h)
    second = (-at[0] + 16 * at[1] - 30 * at[2] + 16 * at[3] - at[4]) / 12 / h**2
    assert curvature == pytest.approx(second, rel=1e-4, abs=100 * rounding / h**2)


def test_derivatives_near_a_poisson_are_those_of_a_series_in_1_over_r() -> None:
    """d log p / d (1 / r) -> ((y - mu)^2 - y) / 2 and, in log r, -curvature -> slope, with a rest of 1 / r^2 that steps need."""
    random = np.random.default_rng(5)
    X, y = random.normal(size=(40, 1)), random.poisson(4, 40).astype(float)
    q = Gaussian(np.array([0.3e12]), np.array([[1e12]]))
    mu, r = np.exp(0.3 * X[:, 0]), 1e6
    slope, curvature = dispersion.derivatives(Rows(X, y), q, r)
    first = 0.5 * ((y - mu) ** 2 - y)
    second = y * mu**2 - 2 / 3 * mu**3 - y * (y - 1) * (2 * y - 1) / 6
    assert slope == pytest.approx(-first.sum() / r, rel=1e-4)
    assert slope + curvature == pytest.approx(second.sum() / r**2, rel=1e-3)


@pytest.mark.parametrize("kind", ["less than Poisson's", "no event", "one event", "one value", "large"])
def test_no_counts_let_it_diverge(kind: str) -> None:
    data, random = counts(np.inf), np.random.default_rng(1)
    for k, frame in enumerate(data.values()):
        frame["y"] = {
            "less than Poisson's": np.round(np.exp(0.8 + 0.4 * frame["x"])),
            "no event": 0,
            "one event": np.eye(len(frame))[0] * (k == 1),
            "one value": 3,
            "large": random.poisson(np.exp(9 + 0.2 * frame["x"])),
        }[kind]
    result = fitted(data, 30, {"schedule": "synchronous"} if kind == "one value" else {})
    r, notes = result.summary["scale"], " ".join(result.summary["notes"])
    assert LEAST <= r <= MOST
    assert np.isfinite(result.posterior.q.mean).all()
    if kind in ("no event", "one event"):
        assert "events are too few" in notes
        assert ("r (model.scale) ended at its least" in notes) == (r == LEAST)
    else:
        assert "cannot be told from a Poisson's" in notes
    if kind in ("less than Poisson's", "one value"):
        assert r == MOST
        assert "no family here varies less than Poisson's" in result.summary["verdict"]


def test_the_family_that_the_note_names_ends_in_the_same_answer() -> None:
    data = counts(np.inf, seed=6)
    result = fitted(data)
    (note,) = (note for note in result.summary["notes"] if "cannot be told from a Poisson's" in note)
    (family,) = re.findall(r'model\.family = "([a-z-]+)"', note)
    again = fitted(data, family=family)
    assert again.converged == "settled"
    assert "scale" not in again.summary
    for name, truth in SLOPES.items():
        one, other = result.parameters[name], again.parameters[name]
        assert one["mean"] == pytest.approx(other["mean"], abs=0.15 * other["sd"])
        assert one["sd"] == pytest.approx(other["sd"], rel=0.1)
        assert abs(other["mean"] - truth) < 3 * other["sd"]


def test_what_varies_much_is_told_from_a_poisson() -> None:
    assert not any("Poisson" in note for note in fitted(counts(1.0)).summary["notes"])


@pytest.mark.parametrize("begin", [LEAST, 0.05, 1.0, 40.0, MOST])
def test_steps_arrive_wherever_they_begin(begin: float) -> None:
    for r in (0.05, 0.7, 3.0, 1e9):
        rows = pd.concat(counts(r, rows=200).values())
        X = np.column_stack([np.ones(len(rows)), rows[["x", "z"]]])
        q, learnt = Gaussian(TRUTH * 1e12, np.full(3, 1e12)), Learnt(begin)
        own = Rows(X, rows["y"].to_numpy(float))
        for _ in range(20):
            told = Told(np.log(learnt.r), *dispersion.derivatives(own, q, learnt.r))
            learnt = Learnt(learnt.r, PersistentMap([(0, told)])).stepped()
        assert learnt.r == MOST or abs(dispersion.derivatives(own, q, learnt.r)[0]) < 1e-6
        assert learnt.r == pytest.approx(r, rel=0.3) if r < 1e6 else learnt.r > 10


@pytest.mark.parametrize("seed", [119, 104])
def test_steps_do_not_go_round(seed: int) -> None:
    """Of the first of these r went from 1 to 60, back, and to 60 again for as long as there were rounds."""
    result = fitted(counts(3.0, seed=seed, rows=120))
    assert result.converged == "settled"
    assert result.summary["rounds"] <= 24


def test_a_scale_that_is_given_stays() -> None:
    result = fitted(counts(1.0), scale=2.0)
    assert "scale" not in result.summary
    assert result.job["model"]["scale"] == 2.0


def test_too_few_rounds_are_named_and_more_mend_it() -> None:
    data, rounds = counts(0.3), 1
    result = fitted(data, rounds)
    assert result.converged is False
    assert "r (model.scale) is learnt from the second round on: raise job.rounds = 1" in result.summary["verdict"]
    while result.converged is False and rounds < 12:
        assert "raise job.rounds" in result.summary["verdict"]
        rounds += 1
        result = fitted(data, rounds)
    assert result.converged == "settled"
    assert result.summary["scale"] == pytest.approx(Pooled(data).r, rel=0.1)


def written(folder: Path) -> Path:
    """A job file."""
    return regression(folder, counts(1.0), "negative-binomial")


def test_a_run_that_is_interrupted_learns_the_same_r(tmp_path: Path) -> None:
    result, whole = stopped_and_resumed(written(tmp_path), tmp_path / "out", after=13)
    assert result.digest == whole.digest
    assert result.summary["scale"] == whole.summary["scale"]


@pytest.mark.nightly
def test_ranks_learn_the_same_r(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text(path.read_text() + '[algorithm]\nschedule = "synchronous"\n')
    ended = mpirun(3, "run", path, "--out", tmp_path / "out")
    assert ended.code == 0, ended.err
    summary, alone = json.loads((tmp_path / "out" / "summary.json").read_text()), run(path, None)
    assert (summary["digest"], summary["scale"]) == (alone.digest, alone.summary["scale"])


def test_check_lists_what_is_asked(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text(path.read_text().replace("rounds = 9", 'rounds = "until"'))
    checked_and_run(path, tmp_path / "checked", wanted=("CountsSiteDelta", "CountsQUpdate", "AskSlopeAt", "LearntDispersion"))


def test_answers_that_cannot_be_name_their_client() -> None:
    s = chosen.pvi(family="negative-binomial", learn_scale=True)
    d = np.zeros(1)
    question, learnt = dispersion.with_r(QUpdate(0, 0, d, d), s, Learnt(2.0), [4])
    assert isinstance(question, CountsQUpdate)
    assert question.r == 2.0
    assert learnt.at[4] == np.log(2.0)
    for sums in ((1e31, 0.0), (0.0, -1e31), (np.nan, 0.0), (0.0, np.inf)):
        with pytest.raises(RemoteFault, match="client 4: CountsSiteDelta: derivatives of"):
            dispersion.add_counts(learnt, 4, CountsSiteDelta(0, 0, 0, d, d, *sums), s)
    with pytest.raises(RemoteFault, match="client 4: SiteDelta is no answer in this job"):
        dispersion.add_counts(Learnt(), 4, SiteDelta(0, 0, 0, d, d), s)
    with pytest.raises(RemoteFault, match=r"server: CountsQUpdate.r is -1.0, expected a positive number"):
        dispersion.at(Local(Rows(np.zeros((0, 1)), np.zeros(0)), s, 0), CountsQUpdate(0, 0, d, d, -1.0))


def test_jobs_that_cannot_learn_it_ask_for_it() -> None:
    family = {"family": "negative-binomial"}
    private = {"epsilon": 1.0, "delta": 1e-5, "clip": 1.0, "noise_multiplier": 2.0, "sampling_rate": 0.1}
    data = {"builtin": "breast-cancer"}
    with pytest.raises(JobError, match=r"model\.scale is missing"):
        parse({"data": data, "model": family, "privacy": private})
    with pytest.raises(JobError, match=r'model.scale = "learn" has no private form'):
        parse({"data": data, "model": {**family, "scale": "learn"}, "privacy": private})
    with pytest.raises(JobError, match=r"model\.scale is missing"):
        parse({"data": data, "model": family, "algorithm": {"variant": "bcm-same"}})
    with pytest.raises(JobError, match='needs variant = "pvi", not "bcm-same"; give r'):
        parse({"data": data, "model": {**family, "scale": "learn"}, "algorithm": {"variant": "bcm-same"}})
    kept: Any = parse({"data": data, "model": family})
    assert kept.model.scale == "learn"


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("r", [3.0, 1.0, 0.3])
def test_intervals_of_slopes_cover_them(r: float) -> None:
    """40 federations, two slopes each: 90 % intervals within three standard errors of .9."""
    inside = []
    for seed in range(40):
        result = fitted(counts(r, seed=100 + seed, rows=120))
        assert result.converged == "settled", result.summary["verdict"]
        for name, truth in SLOPES.items():
            one = result.parameters[name]
            inside.append(abs(one["mean"] - truth) < 1.645 * one["sd"])
    assert np.mean(inside) == pytest.approx(0.9, abs=3 * np.sqrt(0.9 * 0.1 / len(inside)))
