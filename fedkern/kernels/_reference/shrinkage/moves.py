"""Defines the moves of the sparse models: docs/spec/sparse.md, section 6 (and 11 for the slab)."""

import numpy as np

from .. import rng
from .server import SERVER, key


def move_terms(R, q, block, theta, deviation, tau_sq, sigma_sq, slab, gradient, precision, n_threads):
    """Returns Z'h and Z'HZ of one client with H = R'R / sigma^2, h = R'(q - R theta_k) / sigma^2, Z = [I, diag(w)], w = d /
    tau."""
    p = theta.shape[1]
    column, of_tau = block % max(p, 1), block >= p
    for i in range(len(theta)):
        w = np.where(of_tau, (deviation[i] / np.sqrt(tau_sq[i]))[column], 1.0)
        V = R[:, column] * w
        gradient[i] = V.T @ (q[i] - R @ (theta[i] + deviation[i])) / sigma_sq[i]
        precision[i] = V.T @ V / sigma_sq[i]
        if np.isfinite(slab):
            gradient[i] -= np.where(of_tau, w * deviation[i][column] / slab**2, 0)
            precision[i] += np.diag(np.where(of_tau, (w / slab) ** 2, 0))


def move(
    gradient, precision, block, theta, tau_sq, gamma, eta, seed, chain, step, scale_tau, c0, spike_variance, new_theta, t,
    n_threads,
):  # fmt: skip
    """Makes the draw x += N(Q^-1 g, Q^-1), x = (theta, t) in the block: the clients' sums and the terms of the prior, diag(1/v,
    1/kappa)."""
    p, w = theta.shape[1], len(block)
    for i in range(len(theta)):
        moves = key(seed, "moves", chain + i)
        u, _ = rng.uniforms(rng.items(0, p), 1, SERVER, step, moves)
        kappa = 0.5 * (scale_tau**2 + tau_sq[i]) / -np.log(u)
        v = np.where(gamma[i] == 1, eta[i], spike_variance if spike_variance > 0 else c0 * eta[i])
        x = np.concatenate([theta[i], np.sqrt(tau_sq[i])])
        prior = 1 / np.concatenate([v, kappa])[block]
        Q, g = precision[i] + np.diag(prior), gradient[i] - prior * x[block]
        normal = np.empty(w)
        rng.normal(moves, SERVER, step, 0, 0, normal, 1)
        scale = 1 / np.sqrt(np.diag(Q))
        try:
            L = np.linalg.cholesky(scale[:, None] * Q * scale)
            x[block] += scale * np.linalg.solve(L.T, np.linalg.solve(L, scale * g) + normal)
        except np.linalg.LinAlgError:
            x[block] = np.nan
        new_theta[i], t[i] = x[:p], x[p:]
