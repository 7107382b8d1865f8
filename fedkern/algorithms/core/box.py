"""Bounds the places at which clients are asked whose answers a server only adds, by numbers that each client reckons for itself.

Far away, where a word of a sum would end or single rows outweigh all others, answers tell of few rows. The box follows from the
job file and the agreed scaling alone, so that all clients refuse the same questions, whatever their rows are. A draw outside has
no weight: the posterior is cut off there, 20 prior standard deviations from its prior's mean and farther.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from .messages import RemoteFault

Array = NDArray[np.float64]

REACH = 20.0  # times a coefficient's prior sd, or `WIDEST` where that is less
WIDEST = 2.5  # of a standardised column's coefficient
LOG_RESIDUAL, LOG_SCALE, LOGIT = 9.0, 12.0, 36.0  # of a log residual scale about the agreed one, other log scales, and logits


def reach(sd: Array, standardised: NDArray[np.bool_] | bool = True) -> Array:
    """Returns how far from the prior's mean coefficients may be asked, by their prior sds; `standardised`: whose columns are.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.algorithms.core.box import reach
    >>> reach(np.array([1.0, 10.0]))
    array([20., 50.])
    """
    return REACH * np.where(standardised, np.minimum(sd, WIDEST), sd)


@dataclass(frozen=True)
class Box:
    """Holds the least and the largest value of each unknown.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.algorithms.core.box import Box
    >>> box = Box((-1.0, -2.0), (1.0, 2.0))
    >>> box.holds(np.array([[0.5, 2.0], [1.5, 0.0]])), box.nearest(np.array([1.5, 0.0]))
    (array([ True, False]), array([1., 0.]))
    """

    low: tuple[float, ...]
    high: tuple[float, ...]

    @classmethod
    def about(cls, centre: Array, reach: Array) -> Self:
        """Returns the box of places (P,) that are at most `reach` from a centre."""
        return cls(tuple((centre - reach).tolist()), tuple((centre + reach).tolist()))

    def holds(self, points: Array) -> NDArray[np.bool_]:
        """Tells which places (.., P) are inside; one that is no number is not."""
        return np.asarray(((points >= self.low) & (points <= self.high)).all(axis=-1))

    def nearest(self, points: Array) -> Array:
        """Returns the places (.., P) of the box that are nearest to these."""
        return np.clip(points, self.low, self.high)

    def check(self, points: Array, what: str) -> None:
        """Refuses a question with places outside of the box, which all clients refuse alike.

        Parameters
        ----------
        what : the name of its message

        Raises
        ------
        RemoteFault
            One is outside.
        """
        if not self.holds(points).all():
            raise RemoteFault(
                f"server: {what} asks where no client with secure sums answers: more than {REACH:g} prior standard deviations "
                f"(of a standardised column at most {WIDEST:g} each) from the prior's mean"
            )
