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
def vae_gradient(
    parameters: NDArray[Any],
    theta: NDArray[Any],
    t: NDArray[Any],
    noise: NDArray[Any],
    code: NDArray[Any],
    gamma: float,
    kl_weight: float,
    gradient: NDArray[Any],
    terms: NDArray[Any],
    n_threads: int,
) -> None: ...
def vae_step(
    parameters: NDArray[Any],
    moments: NDArray[Any],
    values: NDArray[Any],
    phi: NDArray[Any],
    scale: NDArray[Any],
    indptr: Any,
    indices: Any,
    order: Any,
    rates: NDArray[Any],
    kl_weights: NDArray[Any],
    code: NDArray[Any],
    kind: int,
    rank: int,
    group: int,
    batch: int,
    gamma: float,
    clip: float,
    seed: int,
    chain: int,
    first: int,
    new_parameters: NDArray[Any],
    new_moments: NDArray[Any],
    trace: NDArray[Any],
    n_threads: int,
) -> None: ...
