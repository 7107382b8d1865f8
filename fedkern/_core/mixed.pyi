"""Signatures: fedkern.kernels says what the arguments mean."""

from typing import Any

from numpy.typing import NDArray

def curvature(
    points: NDArray[Any],
    X: NDArray[Any],
    Z: NDArray[Any],
    y: NDArray[Any],
    trials: Any,
    offset: Any,
    starts: NDArray[Any],
    family: int,
    nodes: int,
    value: NDArray[Any],
    gradient: NDArray[Any],
    minus_hessian: NDArray[Any],
    n_threads: int,
) -> None: ...
def values(
    points: NDArray[Any],
    X: NDArray[Any],
    Z: NDArray[Any],
    y: NDArray[Any],
    trials: Any,
    offset: Any,
    starts: NDArray[Any],
    family: int,
    nodes: int,
    value: NDArray[Any],
    n_threads: int,
) -> None: ...
