"""Signatures: fedkern.kernels says what the arguments mean."""

import numpy as np

def backward(
    X: np.ndarray,
    parameters: np.ndarray,
    upstream: np.ndarray,
    sizes: np.ndarray,
    activation: int,
    grad_parameters: np.ndarray,
    grad_X: np.ndarray,
    n_threads: int,
) -> None: ...
def forward(X: np.ndarray, parameters: np.ndarray, sizes: np.ndarray, activation: int, Y: np.ndarray, n_threads: int) -> None: ...
def vae_gradient(
    parameters: np.ndarray,
    theta: np.ndarray,
    t: np.ndarray,
    noise: np.ndarray,
    code: np.ndarray,
    gamma: float,
    kl_weight: float,
    gradient: np.ndarray,
    terms: np.ndarray,
    n_threads: int,
) -> None: ...
def vae_step(
    parameters: np.ndarray,
    moments: np.ndarray,
    values: np.ndarray,
    phi: np.ndarray,
    scale: np.ndarray,
    indptr: object,
    indices: object,
    order: object,
    rates: np.ndarray,
    kl_weights: np.ndarray,
    code: np.ndarray,
    kind: int,
    rank: int,
    group: int,
    batch: int,
    gamma: float,
    clip: float,
    seed: int,
    chain: int,
    first: int,
    new_parameters: np.ndarray,
    new_moments: np.ndarray,
    trace: np.ndarray,
    n_threads: int,
) -> None: ...
