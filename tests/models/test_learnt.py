"""The prior of groups that clients have in common, whose scale is learnt, and likelihoods beside it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedkern.models.mixed import Layout, Prior, Rows
from fedkern.models.mixed.layout import EFFECT_SCALE, sd_of_shared
from fedkern.models.mixed.learnt import BesidePrior, OfShared
from fedkern.models.own import differences


def layout_of(family: str) -> Layout:
    plain = Layout(("intercept", "x"), family, ("intercept",))
    sd = sd_of_shared("group:item", EFFECT_SCALE)
    return replace(plain, own=(*plain.shapes, sd), shared=("a", "b", "c"))


def test_places_and_names_of_a_layout_and_of_that_of_rows() -> None:
    layout = layout_of("weibull")
    assert layout.names == (
        "intercept",
        "x",
        "a",
        "b",
        "c",
        "log group sd intercept",
        "log shape",
        "log group_sd[item:intercept]",
    )
    assert len(layout.natural_names) == layout.size == layout.natural(np.zeros((1, layout.size))).shape[1]
    assert layout.diagonal.tolist() == [5]
    assert layout.exponents == (6,)
    rows = layout.of_rows
    assert rows.coefficients == ("intercept", "x", "a", "b", "c")
    assert rows.names == layout.names[:-1]


@pytest.mark.parametrize("family", ["gaussian", "weibull"])
def test_derivatives_of_the_prior_are_differences(family: str) -> None:
    prior = OfShared(Prior.usual(layout_of(family)))
    point = np.random.default_rng(1).normal(size=prior.layout.size)
    value, gradient, curved = prior.curvature(point)
    wanted = differences.curvature(prior.values, point[np.newaxis])
    assert value == pytest.approx(wanted[0][0])
    assert gradient == pytest.approx(wanted[1][0], abs=1e-5)
    assert curved == pytest.approx(wanted[2][0], abs=1e-4)
    held = prior.held.curvature(point)
    assert held[1][-1] == 0.0
    assert held[2][-1].tolist() == [0.0] * (prior.layout.size - 1) + [1.0]


def test_rows_say_nothing_of_a_number_of_the_prior_alone() -> None:
    layout, random = layout_of("gaussian"), np.random.default_rng(2)
    X = np.column_stack([np.ones(12), random.normal(size=12), np.eye(3)[np.repeat(range(3), 4)]])
    rows = Rows(layout.of_rows, X, random.normal(size=12), np.arange(0, 13, 2))
    beside, points = BesidePrior(rows, layout.size), random.normal(size=(4, layout.size))
    moved = points.copy()
    moved[:, -1] += 1.0
    assert beside.values(points, 15).tolist() == beside.values(moved, 15).tolist() == rows.values(points[:, :-1], 15).tolist()
    value, gradient, curved = beside.curvature(points[:1], 15)
    wanted = differences.curvature(lambda some: beside.values(some, 15), points[:1])
    assert value == pytest.approx(wanted[0])
    assert gradient == pytest.approx(wanted[1], abs=1e-5)
    assert curved == pytest.approx(wanted[2], abs=1e-4)
    parts = [beside.of_units(part).values(points, 15) for part in (slice(0, 2), slice(2, 6))]
    assert sum(parts) == pytest.approx(beside.values(points, 15))
