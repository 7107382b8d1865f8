"""A vertical job says by how much a product over parties is too narrow, whether counts vary more, and centres its intercept."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import fedkern
from fedkern.algorithms.core.legs import Heard
from fedkern.algorithms.core.messages import RemoteFault
from fedkern.algorithms.core.windows import Movement
from fedkern.algorithms.exchanges.response import Narrow
from fedkern.errors import JobError
from fedkern.jobs.load import config_of
from fedkern.methods.vertical import keys, normal
from fedkern.methods.vertical.model import VerticalModel
from fedkern.methods.vertical.publish import too_fine
from oracles.vertical_undivided import exact
from support.found import said
from support.refusal import refusal


def rows_of(family, n, base, slopes, seed=7, shape=None):
    """Two columns that are not correlated, and a response."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, 2))
    eta = base + X @ np.array(slopes)
    if family == "bernoulli":
        return X, (random.random(n) < expit(eta)).astype(float)
    return X, random.poisson(np.exp(eta) * (1.0 if shape is None else random.gamma(shape, 1 / shape, n))).astype(float)


def job(folder, family, X, y, offset=None, model=None, **sections):
    """All defaults; one column at each of two clients."""
    ids = [f"p{i}" for i in range(len(y))]
    frames = {name: pd.DataFrame({"id": ids, name: X[:, k]}) for k, name in enumerate("ab")}
    server = pd.DataFrame({"id": ids, "y": y} | ({} if offset is None else {"o": offset}))
    data = {"id": "id", "response": "y"} | ({} if offset is None else {"offset": "o"})
    tables = {"job": {"method": "vertical", "seed": 1}, "data": data, "model": {"family": family, **(model or {})}, **sections}
    return fedkern.run(tables, data=frames, server=server, out=folder / "run")


def own(folder, client):
    return json.loads((folder / "run" / f"client-{client}" / "posterior.json").read_text())


def published(folder, result):
    """Means and sds of the intercept and both slopes, of standardised columns."""
    rows = [result.summary["parameters"]["intercept"], *(own(folder, k)["parameters"][f"theta_std[{k}]"] for k in "ab")]
    return np.array([[row["mean"], row["sd"]] for row in rows]).T


def of_q(folder, result):
    """q's own sds."""
    return np.array([result.summary["sd_of_q"]["intercept"], *(own(folder, k)["sd_of_q"][f"theta_std[{k}]"] for k in "ab")])


def settles(folder, family, X, y):
    """A default job, whose posterior is compared with the exact one: the ratios of sds that it tells are those that there are.

    Published sds are right where q's own are not.
    """
    result = job(folder, family, X, y)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    centre = np.log(y.mean()) if family == "poisson" else np.log(y.mean() / (1 - y.mean()))
    want, sd = exact(family, (Z,), y, centre, 5.0)
    mean_here, sd_here = published(folder, result)
    told = np.array(list(result.summary["widths"].values()))
    np.testing.assert_allclose(told, of_q(folder, result) / sd, atol=0.05)
    np.testing.assert_allclose(sd_here * told, of_q(folder, result), rtol=1e-12)
    np.testing.assert_allclose(sd_here, sd, rtol=0.07)
    np.testing.assert_array_less(np.abs(mean_here - want) / sd, 0.3)
    return result, told


def test_rare_events_make_the_intercept_too_narrow_and_the_first_line_says_it(tmp_path):
    """No column is correlated with another: the rows' weights make them so."""
    result, told = settles(tmp_path, "bernoulli", *rows_of("bernoulli", 600, -3.0, (0.9, 0.8)))
    assert told[0] < 0.8
    assert result.converged is False
    assert result.summary["worst"] == "intercept"
    (narrow,) = (check["values"] for check in result.summary["checks"] if check["id"] == "narrow-product")
    assert narrow["factors"][0] == ["the intercept", pytest.approx(1 / told[0])]
    for client, ratio in zip("ab", told[1:]):
        assert ratio < 0.9
        assert own(tmp_path, client)["own"]["converged"] is False
        assert f"about {1 / ratio:.2f} times too small" in own(tmp_path, client)["note"]
        row = own(tmp_path, client)["parameters"][f"theta[{client}]"]
        assert row["q95"] - row["mean"] == pytest.approx(1.6449 * row["sd"], rel=1e-4)
    ledger = (tmp_path / "run" / "ledger" / "a.jsonl").read_text()
    assert ledger.count('{"protocol": "narrow", ') == 1


@pytest.mark.nightly
def test_of_several_columns_a_client_s_covariance_is_wider_along_its_part_alone(tmp_path):
    """Three columns at each client, of which one has no effect: rare events make the intercept go with the others."""
    random = np.random.default_rng(0)
    A, B = random.normal(size=(800, 3)), random.normal(size=(800, 3))
    slopes = {"a": [0.9, 0.0, 0.4], "b": [0.8, -0.5, 0.0]}
    y = (random.random(800) < expit(-3 + A @ slopes["a"] + B @ slopes["b"])) * 1.0
    ids = np.arange(800)
    frames = {k: pd.DataFrame({"id": ids} | {f"{k}{j}": X[:, j] for j in range(3)}) for k, X in (("a", A), ("b", B))}
    tables = {"job": {"method": "vertical", "seed": 1}, "data": {"id": "id", "response": "y"}, "model": {"family": "bernoulli"}}
    result = fedkern.run(tables, data=frames, server=pd.DataFrame({"id": ids, "y": y}), out=tmp_path / "run")
    Z = np.hstack([(X - X.mean(axis=0)) / X.std(axis=0) for X in (A, B)])
    _, sd = exact("bernoulli", (Z,), y, np.log(y.mean() / (1 - y.mean())), 5.0)
    found = [result.summary["parameters"]["intercept"]["sd"]]
    own_of_q = [result.summary["sd_of_q"]["intercept"]]
    for k in "ab":
        found += [own(tmp_path, k)["parameters"][f"theta_std[{k}{j}]"]["sd"] for j in range(3)]
        own_of_q += [own(tmp_path, k)["sd_of_q"][f"theta_std[{k}{j}]"] for j in range(3)]
    assert min(np.array(own_of_q) / sd) < 0.85
    np.testing.assert_allclose(found, sd, rtol=0.07)
    assert found[2] == pytest.approx(own_of_q[2], rel=0.02)  # of the column without an effect


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("family", "n", "base", "slopes"),
    [("bernoulli", 3000, -4.0, (1.0, 1.0)), ("poisson", 1500, -2.0, (0.7, 0.7)), ("bernoulli", 1500, 0.0, (2.0, 2.0))],
)
def test_the_ratios_that_are_told_are_those_that_there_are(tmp_path, family, n, base, slopes):
    result, told = settles(tmp_path, family, *rows_of(family, n, base, slopes))
    assert told.min() < 0.9
    assert result.converged is False


def test_counts_that_vary_more_make_the_first_line_false(tmp_path):
    """And what is neither rare nor correlated is wide enough: the ratios say nothing."""
    X, y = rows_of("poisson", 400, 1.0, (0.3, 0.2), seed=4, shape=1.0)
    result = job(tmp_path, "poisson", X, y)
    Z = np.column_stack([np.ones(400), (X - X.mean(axis=0)) / X.std(axis=0)])
    b, _ = published(tmp_path, result)
    mean = np.exp(Z @ b)
    wanted = ((y - mean) ** 2 / mean).sum() / 397
    np.testing.assert_allclose(result.summary["dispersion"]["ratio"], wanted, rtol=0.03)
    assert wanted > 2
    assert result.converged is False
    (values,) = said(result, "counts-vary-otherwise")
    assert "negative-binomial" in values["remedies"]
    assert min(result.summary["widths"].values()) > 0.9
    assert "too small, as the server" not in own(tmp_path, "a")["note"]


def test_rates_per_unit_of_exposure_are_not_pulled_to_one(tmp_path):
    """Some hundred events in 400 persons of whom each was seen for days: the log rate is about -9."""
    random = np.random.default_rng(3)
    X, offset = random.standard_normal((400, 2)), np.log(random.uniform(500, 4000, 400))
    y = random.poisson(np.exp(-9 + offset + 0.3 * X[:, 0])).astype(float)
    result = job(tmp_path, "poisson", X, y, offset)
    row = result.summary["parameters"]["intercept"]
    level = np.log(y.sum() / np.exp(offset).sum())
    assert abs(row["mean"] - level) < 0.6 * row["sd"] + 0.1  # the columns explain some
    assert row["mean"] < -8.5
    told = config(family="poisson").model
    assert (told.intercept_sd, told.intercept_centre) == (5.0, None)


def config(algorithm=None, **model):
    data = {"clients": ["a.csv"], "id": "id", "response": "y", "server": "y.csv", "offset": "o"}
    return config_of(keys, {"job": {"method": "vertical"}, "data": data, "model": model, "algorithm": algorithm or {}})


def test_the_intercepts_prior_is_about_the_level_in_open_amortised_jobs_alone():
    y, offset = np.array([0.0, 2.0, 4.0]), np.array([0.0, 1.0, 2.0])
    server = VerticalModel(config(family="poisson"), ("a", "b"), 3).centred(y, offset)
    np.testing.assert_allclose((server.prior_mean, server.prior_sd), (np.log(6 / np.exp(offset).sum()), 5.0))
    assert server.initial(0.1)[0] == server.prior_mean
    given = VerticalModel(config(family="poisson", intercept_centre=0.0, intercept_sd=1.0), ("a", "b"), 3).centred(y, offset)
    assert (given.prior_mean, given.prior_sd) == (0.0, 1.0)
    others = ({"auxiliary": "mean-field"}, {"inference": "soul"})
    for algorithm in others:
        found = config(algorithm, family="poisson").model
        assert (found.intercept_sd, found.intercept_centre) == (1.0, 0.0)
    with refusal(JobError, "soul", "0", "1"):
        config({"inference": "soul"}, intercept_sd=5.0)
    with pytest.raises(JobError, match=r"intercept_centre is the prior's of an intercept"):
        config(intercept=False, intercept_centre=1.0)


def test_a_server_tells_a_ratio_or_nothing():
    client, slopes = Heard[Narrow](), np.array([0.25, -0.5])
    heard, said = Narrow.protocol.client_receive(client, Narrow(0, 0.5, slopes))
    assert (heard.told.ratio, said) == (0.5, [])
    np.testing.assert_array_equal(heard.told.slopes, slopes)
    for ratio in (0.0, -1.0, 1.5, np.nan, np.inf):
        with pytest.raises(RemoteFault, match="cannot be"):
            Narrow.protocol.client_receive(client, Narrow(0, ratio, slopes))
    with pytest.raises(RemoteFault, match=r"Narrow\.slopes"):
        Narrow.protocol.client_receive(client, Narrow(0, 0.5, 5 * slopes))
    with pytest.raises(RemoteFault, match="not expected"):
        Narrow.protocol.client_receive(heard, Narrow(0, 0.5, slopes))


def few_of(n=160, there=3):
    """A column that is 1 in a few rows, none of which is a case, and two ordinary ones."""
    random = np.random.default_rng(3)
    X = random.standard_normal((n, 2))
    flag = np.arange(n) < there
    y = random.random(n) < expit(0.3 * X[:, 0] - 0.3 * X[:, 1])
    return X, flag.astype(float), (y & ~flag).astype(float)


def test_what_few_rows_tell_has_no_normal_posterior_and_the_first_line_says_it(tmp_path):
    """The fit settles: q is as wide as a normal q can be. The client has the interval to take."""
    X, flag, y = few_of()
    ids = np.arange(len(y))
    frames = {"a": pd.DataFrame({"id": ids, "a": X[:, 0]}), "b": pd.DataFrame({"id": ids, "b": X[:, 1], "flag": flag})}
    tables = {"job": {"method": "vertical", "seed": 1}, "data": {"id": "id", "response": "y"}, "model": {"family": "bernoulli"}}
    result = fedkern.run(tables, data=frames, server=pd.DataFrame({"id": ids, "y": y}), out=tmp_path / "run")
    assert result.converged is False
    assert "unknowns of client 'b' have not settled, or have no normal posterior" in result.summary["verdict"]
    assert own(tmp_path, "a")["own"]["converged"] == "settled"
    told = own(tmp_path, "b")
    assert told["own"]["converged"] is False
    assert "no-normal-posterior" in [check.get("id") for check in told["own"]["checks"]]
    assert list(told["lines"]) == ["theta[flag]"]
    assert "lines" not in result.summary
    Z = np.column_stack([X, flag])
    centre = np.log(y.mean() / (1 - y.mean()))
    _, sd = exact("bernoulli", ((Z - Z.mean(axis=0)) / Z.std(axis=0),), y, centre, 5.0)
    assert told["parameters"]["theta[flag]"]["sd"] < 0.85 * sd[3] / flag.std()
    # The others' unknowns are taken for known, as they are in q: here the flag goes with the intercept.
    assert told["lines"]["theta[flag]"]["sd"] == pytest.approx(sd[3] / flag.std(), rel=0.15)


@pytest.mark.parametrize("there", [3, 40])
def test_the_width_along_a_line_is_that_of_the_density(there):
    """Of one coefficient, against quadrature, with all else known; with many rows it is that of a normal q."""
    X, flag, y = few_of(there=there)
    if there > 3:
        y = (np.random.default_rng(5).random(len(y)) < 0.4).astype(float)
    x, offset = (flag - flag.mean()) / flag.std(), 0.3 * X[:, 0]
    grid = np.linspace(-12, 12, 4001)
    log_p = -np.logaddexp(0, np.where(y, -1, 1) * (offset + np.outer(grid, x))).sum(axis=1) - grid**2 / 2
    p = np.exp(log_p - log_p.max())
    mean = p @ grid / p.sum()
    sd = np.sqrt(p @ (grid - mean) ** 2 / p.sum())
    narrower = 0.75 if there == 3 else 1.0
    eta = offset + x * (mean + narrower * sd * np.random.default_rng(2).standard_normal((20_000, 1)))
    found = normal.measure_lines(
        normal.Own(x[:, None], np.array([mean]), np.array([[narrower * sd]]), 0.0, 1.0), ["x"], y - expit(eta).mean(axis=0)
    )
    assert found is not None
    assert found.sd[0] * narrower == pytest.approx(1.0, rel=0.04)
    assert bool(len(found.off)) is (there == 3)
    assert normal.measure_lines(normal.Own(x[:, None], np.zeros(1), np.eye(1), 0.0, 1.0), ["x"], np.zeros(len(y))) is None


def test_an_intercept_that_is_known_better_than_the_steps_are_small_is_named():
    def moved(error):
        return Movement(1000, np.array([5.4]), np.zeros(1), np.array([error]), np.zeros(1), np.zeros(1))

    def said(movement, sd, rate=0.01):
        return list(too_fine(movement, np.array([sd]), ["intercept"], rate))

    (note,) = said(moved(5.9), 0.0002)
    assert note.startswith("intercept: its standard deviation, 0.0002, is far below algorithm.learning_rate = 0.01")
    assert not said(moved(0.01), 0.0002)  # it can be seen, and moves
    assert not said(moved(5.9), 0.1)
    assert not said(None, 0.0002)


@pytest.mark.nightly
def test_the_remedy_for_large_counts_ends_in_right_numbers(tmp_path):
    """Counts near 1e5: what the note names is set; the first line stays false, since the noise of rounds hides what moves."""
    X, y = rows_of("poisson", 300, np.log(1e5), (0.3, -0.2))
    (note,) = too_fine(Movement(1000, *np.array([[5.4], [0.0], [5.9], [0.0], [0.0]])), np.array([0.0002]), ["intercept"], 0.01)
    assert "algorithm.learning_rate = 0.001 and algorithm.start_sd = 0.0003 means and standard deviations come out right" in note
    result = job(tmp_path, "poisson", X, y, job={"method": "vertical", "seed": 1, "rounds": 30_000}, algorithm={
        "learning_rate": 0.001, "start_sd": 0.0003
    })  # fmt: skip
    Z = np.column_stack([np.ones(len(y)), (X - X.mean(axis=0)) / X.std(axis=0)])
    theta = np.array([np.log(y.mean()), 0.0, 0.0])
    for _ in range(50):  # priors are nothing beside 3e7 events
        mean = np.exp(Z @ theta)
        theta = theta + np.linalg.solve(Z.T @ (mean[:, None] * Z), Z.T @ (y - mean))
    sd = np.sqrt(np.diag(np.linalg.inv(Z.T @ (mean[:, None] * Z))))
    mean_here, sd_here = published(tmp_path, result)
    np.testing.assert_array_less(np.abs(mean_here - theta) / sd, 0.4)
    np.testing.assert_allclose(sd_here, sd, rtol=0.1)


@pytest.mark.parametrize(("rho", "least"), [(None, ", the least that is worked out,"), (0.01, "")])
def test_a_rho_that_is_large_for_large_counts_says_what_it_does_to_standard_deviations(rho, least):
    y = np.full(100, 6e4)
    model = VerticalModel(config(family="poisson", **({} if rho is None else {"rho": rho})), ("a", "b"), 100)
    model = model if rho is not None else model.knowing(y)
    assert any(f"rho = 0.01{least} keeps 7.7% of the information of a row: " in note for note in model.warnings(y))
    assert any("up to 3.6 times too large" in note for note in model.warnings(y))
