"""The numbers that a family has beside its coefficients, as coordinates of xi: what they are called, and their priors.

They stand at the end of xi, in the order in which the kernels (`fedkern.kernels.mixed`) take them. A new family is an entry of
`SHAPES`; what it is otherwise stands in `fedkern/kernels/families.py`.

Source: docs/methods/likelihood.md, section 3.
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
    """The prior of one coordinate. Functions are of its values (S,)."""

    def value(self, x: Vector) -> Vector:
        """Log-densities of what people read: of a logarithm without its Jacobian."""

    def log_jacobian(self, x: Vector) -> Vector:
        """What makes it a density of the coordinate."""

    def slope(self, x: Vector) -> Vector:
        """The derivative of both together."""

    def curve(self, x: Vector) -> Vector:
        """Minus the second derivative of both together."""


@dataclass(frozen=True)
class Normal:
    """The coordinate ~ N(mean, sd^2): itself what people read."""

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
    """The absolute value of the coordinate ~ HalfNormal(sd): its density, of both signs."""

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
    """exp of the coordinate ~ HalfNormal(sd)."""

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
    """exp of the coordinate ~ Gamma(shape, rate)."""

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
    """Nothing: the prior of the coordinate is one of several together, and stands elsewhere."""

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
    """One number of a family.

    Attributes
    ----------
    name : of the coordinate
    read : what people read
    natural : (S,) coordinates -> what people read
    prior : of the coordinate
    start : where the way to the mode begins
    folded : whether the coordinate and its negative say the same
    of_prior : whether it is a number of other coordinates' prior, of which rows know nothing
    called : the name in a result, where that is not as `read`
    loose : whether its posterior may have heavy tails beside other coordinates that have them
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

    @property
    def label(self) -> str:
        """In a result."""
        return self.called or self.read

    def published(self, x: Vector) -> Vector:
        """(S,) coordinates -> what a result says: of phi its square, with which the variance grows."""
        return x**2 if self.folded else self.natural(x)

    def scale(self, published: Vector) -> Vector:
        """(S,) what a result says -> as the family's record takes it: of a negative binomial r."""
        return np.asarray(np.maximum(published, LEAST) ** -1) if self.folded else published


SD = Shape("log sd", "sd", np.exp, LogHalfNormal(), called="sigma")
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
"""Of families with a fixed number of them; families that are not here have none, or what their job says (`Layout.own`)."""
