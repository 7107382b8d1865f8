"""Tables of priors, and Gaussian processes: against dense matrices and the sample covariance of many draws."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import gamma, kv

from fedkern.errors import NumericalError
from fedkern.kernels import rng, spatial
from fedkern.kernels._record import KERNELS
from oracles.moments import covered, scores
from support import maps

BACKENDS = KERNELS["spatial.table_sample"].backends
X = np.linspace(0, 1, 30)[:, None]
M = 100_000


def matern(s, nu):
    """Rasmussen and Williams (2006), equation 4.14."""
    z = np.sqrt(2 * nu) * np.where(s == 0, 1, s)
    return np.where(s == 0, 1.0, 2 ** (1 - nu) / gamma(nu) * z**nu * kv(nu, z))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["rbf", "matern12", "matern32", "matern52"])
def test_covariances_are_the_textbook_s(backend, kind):
    x = np.random.default_rng(0).random((12, 2))
    s = np.linalg.norm(x[:, None] - x, axis=2) / 0.3
    want = np.exp(-(s**2) / 2) if kind == "rbf" else matern(s, int(kind[-2]) / 2)
    got = spatial.gp_covariance(x, np.array([0.3]), kind=kind, jitter=1e-3, backend=backend)[0]
    np.testing.assert_allclose(got, want + 1e-3 * np.eye(12), rtol=1e-12)
    np.testing.assert_array_equal(got, got.T)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["rbf", "matern32"])
def test_low_rank_factors_miss_what_they_say(backend, kind):
    lengthscale = np.array([0.2, 0.5, 1.0])
    K = spatial.gp_covariance(X, lengthscale, kind=kind)
    F, residual = spatial.gp_factor(X, lengthscale, kind=kind, rank=30, tolerance=1e-6, backend=backend)
    for t in range(3):
        left = K[t] - F[t] @ F[t].T
        assert np.trace(left) == pytest.approx(residual[t], abs=1e-12)
        assert 0 <= residual[t] <= 30e-6
        assert np.linalg.eigvalsh(left).min() > -1e-12
        used = F[t].any(axis=0)
        assert (used == (np.arange(30) < used.sum())).all()
    assert (F[2].any(axis=0).sum() < F[0].any(axis=0).sum()) == (kind == "rbf")  # the rough one needs all columns
    few, missing = spatial.gp_factor(X, lengthscale, kind=kind, rank=3, backend=backend)
    assert np.trace(K[0] - few[0] @ few[0].T) == pytest.approx(missing[0], rel=1e-9)
    assert missing[0] > 30e-6


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "cuda"])  # whose draws conform: 8 s on the emulator
def test_draws_of_processes_have_the_covariance(backend):
    draws = spatial.gp_sample(X[::6], np.full(20_000, 0.3), jitter=1e-4, seed=1, backend=backend)
    assert covered(scores(draws, spatial.gp_covariance(X[::6], np.array([0.3]), jitter=1e-4)[0]))
    assert not covered(scores(draws, spatial.gp_covariance(X[::6], np.array([0.33]), jitter=1e-4)[0]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_covariance_without_a_factor_is_named(backend):
    """Two places, 1e-9 apart, are one place beside a lengthscale of 0.5."""
    x = np.array([[0.0], [1e-9], [2.0]])
    with pytest.raises(NumericalError, match=r"draw 1 \(lengthscale 0.5\) is not positive definite; take a larger jitter"):
        spatial.gp_sample(x, np.array([1e-10, 0.5]), jitter=0.0, seed=1, backend=backend)


@pytest.mark.parametrize("group", [1, 8])
def test_tables_of_processes(group):
    lengthscale = 0.2 + 0.8 * spatial.stratified(16, seed=2)
    drawn = spatial.DrawTable.gp(X[::10], lengthscale, tolerance=1e-9, group=group)
    theta, phi = drawn.sample(2, 7, M)
    for value in lengthscale[[0, 15]]:
        K = spatial.gp_covariance(X[::10], np.array([value]))[0]
        assert covered(scores(theta[phi[:, 0] == value], K))
    narrow = spatial.DrawTable.gp(X, np.array([0.9, 0.2, 1.0]))
    assert narrow.rank == spatial.gp_factor(X, np.array([0.2]), rank=30)[0].any(axis=(0, 1)).sum()


@pytest.mark.parametrize("backend", BACKENDS)
def test_stored_draws_come_as_they_are(backend):
    draws = np.random.default_rng(3).standard_normal((50, 4))
    drawn = spatial.DrawTable.stored(draws, np.arange(50.0), scale=np.array([1.0, 2.0, 1.0, 1.0]))
    theta, phi = drawn.sample(3, 0, 4000, backend=backend)
    np.testing.assert_array_equal(theta, draws[phi[:, 0].astype(int)] * [1, 2, 1, 1])
    assert len(np.unique(phi)) == 50


@pytest.mark.parametrize("backend", BACKENDS)
def test_normals_and_entries_are_the_named_numbers(backend):
    """A draw is the factor times the numbers of its own row, from whichever batch and group."""
    values = np.random.default_rng(4).standard_normal((5, 3 * 3))
    theta, entry = spatial.table_sample(
        values, np.ones(3), kind="dense", rank=3, batch=21, group=8, seed=9, chain=2, step=5, backend=backend
    )
    e = rng.normal(63, key=rng.key(9, "prior_draws", 2), step=5).reshape(21, 3)
    u = rng.uniform(3, key=rng.key(9, "prior_entries", 2), step=5)
    np.testing.assert_array_equal(entry, np.repeat((u * 5).astype(int), 8)[:21])
    np.testing.assert_allclose(theta, np.einsum("bik,bk->bi", values[entry].reshape(21, 3, 3), e), rtol=1e-12, atol=1e-13)
    shorter, _ = spatial.table_sample(
        values, np.ones(3), kind="dense", rank=3, batch=8, group=8, seed=9, chain=2, step=5, backend=backend
    )
    np.testing.assert_array_equal(shorter, theta[:8])
    other, _ = spatial.table_sample(values, np.ones(3), kind="dense", rank=3, batch=21, group=8, seed=9, step=5, backend=backend)
    assert (other != theta).all()


def test_lanes_and_single_rows_agree():
    """Groups of eight and groups of one, from a table of one entry, are the same draws."""
    graph = maps.planar(200)
    one, eight = (spatial.DrawTable.car(*graph, np.array([0.9]), group=g).sample(1, 0, 20)[0] for g in (1, 8))
    np.testing.assert_allclose(one, eight, rtol=1e-10, atol=1e-12)


def test_bad_tables_are_refused_by_name():
    values, ones = np.ones((2, 6)), np.ones(3)
    with pytest.raises(ValueError, match="values must have 3 columns where kind is 'stored', n = 3"):
        spatial.table_sample(values, ones, kind="stored", batch=1, seed=1)
    with pytest.raises(ValueError, match="values must have 9 columns where kind is 'dense', n = 3, rank = 3, got 6"):
        spatial.table_sample(values, ones, kind="dense", rank=3, batch=1, seed=1)
    with pytest.raises(ValueError, match="'sparse' needs indptr, indices, order"):
        spatial.table_sample(values, ones, kind="sparse", batch=1, seed=1)
    with pytest.raises(ValueError, match="values must have an entry"):
        spatial.table_sample(np.ones((0, 3)), ones, kind="stored", batch=1, seed=1)
    pattern = {"indptr": np.array([0, 3, 5, 6]), "indices": np.array([0, 1, 2, 1, 2, 2]), "order": np.array([2, 0, 1])}
    spatial.table_sample(values, ones, kind="sparse", batch=1, seed=1, **pattern)
    for part, wrong in (
        ("indices", [0, 2, 1, 1, 2, 2]),
        ("indices", [0, 1, 2, 0, 2, 2]),
        ("order", [0, 0, 1]),
        ("indptr", [0, 3, 3, 6]),
    ):
        with pytest.raises(ValueError, match=rf"spatial.table_sample: {part if part == 'order' else 'indices'} must"):
            spatial.table_sample(values, ones, kind="sparse", batch=1, seed=1, **(pattern | {part: np.array(wrong)}))
    with pytest.raises(ValueError, match=r"spatial.DrawTable: phi must have 2 rows"):
        spatial.DrawTable(np.ones((2, 3)), np.ones((3, 1)), ones, "stored")
