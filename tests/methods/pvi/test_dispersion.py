"""Counts that vary more than their model says have intervals that are too narrow: the first line says so, and how to mend it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.algorithms.core.messages import ClientLost, RemoteFault
from fedkern.algorithms.exchanges.sums import AskPearson, PearsonSums
from fedkern.api import check_job
from fedkern.errors import JobError
from fedkern.methods import load
from fedkern.models.glm import Rows, pearson_sums
from fedkern.results import case_weights, dispersion
from fedkern.transports.inprocess import InProcess
from support import input_cases

NAMES = ("a", "b", "c")


def counts(r: float, seed: int = 3, rows: int = 300, level: float = 0.8) -> dict[str, pd.DataFrame]:
    """Of three clients; negative binomial, or Poisson where r is infinite."""
    random = np.random.default_rng(seed)
    frames = {}
    for name in NAMES:
        x, z = random.normal(size=(2, rows))
        mean = np.exp(level + 0.4 * x - 0.2 * z)
        frailty = random.gamma(r, 1 / r, rows) if r < 1e6 else 1.0
        frames[name] = pd.DataFrame({"x": x, "z": z, "y": random.poisson(mean * frailty)})
    return frames


def fitted(data: Any, weight: str | None = None, **model: Any) -> Any:
    tables: dict[str, Any] = {"job": {"method": "pvi", "rounds": 8, "seed": 1}, "data": {"response": "y"}}
    tables["data"] |= {"weight": weight} if weight else {}
    tables["model"] = {"family": "poisson", "covariance": "full", **model}
    return fedkern.run(tables, data=data)


def followed(verdict: str) -> dict[str, Any]:
    """What the line's remedy says, as keys of [model]."""
    (remedy,) = re.findall(r"; set (model\..*)$", verdict)
    family, scale = re.search(r'model\.family = "([a-z-]+)"', remedy), re.search(r"model\.scale = (\S+)", remedy)
    given = {"family": family[1]} if family else {}
    return given | ({"scale": "learn" if "learn" in scale[1] else float(scale[1])} if scale else {})


@pytest.mark.parametrize("r", [3.0, 1.0, 0.3])
def test_counts_that_vary_more_are_false_and_the_remedy_ends_well(r: float) -> None:
    data = counts(r)
    result = fitted(data)
    assert result.converged is False
    assert "as much as a poisson model says: intervals are about" in result.summary["verdict"]
    assert "too narrow" in result.summary["verdict"]
    model = followed(result.summary["verdict"])
    assert model == {"family": "negative-binomial"}
    again = fitted(data, **model)
    assert again.converged == "settled", again.summary["verdict"]
    assert again.summary["scale"] == pytest.approx(r, rel=0.35)
    found = again.summary["dispersion"]
    assert abs(found["ratio"] - 1) < 3 * found["error"]
    x = again.parameters["theta[x]"]
    assert x["sd"] > 1.15 * result.parameters["theta[x]"]["sd"]
    assert abs(x["mean"] - 0.4) < 3 * x["sd"]


@pytest.mark.parametrize(("r", "scale"), [(0.5, 5.0), (3.0, 0.5), (np.inf, 1.0)])
def test_a_negative_binomial_of_another_scale(r: float, scale: float) -> None:
    data = counts(r, seed=8)
    result = fitted(data, family="negative-binomial", scale=scale)
    assert result.converged is False
    model = {"family": "negative-binomial"} | followed(result.summary["verdict"])
    assert model["scale"] == "learn"
    again = fitted(data, **model)
    assert again.converged == "settled"
    assert again.summary["scale"] > 20 if r == np.inf else again.summary["scale"] == pytest.approx(r, rel=0.35)


def combined(data: Any, **model: Any) -> Any:
    """Of a variant that learns no r."""
    tables: dict[str, Any] = {"job": {"method": "pvi", "seed": 1}, "data": {"response": "y"}}
    tables["algorithm"] = {"variant": "bcm-same"}  # whose verdict may have its own remedy: this one is then a note
    return fedkern.run({**tables, "model": {"family": "poisson", "covariance": "full", **model}}, data=data)


@pytest.mark.parametrize("begin", [{}, {"family": "negative-binomial", "scale": 9.0}])
def test_where_no_r_is_learnt_the_remedy_has_one_and_it_ends_well(begin: dict[str, Any]) -> None:
    data = counts(1.0)
    summary = combined(data, **begin).summary
    (said,) = (one for one in (summary["verdict"], *summary["notes"]) if "; set model." in one)
    model = begin | followed(said)
    assert model["family"] == "negative-binomial"
    assert model["scale"] == pytest.approx(1.0, rel=0.35)
    found = combined(data, **model).summary
    assert abs(found["dispersion"]["ratio"] - 1) < 3 * found["dispersion"]["error"]


def test_large_counts_that_vary_more_are_not_called_less() -> None:
    """A small part of the mean is much of a Poisson's variance."""
    data, random = counts(np.inf), np.random.default_rng(1)
    for frame in data.values():
        frame["y"] = random.poisson(np.exp(9 + 0.2 * frame["x"]) * random.gamma(5000.0, 1 / 5000, len(frame)))
    result = fitted(data)
    assert result.summary["dispersion"]["ratio"] > 2
    again = fitted(data, **followed(result.summary["verdict"]))
    assert again.converged == "settled"
    assert again.summary["scale"] == pytest.approx(5000, rel=0.3)


def heavy() -> dict[str, pd.DataFrame]:
    """Half of the rows can have no event, which no r makes of a negative binomial."""
    data, random = counts(30.0, level=3.0), np.random.default_rng(4)
    return {name: frame.assign(y=frame["y"] * (random.random(len(frame)) < 0.5)) for name, frame in data.items()}


def test_what_no_r_fits_is_false_and_ends_with_the_r_of_its_variance() -> None:
    result = fitted(heavy(), family="negative-binomial")
    assert result.converged is False
    model = followed(result.summary["verdict"])
    assert isinstance(model["scale"], float)
    again = fitted(heavy(), family="negative-binomial", **model)
    assert abs(again.summary["dispersion"]["ratio"] - 1) < 3 * again.summary["dispersion"]["error"]


def test_poisson_counts_pass_with_their_ratio() -> None:
    result = fitted(counts(np.inf))
    assert result.converged == "settled"
    passed = r"; counts vary (1\.\d+|0\.9\d+|1) ± 0\.0\d+ times as much as a poisson model says$"
    assert re.search(passed, result.summary["verdict"])


def test_few_events_are_no_proof_and_a_note_says_so() -> None:
    result = fitted(counts(np.inf, rows=300, level=-4.0))
    assert 0 < result.summary["dispersion"]["events"] < 50
    assert result.converged is not False
    assert any("events are too few (below 50) to tell whether counts vary more" in note for note in result.summary["notes"])


def test_limits_let_true_poisson_jobs_pass() -> None:
    """Of 400 with 50 to 200 events each; fixed limits of .7 and 1.3 would refuse many of them."""
    random, off, outside = np.random.default_rng(0), 0, 0
    for _ in range(400):
        n = 2000
        mean = np.exp(random.normal(size=n) * 0.7)
        mean *= random.uniform(50, 200) / mean.sum()
        rows = Rows(np.log(mean)[:, None], random.poisson(mean).astype(np.float64))
        found = dispersion.pool("poisson", 1.0, [PearsonSums(0, *pearson_sums(rows, np.ones(1), "poisson"))], 0.0)
        assert found is not None
        off += found.off
        outside += not 0.7 < found.ratio < 1.3
    assert off <= 8
    assert outside > 4 * off


def test_sums_of_clients_are_those_of_all_rows() -> None:
    random = np.random.default_rng(5)
    X, theta = random.normal(size=(90, 3)), np.array([0.3, -0.2, 0.1])
    offset, weights = random.normal(size=90) * 0.3, random.uniform(0.001, 0.004, size=90)
    weights[::7] = 0.0
    mu = np.exp(X @ theta + offset)
    y, r, used = random.poisson(mu) * 1.0, 2.5, 3.0
    told: list[Any] = []
    for part in (slice(0, 20), slice(20, 90)):
        sums = pearson_sums(Rows(X[part], y[part], offset[part], weights[part]), theta, "negative-binomial", r)
        told.append(PearsonSums(0, *sums).leaving())
    found = dispersion.pool("negative-binomial", r, told, used)
    V = mu + mu**2 / r
    left = weights.sum() * (1 - used / (weights > 0).sum())
    assert found is not None
    misfit = (weights * (y - mu) ** 2 / V).sum()
    assert found.ratio == pytest.approx(misfit / left, rel=1e-4)
    assert found.error == pytest.approx(np.sqrt((weights**2 * (2 + 6 / r + 1 / V)).sum()) / left, rel=1e-4)
    assert found.excess == pytest.approx(1 / r + (misfit - left) / (weights * mu**2 / V).sum(), abs=1e-3)
    assert found.events == y[weights > 0].sum()


@pytest.mark.parametrize(("family", "r"), [("poisson", 1e9), ("negative-binomial", 0.7)])
def test_the_error_is_that_of_the_ratio(family: str, r: float) -> None:
    random, ratios, errors = np.random.default_rng(1), list[float](), list[float]()
    for _ in range(300):
        mean = np.exp(random.normal(size=200) * 0.5)
        y = random.poisson(mean * random.gamma(r, 1 / r, 200)).astype(np.float64)
        sums = pearson_sums(Rows(np.log(mean)[:, None], y), np.ones(1), family, r)
        found = dispersion.pool(family, r, [PearsonSums(0, *sums)], 0.0)
        assert found is not None
        ratios.append(found.ratio)
        errors.append(found.error)
    assert np.mean(ratios) == pytest.approx(1, abs=0.02)
    assert np.std(ratios) == pytest.approx(np.mean(errors), rel=0.15)


def test_counts_of_sites_that_differ_ask_for_their_intercepts_first() -> None:
    data = counts(np.inf)
    for name, level in zip(NAMES, (0.4, 1.0, 2.5)):
        data[name]["y"] = np.random.default_rng(7).poisson(level * np.exp(0.5 * data[name]["x"]))
    result = fitted(data)
    assert result.converged is False
    remedy = "sites differ (a note says how): set model.site_intercepts = true, and where it is still so"
    assert remedy in result.summary["verdict"]
    again = fitted(data, site_intercepts=True)
    assert again.converged == "settled"
    assert not any("sites differ" in note for note in again.summary["notes"])


# Linear models, and weights --------------------


def linear(sd: float = 1.0, seed: int = 2) -> dict[str, pd.DataFrame]:
    random = np.random.default_rng(seed)
    frames = {}
    for name in NAMES:
        x = random.normal(size=100)
        frames[name] = pd.DataFrame({"x": x, "y": 2 * x + sd * random.normal(size=100), "w": 1.0, "label": (x > 0.3) * 1})
    return frames


def test_a_linear_job_tells_the_ratio_when_it_passes() -> None:
    data = linear()
    result = fitted(data, family="gaussian", scale=1.0)
    assert result.converged == "settled"
    assert re.search(r"; the residuals' variance is \S+ ± 0.08\d* times that of the model$", result.summary["verdict"])
    pooled = pd.concat(data.values())
    X = np.column_stack([np.ones(300), pooled["x"]])
    residuals = pooled["y"] - X @ np.linalg.lstsq(X, pooled["y"], rcond=None)[0]
    assert result.summary["dispersion"]["ratio"] == pytest.approx((residuals**2).sum() / 298, rel=1e-3)


def labelled() -> dict[str, pd.DataFrame]:
    return {name: frame.assign(y=frame["label"]) for name, frame in linear().items()}


def test_weights_that_make_many_rows_of_each_are_named() -> None:
    data = labelled()
    data["b"]["w"] = np.linspace(2, 6, 100)
    data["a"]["w"] = data["c"]["w"] = 0.5
    note = "weights of column 'w' sum to far more than the rows: b 4 times"
    result = fitted(data, "w", family="bernoulli")
    assert result.converged == "settled"
    said = [line for line in result.summary["notes"] if note in line]
    assert len(said) == 1
    assert "divide 'w' by its mean, about 4" in said[0]
    data["b"]["w"] /= 4
    assert not any("weights of column" in line for line in fitted(data, "w", family="bernoulli").summary["notes"])


@pytest.mark.parametrize("family", ["gaussian", "bernoulli"])
@pytest.mark.parametrize("by", [40.0, 0.2])
def test_rows_that_count_many_times_are_a_doubt_whose_remedy_ends_well(family: str, by: float) -> None:
    data = linear() if family == "gaussian" else labelled()
    random = np.random.default_rng(4)
    drawn = {name: frame.assign(w=by * random.choice([0.5, 1.0, 1.5], 100)) for name, frame in data.items()}
    result = fitted(drawn, "w", family=family)
    assert result.converged is False
    (mean,) = re.findall(r"rows count .* divide 'w' by its mean, (\S+), at all clients", result.summary["verdict"])
    assert not any("sites differ" in line for line in result.summary["notes"])
    again = fitted({name: frame.assign(w=frame["w"] / float(mean)) for name, frame in drawn.items()}, "w", family=family)
    assert again.converged == "settled", again.summary["verdict"]
    assert not any("weights of column" in line for line in again.summary["notes"])
    wider = again.parameters["theta[x]"]["sd"] / result.parameters["theta[x]"]["sd"]
    if family == "gaussian":  # of the other the column separates the labels, and the prior decides
        assert wider == pytest.approx(by**0.5, rel=0.05)


def test_a_client_whose_weights_are_another_column_is_a_doubt() -> None:
    data = labelled()
    data["b"]["w"] = 1000.0
    result = fitted(data, "w", family="bernoulli")
    assert result.converged is False
    assert "weights of column 'w' are not those of the other clients: their mean is 1e+03 at b, and 1 at the others" in str(
        result
    )
    data["b"]["w"] = 1.0
    assert fitted(data, "w", family="bernoulli").converged == "settled"


def test_weights_that_are_counts_may_sum_to_more_than_the_rows() -> None:
    data = {name: frame.assign(w=3.0) for name, frame in labelled().items()}
    assert fitted(data, "w", family="bernoulli").converged is False
    tables = {"job": {"method": "pvi", "rounds": 8, "seed": 1}, "data": {"response": "y", "weight": "w", "weight_counts": True}}
    counted = fedkern.run({**tables, "model": {"family": "bernoulli", "covariance": "full"}}, data=data)
    assert counted.converged == "settled"
    assert not any("weights" in line for line in counted.summary["notes"])
    # It is the posterior of a file in which each row stands three times, but for scales of the columns.
    repeated = {name: pd.concat([frame] * 3, ignore_index=True) for name, frame in labelled().items()}
    of_rows = fitted(repeated, family="bernoulli").parameters["theta[x]"]
    assert counted.parameters["theta[x]"]["sd"] == pytest.approx(of_rows["sd"], rel=0.01)
    data["b"]["w"] = 2.5
    with pytest.raises(JobError, match=r"column 'w': '2\.5' is no number of rows"):
        fedkern.run({**tables, "model": {"family": "bernoulli"}}, data=data)
    with pytest.raises(JobError, match="weight_counts says what"):
        fedkern.run({"job": {"method": "pvi"}, "data": {"response": "y", "weight_counts": True}}, data=data)


def test_of_two_clients_and_of_all_together_weights_are_compared() -> None:
    weighed = case_weights.Weighed
    assert (
        "1e+03 at b, and 1 at the others" in case_weights.compare("w", {"a": weighed(50, 1.0), "b": weighed(50, 1e3)}).doubts[0]
    )
    assert (
        "0.05 at b, and 1.2 at the others"
        in case_weights.compare("w", {"a": weighed(50, 1.0), "c": weighed(50, 1.4), "b": weighed(50, 0.05)}).doubts[0]
    )
    assert case_weights.compare("w", {"a": weighed(50, 1.0), "b": weighed(50, 8.0)}, precisions=True).doubts
    assert case_weights.compare("w", {"all": weighed(100, 2.5)}).doubts
    assert case_weights.compare("w", {"a": weighed(50, 0.2), "b": weighed(50, 1.8)}, precisions=True) == case_weights.Said()
    assert case_weights.compare("w", {"a": weighed(50, 0.0), "b": weighed(0, 0.0)}) == case_weights.Said()
    counted = case_weights.compare("w", {"a": weighed(50, 1.0), "b": weighed(50, 1e3)}, counts=True)
    assert "by data.weight_counts: their mean is 1e+03 at b" in counted.notes[0]
    assert not counted.doubts


# What is sent --------------------


def test_check_lists_the_sums_of_open_jobs_alone(tmp_path: Path) -> None:
    for name in ("open", "private"):
        (tmp_path / name).mkdir()
    job = tmp_path / "open" / input_cases.METHODS["pvi"](tmp_path / "open").job
    text = "\n".join(check_job(InProcess(), *load(job, sets=["model.family=poisson"])) or [])
    assert "PearsonSums" in text
    assert "PearsonSums" not in "\n".join(check_job(InProcess(), *load(job)) or []), "labels have no variance of their own"
    job = tmp_path / "private" / input_cases.METHODS["private"](tmp_path / "private").job
    assert "PearsonSums" not in "\n".join(check_job(InProcess(), *load(job, sets=["model.family=poisson"])) or [])


HONEST = PearsonSums(0, 9, 1.0, 12.0, 8.5, 20.0, 11.0)
NOBODY = PearsonSums(0, 0, 0.0, 0.0, 0.0, 0.0, 0.0)


def test_a_client_with_few_rows_answers_with_zeros() -> None:
    for few in (replace(HONEST, rows=n) for n in (0, 1, 4)):
        assert few.leaving() == NOBODY
        large = replace(few, rows=20, misfit=47492843029.327, noise=1234.5678, slope=1e-5)
        assert (large.leaving().misfit, large.leaving().noise, large.leaving().slope) == (
            4.74928e10,
            1234.57,
            0.0,
        )
    assert dispersion.pool("poisson", 1.0, [NOBODY, NOBODY], 1.0) is None


def test_sums_that_cannot_be_are_left_out() -> None:
    for name in ("rows", "weight", "events", "misfit", "noise", "slope"):
        for x in (-1, 3, 2**62) if name == "rows" else (-1e300, -1.0, 1e300):
            server, _ = PearsonSums.question.start(3, AskPearson(0, np.zeros(2)))
            for k, sums in enumerate((HONEST, replace(HONEST, **dict[str, Any]({name: x})))):
                server, _ = PearsonSums.question.server_receive(server, k, sums)
            assert list(server.dropped) == [1]
            server, _ = PearsonSums.question.server_receive(server, 2, ClientLost(2))
            assert PearsonSums.question.finished(server)
            with pytest.raises(RemoteFault, match="client 0"):
                PearsonSums.question.server_receive(server, 0, HONEST)
    large = replace(HONEST, rows=10**15, weight=1e100, events=1e100, misfit=1e100, noise=1e100, slope=1e100)
    for told in ([large] * 3, [HONEST, replace(large, weight=1e-300)], [replace(HONEST, misfit=0.0, noise=0.0, slope=0.0)]):
        found = dispersion.pool("poisson", 1.0, told, 3.0)
        assert found is None or (np.isfinite([found.ratio, found.error, found.excess]).all() and found.wrong())


def test_a_response_of_two_values_is_no_count_and_the_remedy_ends_well() -> None:
    random = np.random.default_rng(1)
    data = {name: frame.assign(y=1 + (frame["x"] + random.normal(size=300) > 0)) for name, frame in counts(5).items()}
    result = fitted(data)
    assert result.converged is False
    assert 'set model.family = "bernoulli", for others also data.positive' in result.summary["verdict"]
    tables: dict[str, Any] = {"data": {"response": "y", "positive": "2"}, "model": {"family": "bernoulli"}}
    assert fedkern.run(tables, data=data).converged == "settled"


def test_weights_that_are_no_counts_are_told_to_their_holder_in_a_private_job(tmp_path: Path) -> None:
    """No cell ends such a job, and nobody else reads it."""
    data = {name: frame.assign(w=1.0 + k) for k, (name, frame) in enumerate(labelled().items())}
    data["b"].loc[3, "w"] = 2.5
    job = {
        "job": {"method": "pvi", "rounds": 3, "seed": 1},
        "data": {
            "response": "y",
            "weight": "w",
            "weight_counts": True,
            "standardise": "none",
            "columns": {name: {"kind": "numeric"} for name in data["a"].columns if name not in ("y", "w")},
        },
        "model": {"family": "bernoulli"},
        "privacy": {"epsilon": 8.0, "delta": 1e-5, "clip": 2.0, "noise_multiplier": 2.0, "sampling_rate": 0.5},
    }
    result = fedkern.run(job, data=data, out=tmp_path / "out")
    told = {name: (tmp_path / "out" / f"client-{name}" / "rows.json").read_text() for name in data}
    assert "rows with a weight that is no number of rows, which data.weight_counts says it is: 1, the first in row 4" in told["b"]
    assert not any("no number of rows" in told[name] for name in data if name != "b")
    assert "no number of rows" not in str(result.summary)
