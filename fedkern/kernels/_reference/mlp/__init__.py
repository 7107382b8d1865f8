"""What the network kernels mean."""
