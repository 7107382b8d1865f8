"""What the client's kernels of the augmented models mean: vertical.md, sections 4 and 5, term by term."""

import numpy as np

from . import mlp

LOWEST, HIGHEST = -8.0, 4.0  # of log(s / rho)


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
    """The network's sizes, the values of its layers, and its two outputs."""
    sizes = np.array([1 + extra.shape[1], *hidden, 2])
    h = mlp.values(np.column_stack([g, extra]), psi, sizes, mlp.TANH)
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
            grad, grad_inputs = mlp.pull_back(h, psi, np.column_stack([m, log_s * moves]), sizes, mlp.TANH)
            return grad, grad_inputs[:, 0] + m

        a = message - (z - g) / rho**2 + (tau / s if path else 0)
        grad_psi[:], through_z = pull_back(a, a * tau * s + (0 if path else 1))
        cotangent[:] = (0 if own is None else own) + (z - g) / rho**2 + through_z
        if path:  # of -log q(z | theta) at fixed z
            cotangent += pull_back(-tau / s, 1 - tau**2)[1]
        grad_w[:] = H.T @ cotangent
