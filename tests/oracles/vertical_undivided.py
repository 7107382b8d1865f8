"""Rows whose columns two clients have, and the posterior of the undivided model, whose columns all stand together."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logsumexp

from fedkern.data.columns import Columns


def cell(family, mean, n=200):
    """Columns of two clients, and a response that depends on them."""
    random = np.random.default_rng(4)
    X = tuple(random.standard_normal((n, 3)) for _ in range(2))
    eta = 0.4 * np.hstack(X) @ random.standard_normal(6)
    y = random.poisson(mean * np.exp(eta / 2)) if family == "poisson" else random.random(n) < expit(eta - 0.8)
    return Columns(X, (("a", "b", "c"), ("d", "e", "f")), y.astype(float))


def exact(family, X, y, centre=0.0, wide=1.0, to=None):
    """Means and sds of the undivided model's posterior, by importance sampling from a t distribution about the mode. The prior
    of the intercept is N(centre, wide^2), of slopes N(0, 1). `to`: of what linear functions of the coefficients."""
    X, d = np.column_stack([np.ones(len(y)), *X]), 1 + sum(x.shape[1] for x in X)
    about, precision = np.zeros(d), np.ones(d)
    about[0], precision[0] = centre, wide**-2

    def log_density(theta):
        eta = theta @ X.T
        rows = y * eta - (np.exp(eta) if family == "poisson" else np.logaddexp(0, eta))
        return rows.sum(axis=-1) - 0.5 * ((theta - about) ** 2 * precision).sum(axis=-1)

    start = np.zeros(d)
    start[0] = np.log(y.mean()) if family == "poisson" else 0.0
    mode = minimize(lambda t: -log_density(t), start, method="BFGS").x
    eta = X @ mode
    rate = np.exp(eta) if family == "poisson" else expit(eta) * expit(-eta)
    L = np.linalg.cholesky(1.2 * np.linalg.inv(np.diag(precision) + X.T @ (rate[:, None] * X)))
    random = np.random.default_rng(1)
    e = random.standard_normal((20_000, d)) / np.sqrt(random.chisquare(10, (20_000, 1)) / 10)
    theta = mode + e @ L.T
    log_w = log_density(theta) + (10 + d) / 2 * np.log1p((e**2).sum(axis=1) / 10)
    w = np.exp(log_w - logsumexp(log_w))
    theta = theta if to is None else theta @ to.T
    mean = w @ theta
    return mean, np.sqrt(w @ (theta - mean) ** 2)
