"""Signatures: fedkern.kernels says what the arguments mean."""

from typing import Any

from numpy.typing import NDArray

def clip_sum(rows: NDArray[Any], bound: float, out: NDArray[Any], n_threads: int) -> int: ...
