"""What the kernels of the sparse models mean."""

from .local import gaussian_posterior_draw, local_sweeps, local_sweeps_batched
from .moves import move, move_terms
from .rows import imputed_sweeps, logistic_sweeps
from .scales import clipped, global_variance, half_cauchy_precision, local_variance
from .server import global_sweep, global_sweep_sums, local_sums

__all__ = [
    "clipped",
    "gaussian_posterior_draw",
    "global_sweep",
    "global_sweep_sums",
    "global_variance",
    "half_cauchy_precision",
    "imputed_sweeps",
    "local_sums",
    "local_sweeps",
    "local_sweeps_batched",
    "local_variance",
    "logistic_sweeps",
    "move",
    "move_terms",
]
