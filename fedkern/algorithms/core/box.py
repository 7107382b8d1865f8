"""Says where a server may ask clients whose answers it only adds: in a box that each client reckons for itself.

Far away, where a word of a sum would end or single rows outweigh all others, answers tell of few rows. The box follows from the
job file and the agreed scaling alone, so all clients refuse the same questions, whatever their rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .messages import RemoteFault

Array = NDArray[np.float64]

REACH = 20.0  # times a coefficient's prior sd, or `WIDEST` where that is less
WIDEST = 2.5  # of a standardised column's coefficient
RESIDUAL, SHAPE = 9.0, 12.0  # of logarithms: of a residual scale about the agreed one, of other scales and shapes


def reach(sd: Array, standardised: Array | bool = True) -> Array:
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
    """Holds a box of points (P,), its borders included.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.algorithms.core.box import Box
    >>> Box(np.zeros(2), np.ones(2)).holds(np.array([[0.5, -1.0], [0.0, 2.0]]))
    array([ True, False])
    """

    centre: Array
    reach: Array

    def holds(self, points: Array) -> NDArray[np.bool_]:
        """Tells which points (.., P) are in the box; a number that is none is not."""
        return np.asarray((np.abs(points - self.centre) <= self.reach).all(axis=-1))

    def check(self, points: Array, what: str) -> None:
        """Refuses a question (RemoteFault) with points outside of the box; `what`: the name of its message."""
        if not self.holds(points).all():
            raise RemoteFault(
                f"server: {what} asks where no client with secure sums answers: more than {REACH:g} prior standard deviations "
                "(of a standardised column at most 2.5 each) from the prior's mean; if the posterior is there, the job is to be "
                "run without job.sums, or with other units or a wider prior"
            )
