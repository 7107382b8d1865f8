"""Defines the kernels of multinomial models in plain NumPy: predictors of all levels, and their softmax, written down."""

import numpy as np


def of_point(beta, X, y, levels):
    """Returns value, gradient and minus Hessian at one point; NaN where one of them is not finite."""
    n, p = X.shape
    k = (levels - 1) * p
    eta = np.hstack([np.zeros((n, 1)), X @ beta.reshape(levels - 1, p).T])
    if not known(y, levels):
        return np.full(1 + k + k * (k + 1) // 2, np.nan)
    top = eta.max(axis=1)
    e = np.exp(eta - top[:, None])
    total = e.sum(axis=1)
    chosen = y.astype(int)
    value = (eta[np.arange(n), chosen] - top - np.log(total)).sum() + 0 * eta.sum() + 0 * beta.sum()
    chance = e / total[:, None]
    others = np.stack([np.delete(chance, j, axis=1).sum(axis=1) for j in range(levels)], axis=1)  # 1 - chance, no difference
    residual = np.where(chosen[:, None] == np.arange(levels), others, -chance)[:, 1:]
    gradient = (residual.T @ X).ravel()
    curved = np.zeros((levels - 1, p, levels - 1, p))
    for j in range(levels - 1):
        for m in range(levels - 1):
            level_chance = others[:, j + 1] if j == m else -chance[:, m + 1]
            weight = chance[:, j + 1] * level_chance
            curved[j, :, m] = (X.T * weight) @ X
    results = np.concatenate([[value], gradient, curved.reshape(k, k)[np.tril_indices(k)]])
    return results if np.isfinite(results).all() else np.full(len(results), np.nan)


def known(y, levels):
    return bool(((y >= 0) & (y < levels) & (y == np.floor(y))).all())


def values(points, X, y, levels, value, n_threads):
    X, y = np.array(X), np.array(y)
    n, p = X.shape
    with np.errstate(all="ignore"):
        for i, beta in enumerate(np.array(points)):
            eta = np.hstack([np.zeros((n, 1)), X @ beta.reshape(levels - 1, p).T])
            if not known(y, levels):
                value[i] = np.nan
                continue
            top = eta.max(axis=1)
            seen = eta[np.arange(n), y.astype(int)] - top - np.log(np.exp(eta - top[:, None]).sum(axis=1))
            loglik = seen.sum() + 0 * eta.sum() + 0 * beta.sum()
            value[i] = loglik if np.isfinite(loglik) else np.nan


def curvature(points, X, y, levels, value, gradient, minus_hessian, n_threads):
    X, y = np.array(X), np.array(y)
    k = points.shape[1]
    with np.errstate(all="ignore"):
        for i, beta in enumerate(np.array(points)):
            results = of_point(beta, X, y, levels)
            value[i], gradient[i], minus_hessian[i] = results[0], results[1 : 1 + k], results[1 + k :]
