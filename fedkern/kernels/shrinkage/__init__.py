"""Hierarchical sparse models (sparse.md): regressions y_k = X_k theta_k + e at sites k, theta_k = theta + deviation_k.

    deviation_kj ~ N(0, lambda_kj^2 tau_j^2),  lambda_kj ~ C+(0, scale_lambda),  tau_j ~ C+(0, scale_tau)

All arrays are float64; the first axis of a state is the chain, and several chains in one call give the bits of each alone. A
kernel changes none of its inputs; an input that is the same for all chains may be a broadcast view. Random numbers are named by
(seed, chain, client, step), so that results depend neither on `n_threads` nor on what else travels in a call.
"""

from __future__ import annotations

from .local import (
    factor_of_moments,
    gaussian_posterior_draw,
    local_sweeps,
    local_sweeps_batched,
    local_sweeps_gram,
    raise_fault,
)
from .moves import move, move_terms
from .rows import Patterns, imputed_sweeps, logistic_sweeps, missing_patterns
from .server import global_sweep, global_sweep_sums, local_sums

__all__ = [
    "Patterns",
    "factor_of_moments",
    "gaussian_posterior_draw",
    "global_sweep",
    "global_sweep_sums",
    "imputed_sweeps",
    "local_sums",
    "local_sweeps",
    "local_sweeps_batched",
    "local_sweeps_gram",
    "logistic_sweeps",
    "missing_patterns",
    "move",
    "move_terms",
    "raise_fault",
]
