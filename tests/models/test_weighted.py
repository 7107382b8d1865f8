"""Posteriors as weighted draws: what is read of them, without a client, and how much prior and likelihood matter."""

from __future__ import annotations

from dataclasses import replace

import arviz_stats
import numpy as np
import pytest
from scipy import stats

from fedkern.models import weighted
from fedkern.models.weighted import Weighted


def draws(n: int = 20_000, P: int = 2, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, P)) * 1.5


def normal(mean: float = 0.4, sd: float = 0.8, **changes: int) -> Weighted:
    """N(mean, sd^2) in each coordinate, times e^2, from draws of N(0, 1.5^2)."""
    x = draws(**changes)
    return Weighted(x, (stats.norm.logpdf(x, mean, sd) - stats.norm.logpdf(x, 0, 1.5)).sum(axis=1) + 2.0)


def test_moments_quantiles_and_the_evidence() -> None:
    one = normal()
    np.testing.assert_allclose(one.mean, 0.4, atol=0.02)
    np.testing.assert_allclose(one.sd, 0.8, rtol=0.02)
    np.testing.assert_allclose(one.covariance, np.diag([0.64, 0.64]), atol=0.02)
    levels = (0.025, 0.5, 0.975)
    want = stats.norm.ppf(levels, 0.4, 0.8)
    np.testing.assert_allclose(one.quantiles(levels), np.column_stack([want, want]), atol=0.04)
    np.testing.assert_allclose(one.quantiles((0.5,), np.exp(one.draws)), np.exp(0.4), rtol=0.03)
    value, error = one.log_evidence
    assert abs(value - 2.0) < 4 * error < 0.04
    assert one.weights.sum() == pytest.approx(1)
    assert one.effective < len(one.draws)


def test_the_evidence_s_error_is_the_spread_between_runs() -> None:
    several = [normal(n=500, seed=k).log_evidence for k in range(200)]
    assert np.std([value for value, _ in several]) == pytest.approx(np.mean([error for _, error in several]), rel=0.15)


def test_weights_that_cannot_be_trusted_are_the_ratios_themselves() -> None:
    """A posterior that is wider than its draws."""
    x = draws(2000, 1)
    one = Weighted(x, stats.norm.logpdf(x[:, 0], 0, 6.0) - stats.norm.logpdf(x[:, 0], 0, 1.5))
    assert one.k_hat > 0.7
    assert not one.reliable
    ratios = np.exp(one.log_ratios)
    np.testing.assert_allclose(one.weights, ratios / ratios.sum(), rtol=1e-12)
    assert one.log_evidence[0] == pytest.approx(np.log(ratios.mean()))


def test_draws_without_a_density_have_no_weight() -> None:
    one = normal()
    ratios = one.log_ratios.copy()
    ratios[one.draws[:, 0] < 0] = -np.inf
    half = Weighted(one.draws, ratios)
    assert (half.weights[one.draws[:, 0] < 0] == 0).all()
    assert half.mean[0] > 0.4
    nothing = Weighted(one.draws, np.full(len(ratios), -np.inf))
    assert nothing.k_hat == np.inf
    assert not nothing.reliable


def test_systematic_resampling_counts_each_draw_as_often_as_it_weighs() -> None:
    weights = np.array([0.5, 0.0, 0.26, 0.24])
    for offset in (0.0, 0.3, 0.999):
        found = np.bincount(weighted.resampled(weights, 50, offset), minlength=4)
        assert found.sum() == 50
        assert found[1] == 0
        assert (np.abs(found - 50 * weights) < 1).all()
    with pytest.raises(ValueError, match=r"offset must be in \[0, 1\), got 1"):
        weighted.resampled(weights, 50, 1.0)


def test_without_each_client() -> None:
    """Three normal clients: the posterior without one is that of the other two."""
    means, sds, x = np.array([0.2, 0.5, 0.9]), np.array([0.9, 1.2, 1.5]), draws(P=1)
    values = np.column_stack([stats.norm.logpdf(m, x[:, 0], s) for m, s in zip(means, sds, strict=True)])
    prior = stats.norm.logpdf(x[:, 0], 0, 3.0)
    posterior = Weighted(x, prior + values.sum(axis=1) - stats.norm.logpdf(x[:, 0], 0, 1.5))
    found = weighted.without(posterior, values)
    for j, one in enumerate(found):
        left = np.arange(3) != j
        precision = 1 / 9 + (1 / sds[left] ** 2).sum()
        mean = (means[left] / sds[left] ** 2).sum() / precision
        assert one.known
        assert one.posterior.mean[0] == pytest.approx(mean, abs=0.02)
        assert one.posterior.sd[0] == pytest.approx(precision**-0.5, rel=0.02)
        assert one.shift[0] == pytest.approx((mean - posterior.mean[0]) / posterior.sd[0], abs=0.03)


@pytest.mark.parametrize("n", [3_000, 20_000])
def test_a_spread_without_a_client_that_is_shown_is_right(n: int) -> None:
    """The wider the posterior without it, the less of it the draws have reached: its sd comes out too small."""
    x, shown = draws(n, 1), []
    full = stats.norm.logpdf(x[:, 0]) - stats.norm.logpdf(x[:, 0], 0, 1.5)
    for sd in (1.6, 1.3, 1.2, 1.15, 1.12, 1.1, 1.08, 1.06):
        (one,) = weighted.without(Weighted(x, full), stats.norm.logpdf(x, 0, sd))
        shown.append(one.known)
        if one.known:
            assert one.posterior.sd[0] == pytest.approx((1 - sd**-2) ** -0.5, rel=0.05), sd
    assert shown[0]
    assert not shown[-1]


def test_what_would_be_without_a_client_that_decides_all_is_not_known() -> None:
    x = draws(4000, 1) / 1.5 * 0.05
    values = stats.norm.logpdf(x, 0, 0.05)
    posterior = Weighted(x, values[:, 0] - stats.norm.logpdf(x[:, 0], 0, 0.05))
    (alone,) = weighted.without(posterior, values)
    assert not alone.known


def test_sensitivity_is_that_of_arviz() -> None:
    """Draws of equal weights, whose smallest changes nothing but the weights of the powers."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((weighted.SCALED, 2))
    log_density = stats.norm.logpdf(x[:, 0], 2, 0.8) + 0.1 * x[:, 1]
    (found,), (k_hats,) = weighted.sensitivity(Weighted(x, np.zeros(len(x))), [log_density], x)
    core = arviz_stats.base.array_stats
    lower, upper = (np.exp((power - 1) * log_density) for power in weighted.POWERS)
    want = [core._power_scale_sense(column, lower / lower.sum(), upper / upper.sum(), *weighted.POWERS) for column in x.T]
    np.testing.assert_allclose(found, want, rtol=0.02)
    assert found[0] > weighted.SENSITIVE > found[1]
    assert (k_hats < 0.7).all()


def test_a_strong_prior_is_sensitive_and_a_weak_one_is_not() -> None:
    """Weights count: the same posterior from equal draws and from weighted ones."""
    x = draws(P=1)
    for sd, marked in ((0.3, True), (20.0, False)):
        prior, likelihood = stats.norm.logpdf(x[:, 0], 0, sd), stats.norm.logpdf(1.0, x[:, 0], 0.5)
        posterior = Weighted(x, prior + likelihood - stats.norm.logpdf(x[:, 0], 0, 1.5))
        ((of_prior,), (of_likelihood,)), _ = weighted.sensitivity(posterior, [prior, likelihood], x)
        assert bool(of_prior > weighted.SENSITIVE) == marked
        assert of_likelihood > weighted.SENSITIVE
        chosen = posterior.draws[weighted.resampled(posterior.weights, 20_000, 0.5)]
        plain = Weighted(chosen, np.zeros(len(chosen)))
        ((again,),), _ = weighted.sensitivity(plain, [stats.norm.logpdf(chosen[:, 0], 0, sd)], chosen)
        assert again == pytest.approx(of_prior, rel=0.1, abs=0.002)


def test_negative_control_sensitivity_that_forgets_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Weighted, "resampled", lambda self, n, offset: np.arange(n))
    with pytest.raises(AssertionError):
        test_a_strong_prior_is_sensitive_and_a_weak_one_is_not()


def test_scaled_is_the_same_draws() -> None:
    one = normal()
    other = one.scaled(np.ones(len(one.draws)))
    assert other.log_evidence[0] == pytest.approx(one.log_evidence[0] + 1)
    assert replace(one).draws is other.draws
