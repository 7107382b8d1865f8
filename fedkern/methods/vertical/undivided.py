"""What auxiliary variables do to a posterior, how much of it is taken back where it is published, and rho where a job gives none.

With v the variance of their sum, I the information of a row about its predictor and eta the predictor of the undivided model, the
augmented model of counts ends with an intercept that is too low by (v / 2) (1 + 2 I v) / (1 + I v)^2, which is v / 2 where I v is
small; a logistic one with coefficients that are sqrt(1 + a v) times too large; a Gaussian one with sigma^2 lower by v where it is
unknown. Source: docs/methods/vertical.md, section 11.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

KEPT = 0.95  # of a row's information, with the rho that is worked out
LEAST, MOST = 0.01, 0.5  # of that rho
LOGISTIC = (16 * math.sqrt(3) / (15 * math.pi)) ** 2  # variance of a normal distribution over the square of the logistic's scale
RESIDUAL = 0.1  # of the response's variance, which stands for an unknown sigma^2 before anything is known


def worked_out(link_variance: float, n_clients: int) -> float:
    """The rho that keeps `KEPT` of a row's information in the augmented model."""
    return min(max(math.sqrt(link_variance * (1 / KEPT - 1) / n_clients), LEAST), MOST)


@dataclass(frozen=True)
class Undivided:
    """From the augmented model's unknowns to those of the undivided one.

    Attributes
    ----------
    shift : is added to the intercept
    factor : multiplies intercept and clients' parts
    extra : is added to an unknown sigma^2
    """

    shift: float = 0.0
    factor: float = 1.0
    extra: float = 0.0

    def log_scale(self, w: float) -> tuple[float, float]:
        """log sigma, and its derivative in w."""
        within = math.exp(2 * w)
        return 0.5 * math.log(within + self.extra), within / (within + self.extra)


def lowered(v: float, information: float) -> float:
    """By how much the intercept of counts is too low."""
    return v / 2 * (1 + 2 * information * v) / (1 + information * v) ** 2


def enlarged(v: float) -> float:
    """By which factor logistic coefficients are too large."""
    return math.sqrt(1 + LOGISTIC * v)
