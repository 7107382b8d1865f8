"""Changes of levels' probabilities against differences of sums over a fine grid of effects, with slopes of groups."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, ndtr
from scipy.stats import norm

from fedkern.models import levels
from fedkern.models.mixed import Layout, Rows
from fedkern.models.mixed.marginal import Contrast, Moved, Slope

NAMES = ("a", "b")


@pytest.mark.parametrize("family", ["ordinal", "ordinal-probit"])
def test_changes_are_differences_of_probabilities_over_effects(family: str) -> None:
    rng, n, k = np.random.default_rng(1), 12, 4
    link = "probit" if family.endswith("probit") else "logit"
    own = levels.prior_of_thresholds("wxyz", np.full(k, 1 / k), link, 0.0, 5.0)
    layout = Layout(NAMES, family, ("intercept", "a"), ("intercept",), own)
    X, offset = rng.normal(size=(n, 2)), rng.normal(size=n)
    rows = Rows(layout, X, np.zeros(n), np.array([0, n]), None, offset)
    draws = 0.4 * rng.normal(size=(3, layout.size))
    effects = [Slope(0, 2.0), Slope(1), Contrast((1,), (0.0,), (1.0,)), Moved(X - 0.1, X + 0.1, np.full(n, 0.2))]
    found = levels.effect_sums(rows, draws, effects, k).reshape(3, 4, k)
    F = ndtr if link == "probit" else expit
    u = np.linspace(-9, 9, 301)
    weight = norm.pdf(u) * (u[1] - u[0])
    for s, draw in enumerate(draws):
        T, Tc = layout.factor(draws[s : s + 1], "group")[0], layout.factor(draws[s : s + 1], "client")[0]
        cuts = levels.thresholds(draws[s : s + 1], k)[0]

        def chances(X: np.ndarray, draw=draw, T=T, Tc=Tc, cuts=cuts) -> np.ndarray:
            variance = ((np.column_stack([np.ones(n), X[:, 0]]) @ T) ** 2).sum(axis=1) + Tc[0, 0] ** 2
            eta = (X @ draw[:2] + offset)[:, np.newaxis] + np.sqrt(variance)[:, np.newaxis] * u
            below = [np.zeros(n), *(F(cut - eta) @ weight for cut in cuts), np.ones(n)]
            return np.diff(np.stack(below), axis=0).sum(axis=1)

        def slope(j: int, chances=chances) -> np.ndarray:
            h = np.zeros(2)
            h[j] = 1e-4
            return (chances(X + h) - chances(X - h)) / 2e-4

        ones = [np.column_stack([X[:, 0], np.full(n, value)]) for value in (0.0, 1.0)]
        wanted = [2 * slope(0), slope(1), chances(ones[1]) - chances(ones[0]), (chances(X + 0.1) - chances(X - 0.1)) / 0.2]
        np.testing.assert_allclose(found[s], wanted, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(found.sum(axis=2), 0.0, atol=1e-12)  # some level is always there


def test_changes_of_levels_without_an_order_are_those_of_the_softmax() -> None:
    rng, n, k = np.random.default_rng(2), 15, 3
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    rows = levels.Rows(Layout(levels.block_names("xyz", ("intercept", *NAMES)), "multinomial"), X, np.zeros(n), k)
    draws = rng.normal(size=(4, 6))
    found = levels.effect_sums(rows, draws, [Slope(1, 3.0), Contrast((2,), (0.0,), (1.0,))], k).reshape(4, 2, k)

    def chances(X: np.ndarray) -> np.ndarray:
        e = np.exp(np.concatenate([np.zeros((4, 1, n)), draws.reshape(4, 2, 3) @ X.T], axis=1))
        return (e / e.sum(axis=1, keepdims=True)).sum(axis=2)

    h = np.array([0.0, 1e-5, 0.0])
    ends = [np.column_stack([X[:, :2], np.full(n, value)]) for value in (0.0, 1.0)]
    np.testing.assert_allclose(found[:, 0], 3 * (chances(X + h) - chances(X - h)) / 2e-5, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found[:, 1], chances(ends[1]) - chances(ends[0]), rtol=1e-9, atol=1e-12)
