"""Tells each client of a vertical job what the server alone knows: it has the response. Nothing is answered.

Source: docs/spec/vertical.md, sections 3 and 11.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..core.legs import Conditions, Told


@dataclass(frozen=True)
class AuxiliarySd(Told, kind=76, name="auxiliary-sd"):
    """Server to client: rho, the standard deviation of z about g, and the factor of the client's coefficients at the end."""

    round: int
    rho: float
    factor: float

    def honest(self) -> Conditions:
        possible = np.isfinite(self.rho) and self.rho > 0 and 0 < self.factor <= 1
        yield possible, f"AuxiliarySd of {self.rho:g} and {self.factor:g} cannot be"


# The server has the weights of rows, and all that every client has sent of them, hence by how much q is too narrow. With it go
# the means of the slopes that clients of a logistic job were sent (in other jobs none: n is 0).
@dataclass(frozen=True)
class Narrow(Told, kind=77, name="narrow"):
    """Server to client: standard deviations along your part of the predictor over those that the joint posterior has; the mean
    of each row's slopes over the last half of the rounds, 0 where it was never seen."""

    round: int
    ratio: float
    slopes: Annotated[NDArray[np.float64], "n"]

    def honest(self) -> Conditions:
        yield 0 < self.ratio <= 1, f"Narrow of {self.ratio:g} cannot be"
        yield bool((np.abs(self.slopes) <= 1).all()), "Narrow.slopes of a logistic model cannot be beyond 1"
