"""A normal prior of a network's weights: its part of the bound and of the gradient (docs/spec/vertical.md, section 9.3)."""

from __future__ import annotations

import numpy as np
import pytest

from fedkern.models.split.site import Auxiliary, Network, Site

RANDOM = np.random.default_rng(5)
X = RANDOM.standard_normal((11, 3))
TAU, EPS, MESSAGE = RANDOM.standard_normal(11), RANDOM.standard_normal(2), RANDOM.standard_normal(11)


def site(kind, weight_sd, rows=slice(None)):
    return Site(Network(X[rows], (4,), 2, weight_sd=weight_sd), Auxiliary(kind, 0.7), path=False)


def parameters(one):
    return one.initial(np.random.default_rng(1).uniform(size=one.n_uniforms)) + 0.1


def objective(one, values):
    """The bound, and the part that the message stands for, at frozen draws."""
    drawn = one.draw(values, EPS, TAU, np.empty((11, 0)))
    return one.bound(values, drawn) + MESSAGE @ drawn.z


@pytest.mark.parametrize("kind", ["mean-field", "amortised", "none"])
@pytest.mark.parametrize("weight_sd", [None, 0.5])
def test_the_gradient_is_that_of_the_bound(kind, weight_sd):
    one = site(kind, weight_sd)
    at = parameters(one)
    got = one.gradient(at, one.draw(at, EPS, TAU, np.empty((11, 0))), MESSAGE)
    phi = range(one.parts["phi"].start, one.parts["phi"].stop)
    h = 1e-5
    want = [(objective(one, at + h * unit) - objective(one, at - h * unit)) / (2 * h) for unit in np.eye(len(at))[list(phi)]]
    np.testing.assert_allclose(got[one.parts["phi"]], want, rtol=1e-5, atol=1e-6)
    if weight_sd is not None:  # without its prior it would be noticed
        without = site(kind, None)
        other = without.gradient(at, without.draw(at, EPS, TAU, np.empty((11, 0))), MESSAGE)
        assert np.abs(other[one.parts["phi"]] - want).max() > 0.1


def test_the_prior_is_that_of_each_layer_and_is_not_scaled_with_a_batch():
    one = site("amortised", 0.5)
    precision = one.predictor.phi_precision
    assert precision.tolist() == [3 / 0.25] * 16 + [4 / 0.25] * 10
    assert not site("amortised", None).predictor.phi_precision.any()
    at, index = parameters(one), np.array([1, 4, 5])
    drawn = one.draw(at, EPS, TAU[index], np.empty((3, 0)), index)
    with_prior = one.gradient(at, drawn, MESSAGE[index], factor=11 / 3)
    without = site("amortised", None).gradient(at, drawn, MESSAGE[index], factor=11 / 3)
    np.testing.assert_allclose((with_prior - without)[one.parts["phi"]], -precision * at[one.parts["phi"]], atol=1e-12)
