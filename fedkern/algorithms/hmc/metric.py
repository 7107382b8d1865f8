"""Changes the coordinates of xi so that the posterior is nearly standard normal, if its curvature at the mode is known.

The server walks in z, xi = mode + B z with B B' the inverse of the precision at the mode; clients are asked at xi. In the warm-up
the standard deviations of z adapt.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

Array = NDArray[np.float64]

# Standard deviations from the mode: a trajectory that goes further is rejected, and nobody is asked there. While steps adapt
# chains went thousands away, where a log-likelihood is a sum over the few rows next to a plane, and told all rows; the posterior
# has next to nothing beyond, of log scales near 0 neither (e^-14, where a standard deviation is .7).
FAR = 20.0


@dataclass(frozen=True)
class Metric:
    """Holds the map xi = centre + B z.

    Attributes
    ----------
    centre, factor : (P,), (P, P) B
    """

    centre: Array
    factor: Array

    @classmethod
    def of(cls, mode: Array, precision: Array) -> Metric:
        """Returns the metric from the mode and minus the Hessian of the log-density there, positive definite."""
        L = np.linalg.cholesky(precision)
        return cls(mode, solve_triangular(L, np.eye(len(mode)), lower=True).T)

    def sent(self, z: Array) -> Array:
        """Returns xi (.., P), which is sent."""
        return np.asarray(self.centre + z @ self.factor.T)

    def of_xi(self, xi: Array) -> Array:
        """Returns z (c, P)."""
        return np.asarray(np.linalg.solve(self.factor, (xi - self.centre).T).T)

    def slope(self, gradient: Array) -> Array:
        """Returns a gradient in xi as one in z (c, P)."""
        return np.asarray(gradient @ self.factor)
