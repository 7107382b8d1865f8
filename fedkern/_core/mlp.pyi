"""Signatures: fedkern.kernels says what the arguments mean."""

from typing import Any

from numpy.typing import NDArray

def backward(
    X: NDArray[Any],
    parameters: NDArray[Any],
    upstream: NDArray[Any],
    sizes: NDArray[Any],
    activation: int,
    grad_parameters: NDArray[Any],
    grad_X: NDArray[Any],
    n_threads: int,
) -> None: ...
def forward(
    X: NDArray[Any], parameters: NDArray[Any], sizes: NDArray[Any], activation: int, Y: NDArray[Any], n_threads: int
) -> None: ...
