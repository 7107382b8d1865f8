"""A default prior decides nothing that rows decide: answers beside R's, and where the prior stays.

Numbers of R are those of `lm` in R 4.2.2; rows are AER's OECDGas (four decimals) and Grunfeld, four groups of each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.algorithms.core.kept import load, save
from fedkern.algorithms.core.messages import RemoteFault
from fedkern.algorithms.importance import machine as importance
from fedkern.algorithms.importance.draws import BESIDE
from fedkern.algorithms.importance.settings import REFUSED
from fedkern.errors import JobError
from support.found import ids

Frames = dict[str, pd.DataFrame]

GAS = {
    "Austria": [
        4.1732,
        4.101,
        4.0732,
        4.0595,
        4.0377,
        4.034,
        4.0475,
        4.0529,
        4.0455,
        4.0464,
        4.0809,
        4.1067,
        4.128,
        4.1994,
        4.0185,
        4.029,
        3.9854,
        3.9317,
        3.9227,
    ],
    "Belgium": [
        4.164,
        4.1244,
        4.076,
        4.0013,
        3.9944,
        3.9515,
        3.8205,
        3.9069,
        3.8287,
        3.8546,
        3.8704,
        3.8722,
        3.9054,
        3.896,
        3.8182,
        3.8778,
        3.8641,
        3.8543,
        3.8427,
    ],
    "Canada": [
        4.8552,
        4.8266,
        4.8505,
        4.8381,
        4.8398,
        4.8508,
        4.871,
        4.8525,
        4.8688,
        4.8644,
        4.8996,
        4.8951,
        4.8893,
        4.8997,
        4.8916,
        4.8885,
        4.8374,
        4.811,
        4.8558,
    ],
    "Turkey": [
        6.1296,
        6.1062,
        6.0846,
        6.0751,
        6.0646,
        5.823,
        6.1566,
        6.0445,
        6.0766,
        5.7207,
        5.7221,
        5.6696,
        5.5788,
        5.6865,
        5.4277,
        5.4268,
        5.3129,
        5.3135,
        5.1413,
    ],
}
GAS_IN_R = {  # lm(gas ~ year * country)
    "intercept": (15.9962, 6.36308),
    "theta[year]": (-0.00606386, 0.00323162),
    "theta[country[T.Turkey]]": (97.1884, 8.99876),
    "theta[year:country[T.Belgium]]": (-0.0082393, 0.0045702),
    "theta[year:country[T.Turkey]]": (-0.0484909, 0.0045702),
}
INVEST = {
    "General Electric": [
        33.1,
        45,
        77.2,
        44.6,
        48.1,
        74.4,
        113,
        91.9,
        61.3,
        56.8,
        93.6,
        159.9,
        147.2,
        146.3,
        98.3,
        93.5,
        135.2,
        157.3,
        179.5,
        189.6,
    ],
    "Westinghouse": [
        12.93,
        25.9,
        35.05,
        22.89,
        18.84,
        28.57,
        48.51,
        43.34,
        37.02,
        37.81,
        39.27,
        53.46,
        55.56,
        49.56,
        32.04,
        32.24,
        54.38,
        71.78,
        90.08,
        68.6,
    ],
    "US Steel": [
        209.9,
        355.3,
        469.9,
        262.3,
        230.4,
        361.6,
        472.8,
        445.6,
        361.6,
        288.2,
        258.7,
        420.3,
        420.5,
        494.5,
        405.1,
        418.8,
        588.2,
        645.5,
        641,
        459.3,
    ],
    "Atlantic Refining": [
        39.68,
        50.73,
        74.24,
        53.51,
        42.65,
        46.48,
        61.4,
        39.67,
        62.24,
        52.32,
        63.21,
        59.37,
        58.02,
        70.34,
        67.42,
        55.74,
        80.3,
        85.4,
        91.9,
        81.43,
    ],
}
INVEST_IN_R = {  # lm(invest ~ year * firm)
    "theta[year]": (1.8780977, 1.9348249),
    "theta[firm[T.US Steel]]": (-23928.673, 5320.6725),
    "theta[year:firm[T.US Steel]]": (12.485135, 2.7362557),
    "theta[year:firm[T.Westinghouse]]": (0.68353383, 2.7362557),
}


def panel(values: dict[str, list[float]], group: str, response: str, first: int) -> Frames:
    """Two clients, who have every other year each."""
    rows = [(name, first + i, y) for name, own in values.items() for i, y in enumerate(own)]
    whole = pd.DataFrame(rows, columns=[group, "year", response])
    return {"a": whole[whole.year % 2 == 0], "b": whole[whole.year % 2 == 1]}


def run(frames: Frames, model: dict[str, Any], sums: str = "", **more: Any) -> fedkern.Result:
    job = {"method": "likelihood", **({"sums": sums} if sums else {})}
    return fedkern.run({"job": job, "model": model, **more}, data=frames)


def near(result: fedkern.Result, known: dict[str, tuple[float, float]], sds: float = 0.1) -> None:
    """The same within a tenth of a standard deviation; a posterior of few rows is a little wider than R's normal."""
    for name, (mean, sd) in known.items():
        own = result.parameters[name]
        assert abs(own["mean"] - mean) < sds * sd, name
        assert own["sd"] == pytest.approx(sd, rel=0.1), name


def gas() -> Frames:
    return panel(GAS, "country", "gas", 1960)


def test_interactions_of_calendar_years_are_those_of_r() -> None:
    result = run(gas(), {"formula": "gas ~ year * country", "family": "gaussian"})
    near(result, GAS_IN_R)
    assert result.converged
    assert not any("sensitive" in note for note in result.notes)
    assert "priors" not in result.summary  # of effects at the means of years
    invest = panel(INVEST, "firm", "invest", 1935)
    near(run(invest, {"formula": "invest ~ year * firm", "family": "gaussian"}), INVEST_IN_R)


def least_squares(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What `lm` has: coefficients and standard errors."""
    Q, R = np.linalg.qr(X)
    theta = np.linalg.solve(R, Q.T @ y)
    sigma = np.sqrt(((y - X @ theta) ** 2).sum() / (len(y) - X.shape[1]))
    return theta, sigma * np.sqrt((np.linalg.inv(R) ** 2).sum(axis=1))


@pytest.fixture(scope="module")
def states() -> tuple[pd.DataFrame, tuple[float, float]]:
    """Twenty states in eight years, with a tax that differs between states above all, and its coefficient by least squares."""
    rng = np.random.default_rng(3)
    state, year = np.repeat(np.arange(20), 8), np.tile(np.arange(8), 20)
    level = rng.normal(size=20)
    tax = 0.5 + 0.5 * level[state] + 0.06 * rng.normal(size=160)
    y = 2 + 0.9 * level[state] - 0.6 * tax + 0.05 * year + 0.15 * rng.normal(size=160)
    X = np.column_stack([tax, state[:, np.newaxis] == np.arange(20), year[:, np.newaxis] == np.arange(1, 8)]).astype(float)
    theta, sd = least_squares(X, y)
    frame = pd.DataFrame({"tax": tax, "state": [f"s{k:02d}" for k in state], "yr": [f"y{k}" for k in year], "y": y})
    return frame, (float(theta[0]), float(sd[0]))


@pytest.mark.parametrize("how", ["formula", "another reference", "without a formula"])
def test_fixed_effects_leave_the_same_slope(states: tuple[pd.DataFrame, tuple[float, float]], how: str) -> None:
    frame, known = states
    formula: dict[str, Any] = {"formula": "y ~ tax + state + yr", "family": "gaussian"}
    more: dict[str, Any] = {"data": {"columns": {"state": {"reference": "s07"}}}} if how == "another reference" else {}
    if how == "without a formula":
        formula, more = {"family": "gaussian"}, {"data": {"response": "y"}}
    frames = {name: frame.iloc[k::3] for k, name in enumerate("abc")}
    near(run(frames, formula, **more), {"theta[tax]": known})


def test_squares_of_large_numbers_are_those_of_least_squares() -> None:
    rng = np.random.default_rng(4)
    year = rng.integers(2000, 2020, 300).astype(float)
    t = (year - 2010) / 10
    y = 3 * t**2 - t + rng.normal(size=300)
    theta, sd = least_squares(np.column_stack([np.ones(300), t, t**2]), y)
    frames = {name: pd.DataFrame({"year": year, "y": y}).iloc[k::2] for k, name in enumerate("ab")}
    result = run(frames, {"formula": "y ~ year + I(year^2)", "family": "gaussian"})
    near(result, {"theta[I(year ** 2)]": (theta[2] / 100, sd[2] / 100)})
    age = rng.uniform(2, 6.5, 900)
    X = np.column_stack([np.ones(900), age, age**2])
    z = (rng.random(900) < 1 / (1 + np.exp(-X @ np.array([-7.5, 4.1, -0.53])))).astype(int)
    b = np.zeros(3)
    for _ in range(20):  # as `glm` does
        p = 1 / (1 + np.exp(-X @ b))
        H = X.T @ ((p * (1 - p))[:, np.newaxis] * X)
        b += np.linalg.solve(H, X.T @ (z - p))
    of_glm = np.sqrt(np.diag(np.linalg.inv(H)))
    people = {name: pd.DataFrame({"age": age, "z": z}).iloc[k::2] for k, name in enumerate("ab")}
    result = run(people, {"formula": "z ~ age + I(age^2)", "family": "bernoulli"})
    near(result, {"theta[age]": (b[1], of_glm[1]), "theta[I(age ** 2)]": (b[2], of_glm[2])})
    assert "priors" not in result.summary  # of effects at the mean age it decides nothing


# R's mtcars: weight, horse power, and whether a car has a manual transmission.
WT = (
    "2.62 2.875 2.32 3.215 3.44 3.46 3.57 3.19 3.15 3.44 3.44 4.07 3.73 3.78 5.25 5.424 "
    "5.345 2.2 1.615 1.835 2.465 3.52 3.435 3.84 3.845 1.935 2.14 1.513 3.17 2.77 3.57 2.78"
)
HP = "110 110 93 110 175 105 245 62 95 123 123 180 180 180 205 215 230 66 52 65 97 150 150 245 175 66 91 113 264 175 335 109"
AM = "1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 1 1 0 0 0 0 0 1 1 1 1 1 1 1"
CARS_IN_R = {"intercept": (18.866299, 7.443558), "theta[wt]": (-8.083475, 3.068675), "theta[hp]": (0.036256, 0.017734)}


def test_slopes_that_rows_know_are_left_to_them() -> None:
    """R 4.2.2, glm(am ~ wt + hp, binomial): no column separates; N(0, 2.5^2) had sds of .45 to .6 of R's."""
    rows = pd.DataFrame({name: [float(x) for x in text.split()] for name, text in (("wt", WT), ("hp", HP), ("am", AM))})
    cars = {name: rows.iloc[k::2] for k, name in enumerate("ab")}
    model = {"formula": "am ~ wt + hp", "family": "bernoulli"}
    found = run(cars, model)
    ten = {name: 10 * sd for name, sd in found.summary["priors"].items()}
    wider = run(cars, {**model, **ten})
    for name, (_, sd) in CARS_IN_R.items():
        own, other = found.parameters[name], wider.parameters[name]
        assert abs(own["mean"] - other["mean"]) < 0.1 * other["sd"]
        assert own["sd"] == pytest.approx(other["sd"], rel=0.1)
        assert own["sd"] > sd  # which is of the mode; the posterior of few rows is skewed
    assert not any("prior" in note for note in [*found.notes, *wider.notes])


# boot's remission: a labelling index, and whether the leukaemia went.
LI = ".4 .4 .5 .5 .6 .6 .6 .7 .7 .7 .8 .8 .8 .9 1 1 1 1.1 1.1 1.2 1.3 1.4 1.6 1.7 1.9 1.9 1.9"
GONE = "0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 1 1 0 1 0 1 1 0 1 0 1 1"
REMISSION_IN_R = {"intercept": (-3.777140, 1.378624), "theta[LI]": (2.897264, 1.186820)}


def test_of_few_rows_the_prior_stays_by_which_means_are_nearer_to_r() -> None:
    """R 4.2.2, glm(r ~ LI, binomial): the prior moves the mode by .1 sd, and the mean of a wide one is .4 beyond R's."""
    rows = pd.DataFrame({"LI": [float(x) for x in LI.split()], "r": [int(x) for x in GONE.split()]})
    model = {"formula": "r ~ LI", "family": "bernoulli"}
    frames = {name: rows.iloc[k::2] for k, name in enumerate("ab")}
    found, wide = run(frames, model), run(frames, {**model, "prior_sd": 25.0, "intercept_sd": 50.0})
    assert "priors" not in found.summary
    assert (
        found.summary["rounds_to_mode"] > run(frames, {**model, "prior_sd": 2.5, "intercept_sd": 5.0}).summary["rounds_to_mode"]
    )
    for name, (mean, sd) in REMISSION_IN_R.items():
        off, farther = (abs(one.parameters[name]["mean"] - mean) / sd for one in (found, wide))
        assert off < 0.25
        assert farther > off + 0.1


def test_of_many_rows_a_strong_slope_is_that_of_glm() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(1500, 2))
    y = (rng.random(1500) < 1 / (1 + np.exp(-(1 + 9 * x[:, 0] - 9 * x[:, 1])))).astype(int)
    X, b = np.column_stack([np.ones(1500), x]), np.zeros(3)
    for _ in range(30):  # as `glm` does
        p = 1 / (1 + np.exp(-X @ b))
        H = X.T @ ((p * (1 - p))[:, np.newaxis] * X)
        b += np.linalg.solve(H, X.T @ (y - p))
    sd = np.sqrt(np.diag(np.linalg.inv(H)))
    frame = pd.DataFrame({"u": x[:, 0], "v": x[:, 1], "y": y})
    found = run({name: frame.iloc[k::2] for k, name in enumerate("ab")}, {"formula": "y ~ u + v", "family": "bernoulli"})
    near(found, {"theta[u]": (b[1], sd[1]), "theta[v]": (b[2], sd[2])}, 0.25)


def separated(level: bool) -> Frames:
    rng, frames = np.random.default_rng(1), {}
    for name in "ab":
        group, z = rng.choice(list("uvw"), size=150, p=[0.45, 0.45, 0.1]), rng.normal(size=150)
        y = (rng.random(150) < 0.3) & (group != "w") if level else z > 0
        frames[name] = pd.DataFrame({"g": group, "z": z, "y": y.astype(int)})
    return frames


@pytest.mark.parametrize("level", [True, False])
def test_where_responses_are_separated_the_prior_stays(level: bool) -> None:
    model = {"formula": "y ~ g + z", "family": "bernoulli"}
    usual = run(separated(level), model)
    given = run(separated(level), {**model, "prior_sd": 2.5, "intercept_sd": 5.0})
    assert "priors" not in usual.summary
    assert usual.summary["rounds_to_mode"] > given.summary["rounds_to_mode"]  # wider ones were tried
    for name, own in given.parameters.items():
        assert abs(usual.parameters[name]["mean"] - own["mean"]) < 0.1 * own["sd"]
        assert usual.parameters[name]["sd"] == pytest.approx(own["sd"], rel=0.1)
    assert any("columns separate the response" in note for note in usual.notes)
    assert not any("larger" in note for note in [*usual.notes, *given.notes])
    assert any("leave model.prior_sd and model.intercept_sd out" in note for note in given.notes)  # and then it is said


def test_a_prior_that_the_job_gives_stays() -> None:
    model = {"formula": "gas ~ year * country", "family": "gaussian", "prior_sd": 0.05}
    given = run(gas(), model)
    assert "priors" not in given.summary
    assert given.parameters["theta[year:country[T.Turkey]]"]["mean"] > -0.035  # -.0485 of rows alone
    assert "sensitive-to-the-prior" in ids(given)


def test_evidence_is_compared_at_the_same_priors(states: tuple[pd.DataFrame, tuple[float, float]]) -> None:
    frames = {name: states[0].iloc[k::3] for k, name in enumerate("abc")}
    whole, less = (run(frames, {"formula": f"y ~ {terms}", "family": "gaussian"}) for terms in ("tax + state + yr", "yr"))
    assert "priors" not in less.summary
    with pytest.raises(JobError, match=r"prior_sd = 25, intercept_sd = 50 and prior_sd = 2.5, .* give both jobs the same model"):
        whole.compare(less)
    same = {"family": "gaussian", "prior_sd": 25.0, "intercept_sd": 50.0}
    less, again = (run(frames, {"formula": f"y ~ {terms}", **same}) for terms in ("yr", "tax + state + yr"))
    assert whole.compare(less)["log_bayes_factor"] == pytest.approx(again.compare(less)["log_bayes_factor"], abs=0.3)


def test_chains_sites_and_predictions_have_the_prior_that_was_taken(states: tuple[pd.DataFrame, tuple[float, float]]) -> None:
    frame, known = states
    frames = {name: frame.iloc[k::3] for k, name in enumerate("abc")}
    job: dict[str, Any] = {"formula": "y ~ tax + state + yr", "family": "gaussian"}
    chains = run(frames, job, algorithm={"sampler": "hmc"}, job={"method": "likelihood", "rounds": 400})
    near(chains, {"theta[tax]": known}, 0.2)
    assert chains.summary["priors"]["prior_sd"] == 25
    sites = panel(INVEST, "firm", "invest", 1935)
    model = {"formula": "invest ~ year * firm", "family": "gaussian"}
    alone = run(sites, model, output={"sites": True}).summary["sites"]
    own = sites["a"].assign(t=sites["a"].year - 1945)
    X = np.column_stack(
        [np.ones(len(own)), own.t, *(c for k in list(INVEST)[:3] for c in (own.firm == k, own.t * (own.firm == k)))]
    )
    theta, sd = least_squares(X.astype(float), own.invest.to_numpy())
    assert abs(alone["a"]["theta[year:firm[T.US Steel]]"]["mode"] - theta[7]) < 0.3 * sd[7]


def test_secure_sums_widen_within_their_box(states: tuple[pd.DataFrame, tuple[float, float]]) -> None:
    frame, known = states
    frames = {name: frame.iloc[k::3] for k, name in enumerate("abc")}
    secure = {"method": "likelihood", "sums": "secure"}
    near(run(frames, {"formula": "y ~ tax + state + yr", "family": "gaussian"}, job=secure), {"theta[tax]": known})
    whole = pd.concat(gas().values())
    three = {name: whole[whole.year % 3 == k] for k, name in enumerate("abc")}
    beyond = run(three, {"formula": "gas ~ year * country", "family": "gaussian"}, job=secure)  # 84 of the response's sds
    assert "priors" not in beyond.summary


@pytest.mark.nightly
def test_each_family_has_its_own_prior_and_evidences_are_beside_one() -> None:
    """Few large counts decide a Poisson slope, far beyond N(0, 2.5^2), and less so that of a family whose counts vary more."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=240).round(3)
    y = rng.poisson(np.exp(-8 + 5 * x) * rng.gamma(1 / 0.6, 0.6, 240))
    frames = {name: pd.DataFrame({"x": x, "y": y}).iloc[k::2] for k, name in enumerate("ab")}

    def of(family: str, **sds: float) -> fedkern.Result:
        return run(frames, {"formula": "y ~ x", "family": family, **sds})

    found, own = of("auto"), of("negative-binomial")
    of_each = [of("poisson").summary["priors"], own.summary["priors"]]
    assert [priors["prior_sd"] for priors in of_each] == [25.0, 250.0]
    assert found.summary["priors"] == of_each[1]
    wide = max(of_each, key=lambda priors: priors["prior_sd"])
    assert found.parameters == own.parameters
    both = found.summary["families"]
    for family, said in both.items():
        assert said["log_evidence"] == pytest.approx(of(family, **wide).summary["log_evidence"]["value"], abs=0.1)


class Normal:
    """The log-density of N(mean, sd^2), as a prior and as a client's likelihood."""

    size = 1

    def __init__(self, sd: float, mean: float = 0.0) -> None:
        self.sd, self.mean = sd, mean

    def values(self, points: np.ndarray, nodes: int = 1) -> np.ndarray:
        return np.asarray(-0.5 * ((points[:, 0] - self.mean) / self.sd) ** 2)

    def curvature(self, xi: np.ndarray, nodes: int = 0) -> Any:
        points = np.atleast_2d(xi)
        slope = (self.mean - points) / self.sd**2
        curved = np.full((len(points), 1, 1), self.sd**-2.0)
        return (self.values(points), slope, curved) if nodes else (float(self.values(points)[0]), slope[0], curved[0])

    def rule(self, points: np.ndarray, nodes: int) -> np.ndarray:
        return np.zeros(len(points))


SETTINGS = importance.Settings(points=64, effective=10.0, rounds=1, starts=1, nodes=1, most_nodes=1, told=0, seed=1)
PRIORS = importance.Priors(tuple(Normal(sd) for sd in (1.0, 10.0, 100.0, 1e6)), np.eye(1))


def test_a_client_knows_no_other_prior_and_a_refused_point_ends_the_way() -> None:
    """A client counts questions about few rows, of which the second ends the job: after one no wider prior is tried."""
    coordinates = importance.Coordinates(("b",))
    client = importance.client("a", 0, SETTINGS, Normal(1.0, 8.0), PRIORS)  # type: ignore[arg-type]
    with pytest.raises(RemoteFault, match=r"AskCurvature\.prior = 3"):
        importance.client_receive(client, importance.AskCurvature(0, 1, np.zeros((1, 1)), 3))
    server, sent = importance.start(SETTINGS, PRIORS, ("a",), coordinates, np.zeros((1, 1)))
    asked = []
    while not server.drawn and sent and isinstance(sent[0][1], importance.AskCurvature):
        asked.append(sent[0][1].prior)
        client, (answer,) = importance.client_receive(client, sent[0][1])
        if asked[-1] == 1:
            none = np.zeros(1)
            answer = importance.Curvature(answer.round, none + REFUSED, np.zeros((1, 1)), np.zeros((1, 1)), none)
        server, sent = importance.server_receive(server, 0, answer)
    assert asked == [*sorted(asked[:-1]), 0]
    assert (server.widened, server.decided) == (0, BESIDE)
    assert server.climb.at[0, 0] == pytest.approx(4.0, abs=1e-3)


def test_a_run_that_goes_on_from_a_checkpoint_has_the_same_prior() -> None:
    first = importance.start(SETTINGS, PRIORS, ("a",), importance.Coordinates(("b",)), np.zeros((1, 1)))
    client = importance.client("a", 0, SETTINGS, Normal(1.0, 8.0), PRIORS)  # type: ignore[arg-type]
    server, sent = first
    while isinstance(sent[0][1], importance.AskCurvature):
        client, (answer,) = importance.client_receive(client, sent[0][1])
        server, sent = (
            importance.server_receive(load(first[0], save(server)), 0, answer) if not server.answers else (server, sent)
        )
    assert server.widened == 2
    assert server.climb.at[0, 0] == pytest.approx(8.0, abs=0.01)


@pytest.mark.parametrize("job", [{}, {"sums": "secure"}])
def test_a_cube_of_calendar_years_is_that_of_r(job: dict[str, str]) -> None:
    """Columns differ in the seventh digit, the curvature of their differences is 1e-12 of the largest, and the mode is far."""
    of_r = {  # lm(y ~ t + I(t^2) + I(t^3)) in R 4.2.2
        "intercept": (-3.0813575e06, 1.1331304e05),
        "theta[t]": (4661.7493, 171.8257),
        "theta[I(t ** 2)]": (-2.3509158, 0.086849603),
        "theta[I(t ** 3)]": (3.951907e-04, 1.4632518e-05),
    }
    t = np.round(1959 + np.arange(468) / 12, 4)
    z = (t - 1978.5) / 19.5
    y = 1 + z - 2 * z**2 + 3 * z**3 + 0.5 * np.sin(2 * np.pi * t)
    frames = {name: pd.DataFrame({"t": t, "y": y}).iloc[k::3] for k, name in enumerate("abc")}
    result = run(frames, {"formula": "y ~ t + I(t^2) + I(t^3)", "family": "gaussian"}, **job)
    near(result, of_r)
    assert result.converged


def test_what_is_beyond_the_box_of_secure_sums_is_no_arrival() -> None:
    """Two columns that differ by a thousandth: their coefficients are 1,000 standard deviations of the response."""
    rng = np.random.default_rng(5)
    x, d = rng.normal(size=(2, 600))
    frame = pd.DataFrame({"x": x, "z": x + 1e-3 * d, "y": d + 0.3 * rng.normal(size=600)})
    frames = {name: frame.iloc[k::3] for k, name in enumerate("abc")}
    masked, found = (run(frames, {"formula": "y ~ x + z", "family": "gaussian"}, **job) for job in ({"sums": "secure"}, {}))
    assert found.converged
    assert abs(found.parameters["theta[z]"]["mean"]) > 500
    assert not masked.converged
    assert "beyond-the-box" in ids(masked)


def lifetimes(shape: float) -> Frames:
    """Times whose logarithms have a slope of .2 a standard deviation; those of the log hazard are the shape times as large."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=240)
    time = np.exp(3 + 0.2 * x) * (-np.log(rng.random(240))) ** (1 / shape)
    frame = pd.DataFrame({"x": x, "time": np.minimum(time, np.exp(3.3)), "event": (time <= np.exp(3.3)).astype(int)})
    return {name: frame.iloc[k::3] for k, name in enumerate("abc")}


LARGE_SHAPES = {  # R 4.2.2, survreg(Surv(time, event) ~ x) of survival 3.5.3: minus the slope over the scale, and 1 / scale
    100.0: {"theta[x]": (-21.78439, 1.125), "shape": (109.2583, 5.621)},
    437.0: {"theta[x]": (-95.44307, 4.91878), "shape": (477.5426, 24.6051)},
    1000.0: {"theta[x]": (-218.13884, 11.25398), "shape": (1091.041, 56.2814)},
}


@pytest.mark.parametrize(("shape", "job"), [(100.0, {}), (437.0, {}), (1000.0, {}), (100.0, {"sums": "secure"})])
def test_slopes_of_the_log_hazard_at_large_shapes_are_those_of_survreg(shape: float, job: dict[str, str]) -> None:
    result = run(lifetimes(shape), {"formula": "Surv(time, event) ~ x", "family": "weibull"}, **job)
    near(result, LARGE_SHAPES[shape])
    assert result.converged


@pytest.mark.parametrize("shape", [250.0, 437.0])
def test_a_slope_at_the_border_of_the_box_or_beyond_it_is_no_arrival(shape: float) -> None:
    """Of standardised columns -49 +- 2.5 and -86: a box of 50 has room for neither, and -34 was "converged"."""
    result = run(lifetimes(shape), {"formula": "Surv(time, event) ~ x", "family": "weibull"}, sums="secure")
    assert not result.converged
    assert "beyond-the-box" in ids(result)


def test_a_shape_of_a_hundred_thousand_is_no_arrival_before_its_mode() -> None:
    result = run(lifetimes(1e5), {"formula": "Surv(time, event) ~ x", "family": "weibull"})
    assert not result.converged
    assert "mode-too-far" in ids(result)


@pytest.mark.parametrize("sums", ["", "secure"])
def test_a_column_that_separates_is_no_slope_beyond_the_box(sums: str) -> None:
    """Rows set no end to it: the prior decides, which is noted, and the rest stands."""
    rng = np.random.default_rng(1)
    z, g = rng.normal(size=240), rng.random(240) < 0.1
    frame = pd.DataFrame({"z": z, "g": g.astype(int), "y": (g | (z + 0.5 * rng.logistic(size=240) > 0)).astype(int)})
    result = run({name: frame.iloc[k::3] for k, name in enumerate("abc")}, {"formula": "y ~ z + g", "family": "bernoulli"}, sums)
    assert result.converged
    assert ids(result) & {"columns-separate", "sensitive-to-the-prior"}
