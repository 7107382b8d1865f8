"""The width of a posterior that is no normal one, by its log-density on lines: against densities that are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedkern.methods.vertical.normal import AT, WIDER, fit_lines, points


def of(density: Any, mean: float, sd: float) -> Any:
    """One unknown with this density and a normal q."""
    at = points(np.array([mean]), np.array([[sd**2]]), [0])
    return fit_lines(["x"], density(at[:, 0]))


def test_a_normal_posterior_is_as_wide_as_q_whatever_is_rounded() -> None:
    """Of three unknowns that are correlated; values in thousandths of a nat."""
    root = np.linalg.cholesky(np.array([[2.0, 0.9, 0.1], [0.9, 1.0, -0.3], [0.1, -0.3, 0.5]]))
    covariance, mean = root @ root.T, np.array([1.0, -50.0, 0.0])
    at = points(mean, covariance, [0, 2])
    assert at.shape == (1 + 2 * len(AT), 3)
    density = stats.multivariate_normal(mean, covariance).logpdf(at)
    exact = fit_lines(["a", "c"], density)
    np.testing.assert_allclose(exact.sd, 1, rtol=1e-6)
    np.testing.assert_allclose(exact.quantiles, [stats.norm.ppf([0.05, 0.5, 0.95])] * 2, atol=1e-3)
    np.testing.assert_allclose(fit_lines(["a", "c"], density.round(3) - 1e6).sd, 1, rtol=2e-3)
    assert not len(exact.off)


@pytest.mark.parametrize("events", [1.0, 1.5, 3.0, 10.0])
def test_the_logarithm_of_a_gamma_variate_and_its_best_normal(events: float) -> None:
    """The log rate of few events: q is the normal that minimises KL(q || p), of variance 1 / events."""
    mean, sd = np.log(events) - 0.5 / events, events**-0.5  # of log rate with density exp(events t - e^t)
    found = of(lambda t: events * t - np.exp(t), mean, sd)
    true = stats.loggamma(events)
    assert found.sd[0] == pytest.approx(true.std() / sd, rel=0.05)
    np.testing.assert_allclose(mean + sd * found.quantiles[0], true.ppf([0.05, 0.5, 0.95]), atol=0.05 * true.std())
    assert list(found.off) == ([0] if true.std() / sd > WIDER else [])
    content = found.content({"x": (mean, sd)})
    assert content.keys() == ({"x"} if true.std() / sd > WIDER else set())
    for row in content.values():
        assert row["sd"] == pytest.approx(true.std(), rel=0.05)


def test_a_q_that_is_too_wide_or_too_narrow_is_found() -> None:
    for factor in (0.7, 1.5):
        found = of(stats.norm(2.0, 3.0).logpdf, 2.0, 3.0 * factor)
        assert found.sd[0] == pytest.approx(1 / factor, rel=0.02)
        assert list(found.off) == [0]
