"""Signatures: fedkern.kernels says what the arguments mean."""

import numpy as np

def cox_curvature(
    points: np.ndarray,
    X: np.ndarray,
    weights: object,
    offset: object,
    first: np.ndarray,
    ends: np.ndarray,
    deaths: np.ndarray,
    until: object,
    value: np.ndarray,
    gradient: np.ndarray,
    minus_hessian: np.ndarray,
    n_threads: int,
) -> None: ...
def cox_values(
    points: np.ndarray,
    X: np.ndarray,
    weights: object,
    offset: object,
    first: np.ndarray,
    ends: np.ndarray,
    deaths: np.ndarray,
    until: object,
    value: np.ndarray,
    n_threads: int,
) -> None: ...
