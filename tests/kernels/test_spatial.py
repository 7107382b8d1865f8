"""Autoregressive priors of areas: against dense matrices, differences, and the sample covariance of many draws."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fedkern.errors import NumericalError
from fedkern.kernels import spatial
from fedkern.kernels._record import KERNELS
from oracles.moments import covered, scores
from support import maps

BACKENDS = KERNELS["spatial.car_logdensity"].backends
FORMS = ("car", "leroux")
MAPS = {"grid": maps.grid(4), "planar": maps.planar(60), "islands": maps.islands()}
PHI = np.array([0.0, 0.3, 0.9, 0.99])


def dense(indptr, indices):
    n = len(indptr) - 1
    W = np.zeros((n, n))
    for i in range(n):
        W[i, indices[indptr[i] : indptr[i + 1]]] = 1
    return W, np.diag(np.maximum(W.sum(axis=1), 1))


def precision(indptr, indices, phi, form):
    W, D = dense(indptr, indices)
    return {"car": D - phi * W, "leroux": (1 - phi) * np.eye(len(W)) + phi * (D - W), "icar": D - W}[form]


def table(indptr, indices, form, **options):
    return spatial.logdet_table(spatial.car_eigen(indptr, indices, form=form).values, indptr, form=form, **options)


def density(theta, phi, graph, series, **options):
    return spatial.car_logdensity(theta, phi, *graph, series.coefficients, **series.options, **options)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("form", FORMS)
def test_eigenvalues_give_precision_variance_and_determinant(name, form):
    graph = MAPS[name]
    eigen, weights = spatial.car_eigen(*graph, form=form), spatial.car_weights(graph[0], form=form)
    for phi in PHI:
        Q = precision(*graph, phi, form)
        np.testing.assert_allclose(spatial.car_precision(*graph, phi, form=form).toarray(), Q, atol=1e-14)
        A = eigen.vectors / weights[:, None]
        np.testing.assert_allclose(A * eigen.precisions(np.array([phi])) @ A.T, Q, atol=1e-12)
        K = np.linalg.inv(Q)
        variance = spatial.car_variance(eigen.values, eigen.vectors, weights, np.array([phi]), form=form)[0]
        np.testing.assert_allclose(variance, np.diag(K), rtol=1e-11)
    assert (eigen.values.max() == 1) if form == "car" else (eigen.values.min() == 0)


def test_known_eigenvalues_of_a_path():
    """D - W of a path of n areas: 2 - 2 cos(pi k / n); D^-1/2 W D^-1/2 of three: -1, 0, 1."""
    path = maps.rows_of(3, np.array([[0, 1], [1, 2]]))
    np.testing.assert_allclose(spatial.car_eigen(*path, form="icar").values, 2 - 2 * np.cos(np.pi * np.arange(3) / 3), atol=1e-14)
    np.testing.assert_allclose(spatial.car_eigen(*path).values, [-1, 0, 1], atol=1e-14)


def test_every_component_has_its_own_null_space():
    graph = maps.islands()
    assert spatial.null_dimension(*graph) == 2  # the area that is alone has none
    values = spatial.car_eigen(*graph, form="icar").values
    assert (values == 0).sum() == 2
    assert (spatial.car_eigen(*graph).values == 1).sum() == 2
    np.testing.assert_array_equal(spatial.components(*graph)[[0, 2, 4, 6]], spatial.components(*graph)[0])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("form", FORMS)
def test_log_density_is_that_of_a_dense_gaussian(backend, name, form):
    graph = MAPS[name]
    series = table(*graph, form)
    theta = np.random.default_rng(0).standard_normal((len(PHI), len(graph[0]) - 1))
    value, grad_theta, grad_phi = density(theta, PHI, graph, series, backend=backend)
    for b, phi in enumerate(PHI):
        Q, x = precision(*graph, phi, form), theta[b]
        L = np.linalg.cholesky(Q)
        want = np.log(np.diag(L)).sum() - 0.5 * len(x) * np.log(2 * np.pi) - 0.5 * ((L.T @ x) ** 2).sum()
        assert value[b] == pytest.approx(want, abs=2e-10)
        np.testing.assert_allclose(grad_theta[b], -Q @ x, atol=1e-12)
        change = precision(*graph, 1.0, form) - precision(*graph, 0.0, form)
        slope = 0.5 * np.trace(np.linalg.solve(Q, change)) - 0.5 * x @ change @ x
        assert grad_phi[b] == pytest.approx(slope, rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("lo", "hi"), [(0.0, 0.99), (0.2, 0.5), (0.0, 0.9999), (0.4, 0.4)])
def test_the_table_keeps_its_bound(form, lo, hi):
    graph = maps.planar(150, seed=2)
    eigen = spatial.car_eigen(*graph, form=form)
    phi = np.linspace(lo, hi, 301)
    want = np.log(eigen.precisions(phi)).sum(axis=1) + (np.log(np.diff(graph[0])).sum() if form == "car" else 0)
    for tolerance in (1e-3, 1e-6, 1e-9):
        series = spatial.logdet_table(eigen.values, graph[0], form=form, lo=lo, hi=hi, tolerance=tolerance)
        got = 2 * density(np.zeros((len(phi), 150)), phi, graph, series)[0] + 150 * np.log(2 * np.pi)
        error = abs(got - want).max()
        assert error <= series.bound + 1e-10 <= 150 * tolerance + 1e-10
        slope = 2 * density(np.zeros((len(phi), 150)), phi, graph, series)[2]
        v = eigen.values
        exact = (-v / eigen.precisions(phi)).sum(axis=1) if form == "car" else ((v - 1) / eigen.precisions(phi)).sum(axis=1)
        assert abs(slope - exact).max() <= series.slope_bound + 1e-9 * abs(exact).max()
    short = spatial.logdet_table(eigen.values, graph[0], form=form, lo=lo, hi=hi, tolerance=1e-3)
    assert len(short.coefficients) < len(series.coefficients)
    if hi > lo + 0.3:  # negative control: a series with fewer terms leaves the bound of the longer one
        cut = density(np.zeros((len(phi), 150)), phi, graph, replace_series(series, series.coefficients[:4]))[0]
        assert abs(2 * cut + 150 * np.log(2 * np.pi) - want).max() > series.bound


def replace_series(series, coefficients):
    return type(series)(**(vars(series) | {"coefficients": coefficients}))


def test_intrinsic_density():
    """On its own space the density of N(0, pseudoinverse): rank and product of the eigenvalues that are not 0."""
    graph = maps.islands()
    series = table(*graph, "icar")
    theta = np.random.default_rng(3).standard_normal((2, 8))
    value, grad_theta, grad_phi = density(theta, np.array([0.0, 5.0]), graph, series)
    Q = precision(*graph, 1.0, "icar")
    w = np.linalg.eigvalsh(Q)
    want = 0.5 * np.log(w[w > 1e-10]).sum() - 3 * np.log(2 * np.pi) - 0.5 * np.einsum("bi,ij,bj->b", theta, Q, theta)
    np.testing.assert_allclose(value, want, rtol=1e-12)
    np.testing.assert_allclose(grad_theta, -theta @ Q, atol=1e-12)
    assert (grad_phi == 0).all()


def test_beyond_the_range_of_the_table_there_is_no_number():
    graph = maps.grid(3)
    series = table(*graph, "car", lo=0.2, hi=0.9)
    value, grad_theta, grad_phi = density(np.ones((5, 9)), np.array([0.2, 0.9, 0.1999, 0.901, np.nan]), graph, series)
    for result in (value, grad_phi, grad_theta):
        assert np.isfinite(result[:2]).all()
        assert np.isnan(result[2:]).all()


# Sparse factors --------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", MAPS)
def test_factors_are_those_of_the_dense_matrix(backend, form, name):
    graph = MAPS[name]
    p = spatial.car_analyse(*graph)
    values, logdet = spatial.car_factor(PHI, p.order, p.indptr, p.indices, *graph, form=form, backend=backend)
    n = len(p.order)
    for t, phi in enumerate(PHI):
        L = np.zeros((n, n))
        L[p.indices, np.repeat(np.arange(n), np.diff(p.indptr))] = values[t]
        Q = precision(*graph, phi, form)
        np.testing.assert_allclose(L, np.linalg.cholesky(Q[np.ix_(p.order, p.order)]), atol=1e-12)
        assert logdet[t] == pytest.approx(np.linalg.slogdet(Q)[1], abs=1e-11)


def test_factors_of_a_map_as_large_as_australia():
    graph = maps.planar(2221)
    p = spatial.car_analyse(*graph)
    assert len(p.indices) < 16 * 2221  # a whole triangle has 2.5 million
    phi = np.array([0.5, 0.99])
    values, logdet = spatial.car_factor(phi, p.order, p.indptr, p.indices, *graph)
    random = np.random.default_rng(5)
    for t in range(2):
        L = spatial.adjacency(p.indptr, p.indices)
        L.data = values[t]
        Q, x = spatial.car_precision(*graph, phi[t])[p.order][:, p.order], random.standard_normal(2221)
        np.testing.assert_allclose(L.T @ (L @ x), Q @ x, atol=1e-11)
        assert logdet[t] == pytest.approx(2 * np.log(values[t][p.indptr[:-1]]).sum(), rel=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_pivot_that_is_not_positive_is_named(backend):
    graph = maps.grid(3)
    p = spatial.car_analyse(*graph)
    with pytest.raises(NumericalError, match=r"the pivot of area \d is not greater than zero at phi = 1.1 \(entry 1\)"):
        spatial.car_factor(np.array([0.5, 1.1, 1.2]), p.order, p.indptr, p.indices, *graph, backend=backend)


def test_the_pattern_of_another_graph_is_refused():
    p = spatial.car_analyse(*maps.grid(4))
    with pytest.raises(ValueError, match="must be the pattern of this graph's factor"):
        spatial.car_factor(PHI, p.order, p.indptr, p.indices, *maps.planar(16))


# Draws --------------------


M = 100_000


@pytest.mark.parametrize("form", FORMS)
def test_spectral_draws_have_the_covariance(form):
    graph = maps.grid(4)
    eigen, weights = spatial.car_eigen(*graph, form=form), spatial.car_weights(graph[0], form=form)
    draws = spatial.car_sample(eigen.vectors, eigen.values, weights, np.full(M, 0.8), form=form, seed=1)
    assert covered(scores(draws, np.linalg.inv(precision(*graph, 0.8, form))))
    assert not covered(scores(draws, np.linalg.inv(precision(*graph, 0.78, form))))  # negative control


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("group", [1, 8])
def test_sparse_draws_have_the_covariance(form, group):
    graph = maps.islands()
    drawn = spatial.DrawTable.car(*graph, np.array([0.8]), form=form, group=group)
    draws, phi = drawn.sample(2, 0, M)
    assert (phi == 0.8).all()
    assert covered(scores(draws, np.linalg.inv(precision(*graph, 0.8, form))))
    assert not covered(scores(draws, np.linalg.inv(precision(*graph, 0.77, form))))


def test_draws_at_phi_near_1_are_finite_and_as_wide_as_they_should_be():
    graph = maps.grid(4)
    draws, _ = spatial.DrawTable.car(*graph, np.array([0.999999]), group=8).sample(3, 0, M)
    assert covered(scores(draws, np.linalg.inv(precision(*graph, 0.999999, "car"))))


def test_intrinsic_draws_sum_to_zero_and_have_mean_log_variance_zero():
    graph = maps.islands()
    eigen = spatial.car_eigen(*graph, form="icar")
    groups = spatial.components(*graph)
    weights = spatial.icar_scale(eigen.values, eigen.vectors, groups)
    draws = spatial.car_sample(eigen.vectors, eigen.values, weights, np.zeros(M), form="icar", seed=4)
    K = weights[:, None] * np.linalg.pinv(precision(*graph, 1.0, "icar"), hermitian=True) * weights
    assert weights[7] == pytest.approx(1)
    for g in range(3):
        members = np.flatnonzero(groups == g)
        assert np.log(np.diag(K)[members]).mean() == pytest.approx(0, abs=1e-12)
        if len(members) > 1:
            np.testing.assert_allclose(draws[:, members].sum(axis=1), 0, atol=1e-10)
    kept = np.array([0, 2, 4, 1, 3, 7])  # without one of each piece, so that the covariance is regular
    assert covered(scores(draws[:, kept], K[np.ix_(kept, kept)]))
    by_table, _ = spatial.DrawTable.icar(*graph).sample(5, 0, M)
    assert covered(scores(by_table[:, kept], K[np.ix_(kept, kept)]))


def test_draws_of_changing_phi_belong_to_it():
    graph = maps.grid(4)
    phi = 0.99 * spatial.stratified(32, seed=6)
    assert (np.floor(phi / 0.99 * 32) == np.arange(32)).all()
    drawn = spatial.DrawTable.car(*graph, phi, group=8, scale=np.full(16, 2.0))
    theta, at = drawn.sample(6, 3, M)
    for value in phi[[0, 20, 31]]:
        K = 4 * np.linalg.inv(precision(*graph, value, "car"))
        assert covered(scores(theta[at[:, 0] == value], K))
    assert (at[:8] == at[0]).all()
    counts = np.bincount(np.searchsorted(phi, at[::8, 0]), minlength=32)
    assert abs(counts - M / 8 / 32).max() < 5 * np.sqrt(M / 8 / 32)


# Bad graphs --------------------


@pytest.mark.parametrize(
    ("indptr", "indices", "message"),
    [
        ([0, 1, 1], [1], "must be symmetric, got a neighbour in one direction only: (0, 1)"),
        ([0, 1, 2], [0, 1], "must not hold an area itself"),
        ([0, 1, 2], [1, 2], "must be in [0, 2)"),
        ([0, 2, 3, 4], [2, 1, 0, 0], "must rise within each row"),
        ([0, 2, 4], [1, 1, 0, 0], "must rise within each row"),
        ([0, 2, 1], [1], "must rise from 0 to 1"),
        ([0, 1, 3], [1, 0], "must rise from 0 to 2"),
    ],
)
def test_what_is_no_graph_is_refused_by_name(indptr, indices, message):
    graph = np.array(indptr), np.array(indices)
    for function in (spatial.check_graph, spatial.car_eigen, spatial.car_analyse):
        with pytest.raises(ValueError, match=f"spatial.{function.__name__}: .*{re.escape(message)}"):
            function(*graph)


@pytest.mark.parametrize("wrong", [-1, 9, 2**40])
def test_an_index_outside_the_graph_reads_no_foreign_memory(wrong):
    indptr, indices = maps.grid(3)
    indices = indices.copy()
    indices[5] = wrong
    with pytest.raises(ValueError, match="indices: outside the graph"):
        spatial.car_logdensity(np.ones((1, 9)), np.ones(1) / 2, indptr, indices, np.ones(3))


def test_numbers_outside_their_range_are_refused():
    graph = maps.grid(3)
    eigen = spatial.car_eigen(*graph)
    for options in ({"lo": -0.1}, {"hi": 1.0}, {"lo": 0.5, "hi": 0.4}, {"tolerance": 0.0}):
        with pytest.raises(ValueError, match=r"spatial.logdet_table: .* must be in"):
            spatial.logdet_table(eigen.values, graph[0], **options)
    p = spatial.car_analyse(*graph)
    with pytest.raises(ValueError, match="form must be 'car' or 'leroux', got 'icar'"):
        spatial.car_factor(PHI, p.order, p.indptr, p.indices, *graph, form="icar")


@pytest.mark.parametrize("backend", ["cpp", "reference"])
def test_a_factor_of_an_unsymmetric_graph_is_refused(backend):
    indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])  # three areas in a row
    pattern = spatial.car_analyse(indptr, indices)
    of = pattern.order, pattern.indptr, pattern.indices
    unsymmetric = np.array([2, 0, 2, 1])  # 0 next to 2, which is not next to 0
    with pytest.raises(ValueError, match=r"spatial\.car_factor: indices must be symmetric"):
        spatial.car_factor(np.array([0.5]), *of, indptr, unsymmetric, backend=backend)


@pytest.mark.parametrize("backend", ["cpp", "reference"])
@pytest.mark.parametrize("kind", ["rbf", "matern12", "matern32", "matern52"])
def test_covariances_of_tiny_lengthscales_are_the_identity(kind, backend):
    x = np.array([[0.0], [1.0], [1e20]])
    found = spatial.gp_covariance(x, np.array([1e-300, 5e-324, 1e-150]), kind=kind, backend=backend)
    np.testing.assert_array_equal(found, np.broadcast_to(np.eye(3), (3, 3, 3)))
    far = spatial.gp_covariance(np.array([[1e200], [-1e200]]), np.array([1.0]), kind=kind, backend=backend)
    np.testing.assert_array_equal(far[0], np.eye(2))


@pytest.mark.parametrize("backend", ["cpp", "reference"])
@pytest.mark.parametrize("kind", ["rbf", "matern12", "matern32", "matern52"])
def test_covariances_of_huge_lengthscales_are_right_or_nan(kind, backend):
    """Squares of distances beyond 1e154 are infinite: the last lengthscale at which that counts as far is 1e150."""
    x = np.array([0.0, 1.0, 2.5, 1e6])[:, None]
    usual, huge = (spatial.gp_covariance(by * x, np.array([by]), kind=kind, backend=backend) for by in (1.0, 1e150))
    np.testing.assert_allclose(huge, usual, rtol=1e-12)
    beyond = np.array([1.01e150, 1e155, np.inf])
    assert np.isnan(spatial.gp_covariance(x, beyond, kind=kind, backend=backend)).all()
    assert np.isnan(spatial.gp_factor(x, beyond, rank=2, kind=kind, backend=backend)[1]).all()
    assert np.isnan(spatial.gp_sample(x, beyond, kind=kind, seed=1, backend=backend)).all()


def test_a_short_right_side_is_named():
    indptr, indices = np.array([0, 2, 4, 5]), np.array([0, 1, 1, 2, 2])
    with pytest.raises(ValueError, match="right has rows of length 2"):
        spatial.bordered_solve(np.ones((1, 2)), np.ones(5), indptr, indices)


@pytest.mark.parametrize("back", [False, True])
def test_a_row_beside_others_has_the_bits_of_the_row_alone(back):
    """Rows are solved eight at a time, and the rest one by one."""
    indptr, indices = maps.grid(10, 12)
    pattern = spatial.bordered_analyse(indptr, indices, np.arange(110, 120))
    diagonal = np.isin(np.arange(len(pattern.indices)), pattern.indptr[:-1])
    random = np.random.default_rng(1)
    values = np.where(diagonal, 30.0, -0.2 * random.random(len(diagonal)))
    factor, _ = spatial.bordered_factor(values, pattern.indptr, pattern.indices, 30 * np.eye(10))
    right = random.standard_normal((19, 120))
    alone = [spatial.bordered_solve(row[np.newaxis], factor, pattern.indptr, pattern.indices, back=back) for row in right]
    together = spatial.bordered_solve(right, factor, pattern.indptr, pattern.indices, back=back)
    np.testing.assert_array_equal(together, np.concatenate(alone))
