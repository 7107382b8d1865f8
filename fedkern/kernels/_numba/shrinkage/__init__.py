"""Computes the sparse models for Numba. The @njit functions are public, and callable from other people's nopython code."""

from . import local, moves, rows, scales, server
from .local import *
from .moves import *
from .rows import *
from .scales import *
from .server import *

__all__ = [*local.__all__, *moves.__all__, *rows.__all__, *scales.__all__, *server.__all__]
