"""Signatures: fedkern.kernels says what the arguments mean."""

import numpy as np

def adagrad(
    state: np.ndarray,
    gradient: np.ndarray,
    learning_rate: float,
    epsilon: float,
    new_state: np.ndarray,
    step: np.ndarray,
    n_threads: int,
) -> None: ...
def adam(
    state: np.ndarray,
    gradient: np.ndarray,
    learning_rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    new_state: np.ndarray,
    step: np.ndarray,
    n_threads: int,
) -> None: ...
