"""What the machine can do at best, as calls to be timed beside a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def write(array: np.ndarray) -> Callable[[], Any]:
    """Writes every byte of an array once."""
    return lambda: array.fill(1)


def read(array: np.ndarray) -> Callable[[], Any]:
    """Reads every byte of a contiguous array once. A maximum over 64-bit words is the fastest reader that NumPy has."""
    words = array.reshape(-1).view(np.int64)
    return words.max


def multiply(n: int, dtype: str = "f8") -> Callable[[], Any]:
    """2 n^3 operations of a matrix product, the highest rate of floating-point arithmetic."""
    a, out = np.ones((n, n), dtype), np.empty((n, n), dtype)
    return lambda: np.matmul(a, a, out=out)


def copy(array: np.ndarray) -> Callable[[], Any]:
    """Reads every byte of an array and writes as many."""
    out = np.empty_like(array)
    return lambda: np.copyto(out, array)


def exponentials(n: int, dtype: str = "f8") -> Callable[[], Any]:
    """n exponentials in the cache: NumPy's are vectorised. A tanh cannot cost less."""
    x = np.linspace(-2, 2, min(n, 1 << 14)).astype(dtype)
    out, times = np.empty_like(x), -(-n // max(len(x), 1))

    def call() -> None:
        for _ in range(times):
            np.exp(x, out=out)

    return call
