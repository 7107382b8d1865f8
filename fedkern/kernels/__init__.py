"""The low-level API: plain functions on arrays, by family.

Every function takes `out=None` (allocated) or an array that is used as it is or refused, `n_threads` where work is split (the
result does not depend on it), and `backend=None` ("cpp", "numba", "cuda", "reference"; by default the one at home where the
arrays live).

Threads may call them at the same time, also in a Python without its global lock. While a call runs, no other thread may write
into its arrays, or change their shape or type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import augmented, glm, mixed, mlp, multinomial, optim, privacy, rng, sem, shrinkage, spatial, survival
from ._record import KERNELS as KERNELS
from ._record import table as list

__all__ = [
    "augmented", "bind", "from_dlpack", "glm", "list", "mixed", "mlp", "multinomial", "optim", "privacy", "rng", "sem",
    "shrinkage", "spatial", "survival",
]  # fmt: skip


def bind(
    kernel: str, inputs: Mapping[str, Any], varying: Sequence[str], n_threads: int = 1, **scalars: Any
) -> Callable[..., tuple[Any, ...]]:
    """Checks the arguments of a kernel once, and returns a call for many uses with equal sizes and types.

    The arguments that do not vary are taken from here in every call. Their arrays are not copied, and must stay where they are. A
    call compares its arguments only with those given here: types, shapes and bounds.

    Parameters
    ----------
    kernel : str
        Its name in `kernels.list()`, as "glm.clipped_grad_sum".
    inputs : mapping
        All arrays of the kernel's record (`kernels.KERNELS[kernel].inputs`) of any call, by name; those that are left out are
        None.
    varying : sequence of str
        The arguments of each call, in this order: names of inputs, then names of scalars that are positive, or whole numbers
        below 2^32.
    n_threads : int
        No result depends on it.
    scalars
        As the public function takes them; those with a default may be left out.

    Returns
    -------
    function
        (arguments that vary) -> tuple of newly allocated outputs; a value that the kernel returns beside its arrays comes first.
        Unlike the public functions it raises no error for a draw that is not finite; `shrinkage` has bound calls that do.

    Raises
    ------
    TypeError, ValueError
        Here, the errors of the public function; in a call, an array of another type or shape, or a bound array whose memory,
        shape or type has changed. A length that no other array has, as that of `rows` in `glm.clipped_grad_sum`, may be another.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern import kernels
    >>> X, y, mu, log_sigma = np.ones((1, 2)), np.ones(1), np.zeros(2), np.zeros(2)
    >>> data = {"X": X, "y": y, "mu": mu, "log_sigma": log_sigma}
    >>> step = kernels.bind("glm.clipped_grad_sum", data, ("mu", "log_sigma", "step"), family="gaussian", clip=1.0, key=1, step=0)
    >>> clipped, total = step(mu, log_sigma, 7)
    >>> total.shape
    (4,)
    """
    if kernel not in KERNELS:
        raise ValueError(f"kernels.bind: no kernel {kernel!r}; kernels.list() has their names")
    record = KERNELS[kernel]
    known, keywords = [a.name for a in record.inputs], {s.keyword: s.default for s in record.scalars}
    if unknown := [name for name in (*inputs, *scalars) if name not in known and name not in keywords]:
        raise TypeError(f"{kernel}: no argument {unknown[0]!r}; there are {', '.join([*known, *keywords])}")
    given = {name: default for name, default in keywords.items() if default is not ...} | scalars
    if missing := [name for name in keywords if name not in given]:
        raise TypeError(f"{kernel}: {missing[0]} is missing")
    return record.bind([inputs.get(name) for name in known], varying, n_threads, **given)


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
    from . import _dlpack

    who = "kernels.from_dlpack: array"
    if not _dlpack.exports(array):
        raise TypeError(f"{who} has no __dlpack__ and __dlpack_device__, got {type(array).__name__}; give a NumPy array")
    if _dlpack.device_of(array, who) != _dlpack.CUDA:
        return _dlpack.as_numpy(array, who)
    from ._cuda import device

    return device.current().xp.from_dlpack(array)
