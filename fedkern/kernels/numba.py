"""The @njit functions of the kernels, for other people's nopython code: `from fedkern.kernels.numba import rng`."""

from __future__ import annotations

from ._numba import augmented, glm, mlp, optim, privacy, rng, sem, shrinkage, spatial

__all__ = ["augmented", "glm", "mlp", "optim", "privacy", "rng", "sem", "shrinkage", "spatial"]
