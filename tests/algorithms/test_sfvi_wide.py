"""Draws that are wide in a few unknowns: their distribution, and what their weights say of a q that is too narrow there."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedkern.algorithms.sfvi import families as wide
from fedkern.models.variational import Block
from fedkern.results.reweighed import reweigh
from fedkern.results.verdict import Verdict, with_weights

P, PLACES = 4, (3, 1)


def made(full, places=PLACES, count=20_000, seed=0):
    block, rng = Block(P, full), np.random.default_rng(seed)
    parameters = block.initial(rng.normal(size=P), 0.4) + 0.3 * rng.normal(size=block.n_parameters)
    return block, parameters, wide.draws(block, parameters, places, rng.standard_normal((count, wide.normals(P))))


@pytest.mark.parametrize("full", [True, False])
def test_densities_are_those_of_scipy(full):
    """log q of a normal; what is beside it of the t and the normal of the wide unknowns alone, for the rest follow q."""
    block, parameters, found = made(full, count=50)
    mean, spread = block.moments(parameters)
    covariance = spread if full else np.diag(spread**2)
    np.testing.assert_allclose(found.log_q, stats.multivariate_normal.logpdf(found.inner, mean, covariance), rtol=1e-11)
    h = list(PLACES)
    own, at = covariance[np.ix_(h, h)], found.inner[:, h]
    t = stats.multivariate_t.logpdf(at, mean[h], wide.WIDER**2 * own, df=wide.FREEDOM)
    np.testing.assert_allclose(found.beside, stats.multivariate_normal.logpdf(at, mean[h], own) - t, rtol=1e-9, atol=1e-11)


def test_they_have_the_distribution_that_is_said():
    """The standardised wide unknowns are t_5; the rest about its mean given them has the conditional's covariance."""
    block, parameters, found = made(True)
    mean, covariance = block.moments(parameters)
    for k in PLACES:
        own = (found.inner[:, k] - mean[k]) / (wide.WIDER * np.sqrt(covariance[k, k]))
        assert stats.kstest(own, stats.t(wide.FREEDOM).cdf).pvalue > 1e-3
    h, r = list(PLACES), [0, 2]
    slope = covariance[np.ix_(r, h)] @ np.linalg.inv(covariance[np.ix_(h, h)])
    rest = found.inner[:, r] - mean[r] - (found.inner[:, h] - mean[h]) @ slope.T
    want = covariance[np.ix_(r, r)] - slope @ covariance[np.ix_(h, r)]
    np.testing.assert_allclose(rest.T @ rest / len(rest), want, rtol=0.05, atol=0.02 * want.max())


def test_without_places_they_are_draws_of_q():
    _, parameters, found = made(True, places=(), count=200)
    np.testing.assert_allclose(found.beside, 0, atol=1e-12)
    assert abs(found.inner.mean() - parameters[:P].mean()) < 0.2


@pytest.mark.parametrize("ratio", [1.0, 1.34, 2.0])
def test_the_change_of_an_sd_is_foreseen_where_draws_of_q_do_not_see_it(ratio):
    """A posterior in which a scale h is wider than q by this ratio, and what hangs on it likewise: b = z exp(h)."""
    block = Block(2, full=True)
    parameters = block.at(np.zeros(2), np.array([[0.25, 0.0], [0.0, 1.0]]))
    e = np.random.default_rng(3).standard_normal((10_000, wide.normals(2)))
    found = wide.draws(block, parameters, (0,), e)
    h, z = found.inner.T
    log_p = -0.5 * (h / (0.5 * ratio)) ** 2 - np.log(ratio) - 0.5 * z**2
    ratios = log_p - (found.log_q - found.beside)
    said = reweigh(("h", "b"), np.column_stack([h, z * np.exp(h)]), ratios, beside=found.beside, wanted=1000)
    right = np.array([ratio, np.exp(0.25 * (ratio**2 - 1))]) - 1  # of E exp(2 h) = exp(2 sd^2)
    assert said.reliable
    assert (np.abs(said.sd - right) < 0.05 * (1 + right) + 3 * said.sd_error).all()
    assert sorted(said.narrow) == ([] if ratio == 1 else [0, 1])
    judged = with_weights(Verdict.of("settled", "nothing moves"), said)
    assert judged.converged is (ratio == 1)
    if ratio == 2:  # as draws of q say it: less than half of what is right, and no doubt
        inner = wide.draws(block, parameters, (), e[:400])
        (h, z), only = inner.inner.T, inner
        blind = reweigh(("h", "b"), np.column_stack([h, z * np.exp(h)]), -0.5 * h**2 - 0.5 * z**2 - only.log_q)
        assert blind.sd[1] < 0.5 * right[1]


def test_weights_that_are_worth_too_little_say_that_it_is_not_near():
    block = Block(2, full=True)
    parameters = block.at(np.zeros(2), np.eye(2))
    found = wide.draws(block, parameters, (0,), np.random.default_rng(3).standard_normal((2000, wide.normals(2))))
    far = -0.5 * ((found.inner - 3) ** 2).sum(axis=1)
    said = reweigh(("h", "z"), found.inner, far - (found.log_q - found.beside), beside=found.beside, wanted=1000)
    assert not said.reliable
    assert not said.content["moves"]
    judged = with_weights(Verdict.of("settled", "nothing moves"), said)
    assert judged.converged == "settled"
    assert "(wanted 1,000), too few to say by how much q is off: it is not near" in judged.why
