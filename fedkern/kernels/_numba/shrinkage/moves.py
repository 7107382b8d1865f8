"""Moves coefficients of the sparse models for Numba: docs/spec/sparse.md, section 6 (and 11 for the slab)."""

import numpy as np

from .._jit import copied, loop_ieee, prepares, scalar_ieee
from ..rng import exponential_pair, normal_pair, stream_key
from .server import IDS, SERVER

__all__ = ["move", "move_terms"]

MOVES = IDS["moves"]


@loop_ieee
def fill_terms(R, q, block, theta, deviation, tau_sq, sigma_sq, slab, gradient, precision):
    p, w = R.shape[1], block.size
    column = block % max(p, 1)
    picked = np.empty((R.shape[0], w))
    for a in range(w):
        picked[:, a] = R[:, column[a]]
    gram = picked.T @ picked
    factor = np.empty(w)
    for i in range(theta.shape[0]):
        h = picked.T @ (q[i] - R @ (theta[i] + deviation[i]))
        for a in range(w):
            d = deviation[i, column[a]]
            factor[a] = d / np.sqrt(tau_sq[i, column[a]]) if block[a] >= p else 1.0
            gradient[i, a] = factor[a] * h[a] / sigma_sq[i]
            for b in range(a + 1):
                precision[i, a, b] = factor[a] * factor[b] * gram[a, b] / sigma_sq[i]
                precision[i, b, a] = precision[i, a, b]
            if block[a] >= p:
                gradient[i, a] -= factor[a] * d / slab**2
                precision[i, a, a] += (factor[a] / slab) ** 2


@scalar_ieee
def cholesky(A):
    """Computes the lower factor in place. Returns whether one exists."""
    for j in range(A.shape[0]):
        pivot = A[j, j] - (A[j, :j] * A[j, :j]).sum()
        if not pivot > 0.0:
            return False
        A[j, j] = np.sqrt(pivot)
        for i in range(j + 1, A.shape[0]):
            A[i, j] = (A[i, j] - (A[i, :j] * A[j, :j]).sum()) / A[j, j]
    return True


@loop_ieee
def fill_moves(gradient, precision, block, theta, tau_sq, gamma, eta, seed, chain, step, scale_tau, c0, fixed, moved, t):
    c, p = theta.shape
    w = block.size
    for i in range(c):
        key = stream_key(seed, MOVES, chain + np.uint64(i))
        Q, g, scale = precision[i].copy(), np.empty(w), np.empty(w)
        x = np.concatenate((theta[i], np.sqrt(tau_sq[i])))
        for a in range(w):
            j = block[a] % p
            if block[a] >= p:
                exponential, _ = exponential_pair(j, 1, SERVER, step, key)
                prior = exponential / (0.5 * (scale_tau**2 + tau_sq[i, j]))
            else:
                prior = 1.0 / (eta[i, j] if gamma[i, j] == 1.0 else fixed if fixed > 0.0 else c0 * eta[i, j])
            Q[a, a] += prior
            scale[a] = 1.0 / np.sqrt(Q[a, a])
            g[a] = scale[a] * (gradient[i, a] - prior * x[block[a]])
        for a in range(w):
            for b in range(w):
                Q[a, b] *= scale[a] * scale[b]
        good = cholesky(Q)
        for a in range(w):
            g[a] = (g[a] - (Q[a, :a] * g[:a]).sum()) / Q[a, a]
        for a in range(w):
            normals = normal_pair(a // 2, 0, SERVER, step, key)
            g[a] += normals[a % 2]
        for a in range(w - 1, -1, -1):
            g[a] = (g[a] - (Q[a + 1 :, a] * g[a + 1 :]).sum()) / Q[a, a]
            x[block[a]] += scale[a] * g[a] if good else np.nan
        moved[i], t[i] = x[:p], x[p:]


@prepares
def move_terms(R, q, block, theta, deviation, tau_sq, sigma_sq, slab, gradient, precision, n_threads):
    g, P = np.empty(gradient.shape), np.empty(precision.shape)
    fill_terms(
        copied(R), copied(q), copied(block), copied(theta), copied(deviation), copied(tau_sq), copied(sigma_sq), slab, g, P
    )  # fmt: skip
    gradient[...], precision[...] = g, P


@prepares
def move(
    gradient, precision, block, theta, tau_sq, gamma, eta, seed, chain, step, scale_tau, c0, spike_variance, new_theta, t,
    n_threads,
):  # fmt: skip
    x, y = np.empty(new_theta.shape), np.empty(t.shape)
    fill_moves(
        copied(gradient), copied(precision), copied(block), copied(theta), copied(tau_sq), copied(gamma), copied(eta),
        np.uint64(seed), np.uint64(chain), step, scale_tau, c0, spike_variance, x, y,
    )  # fmt: skip
    new_theta[...], t[...] = x, y
