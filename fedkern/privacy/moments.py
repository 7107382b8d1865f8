"""Computes Renyi divergences of the sampled Gaussian in closed form: the accounting of the papers, and an independent check of
the library's.

(alpha - 1) eps(alpha) = log sum_k binom(alpha, k) (1 - q)^(alpha - k) q^k exp((k^2 - k) / (2 sigma^2)) for whole alpha
(docs/spec/pvi.md,
section 6; Mironov, Talwar and Zhang 2019).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .search import largest_count

LARGEST_MOMENT = 32  # in the public code of both papers


@lru_cache(maxsize=64)
def log_moments(rate: float, sigma: float, largest: int) -> NDArray[np.float64]:
    """Returns (alpha - 1) eps(alpha) of one step for alpha = 2, .., `largest`. `rate`: sampling rate in (0, 1]; `sigma`: noise
    multiplier."""
    alpha = np.arange(2.0, largest + 1)
    if rate == 1:
        return alpha * (alpha - 1) / (2 * sigma**2)
    k = np.arange(largest + 1.0)
    log_factorial = np.array([math.lgamma(i + 1) for i in range(largest + 1)])
    terms = np.full((len(alpha), largest + 1), -np.inf)
    for row, a in zip(terms, range(2, largest + 1)):
        n = slice(0, a + 1)
        log_binomial = log_factorial[a] - log_factorial[n] - log_factorial[a - np.arange(a + 1)]
        row[n] = log_binomial + k[n] * math.log(rate) + (a - k[n]) * math.log1p(-rate) + (k[n] * k[n] - k[n]) / (2 * sigma**2)
    top = terms.max(axis=1)
    return np.asarray(top + np.log(np.exp(terms - top[:, None]).sum(axis=1)))


def rdp_epsilon(rate: float, sigma: float, steps: int, delta: float, largest: int = 256) -> float:
    """Returns epsilon from Renyi divergences of whole orders up to `largest` (conversion of Canonne, Kamath and Steinke 2020,
    Proposition 12)."""
    alpha = np.arange(2.0, largest + 1)
    divergence = steps * log_moments(rate, sigma, largest) / (alpha - 1)
    return max(0.0, float(np.min(divergence + np.log1p(-1 / alpha) - (math.log(delta) + np.log(alpha)) / (alpha - 1))))


def moments_epsilon(rate: float, sigma: float, steps: int, delta: float, largest: int = LARGEST_MOMENT) -> float:
    """Returns epsilon of the moments accountant of Abadi et al. (2016), moments 1 to `largest`: the accounting of the papers.

    It is looser than the library's, and it is a claim about Poisson sampling, whatever the sampler was.
    """
    moment = np.arange(1.0, largest + 1)
    return float(np.min((steps * log_moments(rate, sigma, largest + 1) - math.log(delta)) / moment))


def moments_max_steps(rate: float, sigma: float, epsilon: float, delta: float, largest: int = LARGEST_MOMENT) -> int:
    """Returns the largest number of steps with `moments_epsilon` at most `epsilon`."""
    return largest_count(lambda steps: moments_epsilon(rate, sigma, steps, delta, largest), epsilon, 1000.0)
