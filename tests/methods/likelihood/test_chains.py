"""Markov chains from the mode: the posterior of importance sampling, the same bits after a stop, and what has to be refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.cli import report
from fedkern.errors import FedkernError, JobError
from fedkern.results.mixing import published_mean_error as mean_error
from support.found import ids
from support.interrupted import Crash, run
from support.refusal import refusal

JOB = """
[job]
method = "likelihood"
seed = 2
[data]
clients = ["rows/*.csv"]
response = "y"
[model]
family = "poisson"
[model.random]
group = "ward"
"""
CLIENTS = ("ada", "bo", "cy")
SHORT = ("algorithm.sampler=hmc", "job.rounds=60", "output.chains=2")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job of three clients with six wards each, of few rows."""
    folder, rng = tmp_path_factory.mktemp("job"), np.random.default_rng(5)
    (folder / "rows").mkdir()
    for name in CLIENTS:
        ward = np.repeat(np.arange(6), 6)
        time = rng.normal(4, 2, 36).round(3)
        y = rng.poisson(np.exp(0.5 + 0.1 * time + 0.5 * rng.normal(size=6)[ward]))
        pd.DataFrame({"time": time, "ward": [f"w{g}" for g in ward], "y": y}).to_csv(folder / "rows" / f"{name}.csv", index=False)
    (folder / "job.toml").write_text(JOB)
    return folder


@pytest.fixture(scope="module")
def walked(files: Path, tmp_path_factory: pytest.TempPathFactory) -> fedkern.Result:
    out = tmp_path_factory.mktemp("out") / "out"
    return fedkern.run(files / "job.toml", out=out, algorithm={"sampler": "hmc"})


@pytest.fixture(scope="module")
def short(files: Path, tmp_path_factory: pytest.TempPathFactory) -> fedkern.Result:
    found = run(files / "job.toml", tmp_path_factory.mktemp("short") / "out", *SHORT)
    assert found is not None
    return found


def test_the_remedy_of_weights_that_fail_has_their_posterior(files: Path, walked: fedkern.Result) -> None:
    """256 draws are not worth 240 of equal weight; the verdict says which sampler to take, and that agrees with many draws."""
    few = fedkern.run(files / "job.toml", job={"rounds": 1}, algorithm={"points": 256, "effective": 400.0})
    assert not few.converged
    assert 'take chains (algorithm.sampler = "hmc")' in few.summary["verdict"]
    assert walked.converged, walked.summary["verdict"]
    many = fedkern.run(files / "job.toml")
    assert many.converged
    draws, weighted = walked.posterior.values, many.posterior
    assert walked.parameters.keys() == many.parameters.keys()
    for name, found in many.parameters.items():
        chains = draws[name].reshape(4, -1, 1)
        error = found["sd"] / many.summary["ess"] ** 0.5
        own, wanted = walked.parameters[name], weighted.values[name]
        assert abs(own["mean"] - found["mean"]) < 4 * np.hypot(mean_error(chains)[0], error), name
        squares, square = (chains - found["mean"]) ** 2, (wanted - found["mean"]) ** 2
        spread = float(np.sqrt(weighted.weights @ (square - found["sd"] ** 2) ** 2)) / many.summary["ess"] ** 0.5
        assert abs(squares.mean() - found["sd"] ** 2) < 4 * np.hypot(mean_error(squares)[0], spread), name


@pytest.mark.usefixtures("undrawn")
def test_what_chains_publish(files: Path, walked: fedkern.Result) -> None:
    folder = walked.folder
    assert folder is not None
    assert walked.summary.keys().isdisjoint({"log_evidence", "k_hat", "sensitivity", "without"})
    assert any("no log evidence" in note for note in walked.summary["notes"])
    assert walked.summary["chains"]["divergences"] <= 20
    assert 0.01 < walked.summary["predictive"]["p"]["mean"] < 0.99
    read = fedkern.load(folder)
    assert read.parameters == walked.parameters
    assert {"rhat", "ess"} <= read.parameters["theta[time]"].keys()
    rows = files / "rows" / "ada.csv"
    np.testing.assert_allclose(read.prediction(rows).mean, walked.prediction(rows).mean, rtol=1e-12)
    for name in CLIENTS:
        found = pd.read_csv(folder / f"client-{name}" / "groups.csv")
        assert found.converged.all()
        own = pd.read_csv(files / "rows" / f"{name}.csv").groupby("ward").y.mean()
        assert np.corrcoef(found.set_index("group").intercept, own.loc[found.group])[0, 1] > 0.7
    assert "Coefficients" in report.write(folder).read_text()
    with refusal(JobError, "algorithm.sampler", "importance"):
        walked.compare(walked)


@pytest.mark.parametrize("after", [5, 150], ids=["on the way to the mode", "in the chains"])
@pytest.mark.parametrize("how", ["stop", "crash"])
def test_chains_that_go_on_end_with_the_same_bits(
    how: str, after: int, files: Path, short: fedkern.Result, tmp_path: Path
) -> None:
    with pytest.raises((FedkernError, Crash)):
        run(files / "job.toml", tmp_path / "out", *SHORT, **{how: after})
    resumed = run(files / "job.toml", tmp_path / "out", *SHORT, resume=True)
    assert resumed is not None
    assert resumed.digest == short.digest
    assert resumed.parameters == short.parameters


def test_too_few_rounds_are_said_to_everybody(short: fedkern.Result) -> None:
    assert short.folder is not None
    assert not short.converged
    assert "chains-want-rounds" in ids(short)
    assert not pd.read_csv(short.folder / "client-bo" / "groups.csv").converged.any()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"output": {"without": True}}, "output.without is by weights of the draws"),
        ({"job": {"rounds": 50}, "algorithm": {"burn_in": 50}}, "algorithm.burn_in = 50 of 50 rounds leaves no draw"),
    ],
)
def test_keys_that_chains_cannot_have_are_refused(more: dict[str, Any], words: str, files: Path) -> None:
    with pytest.raises(JobError, match=words):
        fedkern.run(files / "job.toml", **{**more, "algorithm": {"sampler": "hmc", **more.get("algorithm", {})}})
