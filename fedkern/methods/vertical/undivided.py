"""Converts the augmented model's posterior to that of the undivided model, and works out rho where a job gives none.

With v the variance of the auxiliary variables' sum and I the information of a row about its predictor, the augmented model of
counts ends with an intercept that is too low by (v / 2) (1 + 2 I v) / (1 + I v)^2, which is v / 2 where I v is small; a logistic
one with a predictor that is farther from 0 by (v / 2) |1 - 2 p|, to first order: its slopes are about 1 + v E p (1 - p) times too
large; a Gaussian one with sigma^2 lower by v where it is unknown. Source: docs/spec/vertical.md, section 11.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from ...arrays import Array
from ...models.likelihood import Likelihood
from ...models.mixed.quadrature import even

KEPT = 0.95  # of a row's information, with the rho that is worked out
LEAST, MOST = 0.01, 0.5  # of that rho
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(20)  # of a logistic predictor about its mean, with variance 1
MARGINAL = 0.346  # P(y = 1) = expit(m / sqrt(1 + MARGINAL)) of such a predictor, closely
RESIDUAL = 0.1  # of the response's variance, which stands for an unknown sigma^2 before anything is known


def work_out_rho(link_variance: float, n_clients: int) -> float:
    """Returns the rho that keeps `KEPT` of a row's information in the augmented model."""
    return min(max(math.sqrt(link_variance * (1 / KEPT - 1) / n_clients), LEAST), MOST)


@dataclass(frozen=True)
class Undivided:
    """Converts the augmented model's unknowns to those of the undivided one."""

    low: float = 0.0  # by how much the intercept of counts is too low
    spread: float = 0.0  # v of a logistic model, whose intercept is moved by it
    factor: float = 1.0  # multiplies the clients' parts
    extra: float = 0.0  # is added to an unknown sigma^2

    def intercept(self, b: float) -> tuple[float, float]:
        """Returns the intercept, and its derivative in b."""
        p = float(expit(b)) if self.spread else 0.5
        return b + self.low + self.spread / 2 * (1 - 2 * p), 1 - self.spread * p * (1 - p)

    def log_scale(self, w: float) -> tuple[float, float]:
        """Returns log sigma, and its derivative in w."""
        within = math.exp(2 * w)
        return 0.5 * math.log(within + self.extra), within / (within + self.extra)


def lowered(v: float, information: float) -> float:
    """Returns by how much the intercept of counts is too low."""
    return v / 2 * (1 + 2 * information * v) / (1 + information * v) ** 2


def lowered_at(likelihood: Likelihood, y: Array, eta: Array, v: float) -> float:
    """Returns the same for these rows, by the best intercepts with and without N(0, v) in their predictors.

    (For negative binomials with a small r the formula, which is of first order in v, is up to twice as much.)
    """
    t, w = even(math.sqrt(v * float(np.max(likelihood.sd()))))  # a row's information is r at most
    e = math.sqrt(v) * t

    def without(d: float) -> float:
        return float(likelihood.slope(y, eta + d).sum())

    def within(d: float) -> float:
        predictors = eta[:, None] + (d + e)
        log = likelihood.value(y[:, None], predictors)
        p = np.exp(log - log.max(axis=1, keepdims=True)) * w
        return float(((p * likelihood.slope(y[:, None], predictors)).sum(axis=1) / p.sum(axis=1)).sum())

    reach = 3 + 2 * v
    if not all(slope(-reach) > 0 > slope(reach) for slope in (without, within)):  # no count, or a fit far from its optimum
        return lowered(v, 1 / likelihood.link_variance(y))
    from scipy.optimize import brentq  # which no other part of a vertical job imports

    return float(brentq(without, -reach, reach) - brentq(within, -reach, reach))


def enlarged(v: float, level: float) -> float:
    """Returns the factor by which logistic slopes are too large, where a share `level` of the responses is 1.

    The mean of p (1 - p) is taken with weights p (1 - p), for predictors of variance 1 about the mean that goes with `level`.
    """
    level = min(max(level, 1e-6), 1 - 1e-6)
    p = expit(math.sqrt(1 + MARGINAL) * math.log(level / (1 - level)) + NODES)
    w = p * (1 - p)
    return math.sqrt(1 + 2 * v * float(WEIGHTS @ w**2 / (WEIGHTS @ w)))
