"""Computes the sparse models for Numba. The @njit functions are public, and callable from other people's nopython code."""

from .local import *
from .moves import *
from .rows import *
from .scales import *
from .server import *
