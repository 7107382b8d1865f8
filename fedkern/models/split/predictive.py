"""Predicts from a linear predictor that is Gaussian under the posterior, and scores predictions.

Rules: "plug-in" (the inverse link at the predictor's mean), "posterior" (averaged over the posterior of coefficients; no rho),
"augmented" (with N(0, J rho^2) added to the predictor). Averages are sums over equal steps. Source:
docs/spec/vertical.md, section 11.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from scipy.special import logsumexp

from ...arrays import Vector
from ..likelihood import Likelihood
from ..mixed.quadrature import even

RULES = ("posterior", "plug-in", "augmented")
MOST_NODES, NEAR = 4000, 1e-6  # of one row; between a step and its half
BLOCK = 1000  # rows at once
BINS = 10


def predicted(likelihood: Likelihood, mean: Vector, variance: Vector) -> Vector:
    """Returns E[y] of each row, its predictor being N(mean, variance)."""
    return _averaged(lambda eta, rows: likelihood.mean(eta), mean, variance, np.matmul, lambda first, other: (first + other) / 2)


def log_density(likelihood: Likelihood, y: Vector, mean: Vector, variance: Vector, log_scale: float = 0.0) -> Vector:
    """Returns log E[p(y | eta)] of each row."""

    def values(eta: Vector, rows: slice) -> Vector:
        return likelihood.value(np.broadcast_to(y[rows, None], eta.shape), eta, log_scale)

    def added(values: Vector, weights: Vector) -> Vector:
        return np.asarray(logsumexp(values, axis=1, b=weights))

    return _averaged(values, mean, variance, added, lambda first, other: np.logaddexp(first, other) - math.log(2))


def _averaged(
    values: Callable[[Vector, slice], Vector],
    mean: Vector,
    variance: Vector,
    added: Callable[[Vector, Vector], Vector],
    joined: Callable[[Vector, Vector], Vector],
) -> Vector:
    """Returns (n,) averages of `values` over N(mean, variance).

    Steps are halved until that changes nothing: the density of a large count is a narrow peak, which any fixed rule would miss.

    Parameters
    ----------
    values : of predictors (rows, nodes), and the rows that these are
    added : values (rows, nodes) and weights (nodes,) -> (rows,) average
    joined : averages over two sets of as many nodes -> over both
    """
    out, sd = np.empty(len(mean)), np.sqrt(variance)
    for first in range(0, len(mean), BLOCK):
        rows = slice(first, first + BLOCK)

        def over(nodes: Vector, rows: slice = rows) -> Vector:
            weights = np.exp(-0.5 * nodes**2)
            return added(values(mean[rows, None] + sd[rows, None] * nodes, rows), weights / weights.sum())

        nodes = even(float(sd[rows].max()))[0] if sd[rows].any() else np.zeros(1)
        found = over(nodes)
        while 1 < len(nodes) < MOST_NODES:
            between = (nodes[:-1] + nodes[1:]) / 2
            before, found = found, joined(found, over(between))
            nodes = np.linspace(nodes[0], nodes[-1], 2 * len(nodes) - 1)
            if (np.abs(found - before) < NEAR * np.maximum(1.0, np.abs(found))).all():
                break
        out[rows] = found
    return out


def spread(rule: str, variance: Vector, n_clients: int, rho: float) -> Vector:
    """Returns the predictor's variance under a rule, given that of the posterior."""
    if rule == "plug-in":
        return np.zeros_like(variance)
    extra = n_clients * rho**2 if rule == "augmented" else 0.0
    return variance + extra


def scores(likelihood: Likelihood, y: Vector, mean: Vector, variance: Vector, log_scale: float = 0.0) -> dict[str, float]:
    """Scores how well rows are predicted. Returns log_likelihood, the mean log predictive density; bernoulli: accuracy at 1/2,
    brier, log_likelihood_wrong (over wrong predictions; absent where there is none), calibration_error (mean |frequency -
    probability| over ten bins, weighted by rows); otherwise rmse of the predictive mean, and coverage_90 of the central 90 %
    interval (gaussian)."""
    p = predicted(likelihood, mean, variance)
    density = log_density(likelihood, y, mean, variance, log_scale)
    out = {"log_likelihood": float(density.mean())}
    if not likelihood.record.binary:
        out["rmse"] = float(np.sqrt(((y - p) ** 2).mean()))
        if likelihood.record.linear:
            sd = np.sqrt(variance + likelihood.link_variance(y, log_scale))
            out["coverage_90"] = float((np.abs(y - p) < 1.6448536269514722 * sd).mean())
        return out
    right = (p > 0.5) == (y > 0.5)
    out |= {"accuracy": float(right.mean()), "brier": float(((p - y) ** 2).mean()), "calibration_error": _calibration(p, y)}
    if right.all():
        return out
    return out | {"log_likelihood_wrong": float(density[~right].mean())}


def _calibration(p: Vector, y: Vector) -> float:
    """Returns the mean |frequency - probability| over bins, weighted by rows."""
    bins = np.minimum((p * BINS).astype(int), BINS - 1)
    sums = np.bincount(bins, weights=p - y, minlength=BINS)
    return float(np.abs(sums).sum() / len(p))


def without(
    party: int, mean: Vector, variance: Vector, moments: tuple[Vector, Vector], rho: float
) -> Mapping[str, tuple[Vector, Vector]]:
    """Returns mean and variance of sum_j g_j at rows that lack a party.

    Parameters
    ----------
    party : the one that is missing
    mean, variance : (J, t) of the clients' parts; those of `party` are not read
    moments : (J,) mean and (J, J) covariance of E z over the training rows
    rho : added, squared, to the variance of the filled part

    Returns
    -------
    "conditional": z of the party from its Gaussian conditional given the others; "mean": from its mean alone
    """
    centre, covariance = moments
    here = np.array([k for k in range(len(mean)) if k != party], dtype=int)
    block, given = covariance[party, party], covariance[party, here]
    slope = np.linalg.lstsq(covariance[np.ix_(here, here)], given, rcond=None)[0]
    total, spread_of_others = mean[here].sum(axis=0), variance[here].sum(axis=0)
    filled = centre[party] + slope @ (mean[here] - centre[here, None])
    left = max(float(block - slope @ given), 0.0)
    return {
        "conditional": (total + filled, spread_of_others + (left + rho**2)),
        "mean": (total + centre[party], spread_of_others),
    }
