"""Signatures: fedkern.kernels says what the arguments mean."""

import numpy as np

def bordered_factor(
    values: np.ndarray,
    indptr: np.ndarray,
    indices: np.ndarray,
    block: np.ndarray,
    factor: np.ndarray,
    rest: np.ndarray,
    n_threads: int,
) -> int: ...
def bordered_inverse(
    factor: np.ndarray, indptr: np.ndarray, indices: np.ndarray, block: np.ndarray, inverse: np.ndarray, n_threads: int
) -> None: ...
def bordered_solve(
    right: np.ndarray, factor: np.ndarray, indptr: np.ndarray, indices: np.ndarray, back: bool, solved: np.ndarray, n_threads: int
) -> None: ...
def car_factor(
    phi: np.ndarray,
    order: np.ndarray,
    factor_indptr: np.ndarray,
    factor_indices: np.ndarray,
    indptr: np.ndarray,
    indices: np.ndarray,
    form: int,
    values: np.ndarray,
    logdet: np.ndarray,
    n_threads: int,
) -> int: ...
def car_logdensity(
    theta: np.ndarray,
    phi: np.ndarray,
    indptr: np.ndarray,
    indices: np.ndarray,
    logdet: np.ndarray,
    form: int,
    lo: float,
    hi: float,
    widest: float,
    rank: int,
    value: np.ndarray,
    grad_theta: np.ndarray,
    grad_phi: np.ndarray,
    n_threads: int,
) -> None: ...
def car_sample(
    vectors: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray,
    phi: np.ndarray,
    form: int,
    seed: int,
    chain: int,
    client: int,
    step: int,
    theta: np.ndarray,
    n_threads: int,
) -> None: ...
def gp_covariance(
    x: np.ndarray, lengthscale: np.ndarray, kind: int, jitter: float, covariance: np.ndarray, n_threads: int
) -> None: ...
def gp_factor(
    x: np.ndarray, lengthscale: np.ndarray, kind: int, tolerance: float, factors: np.ndarray, residual: np.ndarray, n_threads: int
) -> None: ...
def gp_sample(
    x: np.ndarray,
    lengthscale: np.ndarray,
    kind: int,
    jitter: float,
    seed: int,
    chain: int,
    client: int,
    step: int,
    theta: np.ndarray,
    n_threads: int,
) -> int: ...
def table_sample(
    values: np.ndarray,
    scale: np.ndarray,
    indptr: object,
    indices: object,
    order: object,
    kind: int,
    rank: int,
    group: int,
    seed: int,
    chain: int,
    step: int,
    theta: np.ndarray,
    entry: np.ndarray,
    n_threads: int,
) -> None: ...
