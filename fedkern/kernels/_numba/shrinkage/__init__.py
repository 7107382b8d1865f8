"""Computes the sparse models for Numba. The @njit functions are public, and callable from other people's nopython code."""

from . import local, rows, server
from .local import *
from .rows import *
from .server import *

__all__ = [*local.__all__, *rows.__all__, *server.__all__]
