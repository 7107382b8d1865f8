"""The sparse models for Numba. The @njit functions are public, and callable from other people's nopython code."""

from .scales import clipped, global_variance, half_cauchy_precision, local_variance

__all__ = ["clipped", "global_variance", "half_cauchy_precision", "local_variance"]
