"""The low-level API: plain functions on arrays, by family.

Every function takes `out=None` (allocated) or an array that is used as it is or refused, `n_threads` where work is split (the
result does not depend on it), and `backend=None` ("cpp", "numba", "cuda", "reference"; by default the one at home where the
arrays live).
"""

from __future__ import annotations

from . import augmented, glm, mlp, optim, privacy, rng, sem, shrinkage, spatial
from ._record import KERNELS as KERNELS
from ._record import table as list

__all__ = ["augmented", "glm", "list", "mlp", "optim", "privacy", "rng", "sem", "shrinkage", "spatial"]
