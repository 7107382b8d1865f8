"""Posteriors on both scales, draws, and what ArviZ reads."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

import fedkern
from fedkern.cli.__main__ import main
from fedkern.models.expfam import Gaussian
from fedkern.results.gaussian import Posterior, comparable
from fedkern.results.inference_data import groups, inference_data, netcdf

NAMES = ("intercept", "age", "sex=f")
AFFINE = np.array([[1.0, -2.0, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 1.0]])  # age = 2 x standardised + 4
DIAGONAL = Gaussian(np.array([1.0, 2.0, 3.0]), np.array([1.0, 4.0, 9.0]))
FULL = Gaussian.from_moments(np.array([1.0, 2.0, 3.0]), np.array([[2.0, 0.3, 0.1], [0.3, 1.0, 0.2], [0.1, 0.2, 1.0]]))


@pytest.mark.parametrize("q", [DIAGONAL, FULL], ids=["diagonal", "full"])
def test_moments_on_the_data_scale(q: Gaussian) -> None:
    posterior = Posterior(NAMES, q, AFFINE)
    covariance = AFFINE @ q.covariance @ AFFINE.T
    np.testing.assert_allclose(posterior.mean, AFFINE @ q.mean, rtol=1e-14)
    np.testing.assert_allclose(posterior.sd, np.sqrt(np.diag(covariance)), rtol=1e-14)


def test_parameters_are_named_after_the_columns_on_both_scales_where_they_differ() -> None:
    parameters = Posterior(NAMES, DIAGONAL, AFFINE).parameters()
    assert list(parameters) == ["intercept", "theta[age]", "theta[sex=f]", "intercept_std", "theta_std[age]"]
    assert parameters["theta[age]"]["mean"] == pytest.approx(0.25)
    assert parameters["theta_std[age]"] == pytest.approx(
        {"mean": 0.5, "sd": 0.5, "q05": norm(0.5, 0.5).ppf(0.05), "q95": norm(0.5, 0.5).ppf(0.95)}, rel=1e-12
    )
    assert list(Posterior(NAMES, DIAGONAL).parameters()) == ["intercept", "theta[age]", "theta[sex=f]"]


@pytest.mark.parametrize("q", [DIAGONAL, FULL], ids=["diagonal", "full"])
def test_draws_have_the_moments_and_come_from_their_own_stream(q: Gaussian) -> None:
    posterior, n = Posterior(NAMES, q, AFFINE), 40_000
    draws = posterior.draws(n, seed=7)
    error = (draws.mean(axis=0) - q.mean) / q.sd * np.sqrt(n)
    assert np.abs(error).max() < 4.5
    np.testing.assert_allclose(np.cov(draws.T), q.covariance, atol=5 * 2.1 / np.sqrt(n))
    np.testing.assert_array_equal(draws[:10], posterior.draws(10, seed=7))
    assert not np.isin(draws, posterior.draws(n, seed=7, chain=1)).any()
    assert not np.isin(draws, posterior.draws(n, seed=8)).any()


@pytest.mark.parametrize("q", [DIAGONAL, FULL], ids=["diagonal", "full"])
def test_arviz_reads_what_was_drawn(q: Gaussian, tmp_path: Any) -> None:
    """The numbers that any generation of ArviZ must read: those of the draws themselves."""
    import xarray

    posterior = Posterior(NAMES, q, AFFINE)
    (tmp_path / "posterior.nc").write_bytes(netcdf(posterior, seed=3, chains=2, draws=100))
    standard = np.stack([posterior.draws(100, seed=3, chain=c) for c in range(2)])
    with xarray.open_dataset(tmp_path / "posterior.nc", group="posterior", engine="h5netcdf") as found:
        assert dict(found.sizes) == {"chain": 2, "draw": 100, "slope": 2}
        assert list(found["slope"].values) == ["age", "sex=f"]
        np.testing.assert_allclose(found["theta_std"].values, standard[..., 1:], rtol=1e-12)
        np.testing.assert_allclose(found["intercept"].values, standard @ AFFINE[0], rtol=1e-12)
        np.testing.assert_allclose(found["theta"].values, (standard @ AFFINE.T)[..., 1:], rtol=1e-12)
    with xarray.open_dataset(tmp_path / "posterior.nc", group="sample_stats", engine="h5netcdf") as found:
        from scipy.stats import multivariate_normal

        np.testing.assert_allclose(found["lp"].values, multivariate_normal(q.mean, q.covariance).logpdf(standard), rtol=1e-10)


@pytest.mark.parametrize("kind", ["pvi", "vertical", "sparse"])
def test_the_file_is_what_xarray_would_write_of_the_draws(kind: str, tmp_path: Any) -> None:
    """Dimensions, coordinates, types and attributes of all groups, of results of three methods."""
    import xarray

    simulated = {"pvi": "logistic", "vertical": "vertical", "sparse": "mrf"}[kind]
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["simulate", simulated, "--out", str(tmp_path / "job"), "--rows", "30", "--columns", "3"]) == 0
    changes = {"sparse": {"algorithm": {"burn_in": 2}}}.get(kind, {})
    result = fedkern.run(tmp_path / "job" / "job.toml", job={"rounds": 12}, out=tmp_path / "run", **changes)
    wanted = groups(result.posterior, seed=result.seed, chains=result.chains, draws=result.n_draws)
    assert "posterior" in wanted
    for name, dataset in wanted.items():
        with xarray.open_dataset(tmp_path / "run" / "posterior.nc", group=name, engine="h5netcdf") as found:
            made = {key: found.attrs.pop(key) for key in ("created_at", "sampling_time")}
            inference = found.attrs["inference"]
            xarray.testing.assert_identical(found.load(), dataset.assign_attrs(inference=inference))
            assert {key: value.dtype for key, value in found.variables.items()} == {
                key: value.dtype for key, value in dataset.variables.items()
            }
        assert len(made) == 2


def test_without_an_affine_map_there_is_one_scale() -> None:
    found = inference_data(Posterior(NAMES[1:], Gaussian(np.zeros(2), np.ones(2))), seed=1, chains=1, draws=5)
    group = found["posterior"]
    assert set(group.data_vars) == {"theta"}


def test_what_can_be_compared_is_on_one_scale() -> None:
    parameters = Posterior(NAMES, DIAGONAL, AFFINE).parameters()
    assert list(comparable(parameters)) == ["theta[sex=f]", "intercept_std", "theta_std[age]"]
    assert list(comparable(Posterior(NAMES, DIAGONAL).parameters())) == ["intercept", "theta[age]", "theta[sex=f]"]
