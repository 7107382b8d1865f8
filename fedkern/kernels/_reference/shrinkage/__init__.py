"""What the kernels of the sparse models mean."""
