"""Gives the @njit functions of the kernels to other people's nopython code: `from fedkern.kernels.numba import rng`."""

from __future__ import annotations

from ._record import require_numba

require_numba()

from ._numba import glm, mixed, privacy, rng, sem, shrinkage  # noqa: E402 (an ImportError that names the extra comes first)

__all__ = ["glm", "mixed", "privacy", "rng", "sem", "shrinkage"]
