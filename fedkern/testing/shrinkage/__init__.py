"""Cases of the kernels of the sparse models."""
