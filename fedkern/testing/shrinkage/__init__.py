"""Makes cases of the kernels of the sparse models."""
