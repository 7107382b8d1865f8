"""Compiles the functions of this folder: one decorator for each kind, so that the flags are written once.

======================== ====================================== ==============================
                         x / 0 raises ZeroDivisionError         x / 0 is inf or NaN
======================== ====================================== ==============================
called by others         `scalar`                               `scalar_ieee`
a loop that Python calls `loop`: others may run beside it       `loop_ieee`
======================== ====================================== ==============================

The check of a divisor costs a branch, and keeps LLVM from making vectors of a loop; `vector` also lets it reorder or fuse what is
named. Which decorator a function has is part of its bits.

Nothing is cached on the disk. Numba would look at the file of the outermost function alone, so that a change of a function that
it calls, or of the streams' numbers in `_core`, would leave old code in use.
"""

from numba import njit

scalar = njit(cache=False)
scalar_ieee = njit(cache=False, error_model="numpy")
loop = njit(cache=False, nogil=True)
loop_ieee = njit(cache=False, nogil=True, error_model="numpy")


def loop_of(signature):
    """Returns the decorator of a loop that is compiled at once, for one signature."""
    return njit(signature, cache=False, nogil=True)


def vector(*fastmath, **flags):
    """Compiles a short loop that becomes vectors: "contract" fuses a * b + c, "reassoc" reorders sums."""
    return njit(cache=False, fastmath=set(fastmath), **flags)
