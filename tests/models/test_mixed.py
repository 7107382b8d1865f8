"""Layout and prior of mixed regressions, against integrals and differences."""

import numpy as np
import pytest

from fedkern.models.mixed import Layout, Prior
from oracles.differences import four_point

LAYOUTS = [
    Layout(("intercept", "a", "b"), "poisson"),
    Layout(("intercept", "a", "b"), "bernoulli", group=("intercept",)),
    Layout(("intercept", "a"), "gaussian", group=("intercept", "a"), client=("intercept",)),
    Layout(("intercept", "a", "b"), "negative-binomial", group=("intercept", "a", "b"), client=("intercept", "b")),
]


def prior(layout):
    p = layout.p
    return Prior(layout, np.linspace(-0.5, 0.7, p), np.linspace(0.8, 1.5, p), tau_sd=0.7, dispersion_sd=1.3)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_coordinates_are_named_and_each_has_its_place(layout):
    assert len(layout.names) == len(set(layout.names)) == layout.size == len(layout.natural_names)
    kinds = [np.arange(layout.p), layout.diagonal, layout.off_diagonal, [layout.size - 1] if bool(layout.shapes) else []]
    assert sorted(np.concatenate(kinds).astype(int)) == list(range(layout.size))
    assert all(("log" in layout.names[k]) for k in layout.diagonal)


def test_triangles_are_read_by_rows():
    layout = LAYOUTS[3]
    xi = np.arange(layout.size) / 10
    T = layout.factor(xi[np.newaxis], "group")[0]
    assert np.array_equal(T, [[np.exp(0.3), 0, 0], [0.4, np.exp(0.5), 0], [0.6, 0.7, np.exp(0.8)]])
    assert np.array_equal(layout.factor(xi[np.newaxis], "client")[0], [[np.exp(0.9), 0], [1.0, np.exp(1.1)]])
    natural = dict(zip(layout.natural_names, layout.natural(xi[np.newaxis])[0], strict=True))
    covariance = T @ T.T
    assert natural["group sd b"] == pytest.approx(covariance[2, 2] ** 0.5)
    assert natural["group correlation b, a"] == pytest.approx(covariance[2, 1] / np.sqrt(covariance[1, 1] * covariance[2, 2]))


def test_columns_of_triangles_and_what_may_have_heavy_tails():
    layout = LAYOUTS[3]  # 3 coefficients, T of 3, T_c of 2, phi
    assert layout.columns == ((3, 4, 6), (5, 7), (8,), (9, 10), (11,))
    assert layout.loose == tuple(range(13))
    assert Layout(("intercept", "a", "b"), "bernoulli", ("a",), ("intercept",)).loose == (0, 1, 3, 4)
    points = np.random.default_rng(6).normal(size=(4, layout.size))
    T = layout.factor(points, "group")
    assert np.array_equal(T[:, 1:, 0], points[:, layout.columns[0][1:]])


def test_points_are_folded_where_the_sign_says_nothing():
    layout = LAYOUTS[3]
    points = np.random.default_rng(1).normal(size=(20, layout.size))
    folded = layout.folded(points)
    assert np.array_equal(folded[:, :-1], points[:, :-1])
    assert np.array_equal(folded[:, -1], np.abs(points[:, -1]))
    assert np.array_equal(prior(layout).values(folded), prior(layout).values(points))
    assert LAYOUTS[2].fold == ()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_prior_is_a_density_of_its_coordinates(layout):
    """Coordinates are independent: the integral over one, of the density beside that at a point, is one over its own there."""
    density, total = prior(layout), 0.0
    xi = np.full(layout.size, 0.1)
    for k in range(layout.size):
        folded = k == layout.size - 1 and layout.fold
        # A folded coordinate has the tail of a Cauchy distribution.
        grid = np.sinh(np.linspace(0.0, 20.0, 20_001)) if folded else np.linspace(-30.0, 20.0, 20_001)
        points = np.repeat(xi[np.newaxis], len(grid), axis=0)
        points[:, k] = grid
        total += np.log(np.trapezoid(np.exp(density.values(points) - density.values(xi[np.newaxis])), grid))
    assert density.values(xi[np.newaxis])[0] == pytest.approx(-total, abs=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_priors_gradient_and_curvature_are_those_of_its_values(layout):
    density, xi = prior(layout), np.random.default_rng(2).normal(0, 0.6, layout.size)
    value, gradient, curvature = density.curvature(xi)
    assert value == density.values(xi[np.newaxis])[0]
    assert np.allclose(gradient, four_point(lambda x: density.values(x[np.newaxis])[0], xi), atol=1e-9)
    for k in range(layout.size):
        assert np.allclose(-curvature[k], four_point(lambda x: density.curvature(x)[1][k], xi), atol=1e-9)  # noqa: B023
    jacobian = density.values(xi[np.newaxis]) - density.without_jacobian(xi[np.newaxis])
    logs = [*layout.diagonal, *([layout.size - 1] if layout.family == "gaussian" else [])]
    assert jacobian[0] == pytest.approx(xi[logs].sum())


def test_a_usual_prior_has_the_response_s_unit_and_its_own_intercept():
    layout = Layout(("intercept", "a"), "gaussian", group=("intercept",))
    found = Prior.usual(layout, intercept_centre=120.0, pooled_sd=15.0)
    assert np.array_equal(found.sd, [75.0, 37.5])
    assert np.array_equal(found.mean, [120.0, 0.0])
    assert (found.tau_sd, found.dispersion_sd) == (15.0, 15.0)
    counts = Prior.usual(Layout(("a",), "poisson"), pooled_sd=15.0)
    assert (counts.sd, counts.tau_sd) == ([2.5], 1.0)


def test_a_layout_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="family must be one of"):
        Layout(("a",), "cauchy")
    with pytest.raises(ValueError, match="'b' is no coefficient"):
        Layout(("a",), "poisson", group=("b",))
    with pytest.raises(ValueError, match="must be a coefficient too"):
        Layout(("a",), "poisson", client=("intercept",))
    with pytest.raises(ValueError, match="at most 3 different terms"):
        Layout(("a",), "poisson", group=("a", "a"))
