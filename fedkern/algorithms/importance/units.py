"""Says how finely a client tells log-likelihoods and their derivatives: as the answer needs them, and no finer.

A unit is a power of two, so that numbers are sums of few bits and a sum over clients, masked or not, loses none of them. It
follows from the question, from what all parties know and from the client's own likelihood, so that the same question has the
same answer; no key sets it, and of what a server sends but the number of one of the job's priors. Source:
docs/spec/likelihood.md, section 6.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .newton import Metric

Array = NDArray[np.float64]

OF_VALUES = 0.05  # nats of all clients' sum: importance weights are worth as many draws as with all digits
FAR = 10.0  # times as much for a draw far out: half a nat, by which weights are a hundredth too large in the mean
OF_GRADIENTS = 0.005  # posterior sds by which the mode moves with a unit of all clients' gradients
OF_CURVATURES = 0.01  # of a curvature: half of it is by how much the posterior sd changes
OF_CHAINS = 0.1  # of gradients for chains, of which the acceptance rate alone depends on them
FINEST = -60  # of two: below it masked words have no digits


def power(unit: ArrayLike) -> Array:
    """Returns the least powers of two that are not below these units.

    Examples
    --------
    >>> from fedkern.algorithms.importance.units import power
    >>> power([0.05, 0.25]).tolist()
    [0.0625, 0.25]
    """
    mantissa, exponent = np.frexp(np.asarray(unit, np.float64))
    return np.ldexp(1.0, np.maximum(np.where(mantissa == 0.5, exponent - 1, exponent), FINEST))


def told(numbers: ArrayLike, unit: Array | float) -> Array:
    """Returns the multiples of powers of two that are nearest to the numbers; none is -0.

    Examples
    --------
    >>> from fedkern.algorithms.importance.units import told
    >>> told([0.7, -0.01], 0.25).tolist()
    [0.75, 0.0]
    """
    return np.asarray(np.rint(np.asarray(numbers, np.float64) / unit) * unit + 0.0)


def of_draws(points: Array, log_density: Array) -> Array:
    """Returns (s,) how many times the unit of each draw's value is that of a typical draw, 1 to `FAR`.

    It is how many nats the draw lies below the median one, in the normal distribution that the draws follow and in the posterior
    that all clients would have if each were as this one, where it is less: a draw far out has next to no weight, and its value is
    nearly that of the few rows that lie as far out. In another mode, or in a heavy tail, it has weight.

    Parameters
    ----------
    points : (s, P) the draws
    log_density : (s,) of that posterior

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.algorithms.importance.units import of_draws
    >>> points = np.array([[-1.0], [1.0], [0.0], [9.0], [9.0]])
    >>> of_draws(points, np.array([0.0, 0.0, 0.1, -99.0, -3.0])).tolist()
    [1.0, 1.0, 1.0, 7.5, 3.0]
    """
    away = points - np.median(points, axis=0)
    square = ((away @ Metric.of(away.T @ away).factor) ** 2).sum(axis=1)
    typical = max(float(np.median(square)), np.finfo(np.float64).tiny)
    far = points.shape[1] / 2 * (square / typical - 1)
    return np.asarray(np.clip(np.minimum(far, np.median(log_density) - log_density), 1.0, FAR))


def of_derivatives(curvature: Array, prior: Array, clients: int) -> tuple[Array, Array]:
    """Returns the units of a gradient (P,) and of minus a Hessian (P, P), each a power of two.

    They are those of the posterior that all clients would have if each had this one's curvature: added up over clients, squares
    of the gradients' units are those of the posterior's own curvature, whichever client tells most of it.

    Parameters
    ----------
    curvature, prior : (P, P) minus the Hessian of the client's log-likelihood, and of the log prior
    clients : their number

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.algorithms.importance.units import of_derivatives
    >>> gradient, hessian = of_derivatives(np.diag([100.0, 0.0]), np.eye(2), 4)
    >>> gradient.tolist(), hessian.tolist()
    ([0.0625, 0.00390625], [[4.0, 0.125], [0.125, 0.0078125]])
    """
    B = Metric.of(prior + clients * curvature).factor
    sd = np.sqrt((B**2).sum(axis=1))
    # Errors of numbers that go together add up in a coordinate's way to the mode: in so many of them, in the one with most.
    together = float((((B @ B.T) / np.outer(sd, sd)) ** 2).sum(axis=1).max())
    each = np.sqrt(clients) * sd
    return power(OF_GRADIENTS / (each * np.sqrt(together))), power(OF_CURVATURES / (np.outer(each, sd) * together))
