"""Spatial kernels for Numba. The @njit functions are public, and callable from other people's nopython code."""

from .car import car_factor, car_logdensity, car_sample, factor, log_determinant, quadratic
from .gp import covariance, gp_covariance, gp_factor, gp_sample, pivoted
from .table import table_draw, table_sample

__all__ = [
    "car_factor",
    "car_logdensity",
    "car_sample",
    "covariance",
    "factor",
    "gp_covariance",
    "gp_factor",
    "gp_sample",
    "log_determinant",
    "pivoted",
    "quadratic",
    "table_draw",
    "table_sample",
]
