"""Posteriors of the smallest sparse models by numerical integration (docs/spec/sparse.md, section 15, item 3).

Integrals over a half-line are sums over a uniform grid of the logarithm: exponentially exact for analytic integrands, singular or
heavy-tailed though they are.
"""

from __future__ import annotations

import numpy as np
from scipy import special, stats


def log_grid(lower, upper, n):
    """(x, weight of the integral dx) for x = e^u."""
    u = np.linspace(lower, upper, n)
    x = np.exp(u)
    return x, x * (u[1] - u[0])


def horseshoe(z):
    """Density of z = lambda N(0, 1), lambda half-Cauchy: e^(z^2/2) E1(z^2/2) / sqrt(2 pi^3)."""
    h = z**2 / 2
    # e^h E1(h) beyond the range of the product: its asymptotic series.
    tail = (1 - (1 - 2 / np.maximum(h, 50)) / np.maximum(h, 50)) / np.maximum(h, 50)
    near = np.minimum(h, 50)
    return np.where(h > 50, tail, np.exp(near) * special.exp1(near)) / np.sqrt(2 * np.pi**3)


def slab_or_spike(theta, c0, a_eta, b_eta):
    """(2, ...): density of theta for gamma = 0, 1 with eta integrated out."""
    return np.stack([stats.t.pdf(theta, 2 * a_eta, scale=np.sqrt(v * b_eta / a_eta)) for v in (c0, 1.0)])


def sinh_grid(limit, n, scale):
    """Symmetric nodes, dense about 0 and out to a large number."""
    t = np.linspace(-np.arcsinh(limit / scale), np.arcsinh(limit / scale), n)
    return scale * np.sinh(t), scale * np.cosh(t) * (t[1] - t[0])


def one_coefficient(moments, *, c0, a_eta, b_eta, a_sigma, b_sigma, prior_odds=1.0, fine=1.0):
    """p = 1: means. moments: (r, q, rss, n) of each client: x'x = r^2, y'y = rss + q^2, n degrees of freedom."""
    theta, d_theta = sinh_grid(200.0, int(321 * fine), 0.15)
    tau, d_tau = log_grid(-16, 12, int(141 * fine))
    z, d_z = log_grid(-24, 14, int(401 * fine))
    weights = horseshoe(z) * d_z
    log_likelihood = np.zeros((len(theta), len(tau)))
    for r, q, rss, n in moments:

        def likelihood(x):
            return (1 + (rss + (q - r * x) ** 2) / (2 * b_sigma)) ** -(a_sigma + n / 2)  # noqa: B023

        step = tau[:, None] * z
        values = np.stack([(likelihood(t + step) + likelihood(t - step)) @ weights for t in theta])
        log_likelihood += np.log(values)
    both = slab_or_spike(theta, c0, a_eta, b_eta) * np.array([1.0, prior_odds])[:, None]
    scale = 2 / (np.pi * (1 + tau**2))
    mass = np.exp(log_likelihood - log_likelihood.max()) * scale * d_tau * d_theta[:, None]
    joint = both[:, :, None] * mass
    total = joint.sum()
    over_theta = joint.sum(axis=(0, 2)) / total
    return {
        "gamma": joint[1].sum() / total,
        "theta": over_theta @ theta,
        "tanh^2 theta": over_theta @ np.tanh(theta) ** 2,
        "log tau^2": joint.sum(axis=(0, 1)) / total @ (2 * np.log(tau)),
    }


def deviation(d, scale_tau=1.0, scale_lambda=1.0):
    """Density of d = lambda tau N(0, 1) with both half-Cauchy."""
    tau, d_tau = log_grid(-40, 40, 1601)
    tau, d_tau = tau * scale_tau, d_tau * scale_tau
    s = tau * scale_lambda
    prior = 2 / (np.pi * scale_tau * (1 + (tau / scale_tau) ** 2))
    return (horseshoe(d[..., None] / s) / s) @ (prior * d_tau)


def log_over_centres(errors, power, rate):
    """(k,) log of the integral over c of (rate + sum_i |error_i - c|)^-power, errors (k, n) with n odd: piece by piece."""
    knots = np.sort(errors, axis=1)
    n = knots.shape[1]
    log_size = np.log(rate + np.abs(knots[:, :, None] - knots[:, None, :]).sum(axis=2))
    log_ends = (1 - power) * log_size
    top = log_ends.max(axis=1, keepdims=True)
    ends = np.exp(log_ends - top) / (power - 1)
    slopes = 2 * np.arange(1, n) - n  # of the sum, between neighbouring knots
    inner = ((ends[:, :-1] - ends[:, 1:]) / slopes).sum(axis=1)
    return np.log(inner + (ends[:, 0] + ends[:, -1]) / n) + top[:, 0]


def two_equations(Y, *, c0, a_eta, b_eta, a_b, b_b, scale_tau=1.0, scale_lambda=1.0, fine=1.0, located=False):
    """p = 2, M = 1, an eta for each coefficient, rho ~ Beta(1, 1). Y (2, n). x_1 is the effect of 2 on 1, x_2 of 1 on 2.

    A site's coefficient has, given gamma, the density of theta + d: a convolution. rho leaves Beta-binomial weights of gamma.
    With `located` the two locations have flat priors: the centre of each equation's errors is integrated out, and the determinant
    of the change from locations to centres takes one of the likelihood's n away.
    """
    x, d_x = sinh_grid(1e4, int(801 * fine), 0.05)
    d, d_d = log_grid(-30, 25, int(601 * fine))
    weights = deviation(d, scale_tau, scale_lambda) * d_d

    def blurred(function):
        return (function(x[:, None] - d) + function(x[:, None] + d)) @ weights

    density = blurred(lambda t: slab_or_spike(t, c0, a_eta, b_eta))  # (gamma, x)
    mean = blurred(lambda t: np.tanh(t) * slab_or_spike(t, c0, a_eta, b_eta))
    n = Y.shape[1]
    likelihood = (n - located) * np.log(np.abs(1 - np.outer(x, x)) + 1e-300)
    for axis, (own, other) in enumerate(((Y[0], Y[1]), (Y[1], Y[0]))):
        errors = own - x[:, None] * other
        of_row = log_over_centres(errors, a_b + n, b_b) if located else -(a_b + n) * np.log(b_b + np.abs(errors).sum(axis=1))
        likelihood += np.expand_dims(of_row, 1 - axis)
    mass = np.exp(likelihood - likelihood.max()) * np.outer(d_x, d_x)
    prior = np.array([[1 / 3, 1 / 6], [1 / 6, 1 / 3]])
    joint = np.einsum("ab,ai,bj,ij->abij", prior, density, density, mass, optimize=True)
    total = joint.sum()
    both = joint.sum(axis=(0, 1)) / total
    below = np.cumsum(both, axis=1) - both / 2  # of the second coefficient; |x_1 x_2| < 1 ends between two nodes
    edges = 1 / np.maximum(np.abs(x), 1e-4)
    stable = sum(np.interp(e, x, row) - np.interp(-e, x, row) for e, row in zip(edges, below))
    first, second = joint.sum(axis=(0, 1, 3)) / total, joint.sum(axis=(0, 1, 2)) / total
    with_mean = np.einsum("ab,ai,bj,ij->", prior, mean, density, mass, optimize=True) / total
    return {
        "gamma_1": joint[1].sum() / total,
        "gamma_2": joint[:, 1].sum() / total,
        "tanh theta_1": with_mean,
        "tanh x_1": first @ np.tanh(x),
        "tanh x_2": second @ np.tanh(x),
        "stable": stable,
    }
