"""What a client says of its rows and groups at draws of the posterior: against grids, quotients and simulations."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logsumexp

from fedkern.kernels import rng
from fedkern.models.mixed import Layout, Rows, effects, marginal, predictive
from support.mixed_rows import log_density, point, rows

KEY = rng.key(1, "posterior")
U = np.linspace(-8, 8, 801)


def density_of(weights, values, grid):
    """Mean, standard deviation and quantiles of numbers (m,) with weights that add up to 1."""
    order = np.argsort(values)
    mean = weights @ values
    below = np.cumsum(weights[order]) - 0.5 * weights[order]
    return mean, np.sqrt(weights @ (values - mean) ** 2), np.interp(effects.QUANTILES, below, values[order])


@pytest.mark.parametrize("family", ["bernoulli", "poisson"])
def test_effects_are_those_of_grids_averaged_over_draws(family):
    """Both levels: the client's effect on a grid outside, each group's inside."""
    mine = rows(family, ("intercept",), ("intercept",), sizes=(4, 1, 6))
    some = np.stack([point(mine.layout, seed) for seed in (1, 2)])
    some[:, 3:5] = np.log([[0.9, 0.7], [0.6, 1.1]])
    inner, client = effects.complete_draws(mine, np.tile(some, (200, 1)), 15, KEY)
    groups = effects.of_groups(mine, inner, KEY)

    grid = U[::4]
    prior = stats.norm.logpdf(grid)
    of_client, of_groups = [], [[] for _ in range(3)]
    for xi in some:
        tau, tau_client = np.exp(xi[3:5])
        eta = (mine.X @ xi[:3] + mine.offset) + tau_client * grid[:, np.newaxis, np.newaxis] + tau * grid[:, np.newaxis]
        joint = prior + np.add.reduceat(log_density(mine, eta, xi), mine.starts[:-1], axis=2).swapaxes(1, 2)  # (v, G, u)
        outer = prior + logsumexp(joint, axis=2).sum(axis=1)
        outer = np.exp(outer - logsumexp(outer)) / 2
        of_client.append((outer, tau_client * grid))
        for g in range(3):
            of_groups[g].append((outer @ np.exp(joint[:, g] - logsumexp(joint[:, g], axis=1, keepdims=True)), tau * grid))
    for found, exact in [(client, [of_client]), (groups, of_groups)]:
        for g, both in enumerate(exact):
            mean, sd, quantiles = density_of(*(np.concatenate(one) for one in zip(*both, strict=True)), grid)
            assert found.mean[g, 0] == pytest.approx(mean, abs=0.04 * sd)
            assert found.sd[g, 0] == pytest.approx(sd, rel=0.03)
            assert np.allclose(found.quantiles[:, g, 0], quantiles, atol=0.06 * sd)


def test_effects_of_groups_alone_are_exact_to_a_hundredth_of_their_sd_and_ranked():
    mine = rows("bernoulli", ("intercept",), sizes=(5, 2, 1, 7, 3))
    xi = point(mine.layout)
    xi[3] = np.log(1.5)
    inner, client = effects.complete_draws(mine, np.tile(xi, (300, 1)), 15, KEY)
    found = effects.of_groups(mine, inner, KEY)
    assert client is None
    eta = (mine.X @ xi[:3] + mine.offset) + 1.5 * U[:, np.newaxis]
    log = stats.norm.logpdf(U)[:, np.newaxis] + np.add.reduceat(log_density(mine, eta, xi), mine.starts[:-1], axis=1)
    weights = np.exp(log - logsumexp(log, axis=0))
    for g in range(5):
        mean, sd, quantiles = density_of(weights[:, g], 1.5 * U, U)
        assert found.mean[g, 0] == pytest.approx(mean, abs=0.01 * sd)
        assert found.sd[g, 0] == pytest.approx(sd, rel=0.01)
        assert np.allclose(found.quantiles[:, g, 0], quantiles, atol=0.02 * sd)
        assert found.above[g, 0] == pytest.approx(weights[U > 0, g].sum() + 0.5 * weights[400, g], abs=0.01)
    above = np.cumsum(weights[::-1], axis=0)[::-1] - 0.5 * weights  # of each grid point
    rank = [1 + sum(above[:, h] @ weights[:, g] for h in range(5) if h != g) for g in range(5)]
    assert np.allclose(found.rank, rank, atol=4 * 1.5 / np.sqrt(300))
    assert found.rank.sum() == pytest.approx(15)


@pytest.mark.parametrize(("most", "kept", "each"), [(1 << 24, 400, 8), (6000, 400, 3), (1000, 200, 1)])
def test_effects_that_are_kept_are_draws_of_these_and_no_more_than_may_be(most, kept, each, monkeypatch):
    monkeypatch.setattr(effects, "MOST_DRAWN", most)
    mine = rows("poisson", ("intercept",), sizes=(4, 1, 6, 2, 3))
    inner, _ = effects.complete_draws(mine, np.tile(point(mine.layout), (400, 1)), 15, KEY)
    found = effects.of_groups(mine, inner, KEY)
    assert found.drawn.shape == (kept, each, 5, 1)
    assert found.step == 400 // kept
    every = found.drawn.reshape(-1, 5)
    error = 4 / np.sqrt(len(every))
    assert (np.abs(every.mean(axis=0) - found.mean[:, 0]) < error * found.sd[:, 0]).all()
    assert every.std(axis=0) == pytest.approx(found.sd[:, 0], rel=error)
    assert np.abs(np.quantile(every, effects.QUANTILES, axis=0) - found.quantiles[..., 0]).max() < 2 * error


def test_slopes_effects_are_those_of_a_closed_form():
    mine = rows("gaussian", ("intercept", "a"), sizes=(6, 3, 9))
    xi = point(mine.layout)
    found = effects.of_groups(mine, effects.complete_draws(mine, np.tile(xi, (200, 1)), 5, KEY)[0], KEY)
    T = mine.layout.factor(xi[np.newaxis], "group")[0]
    residual = mine.y - mine.X @ xi[:3] - mine.offset
    for g in range(3):
        here = slice(mine.starts[g], mine.starts[g + 1])
        covariance = np.linalg.inv(np.linalg.inv(T @ T.T) + mine.Z[here].T @ mine.Z[here] * np.exp(-2 * xi[-1]))
        mean = covariance @ mine.Z[here].T @ residual[here] * np.exp(-2 * xi[-1])
        sd = np.sqrt(np.diagonal(covariance))
        assert np.allclose(found.mean[g], mean, atol=0.02 * sd)
        assert np.allclose(found.sd[g], sd, rtol=0.02)
        assert np.allclose(
            found.quantiles[:, g], mean + stats.norm.ppf(effects.QUANTILES)[:, np.newaxis] * sd, atol=0.06 * sd.max()
        )


@pytest.mark.parametrize(
    ("family", "group", "tau"),
    [
        ("bernoulli", ("intercept",), 1.0),
        ("poisson", ("intercept",), 1.5),
        ("negative-binomial", ("intercept",), 0.5),
        ("gaussian", ("intercept",), 4.0),
        ("binomial", ("intercept", "a"), 0.5),
        ("bernoulli", (), 0.0),
    ],
)
def test_a_row_left_out_is_the_quotient_of_two_likelihoods(family, group, tau):
    mine = rows(family, group, sizes=(4, 1, 3))
    draws = np.stack([point(mine.layout, seed) for seed in (1, 2, 3)])
    draws[:, mine.layout.diagonal] = np.log(tau or 1.0)
    nodes = 24 if len(group) > 1 else 40
    found = np.hstack(list(effects.row_densities(mine, effects.complete_draws(mine, draws, nodes, KEY)[0], nodes)))
    assert found.shape == (3, 8)
    sizes = np.repeat([0, 1, 2], [4, 1, 3])
    for i in range(8):
        rest = np.delete(np.arange(8), i)
        others = mine.take(rest, np.searchsorted(sizes[rest], np.arange(4)))
        assert np.allclose(found[:, i], mine.values(draws, nodes) - others.values(draws, nodes), atol=2e-5)


@pytest.mark.parametrize("family", ["bernoulli", "poisson", "gaussian"])
def test_marginal_effects_are_differences_of_means_over_all_random_effects(family):
    mine = rows(family, ("intercept", "a"), ("b",), sizes=(3, 2))
    draws = np.stack([point(mine.layout, seed) for seed in (1, 2)])
    asked = (marginal.Slope(1, units=0.5), marginal.Contrast((2,), (0.0,), (1.0,)), marginal.Slope(2))
    t, w = np.polynomial.hermite_e.hermegauss(24)
    u1, u2, v = np.meshgrid(t, t, t, indexing="ij")
    weight = (w[:, None, None] * w[:, None] * w) / w.sum() ** 3
    mean = {"bernoulli": expit, "poisson": np.exp, "gaussian": lambda x: x}[family]

    def total(xi, change):
        X, T, tau = mine.X.copy(), mine.layout.factor(xi[np.newaxis], "group")[0], np.exp(xi[6])
        change(X)
        fixed = X @ xi[:3] + mine.offset
        random = (T[0, 0] * u1 + X[:, 1, None, None, None] * (T[1, 0] * u1 + T[1, 1] * u2)) + X[:, 2, None, None, None] * tau * v
        return (weight * mean(fixed[:, None, None, None] + random)).sum()

    def shift(column, by):
        return lambda X: X[:, column].__iadd__(by)

    def put(value):
        return lambda X: X[:, 2].__imul__(0).__iadd__(value)

    found = marginal.sums(mine, draws, asked)
    h = 1e-4
    for s, xi in enumerate(draws):
        slopes = [(total(xi, shift(c, h)) - total(xi, shift(c, -h))) / (2 * h) for c in (1, 2)]
        contrast = total(xi, put(1.0)) - total(xi, put(0.0))
        assert np.allclose(found[s], [0.5 * slopes[0], contrast, slopes[1]], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("sd", [0.3, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("order", [0, 1, 2])
def test_a_mean_over_wide_effects_has_four_digits_with_its_derivatives(sd, order):
    """Random slopes at far covariates make predictors of large variance: there 21 Gauss-Hermite nodes are off by more than the
    second derivative itself."""
    layout, eta = Layout(("a",), "bernoulli"), np.linspace(-2 * sd - 1, 2 * sd + 1, 9)
    u = np.linspace(-9, 9, 20_001)
    p = expit(eta[:, np.newaxis] + sd * u)
    wanted = (p, p * (1 - p), p * (1 - p) * (1 - 2 * p))[order] @ (stats.norm.pdf(u) * (u[1] - u[0]))
    found = marginal.average_mean(layout, eta, np.full(9, sd**2), order)
    assert np.allclose(found, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())


def drawn(family, seed, n_groups=150, each=6):
    """Rows from the model itself, at the point that is given back."""
    r = np.random.default_rng(seed)
    n = n_groups * each
    X = np.column_stack([np.ones(n), r.normal(size=n)])
    layout = Layout(("intercept", "a"), family, ("intercept",))
    xi = np.array([0.3, 0.5, np.log(0.8), *([0.6] if bool(layout.shapes) else [])])
    eta = X @ xi[:2] + np.repeat(0.8 * r.normal(size=n_groups), each)
    y = {
        "bernoulli": lambda: r.binomial(1, expit(eta)),
        "gaussian": lambda: r.normal(eta, np.exp(0.6)),
        "negative-binomial": lambda: r.negative_binomial(1 / 0.36, (1 / 0.36) / (1 / 0.36 + np.exp(eta))),
    }[family]()
    return Rows.grouped(layout, X, y, list(np.repeat(np.arange(n_groups), each)))[0], xi


@pytest.mark.parametrize("family", ["bernoulli", "gaussian", "negative-binomial"])
def test_responses_drawn_anew_are_like_those_of_the_model(family):
    mine, xi = drawn(family, 3)
    found = predictive.sums(mine, np.tile(xi, (200, 1)), KEY)
    y = mine.y
    assert np.array_equal(found.observed, [len(y), y.sum(), (y**2).sum(), (y == 0).sum()])
    # over data sets of the model the sums of one that was not drawn here have the same mean and spread
    others = np.array([[z.sum(), (z**2).sum(), (z == 0).sum()] for z in (drawn(family, seed)[0].y for seed in range(10, 110))])
    error = np.sqrt(others.var(axis=0) / 100 + found.replicated.var(axis=0) / 200) + 1e-9
    assert (np.abs(others.mean(axis=0) - found.replicated.mean(axis=0)) < 4 * error).all()
    assert np.allclose(others.std(axis=0), found.replicated.std(axis=0), rtol=0.35)
    assert ((found.p_values > 0.001) & (found.p_values < 0.999)).all()
    weight, probability, seen = found.tenths.T
    assert weight.sum() == pytest.approx(len(y))
    if family == "bernoulli":
        assert seen.sum() == y.sum()
        there = weight > 30
        assert there.sum() >= 4
        assert (np.abs(seen - probability)[there] < 5 * np.sqrt(weight[there]) / 2).all()
    else:
        assert ((weight - len(y) / 10) ** 2).sum() / (len(y) / 10) < 60  # 9 degrees of freedom, groups of 6 alike


@pytest.mark.parametrize(
    "family",
    [
        *("bernoulli", "binomial", "poisson", "negative-binomial", "gaussian", "student", "gamma", "beta"),
        *("zero-inflated-poisson", "zero-inflated-negative-binomial", "bernoulli-probit", "binomial-cloglog"),
        *("beta-binomial", "lognormal", "inverse-gaussian", "hurdle-poisson", "hurdle-negative-binomial", "poisson-lognormal"),
    ],
)
@pytest.mark.parametrize("group", [(), ("intercept",)])
def test_responses_are_drawn_for_many_draws_at_once_as_for_each(family, group, monkeypatch):
    """By other numbers, whose sums have the same distribution; sums of normal ones are not drawn by rows without groups."""
    mine = rows(family, group, sizes=(5, 1, 7))
    inner = np.tile(point(mine.layout, 3), (3000, 1))
    together = predictive.sums(mine, inner, KEY).replicated
    monkeypatch.setattr(predictive, "CACHED", len(mine))
    each = predictive._replicated(mine, inner, KEY, 0)
    for one, other in zip(together.T, each.T, strict=True):
        assert stats.ks_2samp(one, other, method="asymp").pvalue > 1e-4


@pytest.mark.parametrize("family", ["bernoulli", "poisson", "gaussian"])
@pytest.mark.parametrize("group", [(), ("intercept",)])
def test_many_rows_are_looked_at_in_parts(family, group, monkeypatch):
    """The calibration is the same; responses are drawn anew by other numbers in each part, and vary as those of all rows do."""
    mine = rows(family, group, sizes=(5, 1, 7, 4, 3))
    inner = np.tile(point(mine.layout, 3), (2000, 1))
    whole = predictive.sums(mine, inner, KEY)
    monkeypatch.setattr(predictive, "TOGETHER", 4)
    parts = predictive.sums(mine, inner, KEY)
    assert np.array_equal(parts.observed, whole.observed)
    assert np.allclose(parts.tenths, whole.tenths, rtol=1e-12, atol=1e-12)
    sd = whole.replicated.std(axis=0)
    assert (np.abs(parts.replicated.mean(axis=0) - whole.replicated.mean(axis=0)) <= 4 * sd * np.sqrt(2 / len(inner))).all()
    spread = [np.subtract(*np.quantile(one.replicated, (0.84, 0.16), axis=0)) for one in (parts, whole)]
    assert np.allclose(*spread, rtol=0.12, atol=1)
    assert group or np.allclose(parts.misfits[:, 0], whole.misfits[:, 0], rtol=1e-12)  # of effects that are no draws


def test_a_model_without_its_spread_is_seen():
    mine, xi = drawn("negative-binomial", 3)
    poisson = Rows(Layout(("intercept", "a"), "poisson"), mine.X, mine.y, mine.starts)
    found = predictive.sums(poisson, np.tile(xi[:2], (100, 1)), KEY)
    assert found.p_values[1] < 0.01
    assert found.p_values[2] < 0.01
    assert found.tenths[[0, 9], 0].min() > 1.3 * len(mine) / 10


def test_tenths_of_counts_are_those_of_their_distribution():
    """One row, one draw: shares of the tenths between F(y - 1) and F(y)."""
    mine = Rows(Layout(("intercept",), "poisson"), np.ones((1, 1)), np.array([1.0]), np.array([0, 1]))
    found = predictive.sums(mine, np.zeros((1, 1)), KEY).tenths[:, 0]
    low, high = stats.poisson.cdf([0, 1], 1.0)  # .3679, .7358
    edges = np.clip(np.arange(11) / 10, low, high)
    assert np.allclose(found, np.diff(edges) / (high - low), atol=1e-12)


def test_a_tenth_of_few_rows_is_counted_with_the_next_and_not_left_out():
    """Left out it would be all rows less the others: its number of rows, and their responses."""
    eta = np.concatenate([np.full(30, -1.0), np.full(25, 0.0), [4.0]])
    y = np.append(np.arange(55) % 3 == 0, False).astype(float)
    for trials in (None, np.full(56, 40.0)):
        family = "bernoulli" if trials is None else "binomial"
        mine = Rows(Layout(("a",), family), eta[:, np.newaxis], y, np.array([0, 56]), trials)
        found = predictive.sums(mine, np.ones((3, 1)), KEY).tenths
        per = 1 if trials is None else 40
        assert found[:, 0].tolist() == [0, 0, 30 * per, 0, 0, 26 * per, 0, 0, 0, 0]
        assert found[:, 2].sum() == y.sum()
        assert found[5, 1] == pytest.approx(per * (25 * 0.5 + expit(4.0)))


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ([3, 0, 8, 20, 0, 0, 0, 0, 0, 9], [0, 0, 11, 29, 0, 0, 0, 0, 0, 0]),
        ([1] * 10, [0] * 9 + [10]),
        ([0] * 9 + [4], [0] * 9 + [4]),
        ([2, 3, 0, 0, 0, 0, 0, 0, 0, 0], [0, 5, 0, 0, 0, 0, 0, 0, 0, 0]),
        ([4, 4, 12, 4, 4, 0, 0, 0, 0, 0], [0, 0, 28, 0, 0, 0, 0, 0, 0, 0]),
    ],
)
def test_tenths_that_are_joined(rows, wanted):
    found = predictive.join_tenths(np.tile(np.array(rows, float)[:, np.newaxis], 3), np.array(rows, float))
    assert found[:, 1].tolist() == wanted


def test_sums_of_two_clients_add_up():
    one, two = (
        predictive.sums(drawn("bernoulli", seed, 5)[0], np.tile(drawn("bernoulli", 0)[1], (4, 1)), KEY) for seed in (1, 2)
    )
    both = one + two
    assert both.observed[0] == 60
    assert np.array_equal(both.replicated, one.replicated + two.replicated)
    assert both.tenths[:, 0].sum() == 60
