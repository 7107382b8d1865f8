"""Signatures: fedkern.kernels says what the arguments mean."""

from typing import Any

from numpy.typing import NDArray

def table_sample(
    values: NDArray[Any],
    scale: NDArray[Any],
    indptr: Any,
    indices: Any,
    order: Any,
    kind: int,
    rank: int,
    group: int,
    seed: int,
    chain: int,
    step: int,
    theta: NDArray[Any],
    entry: NDArray[Any],
    n_threads: int,
) -> None: ...
