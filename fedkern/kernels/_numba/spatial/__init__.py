"""Spatial kernels for Numba. The @njit functions are public, and callable from other people's nopython code."""

from .car import car_factor, car_logdensity, car_sample, factor, log_determinant, quadratic
from .table import table_draw, table_sample

__all__ = [
    "car_factor",
    "car_logdensity",
    "car_sample",
    "factor",
    "log_determinant",
    "quadratic",
    "table_draw",
    "table_sample",
]
