"""Local kernels of the sparse models: laws of the draws, accuracy, fall-backs and faults (sparse.md, sections 2, 3, 8)."""

import numpy as np
import pytest
from scipy import stats

from fedkern.errors import NumericalError
from fedkern.kernels import rng, shrinkage
from fedkern.kernels._reference.shrinkage import global_variance

BACKENDS = ("cpp", "numba", "reference")
COMPILED = BACKENDS[:2]
FALSE_ALARM = 1e-5
DRAWS = 100_000


def site(n=40, p=6, seed=0, noise=1.0):
    """X, y and (R, q, rss, n)."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, p))
    y = X @ np.linspace(-1, 1, p) + noise * random.standard_normal(n)
    Q, R = np.linalg.qr(X)
    q = Q.T @ y
    return X, y, (R, q, float(np.sum((y - Q @ q) ** 2)), float(n))


def state(c, *shape, seed=1):
    """theta, tau_sq, deviation, lambda_sq, sigma_sq."""
    random = np.random.default_rng(seed)
    full = (c, *shape)
    return (
        0.3 * random.standard_normal(full),
        np.exp(random.standard_normal(full)),
        random.standard_normal(full),
        np.exp(random.standard_normal(full)),
        np.exp(random.standard_normal(full[:-1])),
    )


# --- Scales.


def cdf_of_log(log_density):
    """The distribution function of x = log z on a fine grid."""
    x = np.linspace(-60, 60, 240_001)
    logs = log_density(x)
    heights = np.exp(logs - logs.max())
    sums = np.concatenate([[0], np.cumsum((heights[1:] + heights[:-1]) / 2)])
    return lambda at: np.interp(at, x, sums / sums[-1])


def precision_law(m, clients=1):
    """log z, z = 1/lambda^2 (or 1/tau^2) of density ~ z^((M-1)/2) exp(-m z) / (1 + z)."""
    return cdf_of_log(lambda x: (clients + 1) / 2 * x - m * np.exp(x) - np.logaddexp(0, x))


def local_variances(m, seed, scales="exact", scale=1.0, start=None, backend="cpp"):
    """DRAWS draws of lambda^2 given d^2 / (2 tau^2) = m."""
    c, p = DRAWS // 50, 50
    one = np.ones((c, p))
    start = one if start is None else start
    arguments = np.zeros((0, p)), np.zeros(0), 1.0, 3.0, one, one, np.sqrt(2 * m) * one, start, np.ones(c)
    return shrinkage.local_sweeps(*arguments, seed=seed, scales=scales, scale_lambda=scale, backend=backend)[1]


@pytest.mark.parametrize("backend", COMPILED)
@pytest.mark.parametrize("m", [1e-12, 1e-2, 0.66, 1.0, 30.0])
def test_exact_local_scales_have_their_density(m, backend, seed):
    got = -np.log(local_variances(m, seed, backend=backend)).ravel()
    assert stats.kstest(got, precision_law(m)).pvalue > FALSE_ALARM


def test_the_check_of_densities_notices_one_tenth_of_m(seed):
    got = -np.log(local_variances(1.0, seed)).ravel()
    assert stats.kstest(got, precision_law(1.1)).pvalue < FALSE_ALARM


@pytest.mark.parametrize("m", [1e-2, 3.0])
def test_another_scale_rescales_the_exact_draw(m, seed):
    """zeta' of m / s^2 and zeta = zeta' / s^2."""
    got = np.log(0.25) - np.log(local_variances(m, seed, scale=0.5)).ravel()
    assert stats.kstest(got, precision_law(m / 0.25)).pvalue > FALSE_ALARM


@pytest.mark.parametrize("backend", COMPILED)
@pytest.mark.parametrize(("m", "scale"), [(1e-2, 1.0), (1.0, 0.5)])
def test_the_expanded_step_keeps_the_exact_law(m, scale, backend, seed):
    start = local_variances(m, seed, scale=scale)
    moved = local_variances(m, seed + 1, "expanded", scale, start, backend)
    assert not np.any(moved == start)
    got = np.log(scale**2) - np.log(moved).ravel()
    assert stats.kstest(got, precision_law(m / scale**2)).pvalue > FALSE_ALARM


@pytest.mark.parametrize("clients", [1, 2, 5, 40])
@pytest.mark.parametrize("m", [1e-3, 0.8, 50.0])
def test_exact_global_scales_have_their_density(m, clients, seed):
    item, key = np.arange(DRAWS), rng.key(seed, "global_scales")
    z = 1 / global_variance(np.full(DRAWS, m), clients, 1.0, 1.0, False, item, 0, 0, key)
    assert stats.kstest(np.log(z), precision_law(m, clients)).pvalue > FALSE_ALARM


@pytest.mark.parametrize("backend", BACKENDS)
def test_scales_that_leave_the_range_are_clipped_and_counted(backend):
    (_, _, data), c = site(), 2
    theta, tau_sq, deviation, lambda_sq, sigma_sq = state(c, 6)
    tau_sq[0, 2], deviation[0, 2] = 1e-60, 1e30
    _, new, _, events = shrinkage.local_sweeps(*data, theta, tau_sq, deviation, lambda_sq, sigma_sq, seed=1, backend=backend)
    assert events[:, 0].tolist() == [1, 0]
    assert new[0, 2] == 1e60


# --- Coefficients.


def law_of_draw(R, q, mean, scale, sigma_sq, slab):
    """Mean and covariance of beta - mean, written out as in sections 3 and 11: A = I + diag(t^2 / slab^2) + S G S."""
    S = np.diag(scale / np.sqrt(sigma_sq))
    inverse = np.linalg.inv(np.eye(len(scale)) + np.diag(scale**2 / slab**2) + S @ R.T @ R @ S)
    rhs = S @ R.T @ (q - R @ mean) / np.sqrt(sigma_sq)
    return scale * (inverse @ rhs), scale[:, None] * inverse * scale


def worst_z(draws, mean, covariance):
    """The largest deviation of means and second moments, in standard errors."""
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), (draws - mean).T)
    n, p = draws.shape
    of_means = np.sqrt(n) * np.abs(whitened.mean(axis=1)).max()
    second = whitened @ whitened.T / n - np.eye(p)
    errors = np.sqrt(np.where(np.eye(p), 2, 1) / n)
    return max(of_means, np.abs(second / errors).max())


@pytest.mark.parametrize("backend", COMPILED)
@pytest.mark.parametrize("slab", [np.inf, 0.4])
@pytest.mark.parametrize("draw", ["gram", "data"])
@pytest.mark.parametrize("rows", [40, 3])
def test_draws_of_coefficients_have_their_moments(rows, draw, slab, backend, seed):
    _, _, (R, q, *_) = site(rows, 5, seed=7)
    mean, scale, sigma_sq = np.full(5, 0.2), np.array([1e-3, 0.1, 0.5, 2.0, 10.0]), 0.7
    many = [np.broadcast_to(a, (DRAWS, *np.shape(a))) for a in (mean, scale, np.float64(sigma_sq))]
    got = shrinkage.gaussian_posterior_draw(R, q, *many, seed=seed, draw=draw, slab=slab, backend=backend)
    assert worst_z(got, *law_of_draw(R, q, mean, scale, sigma_sq, slab)) < 5.5
    assert worst_z(got, *law_of_draw(R, q, mean, scale, 1.05 * sigma_sq, slab)) > 5.5  # is it noticed?


LONG = [pytest.mark.nightly, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    ("rows", "p", "n"), [(60, 170, 2000), (400, 340, 200), pytest.param(400, 340, 2000, marks=LONG), (30, 60, 2000)]
)
def test_large_draws_have_their_moments_in_both_forms(rows, p, n, seed):
    """By loops and by LAPACK, along ten directions."""
    _, _, (R, q, *_) = site(rows, p, seed=3)
    random = np.random.default_rng(4)
    mean, scale, sigma_sq = np.zeros(p), np.exp(random.standard_normal(p)), 2.0
    along = random.standard_normal((10, p))
    m, V = law_of_draw(R, q, mean, scale, sigma_sq, np.inf)
    many = [np.broadcast_to(a, (n, *np.shape(a))) for a in (mean, scale, np.float64(sigma_sq))]
    for draw in ("gram", "data"):
        got = shrinkage.gaussian_posterior_draw(R, q, *many, seed=seed, draw=draw, gram=R.T @ R)
        assert worst_z(got @ along.T, along @ m, along @ V @ along.T) < 5.5


@pytest.mark.parametrize("p", [11, 170])
def test_the_form_follows_the_sizes_and_the_scales(p):
    for rows, tau_sq, want in ((12, 1.0, p > 32), (12, 1e30, False), (170, 1.0, False)):
        _, _, data = site(rows, p)
        one = np.ones((1, p))
        *_, events = shrinkage.local_sweeps(*data, 0 * one, tau_sq * one, np.sqrt(tau_sq) * one, one, np.ones(1), seed=1)
        assert events[0, [0, 2, 3]].tolist() == [0, want, -1]


@pytest.mark.parametrize(("rows", "p"), [(300, 180), (400, 340), (100, 340)])
def test_every_way_to_factorise_draws_as_the_reference(rows, p):
    """Loops over rows of any length, LAPACK, and the data-space form in several panels."""
    _, _, data = site(rows, p)
    given = state(2, p)
    want = shrinkage.local_sweeps(*data, *given, seed=8, n_sweeps=2, backend="reference")
    got = shrinkage.local_sweeps(*data, *given, seed=8, n_sweeps=2)
    for a, b in zip(got[:3], want):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8 * np.abs(b).max() if b is want[0] else 0)
    np.testing.assert_array_equal(got[3], want[3])


# --- Error variance.


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("unexplained", [3e-2, 1e-6, 1e-10])
def test_residual_squares_do_not_cancel(unexplained, backend):
    X, y, data = site(200, 11, noise=2 * np.sqrt(unexplained))
    one = np.ones((1, 11))
    d, _, sigma_sq, _ = shrinkage.local_sweeps(
        *data, 0.1 * one, 1e4 * one, one, one, np.array([unexplained]), seed=3, rate=1e-300, backend=backend
    )
    gamma = rng.gamma(2 + data[3] / 2, size=1, key=rng.key(3, "variances"))
    residual = y.astype(np.longdouble) - X.astype(np.longdouble) @ (0.1 + d[0].astype(np.longdouble))
    want = float(residual @ residual) / 2 / gamma
    assert np.abs(sigma_sq / want - 1) < 2e-10
    assert want < 50 * unexplained  # as little as was asked for


# --- Systems that Cholesky's factorisation cannot do.


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("copies", [1, 15, 60])
def test_equal_columns_with_huge_scales_need_an_orthogonal_factor_which_is_counted(copies, backend):
    """Whether Cholesky's factorisation fails hangs on the rounding of each chain's scales: among twenty, some do."""
    X, y, _ = site(60, 6)
    X = np.tile(X, 1 + copies)
    c, p = 20, X.shape[1]
    Q, R = np.linalg.qr(X)
    t = np.exp(np.random.default_rng(5).uniform(20, 23, (c, p)))
    zero, one = np.zeros((c, p)), np.ones((c, p))
    d, _, sigma_sq, events = shrinkage.local_sweeps(
        R, Q.T @ y, 1.0, 60.0, zero, t**2, t, one, np.full(c, 1e-4), seed=2, draw="gram", backend=backend
    )
    assert events[:, 1].sum() > 0
    assert (events[:, [0, 2, 3]] == [0, 0, -1]).all()
    assert np.isfinite(sigma_sq).all()
    least = np.linalg.norm(y - X @ np.linalg.lstsq(X, y)[0])
    again = events[:, 1] > 0  # these draws fit as they should: sigma is 0.01
    assert (np.linalg.norm(y - d[again] @ X.T, axis=1) < least + 0.2).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_huge_scales_everywhere_give_the_least_squares_fit(backend):
    X, y, (R, q, *_) = site(60, 6)
    scale = np.geomspace(1e7, 1e9, 6)
    draw = shrinkage.gaussian_posterior_draw(
        R, q, np.zeros((1, 6)), scale[None], np.array([1e-12]), seed=1, draw="gram", backend=backend
    )
    np.testing.assert_allclose(draw[0], np.linalg.lstsq(X, y)[0], rtol=1e-4)


# --- One regression after the other, one chain after the other, one sweep after the other.


@pytest.mark.parametrize("backend", COMPILED)
@pytest.mark.parametrize(("rows", "p"), [(40, 6), (10, 40), (400, 340)])
@pytest.mark.parametrize("scales", ["exact", "expanded"])
def test_chains_and_sweeps_together_are_those_alone(rows, p, scales, backend):
    _, _, data = site(rows, p)
    given = state(3, p)
    options = {"seed": 4, "client": 2, "scales": scales, "backend": backend, "gram": data[0].T @ data[0]}
    *together, events = shrinkage.local_sweeps(*data, *given, chain=5, step=7, n_sweeps=3, n_threads=2, **options)
    for i in range(3):
        alone, counts = [a[i : i + 1] for a in given], 0
        for sweep in range(3):
            *new, found = shrinkage.local_sweeps(*data, *alone, chain=5 + i, step=7 + sweep, **options)
            alone, counts = [*alone[:2], *new], counts + found[:, :3]
        for a, b in zip(alone[2:], together):
            np.testing.assert_array_equal(a[0], b[i])
        np.testing.assert_array_equal(counts[0], events[i, :3])


@pytest.mark.parametrize("backend", COMPILED)
def test_what_is_alike_for_all_chains_may_be_a_view(backend):
    _, _, (R, q, rss, n) = site()
    theta, tau_sq, deviation, lambda_sq, sigma_sq = state(1, 6)
    views = [np.broadcast_to(a[0], (3, *a.shape[1:])) for a in (theta, tau_sq, deviation, lambda_sq, sigma_sq)]
    got = shrinkage.local_sweeps(R, q, rss, n, *views, seed=1, backend=backend)
    copies = [np.array(v) for v in views]
    want = shrinkage.local_sweeps(R, np.tile(q, (3, 1)), np.full(3, rss), n, *copies, seed=1, backend=backend)
    for a, b in zip(got, want):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("backend", COMPILED)
@pytest.mark.parametrize(("rows", "p", "tolerance"), [(40, 12, 1e-13), (60, 50, 1e-13), (20, 50, 1e-11)])
def test_masked_regressions_are_the_deleted_ones(rows, p, tolerance, backend):
    """The reference deletes the response's column; what stands on the diagonal counts for nothing. In data space (20 rows),
    rounding errors are larger, by as much as the scales are beyond sigma."""
    _, _, (R, *_) = site(rows, p)
    given = [np.array(a) for a in state(1, p, p)]
    want = shrinkage.local_sweeps_batched(R, float(rows), *given, seed=6, backend="reference")
    for a in given[:4]:
        a[:, np.arange(p), np.arange(p)] = 77.0
    got = shrinkage.local_sweeps_batched(R, float(rows), *given, seed=6, n_threads=2, backend=backend)
    for a, b in zip(got[:3], want):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.abs(want[0]).max())
    np.testing.assert_array_equal(got[3], want[3])
    assert np.all(np.diagonal(got[0], axis1=1, axis2=2) == 0)
    assert np.all(np.diagonal(got[1], axis1=1, axis2=2) == 1)


# --- Second moments only.


def test_second_moments_give_the_same_draws():
    X, y, (R, q, rss, n) = site()
    given = state(2, 6)
    got = shrinkage.local_sweeps_gram(X.T @ X, X.T @ y, float(y @ y), n, *given, seed=9)
    sign = np.sign(np.diag(R))  # Cholesky's factor has a positive diagonal
    want = shrinkage.local_sweeps(sign[:, None] * R, sign * q, rss, n, *given, seed=9)
    for a, b in zip(got[:3], want):
        np.testing.assert_allclose(a, b, rtol=1e-9)


def test_second_moments_may_be_singular():
    """A level of a factor that a site lacks is a column of zeros: its coefficient follows the prior."""
    X, y, (*_, n) = site()
    X[:, 2] = 0
    R, q, rss = shrinkage.factor_of_moments(X.T @ X, X.T @ y, float(y @ y))
    np.testing.assert_allclose(R.T @ R, X.T @ X, atol=1e-12 * n)
    np.testing.assert_allclose(R.T @ q, X.T @ y, atol=1e-12 * n)
    np.testing.assert_allclose(q @ q + rss, y @ y, rtol=1e-12)


def test_moments_of_no_columns_are_refused():
    X, y, (*_, n) = site()
    with pytest.raises(ValueError, match="must be moments of columns"):
        shrinkage.local_sweeps_gram(X.T @ X, X.T @ y, 0.5 * float(y @ y), n, *state(1, 6), seed=9)


# --- Faults.


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("argument", "quantity"), [(2, r"lambda\^2"), (0, "the coefficients"), (4, "the coefficients"), ("rss", r"sigma\^2")]
)
def test_a_draw_that_is_not_finite_names_chain_client_sweep_and_quantity(argument, quantity, backend):
    _, _, (R, q, rss, n) = site()
    given = state(3, 6)
    rss = np.full(3, rss)
    (rss if argument == "rss" else given[argument])[1] = np.nan
    with pytest.raises(NumericalError, match=rf"local_sweeps: chain 11, client 7, sweep 20: {quantity} is not finite"):
        shrinkage.local_sweeps(R, q, rss, n, *given, seed=1, chain=10, client=7, step=20, n_sweeps=2, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fault_of_a_batch_names_the_regression(backend):
    _, _, (R, *_) = site()
    given = state(2, 6, 6)
    given[0][1, 4, 2] = np.inf
    with pytest.raises(NumericalError, match="batched: chain 1, regression 4, client 3, sweep 0: the coefficients"):
        shrinkage.local_sweeps_batched(R, 40.0, *given, seed=1, client=3, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fault_of_one_draw_names_the_chain(backend):
    _, _, (R, q, *_) = site()
    mean, scale, *_, sigma_sq = state(3, 6)
    mean[2, 0] = np.nan
    with pytest.raises(NumericalError, match="gaussian_posterior_draw: chain 2, client 5: the draw is not finite"):
        shrinkage.gaussian_posterior_draw(R, q, mean, scale, sigma_sq, seed=1, client=5, backend=backend)


def test_more_rows_than_columns_are_no_factor():
    X, _, (_, _, rss, n) = site()
    with pytest.raises(ValueError, match="R must have at most as many rows as columns"):
        shrinkage.local_sweeps(X, np.zeros(40), rss, n, *state(1, 6), seed=1)


@pytest.mark.parametrize("rss", [-1.0, -1, np.array([1.0, -1e-9])])
def test_a_negative_sum_of_squares_is_refused(rss):
    R, state = np.eye(2), [np.zeros((2, 2)), np.ones((2, 2)), np.zeros((2, 2)), np.ones((2, 2)), np.ones(2)]
    for function in (shrinkage.local_sweeps, shrinkage.bind_local_sweeps):
        with pytest.raises(ValueError, match=r"shrinkage\.local_sweeps: rss must not be negative, got -"):
            function(R, np.zeros(2), rss, 5.0, *state, seed=1)
