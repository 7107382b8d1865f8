"""What the spatial kernels mean."""
