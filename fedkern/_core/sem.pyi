"""Signatures: fedkern.kernels says what the arguments mean."""

from typing import Any

from numpy.typing import NDArray

def log_density(Y: NDArray[Any], coefficients: NDArray[Any], b: NDArray[Any], loglik: NDArray[Any], n_threads: int) -> None: ...
def sweeps(
    Y: NDArray[Any],
    theta: NDArray[Any],
    tau_sq: NDArray[Any],
    deviation: NDArray[Any],
    lambda_sq: NDArray[Any],
    b: NDArray[Any],
    log_step: NDArray[Any],
    temperature: NDArray[Any],
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
    deviation_out: NDArray[Any],
    lambda_sq_out: NDArray[Any],
    b_out: NDArray[Any],
    log_step_out: NDArray[Any],
    loglik: NDArray[Any],
    events: NDArray[Any],
    n_threads: int,
) -> None: ...
