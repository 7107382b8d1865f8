"""Groups of several columns: nested rules against grids, effects together against dense matrices and nested rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit, logsumexp
from scipy.stats import multivariate_normal

from fedkern.arrays import Vector
from fedkern.errors import OwnFault
from fedkern.methods.likelihood.keys import RandomSection
from fedkern.methods.likelihood.rows import Held, check_size
from fedkern.models.mixed import Layout, Rows, effects
from fedkern.models.mixed.grouping import Grouping, groupings, nested
from fedkern.models.mixed.joint import Blocks, Joint, OfAll, parts_of
from fedkern.models.mixed.layout import Effect
from fedkern.models.own import differences

REGIONS, WARDS, EACH = 3, 4, 5


def rows_of(family: str, kind: type[Rows] = Rows, *, slopes: int = 0, client: bool = False, cross: bool = False) -> Rows:
    """Rows of wards in regions; `cross`: of wards that are the same in all regions."""
    random = np.random.default_rng(5)
    region = np.repeat(np.arange(REGIONS), WARDS * EACH)
    n = len(region)
    X = np.column_stack([np.ones(n), random.normal(size=n)])
    ward = np.repeat(np.arange(REGIONS * WARDS), EACH)
    eta = X @ [0.3, 0.5] + random.normal(size=REGIONS)[region] * 0.7 + random.normal(size=REGIONS * WARDS)[ward] * 0.5
    y = {
        "gaussian": eta + random.normal(size=n),
        "bernoulli": (random.uniform(size=n) < expit(eta)).astype(float),
        "poisson": random.poisson(np.exp(eta)).astype(float),
    }[family]
    layout = Layout(
        ("intercept", "x"),
        family,
        ("intercept",),
        ("intercept",) if client else (),
        inner=Effect(label="region/ward"),
        outer=(Effect(("intercept", "x")[: 1 + slopes], "region"),),
        within=kind is Rows,
    )
    starts = np.arange(0, n + 1, EACH)
    if cross:
        order = np.argsort(ward % WARDS, kind="stable")
        X, y, region, starts = X[order], y[order], region[order], np.arange(0, n + 1, EACH * REGIONS)
    return kind(layout, X, y, starts, codes=(region,), key=3)


def points_of(rows: Rows, n: int = 3) -> Vector:
    return np.random.default_rng(1).normal(size=(n, rows.size)) * 0.3


def test_names_and_places_are_those_of_the_columns() -> None:
    layout = rows_of("gaussian", slopes=1, client=True, kind=OfAll).layout
    assert layout.levels == ("group:region", "group:region/ward", "client")
    assert len(layout.names) == len(set(layout.names)) == layout.size == 2 + 1 + 3 + 1 + 1
    assert [layout.at(level) for level in layout.effects] == [slice(2, 3), slice(3, 6), slice(6, 7)]
    assert layout.diagonal.tolist() == [2, 3, 5, 6]
    assert layout.columns == ((2,), (3, 4), (5,), (6,))


@pytest.mark.parametrize("cross", [False, True])
def test_gaussian_effects_together_are_a_normal_density(*, cross: bool) -> None:
    rows = rows_of("gaussian", OfAll, slopes=1, client=True, cross=cross)
    region, ward = rows.codes[0], np.repeat(np.arange(rows.n_groups), np.diff(rows.starts))
    for point, value in zip(points_of(rows), rows.values(points_of(rows), 1)):
        T, tau, client = rows.layout.factor(point[np.newaxis], "group:region")[0], np.exp(point[2]), np.exp(point[6])
        V = np.exp(2 * point[7]) * np.eye(len(rows)) + client**2 + tau**2 * (ward[:, None] == ward)
        V += (rows.X @ T @ T.T @ rows.X.T) * (region[:, None] == region)
        wanted = multivariate_normal.logpdf(rows.y, rows.X @ point[:2], V)
        assert value == pytest.approx(wanted, abs=1e-8)
    assert not rows.rule(points_of(rows), 1).any()


@pytest.mark.parametrize("slopes", [0, 1])
def test_nested_rules_are_exact_of_gaussian_rows(slopes: int) -> None:
    both = rows_of("gaussian", slopes=slopes), rows_of("gaussian", OfAll, slopes=slopes)
    values = [rows.values(points_of(rows), 15) for rows in both]
    np.testing.assert_allclose(*values, atol=1e-8)
    _, gradient, hessian = both[0].curvature(points_of(both[0]), 15)
    _, slope, bent = both[1].curvature(points_of(both[0]), 1)
    np.testing.assert_allclose(gradient, slope, atol=1e-5)
    np.testing.assert_allclose(hessian, bent, atol=1e-3)


@pytest.mark.parametrize("family", ["bernoulli", "poisson"])
def test_nested_rules_are_a_grid_of_both_effects(family: str) -> None:
    rows = rows_of(family)
    t, step = np.linspace(-7, 7, 281, retstep=True)
    normal = -0.5 * t**2 - 0.5 * np.log(2 * np.pi) + np.log(step)
    for point, value in zip(points_of(rows), rows.values(points_of(rows), 15)):
        tau, around = np.exp(point[2:4])
        total = 0.0
        for r in range(REGIONS):
            of_region = np.zeros(len(t))
            for g in range(r * WARDS, (r + 1) * WARDS):
                i = slice(rows.starts[g], rows.starts[g + 1])
                eta = (rows.X[i] @ point[:2])[:, None, None] + around * t[:, None] + tau * t
                y = rows.y[i, None, None]
                if family == "poisson":
                    log = (y * eta - np.exp(eta)).sum(axis=0) - np.sum([np.sum(np.log(np.arange(1, k + 1))) for k in y.ravel()])
                else:
                    log = (y * eta - np.logaddexp(0, eta)).sum(axis=0)
                of_region += logsumexp(log + normal, axis=1)
            total += logsumexp(of_region + normal)
        assert value == pytest.approx(total, abs=1e-4)


@pytest.mark.parametrize("slopes", [0, 1])
def test_nested_derivatives_are_differences_of_values(slopes: int) -> None:
    rows = rows_of("bernoulli", slopes=slopes)
    points = points_of(rows, 2)
    value, gradient, hessian = rows.curvature(points, 15)
    level, slope, bent = differences.curvature(lambda some: rows.values(some, 15), points)
    np.testing.assert_allclose(value, level, atol=1e-8)
    np.testing.assert_allclose(gradient, slope, atol=1e-3)
    np.testing.assert_allclose(hessian, bent, atol=1e-2)


@pytest.mark.parametrize("family", ["bernoulli", "poisson"])
def test_draws_together_correct_laplace_and_know_their_error(family: str) -> None:
    exact, rows = rows_of(family), rows_of(family, OfAll)
    points = points_of(rows, 6)
    wanted = exact.values(points, 21)
    laplace = [found.value - np.log(np.diagonal(found.root)).sum() for _, found in Joint(rows)._modes(points) if found]
    off = {draws: Joint(rows).values(points, draws) - wanted for draws in (200, 3200)}
    assert np.ptp(off[3200]) < 0.02
    assert np.abs(off[3200]).max() < 0.3 * np.abs(laplace - wanted).max()
    # The error that is told is about that which is: of differences between points.
    assert 0.1 < np.std(Joint(rows).halves(points, 200)) / np.std(off[200]) < 10
    assert Joint(rows).values(points, 200).tolist() == Joint(rows).values(points, 200).tolist()


@pytest.mark.parametrize("first", ["inner", "outer"])
@pytest.mark.parametrize("slopes", [0, 1])
def test_groups_that_lie_in_others_in_the_rows_have_nested_rules(slopes: int, first: str) -> None:
    """Whatever the columns' names say, and whichever stands first: the same numbers as where the job says it. Groups that cross
    have none."""
    nested_rows: Rows = rows_of("bernoulli", slopes=slopes)
    rows: Any = rows_of("bernoulli", OfAll, slopes=slopes)
    points, at = points_of(nested_rows), np.arange(nested_rows.size)
    if first == "outer":
        layout, region = rows.layout, rows.codes[0]
        order, starts = np.arange(len(rows)), np.flatnonzero(np.diff(region, prepend=-1, append=-1))
        outer = (Effect(layout.group, "region/ward"),)
        swapped = replace(layout, group=layout.outer[0].terms, inner=Effect(label="region"), outer=outer)
        ward = np.repeat(np.arange(rows.n_groups), np.diff(rows.starts))
        rows = replace(rows.take(order, starts), layout=swapped, codes=(ward,))
        at = np.array([0, 1, *range(3, nested_rows.size), 2])
    np.testing.assert_allclose(rows.values(points[:, at], 200), nested_rows.values(points, 15), rtol=1e-12)
    np.testing.assert_allclose(rows.values(points[:, at], 3200), nested_rows.values(points, rows.tiers.rows.layout.most_nodes))
    wanted = nested_rows.curvature(points, 15)
    for found, other in zip(rows.curvature(points[:, at], 200), (wanted[0], wanted[1][:, at], wanted[2][:, at[:, None], at])):
        np.testing.assert_allclose(found, other, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(rows.rule(points[:, at], 200), nested_rows.rule(points, 15), atol=1e-11)
    others: list[Any] = [rows_of("bernoulli", OfAll, cross=True), rows_of("bernoulli", OfAll, client=True)]
    assert [other.tiers for other in others] == [None, None]


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_rows_that_no_group_ties_are_integrated_apart(family: str) -> None:
    rows = rows_of(family, OfAll)
    blocks, dense = Blocks(rows), Joint(rows)
    assert [part.q for part, _ in blocks.parts] == [1 + WARDS] * REGIONS
    points = points_of(rows)
    off = blocks.values(points, 3200) - dense.values(points, 3200)
    assert off == pytest.approx(np.full(len(off), off[0]), abs=1e-9 if family == "gaussian" else 0.02)
    uniform = np.random.default_rng(2).uniform(size=(3, 400))
    apart, together = blocks.sample(points, uniform), dense.sample(points, uniform)
    for level, effect in apart.items():
        assert effect.shape == together[level].shape
        assert effect.mean(axis=1) == pytest.approx(together[level].mean(axis=1), abs=0.3)  # by 200 weighed draws
    region = apart["group:region"][:, :, :, 0]
    assert all(abs(np.corrcoef(region[0].T)[i, k]) < 0.4 for i in range(REGIONS) for k in range(i))


def test_a_client_may_have_more_effects_than_a_dense_matrix_if_its_rows_are_tied_in_parts() -> None:
    n, codes = 4000, np.repeat(np.arange(2000), 2)
    random = RandomSection.model_validate({"groups": [{"by": "a"}, {"by": "b"}]})
    starts = np.arange(0, n + 1, 2)

    def held(outer: NDArray[np.int64]) -> Held:
        labels = tuple(map(str, range(2000)))
        none = np.zeros(n)
        return Held(none[:, np.newaxis], none, none, none, starts, labels, codes=(outer,), outer=(labels[: outer.max() + 1],))

    check_size(held(codes // 4), random, "ada", "a.csv")
    with pytest.raises(OwnFault, match="at most 1,500"):
        check_size(held(np.arange(n) % 2), random, "ada", "a.csv")
    with pytest.raises(OwnFault, match="at most 1,500"):
        check_size(held(codes // 4), random.model_copy(update={"client": True}), "ada", "a.csv")
    assert parts_of([codes, codes // 4]).max() == 499


@pytest.mark.parametrize("level", ["group", "client"])
def test_independent_terms_are_so_where_columns_are_zero(level: str) -> None:
    """x = 0.6 + 1.5 z: the covariance of the intercept at x = 0 and the slope is 0, and derivatives are those of values."""
    rows = rows_of("gaussian")
    effect = Effect(shifts=(0.6 / 1.5,))
    names = (
        {"inner": effect, "group": ("x", "intercept")} if level == "group" else {"around": effect, "client": ("x", "intercept")}
    )
    layout = Layout(("intercept", "x"), "gaussian", **{"group": ("intercept",), **names})  # type: ignore[arg-type]
    rows = Rows(layout, rows.X, rows.y, rows.starts)
    points = points_of(rows)
    B = np.array([[1 / 1.5, 0.0], [-0.6 / 1.5, 1.0]])
    for T, point in zip(layout.factor(points, level), points):
        covariance = B @ T @ T.T @ B.T
        at = layout.at(level).start
        np.testing.assert_allclose(covariance, np.diag([np.exp(2 * point[at]) / 1.5**2, np.exp(2 * point[at + 1])]), atol=1e-12)
    _, gradient, hessian = rows.curvature(points, 15)
    _, slope, bent = differences.curvature(lambda some: rows.values(some, 15), points)
    np.testing.assert_allclose(gradient, slope, atol=1e-5)
    np.testing.assert_allclose(hessian, bent, atol=1e-3)


@pytest.mark.parametrize("kind", [Rows, OfAll])
def test_effects_given_rows_have_their_normal_posterior(kind: type[Rows]) -> None:
    rows = rows_of("gaussian", kind)
    point = points_of(rows, 1)
    region, ward = rows.codes[0], np.repeat(np.arange(rows.n_groups), np.diff(rows.starts))
    Z = np.hstack([(ward[:, None] == np.arange(REGIONS * WARDS)), (region[:, None] == np.arange(REGIONS))]).astype(float)
    sds = np.exp(np.repeat(point[0, 2:4], [REGIONS * WARDS, REGIONS]))
    s2 = np.exp(2 * point[0, 4])
    precision = Z.T @ Z / s2 + np.diag(sds**-2)
    mean, sd = np.linalg.solve(precision, Z.T @ (rows.y - rows.X @ point[0, :2]) / s2), np.sqrt(np.diag(np.linalg.inv(precision)))
    found = effects.of_all_groups(rows, np.tile(point, (300, 1)), 9, 17)
    got, spread = (np.concatenate([getattr(one, name)[:, 0] for one in found]) for name in ("mean", "sd"))
    np.testing.assert_allclose((got - mean) / sd, 0, atol=0.2)
    np.testing.assert_allclose(spread / sd, 1, atol=0.15)
    assert np.shape(found[0].drawn)[::2] == (300, REGIONS * WARDS)


def test_a_clients_effect_is_drawn_with_those_of_its_groups() -> None:
    rows = rows_of("gaussian", OfAll, client=True)
    point = points_of(rows, 1)
    inner, effect = effects.complete_draws(rows, np.tile(point, (200, 1)), 1, 5)
    assert inner.shape[1] == rows.size - 1
    assert effect is not None
    moved = inner[:, 0] - point[0, 0]
    assert moved.mean() == pytest.approx(effect.mean[0, 0], abs=4 * effect.sd[0, 0] / 200**0.5)
    assert effects.of_all_groups(rows, inner, 1, 7)[1].mean.shape == (REGIONS, 1)


def test_groups_of_a_job_are_sorted_and_nested_where_columns_say_so() -> None:
    entries = [{"by": ["region", "ward"]}, {"by": "region", "slopes": ["x"], "correlated": False}]
    found = groupings({"groups": entries})
    assert found == (Grouping(("region",), ("x",), correlated=False), Grouping(("region", "ward")))
    assert [one.text for one in found] == ["(1 + x || region)", "(1 | region:ward)"]
    assert nested(found)
    assert not nested(groupings({"groups": [{"by": "ward"}, {"by": "item"}]}))
    assert not nested(groupings({"groups": [{"by": "item"}, {"by": ["region", "ward"]}]}))
    assert not nested(groupings({"groups": [{"by": "region", "slopes": ["x", "z"]}, {"by": ["region", "ward"]}]}))
    assert groupings({"group": "ward", "slopes": ["x"]}) == (Grouping(("ward",), ("x",)),)
    assert replace(rows_of("gaussian").layout, within=False).joint
