"""Reproductions with trained priors: what is kept, federated fits, the stored references, and the figures to reach."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fedkern.algorithms.training.fit import compare
from fedkern.data.artifact import read_server
from fedkern.errors import JobError
from papers import sigma, sigma_car, sigma_examples, sigma_gp, sigma_homicide
from papers.car import exact_process
from papers.common import references, stored
from support.published import needs

STORED = references("sigma")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sigma")


def test_trainings_are_kept_and_told_apart(folder: Path) -> None:
    cell = sigma_gp.Cell("amended", 1, steps=20, entries=8)
    first = cell.run(folder)
    before = len(list(folder.glob("*/state")))
    again = cell.run(folder)
    np.testing.assert_array_equal(first.federation.parameters, again.federation.parameters)
    assert again.state.step == 20
    assert first.seconds == again.seconds
    assert len(list(folder.glob("*/state"))) == before
    other = replace(cell, seed=2).run(folder)
    assert len(list(folder.glob("*/state"))) == before + 1
    assert (other.federation.parameters != first.federation.parameters).any()


@pytest.mark.nightly  # by day algorithms/test_training.py has linear networks at their optimum
def test_the_multiplicative_prior_reaches_its_figures(folder: Path) -> None:
    """Relative errors of the covariance <= 0.1 and of correlations between clients <= 0.2, after a tenth of the steps."""
    cell = sigma_gp.Cell("multiplicative", 1, steps=2_000, entries=64)
    federation = cell.run(folder).federation
    for phi in sigma_gp.LENGTHSCALES:
        one = compare(cell.prior, federation, phi, draws=10_000)
        assert one.error_split < 0.1
        assert one.largest_cross_correlation < sigma_gp.CROSS
    printed = sigma_gp.Cell("printed", 1, steps=2_000, entries=64)
    assert compare(printed.prior, printed.run(folder).federation, 0.2, draws=4_000).error_split > 0.3


@pytest.mark.nightly
def test_the_federated_curve_is_near_the_exact_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sigma_gp, "ROUNDS", 3000)
    cell = sigma_gp.Cell("multiplicative", 1, steps=2_000, entries=64)
    off = sigma_gp.distance(sigma_gp.posterior(cell, folder, auxiliary=False))
    assert off["mean"] < 0.15
    assert 0.85 < off["sd"] < 1.1
    assert abs(off["error sd"] - off["exact error sd"]) < 0.02


def test_the_networks_of_the_clients_files_are_those_that_were_trained(folder: Path) -> None:
    cell = sigma_gp.Cell("printed", 2, steps=20, entries=8)
    made = cell.run(folder)
    shown = json.loads((made.folder / "fit.json").read_text())["covariance"][0]
    assert made.clients == read_server(made.folder).clients
    found = compare(cell.prior, made.federation, shown["phi"], draws=20_000, seed=2)
    assert found.error_split == pytest.approx(shown["error_split"], rel=1e-9)
    assert found.largest_cross_correlation == pytest.approx(shown["largest_cross_correlation"], rel=1e-9)


def test_a_log_rate_is_read_from_the_moments_of_the_rate() -> None:
    z = np.random.default_rng(1).normal(size=(200_000, 3)) * [0.1, 0.3, 0.6] + [-1.0, 0.0, 2.0]
    rate, nothing = np.exp(z), np.zeros(3)
    found = sigma.Areas(*[nothing] * 4, rate.mean(axis=0), rate.std(axis=0), nothing, {}, {}, 0.0)
    mean, sd = found.log_rate
    np.testing.assert_allclose(mean, z.mean(axis=0), atol=0.01)
    np.testing.assert_allclose(sd, z.std(axis=0), rtol=0.02)


def test_nuts_agrees_with_the_quadrature() -> None:
    """Two unrelated programs: the whole posterior of the curve, its lengthscale and its error."""
    _, seen, y = sigma_examples.process()
    prior = sigma_gp.Cell("printed", 1).prior
    truth, nuts = exact_process(prior.covariance, prior.condition, y, seen), STORED["process"]
    assert nuts["checks"]["divergences"] == 0
    assert nuts["checks"]["r_hat"] < 1.01
    sd = np.sqrt(truth.variance)
    error = 4.5 / np.sqrt(nuts["checks"]["ess"])
    assert (np.abs(np.array(nuts["theta"]["mean"]) - truth.mean) / sd).max() < error
    np.testing.assert_allclose(nuts["theta"]["sd"], sd, rtol=0.05)
    for name, values in (("phi", truth.phi), ("sd", truth.sd)):
        mean = float(truth.weight @ values)
        spread = float(np.sqrt(truth.weight @ (values - mean) ** 2))
        assert abs(nuts[name]["mean"] - mean) < error * spread
    shifted = exact_process(prior.covariance, prior.condition, y, np.roll(seen, 1))  # the comparison sees other data
    assert (np.abs(np.array(nuts["theta"]["mean"]) - shifted.mean) / sd).max() > 5 * error


@needs("us-county-homicide")
def test_nuts_of_the_counties_is_of_these_rows() -> None:
    areas, data = sigma_homicide.counties()
    nuts = STORED["counties"]
    assert nuts["names"] == list(areas.graph.names)
    assert nuts["checks"]["divergences"] == 0
    assert nuts["checks"]["r_hat"] < 1.05
    raw, exposed = np.log((data.y + 0.5) / (np.exp(data.offset) + 0.5)), np.exp(data.offset) > 5
    assert np.corrcoef(nuts["log_rate"]["mean"], raw)[0, 1] > 0.7
    assert np.abs(np.array(nuts["log_rate"]["mean"]) - raw)[exposed].mean() < 0.3
    assert np.abs(np.roll(nuts["log_rate"]["mean"], 1) - raw)[exposed].mean() > 0.5


def test_the_example_is_a_noisy_sine() -> None:
    x, seen, y = sigma_examples.process()
    assert len(x) == 100
    assert len(np.unique(seen)) == 15
    e = np.concatenate([(sigma_examples.process(seed)[2] - np.sin(x[seen])) / sigma_examples.ERROR_SD for seed in range(200)])
    assert stats.kstest(e, "norm").pvalue > 1e-3
    assert (sigma_examples.process(2)[2] != y).any()


@needs("au-sa2-2011")
def test_maps_are_draws_of_the_prior() -> None:
    """The quadratic form of a draw is chi-squared, and that of another phi is not."""
    prior, n = sigma_car.prior(), sigma_car.prior().n
    graph = sigma_car.areas().graph
    theta, y, seen = sigma_car.example(0.95, 1)

    def scaled(phi: float) -> float:
        near = np.bincount(graph.rows, weights=theta[graph.indices], minlength=n)
        return (float(theta @ (graph.degrees * theta - phi * near)) - n) / np.sqrt(2 * n)

    assert abs(scaled(0.95)) < 4.5
    assert scaled(0.5) > 6
    assert abs(np.std(y - theta) - sigma_car.ERROR_SD) < 4.5 * 0.5 / np.sqrt(2 * n)
    assert abs(np.mean(~seen) - 0.2) < 0.04
    assert prior.condition.hi == 0.99


@pytest.mark.parametrize(("module", "part"), [(sigma_car, "au-sa2-2011"), (sigma_homicide, "us-county-homicide")])
def test_missing_data_are_said_first(module, part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDKERN_DATA", raising=False)
    for cached in ("areas", "counties", "prior"):
        if hasattr(module, cached):
            getattr(module, cached).cache_clear()
    with pytest.raises(JobError, match=f"folder that holds {part}"):
        module.run(tmp_path / "out", fast=True)
    assert not list((tmp_path / "out").glob("trained*"))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@needs("au-sa2-2011")
def test_the_whole_map(tmp_path: Path) -> None:
    """One map at 100 steps of training: the figures of the table, with room for the map."""
    text = sigma_car.run(tmp_path, fast=True).read_text()
    (line,) = stored(tmp_path / "results-fast.jsonl").values()
    assert line["auxiliary"]["rms"] < 0.6 * line["independent"]["rms"]
    assert line["deterministic"]["rms"] > 2.5 * line["auxiliary"]["rms"]
    assert line["held out"]["rms"] < 0.55
    assert 0.85 < line["held out"]["coverage"] < 0.95
    assert "auxiliary / independent" in text
    assert (tmp_path / "means.png").stat().st_size > 10_000


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@needs("us-county-homicide")
def test_the_whole_of_the_counties(tmp_path: Path) -> None:
    text = sigma_homicide.run(tmp_path, fast=True).read_text()
    assert "sigma_theta" in text
    assert "not converged" not in text
