"""What the spatial kernels mean."""

from .car import car_factor, car_logdensity, car_sample
from .gp import gp_covariance, gp_factor, gp_sample
from .meanfield import car_meanfield
from .table import table_sample

__all__ = [
    "car_factor",
    "car_logdensity",
    "car_meanfield",
    "car_sample",
    "gp_covariance",
    "gp_factor",
    "gp_sample",
    "table_sample",
]
