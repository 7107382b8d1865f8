"""Signatures: fedkern.kernels says what the arguments mean."""

from typing import Any

from numpy.typing import NDArray

def car_factor(
    phi: NDArray[Any],
    order: NDArray[Any],
    factor_indptr: NDArray[Any],
    factor_indices: NDArray[Any],
    indptr: NDArray[Any],
    indices: NDArray[Any],
    form: int,
    values: NDArray[Any],
    logdet: NDArray[Any],
    n_threads: int,
) -> int: ...
def car_logdensity(
    theta: NDArray[Any],
    phi: NDArray[Any],
    indptr: NDArray[Any],
    indices: NDArray[Any],
    logdet: NDArray[Any],
    form: int,
    lo: float,
    hi: float,
    widest: float,
    rank: int,
    value: NDArray[Any],
    grad_theta: NDArray[Any],
    grad_phi: NDArray[Any],
    n_threads: int,
) -> None: ...
def car_sample(
    vectors: NDArray[Any],
    values: NDArray[Any],
    weights: NDArray[Any],
    phi: NDArray[Any],
    form: int,
    seed: int,
    chain: int,
    client: int,
    step: int,
    theta: NDArray[Any],
    n_threads: int,
) -> None: ...
def gp_covariance(
    x: NDArray[Any], lengthscale: NDArray[Any], kind: int, jitter: float, covariance: NDArray[Any], n_threads: int
) -> None: ...
def gp_factor(
    x: NDArray[Any],
    lengthscale: NDArray[Any],
    kind: int,
    tolerance: float,
    factors: NDArray[Any],
    residual: NDArray[Any],
    n_threads: int,
) -> None: ...
def gp_sample(
    x: NDArray[Any],
    lengthscale: NDArray[Any],
    kind: int,
    jitter: float,
    seed: int,
    chain: int,
    client: int,
    step: int,
    theta: NDArray[Any],
    n_threads: int,
) -> int: ...
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
