"""Gives the functions of the Numba backend to other people's nopython code: `from fedkern.kernels.numba import rng`.

Nopython code calls the public functions (`kernels.glm.loglik_grad`, ..) under their names, with their arguments and checks. Here
are the functions below them. Those that bear a kernel's name take the arguments of its record, in its order
(`kernels.KERNELS["glm.loglik_grad"].arguments`): arrays for the results, numbers for choices; they check nothing. The others are
pieces, such as one draw or one row.
"""

from __future__ import annotations

from ._record import require_numba

require_numba()

from ._numba import glm, mixed, privacy, rng, sem, shrinkage  # noqa: E402 (an ImportError that names the extra comes first)

__all__ = ["glm", "mixed", "privacy", "rng", "sem", "shrinkage"]
