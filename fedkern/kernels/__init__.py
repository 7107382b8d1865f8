"""The low-level API: plain functions on arrays, by family.

Every function takes `out=None` (allocated) or an array that is used as it is or refused, `n_threads` where work is split (the
result does not depend on it), and `backend=None` ("cpp", "numba", "cuda", "reference"; by default the one at home where the
arrays live).
"""

from __future__ import annotations

from typing import Any

from . import augmented, glm, mlp, optim, privacy, rng, sem, shrinkage, spatial
from ._record import KERNELS as KERNELS
from ._record import table as list

__all__ = ["augmented", "from_dlpack", "glm", "list", "mlp", "optim", "privacy", "rng", "sem", "shrinkage", "spatial"]


def from_dlpack(array: Any) -> Any:
    """An array of another library on a CUDA device (torch, JAX, ..) as one that the cuda backend takes. Nothing is copied.

    Parameters
    ----------
    array : an object with `__dlpack__`
        Its memory is shared: what a kernel writes into the result is written there.

    Returns
    -------
    a CuPy array

    Raises
    ------
    fedkern.errors.DeviceError
        No CuPy, no driver, or no card.
    """
    from ._cuda import device

    return device.current().xp.from_dlpack(array)
