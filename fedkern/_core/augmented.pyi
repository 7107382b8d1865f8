"""Signatures: fedkern.kernels says what the arguments mean."""

from typing import Any

from numpy.typing import NDArray

def amortised_draw(
    H: NDArray[Any],
    w: NDArray[Any],
    tau: NDArray[Any],
    extra: NDArray[Any],
    psi: NDArray[Any],
    rho: float,
    hidden: NDArray[Any],
    g: NDArray[Any],
    z: NDArray[Any],
    n_threads: int,
) -> None: ...
def amortised_gradient(
    H: NDArray[Any],
    g: NDArray[Any],
    z: NDArray[Any],
    tau: NDArray[Any],
    extra: NDArray[Any],
    psi: NDArray[Any],
    message: NDArray[Any],
    own: Any,
    rho: float,
    hidden: NDArray[Any],
    path: bool,
    grad_w: NDArray[Any],
    cotangent: NDArray[Any],
    grad_psi: NDArray[Any],
    n_threads: int,
) -> None: ...
def mean_field_draw(
    H: NDArray[Any],
    w: NDArray[Any],
    tau: NDArray[Any],
    mean: NDArray[Any],
    log_sd: NDArray[Any],
    g: NDArray[Any],
    z: NDArray[Any],
    n_threads: int,
) -> None: ...
def mean_field_gradient(
    H: NDArray[Any],
    g: NDArray[Any],
    z: NDArray[Any],
    tau: NDArray[Any],
    log_sd: NDArray[Any],
    message: NDArray[Any],
    own: Any,
    rho: float,
    path: bool,
    grad_w: NDArray[Any],
    cotangent: NDArray[Any],
    grad_mean: NDArray[Any],
    grad_log_sd: NDArray[Any],
    n_threads: int,
) -> None: ...
