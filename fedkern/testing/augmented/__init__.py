"""Makes cases of the augmented models' kernels."""
