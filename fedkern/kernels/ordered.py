"""Computes rows of ordered levels, whose response is the number of a level, for the records of `families`.

P(y <= k) = F(c_k - eta), y = 0 .. K - 1: a latent number about eta, whose noise has the distribution function F (logistic, or
normal: probit), is cut at the thresholds. `scale` is (K - 1, ..): the first threshold, and the gaps from each to the next.
"""

from __future__ import annotations

import math

import numpy as np

from ..arrays import Vector
from ._rows import special

HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


def thresholds(scale: object, eta: Vector) -> Vector:
    """Returns the thresholds (K - 1, ..), each as wide as eta.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import ordered
    >>> scale = np.array([-1.0, 2.0])  # thresholds -1 and 1: three levels
    >>> ordered.thresholds(scale, np.zeros(2))
    array([[-1., -1.],
           [ 1.,  1.]])
    """
    return np.cumsum([np.broadcast_to(number, eta.shape) for number in np.asarray(scale)], axis=0)


def cuts(y: Vector, eta: Vector, scale: object) -> tuple[Vector, Vector]:
    """Returns the ends of each row's level, less eta.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import ordered
    >>> scale = np.array([-1.0, 2.0])  # thresholds -1 and 1: three levels
    >>> ordered.cuts(np.array([0.0, 1.0, 2.0]), np.zeros(3), scale)
    (array([-inf,  -1.,   1.]), array([-1.,  1., inf]))
    """
    eta = np.asarray(eta, np.float64)
    c = thresholds(scale, eta)
    ends = np.concatenate([np.full((1, *eta.shape), -np.inf), c, np.full((1, *eta.shape), np.inf)])
    number = np.broadcast_to(np.asarray(y).astype(np.int64), eta.shape)[np.newaxis]
    low, high = (np.take_along_axis(ends, number + k, axis=0)[0] for k in (0, 1))
    return low - eta, high - eta


def log_between(low: Vector, high: Vector) -> Vector:
    """Returns log(F(high) - F(low)) = log F(high) + log(1 - F(low)) + log(1 - e^(low - high)), F logistic: all terms have one
    sign.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import ordered
    >>> np.exp(ordered.log_between(np.array([-np.inf, 0.0]), np.array([0.0, np.inf]))).round(3)
    array([0.5, 0.5])
    """
    with np.errstate(divide="ignore"):
        return np.asarray(-np.logaddexp(0.0, -high) - np.logaddexp(0.0, low) + np.log(-np.expm1(low - high)))


def log_normal_between(low: Vector, high: Vector) -> Vector:
    """Returns log(F(high) - F(low)) of the normal distribution, on the side where its tail has digits.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import ordered
    >>> np.exp(ordered.log_normal_between(np.array([-1.96]), np.array([1.96]))).round(3)
    array([0.95])
    """
    low, high = np.where(low > 0, -high, low), np.where(low > 0, -low, high)
    more, less = special("log_ndtr")(high), special("log_ndtr")(low)
    with np.errstate(divide="ignore"):
        return np.asarray(more + np.log(-np.expm1(less - more)))


def _ends(low: Vector, high: Vector) -> tuple[Vector, Vector]:
    """Returns normal densities at both ends, over the probability between them."""
    log_chance = log_normal_between(low, high)
    ratios = [np.asarray(np.exp(-0.5 * x**2 - HALF_LOG_TAU - log_chance)) for x in (low, high)]
    return ratios[0], ratios[1]


def slope(y: Vector, eta: Vector, scale: object) -> Vector:
    """Returns d log p / d eta of logistic noise.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import ordered
    >>> scale = np.array([-1.0, 2.0])  # thresholds -1 and 1: three levels
    >>> ordered.slope(np.array([0.0, 1.0, 2.0]), np.full(3, 0.5), scale).round(3)
    array([-0.818, -0.195,  0.622])
    """
    low, high = cuts(y, eta, scale)
    expit = special("expit")
    return np.asarray(expit(low) - expit(-high))


def information(y: Vector, eta: Vector, scale: object) -> Vector:
    """Returns minus the second derivative of log p in eta, of logistic noise.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import ordered
    >>> scale = np.array([-1.0, 2.0])  # thresholds -1 and 1: three levels
    >>> ordered.information(np.array([0.0, 1.0, 2.0]), np.zeros(3), scale).round(3)
    array([0.197, 0.393, 0.197])
    """
    low, high = cuts(y, eta, scale)
    expit = special("expit")
    return np.asarray(expit(low) * expit(-low) + expit(high) * expit(-high))


def normal_slope(y: Vector, eta: Vector, scale: object) -> Vector:
    """Returns d log p / d eta of normal noise.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import ordered
    >>> scale = np.array([-1.0, 2.0])  # thresholds -1 and 1: three levels
    >>> ordered.normal_slope(np.array([0.0, 1.0, 2.0]), np.full(3, 0.5), scale).round(3)
    array([-1.939, -0.356,  1.141])
    """
    below, above = _ends(*cuts(y, eta, scale))
    return below - above


def normal_information(y: Vector, eta: Vector, scale: object) -> Vector:
    """Returns minus the second derivative of log p in eta, of normal noise.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import ordered
    >>> scale = np.array([-1.0, 2.0])  # thresholds -1 and 1: three levels
    >>> ordered.normal_information(np.array([0.0, 1.0, 2.0]), np.zeros(3), scale).round(3)
    array([0.801, 0.709, 0.801])
    """
    low, high = cuts(y, eta, scale)
    below, above = _ends(low, high)
    low, high = (np.where(np.isfinite(x), x, 0.0) for x in (low, high))
    return np.asarray((below - above) ** 2 + high * above - low * below)


def level_of(latent: Vector, scale: object) -> Vector:
    """Returns how many thresholds a latent number is above.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import ordered
    >>> scale = np.array([-1.0, 2.0])  # thresholds -1 and 1: three levels
    >>> ordered.level_of(np.array([-3.0, 0.0, 3.0]), scale)
    array([0., 1., 2.])
    """
    return np.asarray((latent > thresholds(scale, latent)).sum(axis=0), np.float64)


def logistic(u: Vector) -> Vector:
    """Returns logistic noise of uniform numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import ordered
    >>> ordered.logistic(np.array([0.25, 0.5, 0.75])).round(3)
    array([-1.099,  0.   ,  1.099])
    """
    return np.asarray(np.log(u) - np.log1p(-u))
