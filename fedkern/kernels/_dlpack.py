"""Takes arrays of other libraries (torch, JAX, ..) in this machine's memory, by the DLPack protocol and without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np

CPU, CUDA = 1, 2  # numbers of the DLPack protocol; of memory that the host reaches all others are refused


def exports(value: object) -> bool:
    """Tells whether an object hands out its memory by the protocol."""
    return hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__")


def device_of(value: Any, who: str) -> int:
    """Returns the kind of device on which an array lies; TypeError, which begins with `who`, where it does not say so."""
    try:
        return int(value.__dlpack_device__()[0])
    except Exception as error:
        raise TypeError(f"{who}: {_kind(value)} does not tell its device ({_why(error)}); give a NumPy array") from error


def as_numpy(value: Any, who: str) -> np.ndarray:
    """Returns a NumPy array in the memory of another library's array.

    Parameters
    ----------
    value : an object with `__dlpack__` and `__dlpack_device__`
    who : the beginning of an error's text

    Raises
    ------
    TypeError
        It lies on a device, or NumPy can't take it: it has a type that NumPy has not, or asks for a gradient.
    """
    device = device_of(value, who)
    if device != CPU:
        remedy = "kernels.from_dlpack makes a CuPy array of it, or copy it to this machine's memory first"
        remedy = remedy if device == CUDA else "copy it to this machine's memory first"
        raise TypeError(f"{who} lies on another device than the CPU (DLPack's number {device}): {remedy}")
    try:
        return np.from_dlpack(value)
    except Exception as error:
        raise TypeError(f"{who}: {_kind(value)} gives no array ({_why(error)}); give a NumPy array") from error


def _kind(value: object) -> str:
    return f"{type(value).__module__.partition('.')[0]}.{type(value).__name__}"


def _why(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
