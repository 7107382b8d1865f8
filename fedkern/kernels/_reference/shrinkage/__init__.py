"""What the kernels of the sparse models mean."""

from .moves import move, move_terms
from .scales import clipped, global_variance, half_cauchy_precision, local_variance
from .server import global_sweep, global_sweep_sums, local_sums

__all__ = [
    "clipped",
    "global_sweep",
    "global_sweep_sums",
    "global_variance",
    "half_cauchy_precision",
    "local_sums",
    "local_variance",
    "move",
    "move_terms",
]
