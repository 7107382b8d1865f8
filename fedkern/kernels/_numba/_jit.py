"""Compiles the functions of this folder: one decorator for each kind, so that the flags are written once.

======================== ====================================== ==============================
                         x / 0 raises ZeroDivisionError         x / 0 is inf or NaN
======================== ====================================== ==============================
called by others         `scalar`                               `scalar_ieee`
a loop that Python calls `loop`: others may run beside it       `loop_ieee`
======================== ====================================== ==============================

`prepares` is for the functions around the loops, which make arrays of one layout. Python runs them as they are, since a
compilation for each layout of their arguments would take seconds; in nopython code the same lines are compiled.

The check of a divisor costs a branch, and keeps LLVM from making vectors of a loop; `vector` also lets it reorder or fuse what is
named. Which decorator a function has is part of its bits.

Nothing is cached on the disk. Numba would look at the file of the outermost function alone, so that a change of a function that
it calls, or of the streams' numbers in `_core`, would leave old code in use.
"""

from inspect import unwrap
from types import FunctionType
from typing import Any

import numpy as np
from numba import njit
from numba.extending import overload, register_jitable

# Written out: a function that says nothing of `fastmath` takes that of its first caller, and keeps it for all others. With it a
# row with a NaN would pass the test of a clip.
EXACT: Any = {"fastmath": False}
scalar = njit(cache=False, fastmath=False)
scalar_ieee = njit(cache=False, error_model="numpy", fastmath=False)
loop = njit(cache=False, nogil=True, fastmath=False)
loop_ieee = njit(cache=False, nogil=True, error_model="numpy", fastmath=False)
prepares = register_jitable(fastmath=False)


def copied(array):
    """Returns a C-contiguous copy."""
    return np.array(array, order="C")


@overload(copied, jit_options=EXACT)
def _copied(array):
    def copy(array):
        out = np.empty(array.shape, array.dtype)
        out[...] = array
        return out

    return copy


def vector(*fastmath, **flags):
    """Compiles a short loop that becomes vectors: "contract" fuses a * b + c, "reassoc" reorders sums."""
    return njit(cache=False, fastmath=set(fastmath), **flags)


def with_meanings(function, known):
    """Returns a Python function in which names have other meanings."""
    plain = unwrap(function)
    return FunctionType(plain.__code__, known, plain.__name__, plain.__defaults__)


def compiled(text, **known):
    """Returns the names of a module that other backends run as Python, its functions compiled: `known` has what differs here."""
    names = {**vars(text), **known}
    for name, function in vars(text).items():
        if isinstance(function, FunctionType) and function.__module__ == text.__name__ and name not in known:
            names[name] = scalar_ieee(with_meanings(function, names))
    return names
