"""Cases of the kernels of the sparse models."""

from __future__ import annotations

from .local import gaussian_posterior_draw, local_sweeps, local_sweeps_batched
from .moves import move, move_terms
from .rows import imputed_sweeps, logistic_sweeps
from .server import global_sweep, global_sweep_sums, local_sums

__all__ = [
    "gaussian_posterior_draw",
    "global_sweep",
    "global_sweep_sums",
    "imputed_sweeps",
    "local_sums",
    "local_sweeps",
    "local_sweeps_batched",
    "logistic_sweeps",
    "move",
    "move_terms",
]
