"""What the kernels of the sparse models mean."""

from .scales import clipped, global_variance, half_cauchy_precision, local_variance

__all__ = ["clipped", "global_variance", "half_cauchy_precision", "local_variance"]
