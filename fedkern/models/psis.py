"""Smooths the largest importance weights by a generalised Pareto distribution, and computes leave-one-out densities by them.

Sources: Vehtari, Simpson, Gelman, Yao and Gabry, 2024; Vehtari, Gelman and Gabry, 2017.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy

from ..arrays import Array

GOOD = 0.5  # k-hat up to which it says much
UNRELIABLE = 0.7  # k-hat above which an estimate says little
LEAST_TAIL = 5  # draws
FEWEST = 21  # draws that have such a tail


def limit(draws: int) -> float:
    """Returns the largest k-hat with which weights of this number of draws can be trusted: with few of them a lower one."""
    return min(UNRELIABLE, 1 - 1 / math.log10(draws)) if draws > 10 else 0.0


@dataclass(frozen=True)
class LeftOut:
    """Holds d quantities, each predicted without itself."""

    elpd: Array  # (d,) log predictive densities
    effective: Array  # (d,) by how much the density with it is higher: the effective number of parameters
    k_hat: Array  # (d,) shape of the weights' tail
    weights: Array  # (m, d) of the draws, each column's sum 1


def left_out(log_likelihood: Array) -> LeftOut:
    """Computes them from the log-likelihoods (m, d) of d quantities at m draws of the posterior of all of them.

    Source: Vehtari, Gelman and Gabry (2017), Practical Bayesian model evaluation.
    """
    smooth = [smoothed(-column) for column in log_likelihood.T]
    log_weights = np.array([row[0] for row in smooth]).reshape(log_likelihood.shape[::-1]).T
    elpd = scipy.special.logsumexp(log_weights + log_likelihood, axis=0)
    with_it = scipy.special.logsumexp(log_likelihood, axis=0) - np.log(len(log_likelihood))
    return LeftOut(elpd, with_it - elpd, np.array([row[1] for row in smooth]), np.exp(log_weights))


def smoothed(log_ratios: Array) -> tuple[Array, float]:
    """Returns logarithms of normalised weights (m,), and k-hat; infinite where too few ratios differ for a tail."""
    x = log_ratios - log_ratios.max()
    n = len(x)
    order = np.argsort(x, kind="stable")
    cut = max(float(x[order[-int(np.ceil(min(n / 5, 3 * np.sqrt(n)))) - 1]]), float(np.log(np.finfo(float).tiny)))
    tail = order[x[order] > cut]
    k_hat = np.inf
    if len(tail) >= LEAST_TAIL:
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            k_hat, scale = _pareto(np.exp(x[tail]) - np.exp(cut))
            if not np.isfinite(k_hat):  # ratios of which nearly all vanish beside the largest: no tail is that heavy
                k_hat = np.inf
            else:
                share = (np.arange(len(tail)) + 0.5) / len(tail)
                beyond = scale * np.expm1(-k_hat * np.log1p(-share)) / k_hat if k_hat else -scale * np.log1p(-share)
                x[tail] = np.minimum(np.log(beyond + np.exp(cut)), 0.0)
    return np.asarray(x - scipy.special.logsumexp(x)), float(k_hat)


def _pareto(excess: Array) -> tuple[float, float]:
    """Fits shape and scale of a generalised Pareto distribution, by Zhang and Stephens (2009).

    The shape is drawn to 1/2 as by ten more observations. `excess`: (n,) ascending.
    """
    n = len(excess)
    several = 30 + int(np.sqrt(n))
    b = (1 - np.sqrt(several / (np.arange(several) + 0.5))) / (3 * excess[int(n / 4 + 0.5) - 1]) + 1 / excess[-1]
    k = np.log1p(-b[:, np.newaxis] * excess).mean(axis=1)
    profile = n * (np.log(-b / k) - k - 1)
    weights = np.exp(profile - scipy.special.logsumexp(profile))
    weights = np.where(weights >= 10 * np.finfo(float).eps, weights, 0.0)
    middle = float((b * weights).sum() / weights.sum()) if weights.any() else np.nan
    shape = float(np.log1p(-middle * excess).mean())
    return (n * shape + 5) / (n + 10), -shape / middle
