"""Names the types of arrays, once: of numbers, of places and of yes and no."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Floats = NDArray[np.float64]  # in signatures of kernels
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]
