"""Cases of the kernels of the sparse models."""

from .moves import move, move_terms
from .server import global_sweep, global_sweep_sums, local_sums

__all__ = ["global_sweep", "global_sweep_sums", "local_sums", "move", "move_terms"]
