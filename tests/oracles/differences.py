"""Derivatives by differences of fourth order."""

import numpy as np


def four_point(f, x, step=1e-3):
    """The gradient of f at x (n,)."""
    out = np.empty(len(x))
    for i in range(len(x)):
        e = np.zeros(len(x))
        e[i] = step
        out[i] = (8 * (f(x + e) - f(x - e)) - (f(x + 2 * e) - f(x - 2 * e))) / (12 * step)
    return out
