"""The whole ELBO of a vertical model as one function of numbers that may be complex, from docs/spec/vertical.md alone.

Its gradient is the imaginary part of its value at x + i h: exact to rounding, as nothing is subtracted, and without a compiler.
Only the layout of flat parameters is shared with the package.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy import linalg, special

TWO_PI = 2 * np.pi
TINY = 1e-30  # h: its square is nothing beside 1


# Of numbers a + i b h the real parts decide, and a function that is frozen sees no more than these.


def log_sigmoid(x):
    return -np.log1p(np.exp(-x))


def relu(x):
    return np.where(x.real > 0, x, 0.0)


def clip(x, lowest, highest):
    return np.where(x.real < lowest, lowest, np.where(x.real > highest, highest, x))


def stop_gradient(x):
    return x.real


def normal(x, mean, sd):
    """Sum of log N(x; mean, sd)."""
    return np.sum(-0.5 * ((x - mean) / sd) ** 2 - np.log(sd) - 0.5 * np.log(TWO_PI) + 0 * x)


def log_p(likelihood, y, eta, log_sigma):
    """(n,) log p(y | eta)."""
    if likelihood.family == "bernoulli":
        return y * log_sigmoid(eta) + (1 - y) * log_sigmoid(-eta)
    if likelihood.family == "poisson":
        return y * eta - np.exp(eta) - special.gammaln(y + 1.0)
    if likelihood.family == "negative-binomial":
        r, lgamma = likelihood.scale, special.gammaln
        ways = lgamma(y + r) - lgamma(r) - lgamma(y + 1.0)
        return ways + y * eta + r * np.log(r) - (y + r) * np.log(r + np.exp(eta))
    sigma = np.exp(log_sigma) if likelihood.scale is None else likelihood.scale
    return -0.5 * (y - eta) ** 2 / sigma**2 - 0.5 * np.log(TWO_PI * sigma**2)


def network(flat, sizes, activation, x):
    """Rows of x through layers W (out, in), bias (out,)."""
    at = 0
    for layer, (d_in, d_out) in enumerate(pairwise(sizes)):
        W = flat[at : at + d_out * d_in].reshape(d_out, d_in)
        bias = flat[at + d_out * d_in : at + d_out * (d_in + 1)]
        at += d_out * (d_in + 1)
        x = x @ W.T + bias
        if layer < len(sizes) - 2:
            x = activation(x)
    return x


def scale_of(flat, d, full):
    """L of N(mu, L L')."""
    if not full:
        return np.diag(np.exp(flat[d:]))
    C = np.zeros((d, d), flat.dtype)
    C[np.tril_indices(d)] = flat[d:]
    return np.diag(np.exp(np.diag(C))) @ (C - np.diag(np.diag(C)) + np.eye(d))


def gaussian(flat, eps, full, frozen):
    """Draw of a block, and -log q of it: at frozen parameters, or the closed-form entropy."""
    d = len(eps)
    theta = flat[:d] + scale_of(flat, d, full) @ eps
    if frozen:
        own = stop_gradient(flat)
        L = scale_of(own, d, full)
        u = linalg.solve_triangular(L, theta - own[:d], lower=True) if d else theta
        return theta, 0.5 * u @ u + np.sum(np.log(np.diag(L))) + 0.5 * d * np.log(TWO_PI)
    return theta, np.sum(np.log(np.diag(scale_of(flat, d, full)))) + 0.5 * d * np.log(TWO_PI * np.e)


def predicted(predictor, phi, theta):
    """(g, log p(theta))."""
    name = type(predictor).__name__
    if name == "Linear":
        return predictor.H @ theta, normal(theta, predictor.prior_mean, predictor.prior_sd)
    if name == "Network":
        sizes = (predictor.X.shape[1], *predictor.hidden, predictor.features)
        return network(phi, sizes, relu, predictor.X) @ theta, normal(theta, 0.0, 1.0)
    p = predictor.X.shape[1]
    mu, w, rest = theta[:p], theta[p : 2 * p], theta[2 * p :].reshape(-1, p)
    sigma = np.exp(w)
    # sigma ~ HalfNormal(1), as a density of w = log sigma
    prior = normal(mu, 0.0, 1.0) + np.sum(np.log(2.0) - 0.5 * sigma**2 - 0.5 * np.log(TWO_PI) + w)
    if predictor.centred:
        beta = rest
        prior = prior + normal(beta, mu + 0 * beta, sigma + 0 * beta)
    else:
        beta = mu + sigma * rest
        prior = prior + normal(rest, 0.0, 1.0)
    return np.sum(predictor.X * beta[predictor.group], axis=1), prior


def auxiliary(site, flat, g, extra, tau, frozen, n):
    """(z, (n,) -log q(z | theta))."""
    a, parts = site.auxiliary, site.parts
    stop = stop_gradient if frozen else (lambda x: x)

    def conditional(flat):
        if a.kind == "mean-field":
            return flat[parts["mean"]], flat[parts["log_sd"]]
        u = np.concatenate([g[:, None], np.asarray(extra)], axis=1)
        o = network(flat[parts["psi"]], (u.shape[1], *a.hidden, 2), np.tanh, u)
        return g + o[:, 0], np.log(a.rho) + clip(o[:, 1], -8, 4)

    mean, log_sd = conditional(flat)
    z = mean + np.exp(log_sd) * tau
    if not frozen:
        return z, log_sd + 0.5 * np.log(TWO_PI * np.e)
    mean, log_sd = conditional(stop(flat))
    return z, 0.5 * ((z - mean) / np.exp(log_sd)) ** 2 + log_sd + 0.5 * np.log(TWO_PI)


def elbo(c, flats, server, *, frozen, weight=1.0):
    """One draw of it. frozen: sticking the landing, else closed-form entropies; weight: of each row (mini-batches)."""
    values, total = gaussian(server, c.eps_server, False, frozen)
    dispersed = c.likelihood.family == "gaussian" and c.likelihood.scale is None
    base, log_sigma = c.offset, 0.0
    if c.shared.intercept:
        total = total + normal(values[0], 0.0, c.shared.prior_sd)
        base = base + values[0]
    if dispersed:
        log_sigma = values[-1]
        total = total + np.log(2.0) - 0.5 * np.exp(log_sigma) ** 2 - 0.5 * np.log(TWO_PI) + log_sigma
        if c.kind == "pl":
            total = total + 0.5 * c.n * (c.J - 1) * np.log(1 + c.sites[0].auxiliary.rho ** 2 / (c.J * np.exp(log_sigma) ** 2))
    g, z = [], []
    for site, flat, eps, tau, extra in zip(c.sites, flats, c.eps, c.tau, c.extra):
        theta, entropy = gaussian(flat[site.parts["theta"]], eps, site.full, frozen)
        g_j, prior = predicted(site.predictor, flat[site.parts["phi"]], theta)
        z_j, entropies = auxiliary(site, flat, g_j, extra, tau, frozen, c.n)
        rho = site.auxiliary.rho
        rows = -0.5 * ((z_j - g_j) / rho) ** 2 - 0.5 * np.log(TWO_PI * rho**2) + entropies
        total = total + prior + entropy + np.sum(weight * rows)
        g.append(g_j)
        z.append(z_j)
    if c.kind == "av":
        fit = log_p(c.likelihood, c.y, base + sum(z), log_sigma)
    else:
        each = [log_p(c.likelihood, c.y, base + g[j] + sum(z[k] for k in range(c.J) if k != j), log_sigma) for j in range(c.J)]
        fit = sum(each) / c.J
    return total + np.sum(weight * fit)


def gradients(c, *, frozen, weight=1.0):
    """(value, gradients of the clients' parameters, of the server's)."""
    arrays = [*c.parameters, c.server]
    found = []
    for place, values in enumerate(arrays):
        gradient = np.empty(len(values))
        for i in range(len(values)):
            moved = values.astype(complex)
            moved[i] += 1j * TINY
            *flats, server = [*arrays[:place], moved, *arrays[place + 1 :]]
            gradient[i] = elbo(c, flats, server, frozen=frozen, weight=weight).imag / TINY
        found.append(gradient)
    *clients, server = found
    return float(elbo(c, c.parameters, c.server, frozen=frozen, weight=weight)), clients, server
