"""Coordinates of xi in which the posterior is nearly standard normal, where its curvature at the mode is known.

The server walks in z, xi = mode + B z with B B' the inverse of the precision at the mode; clients are asked at xi. What adapts in
the warm-up are the standard deviations of z.
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
    """xi = centre + B z.

    Attributes
    ----------
    centre, factor : (P,), (P, P) B
    """

    centre: Array
    factor: Array

    @classmethod
    def of(cls, mode: Array, precision: Array) -> Metric:
        """From the mode and minus the Hessian of the log-density there, positive definite."""
        L = np.linalg.cholesky(precision)
        return cls(mode, solve_triangular(L, np.eye(len(mode)), lower=True).T)

    def sent(self, z: Array) -> Array:
        """(.., P) xi."""
        return np.asarray(self.centre + z @ self.factor.T)

    def of_xi(self, xi: Array) -> Array:
        """(c, P) z."""
        return np.asarray(np.linalg.solve(self.factor, (xi - self.centre).T).T)

    def slope(self, gradient: Array) -> Array:
        """(c, P) A gradient in xi as one in z."""
        return np.asarray(gradient @ self.factor)
