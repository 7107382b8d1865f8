"""What the machine can do at best, as calls to be timed beside a kernel."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fedkern import _core


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


EXPONENTIALS = """
#include "fedkern/math.hpp"
template <class T> static void all(const T *x, T *out, long n) {
    for (long i = 0; i < n; ++i) out[i] = fedkern::math::exp(x[i]);
}
extern "C" void exp_f8(const double *__restrict x, double *__restrict out, long n) { all(x, out, n); }
extern "C" void exp_f4(const float *__restrict x, float *__restrict out, long n) { all(x, out, n); }
"""


@cache
def _library() -> ctypes.CDLL | None:
    """Compiles the exponential of `math.hpp` for our level of instructions; None without a compiler."""
    if (compiler := shutil.which("c++") or shutil.which("g++")) is None:
        return None
    level = {"avx2": ["-march=x86-64-v3"], "avx512": ["-march=x86-64-v4", "-mprefer-vector-width=512"]}.get(_core.isa(), [])
    flags = ["-std=c++20", "-O3", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math", f"-DFEDKERN_ISA={_core.isa()}"]
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "exponentials.cpp", Path(folder) / "exponentials.so"
        source.write_text(EXPONENTIALS)
        include = Path(__file__).parents[2] / "csrc" / "include"
        subprocess.run([compiler, *flags, *level, f"-I{include}", source, "-o", library], check=True)
        return ctypes.CDLL(str(library))


def exponentials(n: int, dtype: str = "f8") -> Callable[[], Any]:
    """n exponentials in the cache, by our own `exp` at the level of the kernels. A tanh cannot cost less.

    NumPy's are vectorised with AVX-512 alone: below it they are no floor. They are what is left without a C++ compiler.
    """
    x = np.linspace(-2, 2, min(n, 1 << 14)).astype(dtype)
    out, times = np.empty_like(x), -(-n // max(len(x), 1))
    library = _library()
    if library is None:
        return lambda: [np.exp(x, out=out) for _ in range(times)]
    function = library.exp_f8 if x.dtype.itemsize == 8 else library.exp_f4
    arguments = ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(out.ctypes.data), ctypes.c_long(len(x))
    function(*arguments)
    np.testing.assert_allclose(out, np.exp(x), rtol=1e-6 if x.dtype.itemsize == 4 else 1e-14)

    def call() -> None:
        for _ in range(times):
            function(*arguments)

    call.kept = x, out  # type: ignore[attr-defined]  # the arguments are addresses
    return call
