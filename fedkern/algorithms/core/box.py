"""Bounds the places at which a job with secure sums is asked, by numbers that every client reckons for itself.

Inside of it no number of any client leaves the words that are added, whatever its rows are. A question outside ends the job at
all clients alike: nothing about its end hangs on a row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LEVELS, WIDEST = 20.0, 2.5  # a coefficient is within so many prior standard deviations, which count as no more than the second
LOG_RESIDUAL, LOG_SCALE, LOGIT = 9.0, 12.0, 36.0  # other unknowns about 0


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

    def holds(self, values: Array) -> NDArray[np.bool_]:
        """Tells which places (.., P) are inside; one that is no number is not."""
        return np.asarray(((values >= self.low) & (values <= self.high)).all(axis=-1))

    def nearest(self, values: Array) -> Array:
        """Returns the places (.., P) of the box that are nearest to these."""
        return np.clip(values, self.low, self.high)
