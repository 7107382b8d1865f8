"""Spatial kernels for Numba. The @njit functions are public, and callable from other people's nopython code."""

from .table import table_draw, table_sample

__all__ = ["table_draw", "table_sample"]
