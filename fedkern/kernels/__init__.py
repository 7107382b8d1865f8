"""The low-level API: plain functions on arrays, by family.

Every function takes `out=None` (allocated) or an array that is used as it is or refused, `n_threads` where work is split (the
result does not depend on it), and `backend=None` ("cpp", "numba", "cuda", "reference"; by default the one at home where the
arrays live). A function of one point takes it after the rows; a function of many takes `points` first. What a kernel draws is
named by `seed`, `chain`, `client` and `step`; the functions of `rng`, whose stream is the caller's, take its `key`.

Threads may call them at the same time, also in a Python without its global lock. While a call runs, no other thread may write
into its arrays, or change their shape or type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any

from . import _checks, augmented, bound, glm, mixed, mlp, multinomial, optim, privacy, rng, sem, shrinkage, spatial, survival
from ._record import KERNELS as KERNELS
from ._record import table as list

__all__ = [
    "augmented", "bind", "from_dlpack", "glm", "list", "mixed", "mlp", "multinomial", "optim", "privacy", "rng", "sem",
    "shrinkage", "spatial", "survival",
]  # fmt: skip


def __dir__() -> Sequence[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])


def _names(family: ModuleType) -> Sequence[str]:
    """Returns the names of a family of kernels, for completion."""
    return sorted([*family.__all__, *(name for name in vars(family) if name.startswith("__"))])


for _family in (augmented, glm, mixed, mlp, multinomial, optim, privacy, rng, sem, shrinkage, spatial, survival):
    vars(_family)["__dir__"] = partial(_names, _family)


def bind(
    kernel: str, inputs: Mapping[str, Any], varying: Sequence[str], n_threads: int = 1, **scalars: Any
) -> Callable[..., tuple[Any, ...]]:
    """Checks the arguments of a kernel once, and returns a call for many uses with equal sizes and types.

    The arguments that do not vary are taken from here in every call. Their arrays are not copied, and must stay where they are. A
    call refuses what the public function refuses, in its words.

    A call is compiled, and compares its arguments only with types, shapes and bounds, where arrays vary that go to the kernel as
    they are, numbers that may be all that is positive and finite, and the words and keys of random numbers (`step`, `client`,
    `key`, `seed` ..). Else each call is one of the public function: where another number varies (`clip`, which may be inf and
    must go with `grid`), where the function looks into arrays or at what was computed (`mixed`, `sem.sweeps`,
    `spatial.car_factor` ..), or makes arrays of its arguments (a `q` that all chains share).

    Parameters
    ----------
    kernel : str
        Its name in `kernels.list()`, as "glm.clipped_grad_sum".
    inputs : mapping
        Arrays of any call, by their names in the public function; those with a default may be left out.
    varying : sequence of str
        The arguments of each call, in this order. Arrays before numbers are faster.
    n_threads : int
        No result depends on it.
    scalars
        As the public function takes them; those with a default may be left out.

    Returns
    -------
    function
        (arguments that vary) -> tuple of newly allocated results; a value that the kernel returns beside its arrays comes first.

    Raises
    ------
    TypeError, ValueError
        Here and in a call, the errors of the public function; a name in `varying` that is no argument, or stands there twice. In
        a call also an array of another shape, and, where it is compiled, a bound array whose memory, shape or type has changed. A
        length that no other array has, as that of `rows` in `glm.clipped_grad_sum`, may be another.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern import kernels
    >>> X, y, mu, log_sigma = np.ones((1, 2)), np.ones(1), np.zeros(2), np.zeros(2)
    >>> data = {"X": X, "y": y, "mu": mu, "log_sigma": log_sigma}
    >>> vary = ("mu", "log_sigma", "step")
    >>> step = kernels.bind("glm.clipped_grad_sum", data, vary, family="gaussian", clip=1.0, seed=1, step=0)
    >>> clipped, total = step(mu, log_sigma, 7)
    >>> total.shape
    (4,)
    """
    if kernel not in KERNELS:
        raise ValueError(f"kernels.bind: no kernel {kernel!r}; kernels.list() has their names")
    return bound.bind_kernel(KERNELS[kernel], inputs, varying, n_threads, scalars)


def from_dlpack(array: Any) -> Any:
    """Returns an array of another library (torch, JAX, ..) as one that kernels take, in the same memory.

    Kernels take most arrays of the CPU as they are, at the price of a slower check (docs/how-to/arrays.md). Call this once where
    an array is used many times, where a function looks at an array before its kernel does, and for every array of a CUDA device.

    Parameters
    ----------
    array : an object with `__dlpack__` and `__dlpack_device__`
        Its memory is shared: a kernel that writes into the result writes there.

    Returns
    -------
    a NumPy array, or for an array of a CUDA device a CuPy array

    Raises
    ------
    TypeError
        It lies on another kind of device, or its library does not hand it out: because it asks for a gradient, for instance.
    fedkern.errors.DeviceError
        It lies on a CUDA device, and there is no CuPy, no driver, or no card.

    Examples
    --------
    >>> from fedkern import kernels
    >>> import jax.numpy as jnp
    >>> kernels.from_dlpack(jnp.arange(3, dtype="float32") / 2)
    array([0. , 0.5, 1. ], dtype=float32)
    """
    who = "kernels.from_dlpack: array"
    if not _checks.exports(array):
        raise TypeError(f"{who} has no __dlpack__ and __dlpack_device__, got {type(array).__name__}; give a NumPy array")
    if _checks.device_of(array, who) != _checks.CUDA:
        return _checks.as_numpy(array, who)
    from ._cuda import device

    return device.current().xp.from_dlpack(array)
