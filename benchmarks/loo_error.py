"""The Monte Carlo error of leave-one-out sums of logistic regressions at 200 draws, before and after the server's correction.

    python benchmarks/loo_error.py

Draws are of the normal distribution around the mode. Columns: coefficients, rows, how far elpd is off on average, before and
after; its sd over draws, before and after; the mean of the errors that are told, before and after; p_loo.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from fedkern.arrays import Array
from fedkern.results import loo

SHAPES = ((3, 100), (12, 400), (30, 700), (10, 60))
DRAWS, REPEATED, MANY = 200, 25, 20_000


def densities(draws: Array, X: Array, y: Array) -> Array:
    eta = draws @ X.T
    return np.asarray(y * eta - np.logaddexp(0, eta))


def measure(p: int, n: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), random.normal(size=(n, p))])
    y = (random.random(n) < expit(X[:, 1])).astype(float)
    prior, mode = np.r_[5.0, np.full(p, 2.5)], np.zeros(p + 1)
    for _ in range(30):
        mean = expit(X @ mode)
        precision = X.T @ (X * (mean * (1 - mean))[:, np.newaxis]) + np.diag(1 / prior**2)
        mode = mode + np.linalg.solve(precision, X.T @ (y - mean) - mode / prior**2)
    covariance = np.linalg.inv(precision)
    totals, inverse = [], np.zeros(n)
    for _ in range(MANY // 1000):
        at = densities(random.multivariate_normal(mode, covariance, 1000), X, y)
        totals.append(at.sum(axis=1))
        inverse += np.exp(-at).mean(axis=0) / (MANY // 1000)
    total = np.concatenate(totals)
    exact, told = float(-np.log(inverse).sum()), []
    for _ in range(REPEATED):
        at = densities(random.multivariate_normal(mode, covariance, DRAWS), X, y)
        raw = loo.summary([loo.sums(n, lambda part, at=at: at[:, part])], draws=DRAWS)
        told.append((raw, loo.corrected(raw, float(at.sum(axis=1).mean()), float(total.mean()), float(total.var()))))
    off, errors = (np.array([[one[key] for one in pair] for pair in told]) for key in ("elpd", "monte_carlo_error"))
    numbers = [
        *(off.mean(axis=0) - exact),
        *off.std(axis=0, ddof=1),
        *errors.mean(axis=0),
        np.mean([one["p_loo"] for _, one in told]),
    ]
    print(f"{p + 1:3} {n:5} " + " ".join(f"{number:8.3f}" for number in numbers), flush=True)


if __name__ == "__main__":
    for seed, (p, n) in enumerate(SHAPES):
        measure(p, n, seed)
