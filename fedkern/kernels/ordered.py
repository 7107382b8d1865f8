"""Ordered levels: functions of rows whose response is the number of a level, for the records of `families`.

P(y <= k) = F(c_k - eta), y = 0 .. K - 1: a latent number about eta, whose noise has the distribution function F (logistic, or
normal: probit), is cut at the thresholds. `scale` is (K - 1, ..): the first threshold, and the gaps from each to the next.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ._special import special as _special

Vector = NDArray[np.float64]

HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


def thresholds(scale: object, eta: Vector) -> Vector:
    """(K - 1, ..) as wide as eta."""
    return np.cumsum([np.broadcast_to(one, eta.shape) for one in np.asarray(scale)], axis=0)


def cuts(y: Vector, eta: Vector, scale: object) -> tuple[Vector, Vector]:
    """The ends of each row's level, about eta."""
    eta = np.asarray(eta, np.float64)
    c = thresholds(scale, eta)
    ends = np.concatenate([np.full((1, *eta.shape), -np.inf), c, np.full((1, *eta.shape), np.inf)])
    at = np.broadcast_to(np.asarray(y).astype(np.int64), eta.shape)[np.newaxis]
    low, high = (np.take_along_axis(ends, at + k, axis=0)[0] for k in (0, 1))
    return low - eta, high - eta


def log_between(low: Vector, high: Vector) -> Vector:
    """log(F(high) - F(low)) = log F(high) + log(1 - F(low)) + log(1 - e^(low - high)): all of one sign."""
    with np.errstate(divide="ignore"):
        return np.asarray(-np.logaddexp(0.0, -high) - np.logaddexp(0.0, low) + np.log(-np.expm1(low - high)))


def log_normal_between(low: Vector, high: Vector) -> Vector:
    """The same of the normal distribution, on the side where its tail has digits."""
    low, high = np.where(low > 0, -high, low), np.where(low > 0, -low, high)
    more, less = _special("log_ndtr")(high), _special("log_ndtr")(low)
    with np.errstate(divide="ignore"):
        return np.asarray(more + np.log(-np.expm1(less - more)))


def _ends(low: Vector, high: Vector) -> tuple[Vector, Vector]:
    """Normal densities at both ends, over the probability between them."""
    log_chance = log_normal_between(low, high)
    at = [np.asarray(np.exp(-0.5 * x**2 - HALF_LOG_TAU - log_chance)) for x in (low, high)]
    return at[0], at[1]


def slope(y: Vector, eta: Vector, scale: object) -> Vector:
    """d log p / d eta, of logistic noise."""
    low, high = cuts(y, eta, scale)
    expit = _special("expit")
    return np.asarray(expit(low) - expit(-high))


def information(y: Vector, eta: Vector, scale: object) -> Vector:
    """Minus the second derivative, of logistic noise."""
    low, high = cuts(y, eta, scale)
    expit = _special("expit")
    return np.asarray(expit(low) * expit(-low) + expit(high) * expit(-high))


def normal_slope(y: Vector, eta: Vector, scale: object) -> Vector:
    """d log p / d eta, of normal noise."""
    below, above = _ends(*cuts(y, eta, scale))
    return below - above


def normal_information(y: Vector, eta: Vector, scale: object) -> Vector:
    """Minus the second derivative, of normal noise."""
    low, high = cuts(y, eta, scale)
    below, above = _ends(low, high)
    low, high = (np.where(np.isfinite(x), x, 0.0) for x in (low, high))
    return np.asarray((below - above) ** 2 + high * above - low * below)


def level_of(latent: Vector, scale: object) -> Vector:
    """How many thresholds a latent number is above."""
    return np.asarray((latent > thresholds(scale, latent)).sum(axis=0), np.float64)


def logistic(u: Vector) -> Vector:
    """Logistic noise of uniform numbers."""
    return np.asarray(np.log(u) - np.log1p(-u))
