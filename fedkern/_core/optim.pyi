"""Signatures: fedkern.kernels says what the arguments mean."""

from typing import Any

from numpy.typing import NDArray

def adagrad(
    state: NDArray[Any],
    gradient: NDArray[Any],
    learning_rate: float,
    epsilon: float,
    new_state: NDArray[Any],
    step: NDArray[Any],
    n_threads: int,
) -> None: ...
def adam(
    state: NDArray[Any],
    gradient: NDArray[Any],
    learning_rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    new_state: NDArray[Any],
    step: NDArray[Any],
    n_threads: int,
) -> None: ...
