"""Makes cases of the spatial kernels."""
