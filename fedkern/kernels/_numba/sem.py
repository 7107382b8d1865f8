"""Computes the cyclic structural equation model for Numba: the text of the reference, compiled."""

import numpy as np

from .._reference import sem as _text
from . import rng
from ._jit import compiled, copied, scalar
from .shrinkage.server import local_variances


@scalar
def is_contraction(matrix):
    """Tells whether the spectral radius is below 1, from the powers T^(2^k), their traces and their row and column sums."""
    p = matrix.shape[0]
    T, square, columns = matrix.copy(), np.empty((p, p)), np.empty(p)
    for _ in range(64):
        trace, rows = 0.0, 0.0
        columns[:] = 0.0
        for i in range(p):
            trace += T[i, i]
            row = 0.0
            for k in range(p):
                row += abs(T[i, k])
                columns[k] += abs(T[i, k])
            rows = max(rows, row)
        most = 0.0
        for k in range(p):
            most = max(most, columns[k])
        bound = min(rows, most)
        if not (abs(trace) <= p and bound < 1e150):
            return False
        if bound < 1.0:
            return True
        square[:] = 0.0
        for i in range(p):
            for k in range(p):
                for h in range(p):
                    square[i, h] += T[i, k] * T[k, h]
        T, square = square, T
    return False


_compiled = compiled(_text, rng=rng, copied=copied, local_variance=local_variances, is_contraction=is_contraction)
log_density, sweeps = _compiled["log_density"], _compiled["sweeps"]
invert, update_inverse = _compiled["invert"], _compiled["update_inverse"]
