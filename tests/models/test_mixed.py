"""Layout and prior of mixed regressions, against integrals and differences."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fedkern.models.mixed import Layout, Prior
from fedkern.models.mixed.layout import Named, Squared
from fedkern.models.own.priors import Block
from oracles.differences import four_point

LAYOUTS = [
    Layout(("intercept", "a", "b"), "poisson"),
    Layout(("intercept", "a", "b"), "bernoulli", group=("intercept",)),
    Layout(("intercept", "a"), "gaussian", group=("intercept", "a"), client=("intercept",)),
    Layout(("intercept", "a", "b"), "negative-binomial", group=("intercept", "a", "b"), client=("intercept", "b")),
]


def prior(layout):
    p = layout.p
    return Prior(layout, np.linspace(-0.5, 0.7, p), np.linspace(0.8, 1.5, p), scale=0.7)


def named(layout):
    """Priors of the job's own: of a coefficient, of lengths of rows of T, and of the dispersion."""
    numbers = np.eye(layout.p)
    numbers[0] = np.linspace(1.0, 0.4, layout.p)
    found = prior(layout).with_named(numbers, {0: Block("", "student", df=4.0, mean=0.3, scale=0.6)})
    lengths = {("group", i): Block("", "gamma", shape=2.5 + i, rate=1.4) for i in range(len(layout.group))}
    shapes = layout.shapes[:-1]
    if layout.family == "negative-binomial":
        shapes = (*shapes, replace(layout.shapes[-1], prior=Squared(Block("", "gamma", shape=1.5, rate=0.8))))
    elif layout.shapes:
        shapes = (*shapes, replace(layout.shapes[-1], prior=Named(Block("", "half-student", df=3.0, scale=1.2))))
    return replace(found, layout=replace(layout, own=shapes), lengths=lengths)


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


@pytest.mark.parametrize("made", [prior, named])
@pytest.mark.parametrize("layout", [LAYOUTS[1], LAYOUTS[2], replace(LAYOUTS[3], group=("intercept",), client=())])
def test_a_prior_is_a_density_of_its_coordinates(layout, made):
    """Draws of a wide distribution weighted by the density have a mean of 1, and numbers with a prior of their own have that."""
    density, rng, n = made(layout), np.random.default_rng(3), 400_000
    points, log_q = rng.standard_t(3, (n, layout.size)), 0.0
    wide = np.where(np.isin(np.arange(layout.size), layout.diagonal), 2.0, 1.5)
    log_q = stats.t.logpdf(points, 3).sum(axis=1) - np.log(wide).sum()
    points *= wide
    ratios = np.exp(density.values(points) - log_q)
    if layout.fold:
        ratios *= 0.5  # of phi the density is that of |phi|
    assert ratios.mean() == pytest.approx(1.0, abs=4 * ratios.std() / np.sqrt(n))
    assert 4 * ratios.std() / np.sqrt(n) < 0.1


def test_a_row_of_given_length_has_that_prior_and_a_uniform_direction():
    layout = Layout(("intercept", "a"), "poisson", group=("intercept", "a"))
    own = Block("", "half-student", df=3.0, scale=1.3)
    density = Prior(layout, np.zeros(2), np.ones(2), lengths={("group", 1): own})
    # In polar coordinates: T_10 = s cos(angle), log T_11 = log(s sin(angle)), the Jacobian 1 / sin(angle).
    s, angle = np.meshgrid([0.2, 1.0, 3.0], np.linspace(0.1, 3.0, 7))
    points = np.zeros((s.size, layout.size))
    points[:, 3], points[:, 4] = (s * np.cos(angle)).ravel(), np.log(s * np.sin(angle)).ravel()
    value = density.values(points) - density.values(points[:1])
    want = own.densities(np.log(s.ravel())).bare - np.log(s.ravel()) + points[:, 4]
    np.testing.assert_allclose(value, want - want[0], atol=1e-12)
    alone = Prior(replace(layout, group=("intercept",)), np.zeros(2), np.ones(2), lengths={("group", 0): own})
    usual = Prior(replace(layout, group=("intercept",)), np.zeros(2), np.ones(2), scale=1.3)
    some = np.random.default_rng(0).normal(size=(5, 3))
    np.testing.assert_allclose(alone.values(some), usual.values(some), atol=1e-12)


@pytest.mark.parametrize("made", [prior, named])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_priors_gradient_and_curvature_are_those_of_its_values(layout, made):
    density, xi = made(layout), np.random.default_rng(2).normal(0, 0.6, layout.size)
    value, gradient, curvature = density.curvature(xi)
    assert value == density.values(xi[np.newaxis])[0]
    assert np.allclose(gradient, four_point(lambda x: density.values(x[np.newaxis])[0], xi), atol=1e-9)
    for k in range(layout.size):
        assert np.allclose(-curvature[k], four_point(lambda x: density.curvature(x)[1][k], xi), atol=1e-9)  # noqa: B023
    if made is named:
        return
    jacobian = density.values(xi[np.newaxis]) - density.without_jacobian(xi[np.newaxis])
    logs = [*layout.diagonal, *([layout.size - 1] if layout.family == "gaussian" else [])]
    assert jacobian[0] == pytest.approx(xi[logs].sum())


def test_a_usual_prior_has_its_own_intercept_and_a_scale_of_effects_by_the_response():
    layout = Layout(("intercept", "a"), "gaussian", group=("intercept",))
    found = Prior.usual(layout, intercept_centre=1.5)
    assert np.array_equal(found.sd, [5.0, 2.5])
    assert np.array_equal(found.mean, [1.5, 0.0])
    assert found.scale == 1.0
    counts = Prior.usual(Layout(("a",), "poisson"))
    assert (counts.sd, counts.scale) == ([2.5], 2.5)


def test_numbers_with_priors_of_their_own_leave_the_others_theirs():
    """Whatever map the numbers are, the named one has its prior, independent of all others, and these keep their covariance."""
    rng, p = np.random.default_rng(5), 4
    layout = Layout(("intercept", "a", "b", "c"), "poisson")
    usual = Prior.usual(layout, intercept_centre=0.7).of_effects(rng.normal(size=(p, 6)))
    numbers = np.eye(p) + np.triu(rng.normal(size=(p, p)), 1)
    made = usual.with_named(numbers, {1: Block("", "normal", mean=2.0, sd=0.25)})
    before, after = (numbers @ np.linalg.inv(one.curvature(np.zeros(p))[2]) @ numbers.T for one in (usual, made))
    others = [0, 2, 3]
    np.testing.assert_allclose(after[np.ix_(others, others)], before[np.ix_(others, others)], rtol=1e-9)
    np.testing.assert_allclose(after[1], [0, 0.25**2, 0, 0], atol=1e-12)
    np.testing.assert_allclose((numbers @ made.mean)[others], (numbers @ usual.mean)[others], atol=1e-12)
    assert (numbers @ made.mean)[1] == pytest.approx(2.0)


def test_a_layout_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="family must be one of"):
        Layout(("a",), "cauchy")
    with pytest.raises(ValueError, match="'b' is no coefficient"):
        Layout(("a",), "poisson", group=("b",))
    with pytest.raises(ValueError, match="must be a coefficient too"):
        Layout(("a",), "poisson", client=("intercept",))
    with pytest.raises(ValueError, match="at most 3 different terms"):
        Layout(("a",), "poisson", group=("a", "a"))
