"""Lists the numbers that a family has beside its coefficients, as coordinates of xi: their names and their priors.

They stand at the end of xi, in the order in which the kernels (`fedkern.kernels.mixed`) take them. A new family is an entry of
`SHAPES`; the rest of it stands in `fedkern/kernels/families.py`.

Source: docs/spec/likelihood.md, section 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...kernels.families import HALF_LOG_TAU

Vector = NDArray[np.float64]

LEAST = 1e-12  # of phi^2: beyond it a count is Poisson
LOG_HALF_NORMAL = 0.5 * math.log(2 / math.pi)  # the density of |N(0, 1)| at 0


class Density(Protocol):
    """Describes the prior of one coordinate. Its functions take values (S,) of the coordinate."""

    def value(self, x: Vector) -> Vector:
        """Returns log-densities of the number that people read: where the coordinate is its logarithm, without the Jacobian."""

    def log_jacobian(self, x: Vector) -> Vector:
        """Returns the logarithm of the Jacobian, which makes `value` a density of the coordinate."""

    def slope(self, x: Vector) -> Vector:
        """Returns the derivative of both together."""

    def curve(self, x: Vector) -> Vector:
        """Returns minus the second derivative of both together."""


@dataclass(frozen=True)
class Normal:
    """Holds the prior coordinate ~ N(mean, sd^2); people read the coordinate itself."""

    mean: float = 0.0
    sd: float = 1.0

    def value(self, x: Vector) -> Vector:
        return np.asarray(-0.5 * ((x - self.mean) / self.sd) ** 2 - math.log(self.sd) - HALF_LOG_TAU)

    def log_jacobian(self, x: Vector) -> Vector:
        return np.zeros_like(x)

    def slope(self, x: Vector) -> Vector:
        return np.asarray((self.mean - x) / self.sd**2)

    def curve(self, x: Vector) -> Vector:
        return np.full_like(x, self.sd**-2.0)


@dataclass(frozen=True)
class HalfNormal:
    """Holds the prior |coordinate| ~ HalfNormal(sd), as a density of both signs."""

    sd: float = 1.0

    def value(self, x: Vector) -> Vector:
        return np.asarray(LOG_HALF_NORMAL - math.log(self.sd) - 0.5 * (x / self.sd) ** 2)

    def log_jacobian(self, x: Vector) -> Vector:
        return np.zeros_like(x)

    def slope(self, x: Vector) -> Vector:
        return np.asarray(-x * self.sd**-2.0)

    def curve(self, x: Vector) -> Vector:
        return np.full_like(x, self.sd**-2.0)


@dataclass(frozen=True)
class LogHalfNormal:
    """Holds the prior exp(coordinate) ~ HalfNormal(sd)."""

    sd: float = 1.0

    def value(self, x: Vector) -> Vector:
        with np.errstate(over="ignore"):
            return np.asarray(LOG_HALF_NORMAL - np.log(self.sd) - 0.5 * np.exp(2 * x) / self.sd**2)

    def log_jacobian(self, x: Vector) -> Vector:
        return x

    def slope(self, x: Vector) -> Vector:
        return np.asarray(1 - np.exp(2 * x) / self.sd**2)

    def curve(self, x: Vector) -> Vector:
        return np.asarray(2 * (np.exp(2 * x) / self.sd**2))


@dataclass(frozen=True)
class LogGamma:
    """Holds the prior exp(coordinate) ~ Gamma(shape, rate)."""

    shape: float
    rate: float

    def value(self, x: Vector) -> Vector:
        with np.errstate(over="ignore"):
            constant = self.shape * math.log(self.rate) - math.lgamma(self.shape)
            return np.asarray((self.shape - 1) * x - self.rate * np.exp(x) + constant)

    def log_jacobian(self, x: Vector) -> Vector:
        return x

    def slope(self, x: Vector) -> Vector:
        return np.asarray(self.shape - self.rate * np.exp(x))

    def curve(self, x: Vector) -> Vector:
        return np.asarray(self.rate * np.exp(x))


@dataclass(frozen=True)
class Elsewhere:
    """Stands for a prior of several coordinates together, which is computed elsewhere: adds nothing."""

    def value(self, x: Vector) -> Vector:
        return np.zeros_like(x)

    def log_jacobian(self, x: Vector) -> Vector:
        return np.zeros_like(x)

    def slope(self, x: Vector) -> Vector:
        return np.zeros_like(x)

    def curve(self, x: Vector) -> Vector:
        return np.zeros_like(x)


def _logistic(x: Vector) -> Vector:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))


@dataclass(frozen=True)
class Shape:
    """Describes one number of a family.

    Attributes
    ----------
    name : of the coordinate
    read : name of the number that people read
    natural : (S,) coordinates -> (S,) of that number
    prior : of the coordinate
    start : where the way to the mode begins
    folded : whether the coordinate and its negative are the same model
    of_prior : whether it is a number of other coordinates' prior, on which rows do not depend
    called : its name in a result, where that is not `read`
    loose : whether its posterior may have heavy tails beside other coordinates that have them
    reach : how far from `start` clients are asked, where a server gets sums alone
    """

    name: str
    read: str
    natural: Callable[[Vector], Vector]
    prior: Density
    start: float = 0.0
    folded: bool = False
    of_prior: bool = False
    called: str = ""
    loose: bool = False
    reach: float = 12.0

    @property
    def label(self) -> str:
        """The number's name in a result."""
        return self.called or self.read

    def published(self, x: Vector) -> Vector:
        """Returns (S,) the number as a result has it: the square of phi, with which the variance grows."""
        return x**2 if self.folded else self.natural(x)

    def scale(self, published: Vector) -> Vector:
        """Returns (S,) the number as the family's record takes it, from a result's: r for a negative binomial."""
        return np.asarray(np.maximum(published, LEAST) ** -1) if self.folded else published


SD = Shape("log sd", "sd", np.exp, LogHalfNormal(), called="sigma", reach=9.0)
PHI = Shape("phi", "1 / sqrt r", np.abs, HalfNormal(), start=1.0, folded=True, called="dispersion")
NU = Shape("log nu", "nu", np.exp, LogGamma(2.0, 0.1), start=math.log(10.0))
SHAPE = Shape("log shape", "shape", np.exp, Normal())
PRECISION = Shape("log precision", "precision", np.exp, Normal(2.0, 1.5), start=2.0)
ZEROS = Shape("logit zeros", "structural zeros", _logistic, Normal(0.0, 1.5), start=-1.0, called="structural_zeros", loose=True)

SHAPES: dict[str, tuple[Shape, ...]] = {
    "gaussian": (SD,),
    "negative-binomial": (PHI,),
    "student": (SD, NU),
    "gamma": (SHAPE,),
    "beta": (PRECISION,),
    "zero-inflated-poisson": (ZEROS,),
    "zero-inflated-negative-binomial": (PHI, ZEROS),
    "weibull": (SHAPE,),
}
"""Families with a fixed number of them; the others have none, or those of their job (`Layout.own`)."""
