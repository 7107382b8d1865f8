"""Signatures: fedkern.kernels says what the arguments mean."""

import numpy as np

def curvature(
    points: np.ndarray,
    X: np.ndarray,
    Z: np.ndarray,
    y: np.ndarray,
    trials: object,
    offset: object,
    starts: np.ndarray,
    upper: object,
    cuts: object,
    entry: object,
    family: int,
    nodes: int,
    value: np.ndarray,
    gradient: np.ndarray,
    minus_hessian: np.ndarray,
    n_threads: int,
) -> None: ...
def values(
    points: np.ndarray,
    X: np.ndarray,
    Z: np.ndarray,
    y: np.ndarray,
    trials: object,
    offset: object,
    starts: np.ndarray,
    upper: object,
    cuts: object,
    entry: object,
    family: int,
    nodes: int,
    value: np.ndarray,
    n_threads: int,
) -> None: ...
