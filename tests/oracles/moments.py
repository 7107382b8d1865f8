"""Second moments of many Gaussian draws."""

import numpy as np


def scores(draws, K):
    """z-scores of the means and of all second moments of x = L^-1 draw, K = L L': scaled by what they vary by."""
    m = len(draws)
    x = np.linalg.solve(np.linalg.cholesky(K), draws.T)
    z = (x @ x.T / m - np.eye(len(K))) * np.sqrt(m / (1 + np.eye(len(K))))
    return np.concatenate([z[np.triu_indices(len(K))], x.mean(axis=1) * np.sqrt(m)])


def covered(z):
    """Whether these are z-scores of the right distribution: the largest, and their mean square."""
    return abs(z).max() < 5 and abs((z**2).mean() - 1) < 6 * np.sqrt(2 / len(z))
