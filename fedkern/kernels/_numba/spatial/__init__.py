"""Spatial kernels for Numba. The @njit functions are public, and callable from other people's nopython code."""

from .car import *
from .gp import *
from .meanfield import *
from .table import *
