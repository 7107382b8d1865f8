"""Models effects of T periods: a random walk of first order that sums to 0, scaled to a geometric mean of 1 of its variances.

    gamma = sigma_period B v,  v ~ N(0, I_{T-1}),  B B' = R^- / s,  gamma' R gamma = sum (gamma_t+1 - gamma_t)^2

R, the walk's structure, is the Laplacian of a path, whose eigenvectors are cosines: all parties have the same B, to the last bits
of a cosine. With D the differences of neighbours R = D'D, and D R^- D' = I: steps from one period to the next are independent,
N(0, sigma_period^2 / s) each, and a walk that goes on beyond the last period is the walk of T + 1 periods, about the level of the
first T. Source: docs/spec/sigma.md, section 9; Sorbye and Rue (2014), Spatial Statistics 8, 39-51.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def walk(n: int) -> Matrix:
    """Returns B (n, n - 1), smooth columns first."""
    k = np.arange(1, n)
    vectors = np.cos(np.pi * np.outer(np.arange(n) + 0.5, k) / n) * np.sqrt(2 / n)
    B = vectors / (2 * np.sin(np.pi * k / (2 * n)))
    return np.asarray(B / np.exp(0.5 * np.log((B**2).sum(axis=1)).mean()))


def step_sd(n: int) -> float:
    """Returns 1 / sqrt(s), the standard deviation of a step from one of n periods to the next if sigma_period is 1."""
    return float(np.linalg.norm(np.diff(walk(n)[:2], axis=0)))
