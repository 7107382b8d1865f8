"""What the client's kernels of the augmented models mean."""
