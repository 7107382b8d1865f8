"""A client of a mixed regression: against brute force, differences, and itself written otherwise."""

import os
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from fedkern.models.mixed import Layout, Rows
from support.mixed_rows import differences, log_density, point, rows

OHIO = Path(os.environ.get("FEDKERN_DATA", ".")) / "six-cities-wheeze" / "ohio.csv"
FAMILIES = ("gaussian", "bernoulli", "binomial", "poisson", "negative-binomial", "bernoulli-probit", "binomial-cloglog")
SHAPES = [(family, ("intercept",), ("intercept",)) for family in FAMILIES] + [
    ("bernoulli", (), ()),
    ("bernoulli", ("intercept",), ()),
    ("poisson", ("intercept", "a"), ()),
    ("negative-binomial", (), ("intercept", "b")),
    ("gaussian", ("intercept",), ("b",)),
]


@pytest.mark.parametrize(("family", "group", "client"), SHAPES)
def test_gradients_and_hessians_are_those_of_the_values(family, group, client):
    mine = rows(family, group, client)
    xi, nodes = point(mine.layout), 16 if len(group) > 1 else 11 if len(client) > 1 else 15
    xi[mine.layout.diagonal] = np.log([0.3, 0.2])[: len(mine.layout.diagonal)]  # where the rule is nearly exact
    xi[mine.layout.off_diagonal] = 0.1
    value, gradient, curved = mine.curvature(xi[np.newaxis], nodes)
    assert value[0] == pytest.approx(mine.values(xi[np.newaxis], nodes)[0], abs=1e-10)
    assert np.allclose(gradient[0], differences(lambda x: mine.values(x, nodes), xi)[:, 0], atol=5e-6, rtol=5e-6)
    assert np.allclose(-curved[0], differences(lambda x: mine.curvature(x, nodes)[1], xi), atol=5e-6, rtol=5e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_nested_effects_are_integrated_as_on_a_fine_grid_of_both(family):
    mine = rows(family, ("intercept",), ("b",), sizes=(3, 1, 2))
    xi = point(mine.layout)
    u = np.linspace(-8, 8, 321)
    log_w = stats.norm.logpdf(u) + np.log(u[1] - u[0])
    tau, tau_client = np.exp(xi[3:5])
    fixed = mine.X @ xi[:3] + mine.offset
    eta = fixed + tau_client * np.multiply.outer(u, mine.X[:, 2])[:, np.newaxis] + tau * u[:, np.newaxis]
    by_group = np.add.reduceat(log_density(mine, eta, xi), mine.starts[:-1], axis=2)
    exact = logsumexp(log_w + logsumexp(log_w[:, np.newaxis] + by_group, axis=1).sum(axis=1))
    assert mine.values(xi[np.newaxis], 31)[0] == pytest.approx(exact, abs=1e-7)


@pytest.mark.parametrize("terms", [("intercept",), ("intercept", "a")])
@pytest.mark.parametrize("family", ["bernoulli", "negative-binomial"])
def test_a_clients_effect_is_that_of_a_group_of_all_its_rows(family, terms):
    by_client, by_group = rows(family, client=terms, sizes=(9,)), rows(family, group=terms, sizes=(9,))
    points = np.random.default_rng(3).normal(0, 0.3, (6, by_client.size))
    for one, other in zip(by_client.curvature(points[:2], 30), by_group.curvature(points[:2], 30), strict=True):
        assert np.allclose(one, other, atol=2e-6)
    assert np.allclose(by_client.values(points, 30), by_group.values(points, 30), atol=1e-7)


def test_clients_effects_of_any_shape_are_found():
    """Columns of T_c that nearly say the same, scales from 1e-3 to 25, and three terms."""
    xi = np.array([[0.3, -0.5, 0.2, -7.5, 2.6, 3.2], [0.3, -0.5, 0.2, 3.2, -2.6, -7.5], [-0.1, 0.1, 0.1, 2.0, 7.0, 0.5]])
    for sizes in ((60,), (4,)):
        by_client = rows("binomial", client=("intercept", "a"), sizes=sizes)
        by_group = rows("binomial", group=("intercept", "a"), sizes=sizes)
        assert np.allclose(by_client.values(xi, 30), by_group.values(xi, 30), atol=1e-4)
    terms = ("intercept", "a", "b")
    by_client, by_group = rows("gaussian", client=terms, sizes=(30,)), rows("gaussian", group=terms, sizes=(30,))
    xi = np.random.default_rng(8).normal(0, 1.5, (20, by_client.size))
    assert np.allclose(by_client.values(xi, 5), by_group.values(xi, 5), rtol=1e-10)


def test_points_do_not_depend_on_their_neighbours_and_one_that_is_not_finite_is_nan_alone():
    mine = rows("poisson", ("intercept",), ("intercept",))
    points = np.random.default_rng(4).normal(0, 0.5, (5, mine.size))
    alone = np.concatenate([mine.values(one[np.newaxis], 15) for one in points])
    assert np.isfinite(alone).all()
    points[2] = np.nan
    found = mine.values(points, 15)
    assert np.isnan(found[2])
    assert np.array_equal(np.delete(found, 2), np.delete(alone, 2))
    assert mine.values(points[:0], 15).shape == (0,)


def test_the_mode_of_a_clients_effect_is_found_far_from_where_the_search_begins():
    """Newton steps alone would leave: at v = 0 the counts' mean is e^-6 of what it is at the mode."""
    mine = rows("poisson", (), ("intercept",), sizes=(200,))
    xi = np.array([-6.0, 0.0, 0.0, 1.0])
    mode, root = mine.client_mode(xi[np.newaxis], 15)
    v = np.linspace(mode[0, 0] - 0.5, mode[0, 0] + 0.5, 2001)
    eta = xi[0] + np.e * v[:, np.newaxis] + mine.offset
    log = log_density(mine, eta, xi).sum(axis=1) + stats.norm.logpdf(v)
    assert v[log.argmax()] == pytest.approx(mode[0, 0], abs=0.02 * abs(root[0, 0, 0]))
    second = -(log[1002] - 2 * log[1000] + log[998]) / (2 * (v[1] - v[0])) ** 2
    assert root[0, 0, 0] ** -2 == pytest.approx(second, rel=0.02)
    exact = logsumexp(log) + np.log(v[1] - v[0])
    assert mine.values(xi[np.newaxis], 15)[0] == pytest.approx(exact, abs=1e-6)


def test_the_difference_of_two_rules_shrinks_with_their_nodes():
    mine = rows("bernoulli", ("intercept",), ("intercept", "a"), sizes=(8, 6))
    xi = point(mine.layout)
    xi[mine.layout.diagonal] = np.log(3.0)
    coarse, fine = (np.abs(mine.rule(xi[np.newaxis], nodes))[0] for nodes in (5, 15))
    assert fine < coarse / 20
    assert fine < 1e-3
    assert not rows("bernoulli").rule(point(rows("bernoulli").layout)[np.newaxis], 1).any()


def test_nodes_of_the_client_follow_the_groups():
    assert rows("poisson", ("intercept", "a"), ("intercept",)).client_nodes(9) == 15
    assert rows("poisson", ("intercept",), ("intercept", "a")).client_nodes(30) == 18
    assert rows("poisson", (), ("intercept",)).client_nodes(15) == 15


def test_rows_are_sorted_by_group_in_any_order():
    rng = np.random.default_rng(5)
    layout = Layout(("intercept", "a"), "binomial", ("intercept", "a"))
    X, y = np.column_stack([np.ones(12), rng.normal(size=12)]), rng.integers(0, 4, 12)
    group, trials, offset = [("b", "a", "c")[i % 3] for i in range(12)], np.full(12, 5), rng.normal(size=12)
    mine, names, order = Rows.grouped(layout, X, y, group, trials, offset)
    assert names == ["b", "a", "c"]
    assert [group[i] for i in order] == ["b"] * 4 + ["a"] * 4 + ["c"] * 4
    assert np.array_equal(mine.starts, [0, 4, 8, 12])
    assert np.array_equal(mine.Z, mine.X)
    back = rng.permutation(12)
    other = Rows.grouped(layout, X[back], y[back], [group[i] for i in back], trials, offset[back])[0]
    xi = point(layout)[np.newaxis]
    assert mine.values(xi, 9)[0] == pytest.approx(other.values(xi, 9)[0], abs=1e-12)
    assert Rows.grouped(Layout(("a",), "poisson"), X[:, 1:], y, None)[0].n_groups == 1


@pytest.mark.skipif(not OHIO.exists(), reason="needs six-cities-wheeze/ohio.csv in the folder FEDKERN_DATA")
def test_the_wheeze_children_of_four_clients_add_up_to_the_exact_numbers():
    child, age, smoke, y = np.loadtxt(OHIO, delimiter=",", skiprows=1).T
    X = np.column_stack([np.ones(len(y)), age, smoke, age * smoke])
    layout = Layout(("intercept", "age", "smoke", "age:smoke"), "bernoulli", ("intercept",))
    xi = np.array([[-3.0, -0.2, 0.4, 0.1, np.log(2.0)]])
    total = [np.zeros(1), np.zeros((1, 5)), np.zeros((1, 5, 5))]
    for k in range(4):
        here = child % 4 == k
        mine, _, _ = Rows.grouped(layout, X[here], y[here], list(child[here]))
        total = [one + more for one, more in zip(total, mine.curvature(xi, 61), strict=True)]
    assert total[0][0] == pytest.approx(-797.83178084, abs=2e-7)
    assert np.allclose(total[1][0], [1.22018887, -2.68234372, 1.12527405, -1.2886839, 12.39002004], atol=1e-5)
    lower = [65.2532, -39.5594, 250.6316, 23.9829, -13.4092, 23.9829, -13.4093, 94.9858, -13.4092, 94.9858]
    lower += [92.1102, -41.2534, 32.4881, -14.5702, 264.8755]
    assert np.allclose(total[2][0][np.tril_indices(5)], lower, atol=2e-4)
