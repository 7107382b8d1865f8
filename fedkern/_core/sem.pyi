"""Signatures: fedkern.kernels says what the arguments mean."""

import numpy as np

def log_density(Y: np.ndarray, coefficients: np.ndarray, b: np.ndarray, loglik: np.ndarray, n_threads: int) -> None: ...
def sweeps(
    Y: np.ndarray,
    theta: np.ndarray,
    tau_sq: np.ndarray,
    deviation: np.ndarray,
    lambda_sq: np.ndarray,
    b: np.ndarray,
    log_step: np.ndarray,
    temperature: np.ndarray,
    seed: int,
    chain: int,
    client: int,
    step: int,
    n_sweeps: int,
    update: int,
    swap: bool,
    stable: bool,
    adapt: bool,
    expanded: bool,
    scale_lambda: float,
    shape: float,
    rate: float,
    deviation_out: np.ndarray,
    lambda_sq_out: np.ndarray,
    b_out: np.ndarray,
    log_step_out: np.ndarray,
    loglik: np.ndarray,
    events: np.ndarray,
    n_threads: int,
) -> None: ...
