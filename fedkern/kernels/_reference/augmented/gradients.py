"""Defines draws and gradients: docs/spec/vertical.md, sections 4 and 5, term by term."""

import numpy as np

from ..mlp import networks

LOWEST, HIGHEST = -8.0, 4.0  # of log(s / rho)
LEAST = np.log(1e-8)  # of the log standard deviation of a coefficient


def coefficients(mu, scale, eps, full, theta, n_threads):
    with np.errstate(over="ignore", invalid="ignore"):
        if full:
            theta[:] = mu + triangle(scale, len(mu))[0] @ eps
        else:
            theta[:] = mu + np.exp(np.maximum(scale, LEAST)) * eps


def triangle(flat, p):
    """Returns L of a full q(theta), and the unit of its elements off the diagonal."""
    unit, L = min(1.0, 64 / p) ** 2 if p else 1.0, np.zeros((p, p))
    L[np.tril_indices(p)] = flat
    s = np.exp(np.maximum(np.diag(L), LEAST))
    L = unit * L * s[:, None]
    np.fill_diagonal(L, s)
    return L, unit


def mean_field_draw(H, w, tau, mean, log_sd, g, z, n_threads):
    with np.errstate(over="ignore", invalid="ignore"):
        g[:] = H @ w
        z[:] = mean + np.exp(log_sd) * tau


def mean_field_gradient(
    H, g, z, tau, log_sd, message, own, rho, path, grad_w, cotangent, grad_mean, grad_log_sd, n_threads
):  # fmt: skip
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        s = np.exp(log_sd)
        a = message - (z - g) / rho**2 + (tau / s if path else 0)
        cotangent[:] = (0 if own is None else own) + (z - g) / rho**2
        grad_w[:] = H.T @ cotangent
        grad_mean[:] = a
        grad_log_sd[:] = a * tau * s + (0 if path else 1)


def network(g, extra, psi, hidden):
    """Returns the network's sizes, the values of its layers, and its two outputs."""
    sizes = np.array([1 + extra.shape[1], *hidden, 2])
    h = networks.values(np.column_stack([g, extra]), psi, sizes, networks.TANH)
    return sizes, h, h[-1][:, 0], h[-1][:, 1]


def amortised_draw(H, w, tau, extra, psi, rho, hidden, g, z, n_threads):
    with np.errstate(over="ignore", invalid="ignore"):
        g[:] = H @ w
        _, _, o1, o2 = network(g, extra, psi, hidden)
        z[:] = g + o1 + rho * np.exp(np.clip(o2, LOWEST, HIGHEST)) * tau


def amortised_gradient(
    H, g, z, tau, extra, psi, message, own, rho, hidden, path, grad_w, cotangent, grad_psi, n_threads
):  # fmt: skip
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        sizes, h, _, o2 = network(g, extra, psi, hidden)
        s = rho * np.exp(np.clip(o2, LOWEST, HIGHEST))
        moves = (o2 >= LOWEST) & (o2 <= HIGHEST)  # where log s follows o2

        def pull_back(m, log_s):
            """Derivatives in psi and in g, through the network and through m = g + o1."""
            grad, grad_inputs = networks.pull_back(h, psi, np.column_stack([m, log_s * moves]), sizes, networks.TANH)
            return grad, grad_inputs[:, 0] + m

        a = message - (z - g) / rho**2 + (tau / s if path else 0)
        grad_psi[:], through_z = pull_back(a, a * tau * s + (0 if path else 1))
        cotangent[:] = (0 if own is None else own) + (z - g) / rho**2 + through_z
        if path:  # of -log q(z | theta) at fixed z
            cotangent += pull_back(-tau / s, 1 - tau**2)[1]
        grad_w[:] = H.T @ cotangent
