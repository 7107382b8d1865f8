"""Cases of the spatial kernels."""
