"""Spatial kernels for Numba. The @njit functions are public, and callable from other people's nopython code."""

from .car import car_factor, car_logdensity, car_sample, factor, log_determinant, quadratic
from .gp import covariance, gp_covariance, gp_factor, gp_sample, pivoted
from .meanfield import car_meanfield, logit_phi
from .table import table_draw, table_sample

__all__ = [
    "car_factor",
    "car_logdensity",
    "car_meanfield",
    "car_sample",
    "covariance",
    "factor",
    "gp_covariance",
    "gp_factor",
    "gp_sample",
    "log_determinant",
    "logit_phi",
    "pivoted",
    "quadratic",
    "table_draw",
    "table_sample",
]
