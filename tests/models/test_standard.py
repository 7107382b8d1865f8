"""Hyperparameters in coordinates in which their priors are standard normal."""

import numpy as np
from scipy.stats import norm

from fedkern.models.spatial.condition import Condition
from fedkern.models.spatial.site import Layout, SigmaPrior
from fedkern.models.spatial.standard import Standard


def test_priors_are_standard_normal():
    prior = Standard(SigmaPrior(Layout(True, 2, n_beta=1, dispersed=True), Condition("lengthscale", 0.5, 3.0, "log-unit")))
    v = np.array([[-5.4, 0.3, 2.0], [4.0, -5.4, -1.0], [0.0, 5.0, 5.4]])
    u = np.zeros((3, prior.n_linear))
    xi = prior.xi(v, u)
    own = -0.5 * np.log(2 * np.pi / prior.precision).sum()  # of u at 0
    found = prior.values(xi)[0] + prior.log_jacobian(v) - own
    np.testing.assert_allclose(found, norm.logpdf(v).sum(axis=1), rtol=1e-6)
    assert prior.n_hyper + prior.n_linear == prior.size == 7
    step, slopes = 1e-5 * np.eye(3), 0.0
    for k, at in enumerate(prior.prior.layout.nonlinear):
        slopes += np.log((prior.xi(v + step[k], u) - prior.xi(v - step[k], u))[:, at] / 2e-5)
    np.testing.assert_allclose(prior.log_jacobian(v), slopes, atol=1e-6)
