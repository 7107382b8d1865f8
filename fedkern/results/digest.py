"""Computes one number for a whole result: two runs gave the same bits exactly if their digests are equal."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping

import numpy as np


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Returns BLAKE2b-256 (64 hexadecimal digits) over the arrays sorted by name: name, dtype, shape, little-endian C-order
    bytes.

    Each part is preceded by its length, so that no two sets of arrays give the same bytes.

    Raises
    ------
    TypeError
        An array is of objects.
    """
    state = hashlib.blake2b(digest_size=32)
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        if array.dtype.hasobject:
            raise TypeError(f"{name}: arrays of objects have no digest")
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        for part in (name.encode(), array.dtype.str.encode(), struct.pack(f"<{array.ndim}Q", *array.shape), array.tobytes("C")):
            state.update(struct.pack("<Q", len(part)) + part)
    return state.hexdigest()
