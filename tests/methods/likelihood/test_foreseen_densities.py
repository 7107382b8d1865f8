"""Densities and means of new rows against sums over a fine grid of effects."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logsumexp, ndtr
from scipy.stats import norm

from fedkern.kernels.families import FAMILIES
from fedkern.methods.likelihood.level_predictive import Ordered
from fedkern.methods.likelihood.predictive import Predictive
from fedkern.models.encoding import INTERCEPT

U = np.linspace(-9, 9, 20_001)
WEIGHT = norm.pdf(U) * (U[1] - U[0])


def made(kind: type[Predictive], family: str, theta: np.ndarray, sd: float, scale: np.ndarray, labels: str = "") -> Predictive:
    """Predictions of a model with an intercept alone, and one of each group."""
    encoding: Any = SimpleNamespace(names=[INTERCEPT], columns=[], labels=labels)
    return kind(encoding, family, theta[:, np.newaxis], [((INTERCEPT,), np.full((len(theta), 1, 1), sd**2))], scale)


@pytest.mark.parametrize(
    ("family", "scale", "y", "sd"),
    [
        ("poisson", 0.0, (0.0, 3.0, 400.0, 5000.0), 2.0),
        ("negative-binomial", 400.0, (0.0, 3.0, 400.0), 2.0),
        ("bernoulli", 0.0, (0.0, 1.0), 5.0),
        ("gamma", 500.0, (0.1, 4.0, 900.0), 1.5),
        ("student", (0.05, 3.0), (-3.0, 0.0, 2.0), 2.0),
    ],
)
def test_a_narrow_density_is_found_among_wide_effects(family: str, scale: Any, y: tuple[float, ...], sd: float) -> None:
    """The density of a count of 5000 is a peak of width .01 in the effect, and 21 Gauss-Hermite nodes stand .7 apart."""
    theta = np.array([1.2, 1.21])
    scales = np.repeat(np.asarray(scale, np.float64)[..., np.newaxis], 2, axis=-1)
    record, rows = FAMILIES[family], np.array(y)
    mine = made(Predictive, family, theta, sd, scales)
    found = mine.of_rows(np.ones((len(y), 1)), None, rows, {})
    eta = theta[:, np.newaxis] + sd * U
    wide = scales[..., np.newaxis]
    values = [logsumexp(record.value(np.array(one), record.kept(eta), wide, None) + np.log(WEIGHT), axis=1) for one in y]
    assert found.log_density is not None
    np.testing.assert_allclose(found.log_density, logsumexp(values, axis=1) - np.log(2), atol=2e-4)
    if record.chances:
        np.testing.assert_allclose(found.mean, (expit(eta) @ WEIGHT).mean(), rtol=1e-6)


def test_chances_of_levels_over_wide_effects() -> None:
    theta, cuts, sd = np.array([0.3, -0.2]), np.array([[-1.0, -0.8], [2.0, 2.2]]), 6.0
    for family, F in (("ordinal", expit), ("ordinal-probit", ndtr)):
        found = made(Ordered, family, theta, sd, cuts, "abc").of_rows(np.ones((1, 1)), None, None, {})
        below = np.array([(F(cut[:, np.newaxis] - theta[:, np.newaxis] - sd * U) @ WEIGHT).mean() for cut in cuts])
        np.testing.assert_allclose(found.mean[:, 0], np.diff(below, prepend=0.0, append=1.0), rtol=1e-5)
