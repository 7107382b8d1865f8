"""The sparse models for Numba. The @njit functions are public, and callable from other people's nopython code."""

from .moves import move, move_terms
from .scales import clipped, global_variance, half_cauchy_precision, local_variance
from .server import global_sweep, global_sweep_sums, local_sums

__all__ = [
    "clipped",
    "global_sweep",
    "global_sweep_sums",
    "global_variance",
    "half_cauchy_precision",
    "local_sums",
    "local_variance",
    "move",
    "move_terms",
]
